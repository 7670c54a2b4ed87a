//! The part of a crate's manifest that arrows need.

use std::collections::BTreeSet;

/// Returns the name of the crate; `None` of a manifest that is only a workspace's.
pub(super) fn name(text: &str) -> Option<String> {
    let (mut section, mut found) = ("", None);
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[package]"
            && let Some(value) = line.strip_prefix("name = ")
        {
            found = Some(value.trim_matches('"').to_owned());
        }
    }
    found
}

/// Returns what the crate is built with, of whatever origin, tests aside.
pub(super) fn needs(text: &str) -> BTreeSet<String> {
    let (mut is_dependencies, mut needs) = (false, BTreeSet::new());
    for line in text.lines() {
        if line.starts_with('[') {
            let is_for_tests = line.contains("dev-dependencies") || line.contains("workspace");
            is_dependencies = line.ends_with("dependencies]") && !is_for_tests;
        } else if is_dependencies
            && !line.starts_with('#')
            && let Some((name, _)) = line.split_once(['=', '.'])
        {
            needs.insert(name.trim().to_owned());
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::{name, needs};

    #[test]
    fn dependencies_count_and_those_of_tests_do_not() {
        let text = "[package]\nname = \"a\"\n[dependencies]\n# Why.\nb = { path = \"x\" }\n\
                    c.workspace = true\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n\
                    [dev-dependencies]\ne = \"1\"\n[workspace.dependencies]\nf = \"1\"\n";
        assert_eq!(name(text).as_deref(), Some("a"));
        assert_eq!(needs(text).into_iter().collect::<Vec<_>>(), ["b", "c", "d"]);
    }
}
