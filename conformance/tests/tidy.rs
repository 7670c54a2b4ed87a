//! The house rules that a program can check.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// How many lines a file may have, its tests not counted.
const MAX_FILE_LINES: usize = 400;

/// How many columns a line may have.
const MAX_COLUMNS: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// Every file of ours with one of these extensions, and its text.
fn files(extensions: &[&str]) -> Vec<(PathBuf, String)> {
    fn walk(
        folder: &Path,
        extensions: &[&str],
        found: &mut Vec<(PathBuf, String)>,
    ) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if path.is_dir() {
                walk(&path, extensions, found)?;
            } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted))
            {
                let text = fs::read_to_string(&path)?;
                found.push((path, text));
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    walk(&root(), extensions, &mut found).expect("the checkout can be read");
    assert!(found.len() > 3, "the checkout is not where it should be: {found:?}");
    found
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs")
}

/// What breaks a rule: a place, and what is wrong there.
fn none(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn files_are_short() {
    let mut broken = Vec::new();
    for (path, text) in files(&["rs"]) {
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        if lines > MAX_FILE_LINES && !is_test(&path) {
            broken.push(format!("{}: {lines} lines", path.display()));
        }
    }
    none(&broken);
}

#[test]
fn lines_are_short() {
    let mut broken = Vec::new();
    // Tests compare with whole lines of output, which are as long as they are.
    for (path, text) in files(&["rs"]).into_iter().filter(|(path, _)| !is_test(path)) {
        for (number, line) in text.lines().enumerate() {
            // A link cannot be broken.
            if line.chars().count() > MAX_COLUMNS && !line.contains("https://") {
                broken.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    none(&broken);
}

#[test]
fn every_file_says_what_it_is_for() {
    let mut broken = Vec::new();
    for (path, text) in files(&["rs"]) {
        if !text.starts_with("//! ") && !text.starts_with("#![doc") {
            broken.push(path.display().to_string());
        }
    }
    none(&broken);
}

/// The text of an error is whole: it says the cause, too, so that whoever prints the chain of
/// `source()` reads nothing twice. Only an error that is nothing but another one passes its sources
/// on.
#[test]
fn errors_have_no_source_that_their_text_has_told() {
    let mut broken = Vec::new();
    let marks = ["from", "source"].map(|name| format!("#[{name}]"));
    for (path, text) in files(&["rs"]) {
        let mut transparent = false;
        for (number, line) in text.lines().enumerate() {
            if let Some(said) = line.trim_start().strip_prefix("#[error(") {
                transparent = said.starts_with("transparent");
            }
            if marks.iter().any(|mark| line.contains(mark)) && !transparent {
                broken.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    none(&broken);
}

#[test]
fn nothing_is_left_for_later() {
    let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat()];
    let mut broken = Vec::new();
    for (path, text) in files(&["rs", "toml", "md"]) {
        for (number, line) in text.lines().enumerate() {
            let documented = path.ends_with("CONTRIBUTING.md");
            if marks.iter().any(|mark| line.contains(mark.as_str())) && !documented {
                broken.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    none(&broken);
}

#[test]
fn every_dependency_says_what_it_is_for() {
    let mut broken = Vec::new();
    for (path, text) in files(&["toml"]) {
        let (mut section, mut previous) = ("", "");
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            } else if section.ends_with("dependencies]")
                && section != "[workspace.dependencies]"
                && line.contains(" = ")
                && !previous.starts_with('#')
            {
                broken.push(format!("{}: {line}", path.display()));
            }
            previous = line;
        }
    }
    none(&broken);
}
