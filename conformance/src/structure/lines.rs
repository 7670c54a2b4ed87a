//! The lines of sources by kind.

use std::ops::AddAssign;
use std::path::Path;

/// Lines by kind; blank ones are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The lines that are shipped.
    pub code: usize,
    /// The code of tests and benches.
    pub tests: usize,
    /// Comments and docs, wherever they are.
    pub comments: usize,
}

impl Lines {
    /// Counts a file, whose path is relative to its crate.
    pub(super) fn add(&mut self, path: &Path, text: &str) {
        let mut is_tests = is_test(path);
        for line in text.lines() {
            is_tests |= line == "#[cfg(test)]" && starts_module(text, line);
            match line.trim() {
                "" => {}
                line if line.starts_with("//") => self.comments += 1,
                _ if is_tests => self.tests += 1,
                _ => self.code += 1,
            }
        }
    }
}

impl AddAssign for Lines {
    fn add_assign(&mut self, other: Self) {
        self.code += other.code;
        self.tests += other.tests;
        self.comments += other.comments;
    }
}

/// Returns whether the line stands in front of a module that is written out, which is the last item
/// of its file; `mod tests;` among the first ones is not.
fn starts_module(text: &str, line: &str) -> bool {
    let rest = &text[line.as_ptr() as usize - text.as_ptr() as usize..];
    rest.lines().nth(1).is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'))
}

/// Returns whether a file, by its path within its crate, has tests only.
pub(super) fn is_test(path: &Path) -> bool {
    let is_folder = |part: &str| matches!(part, "tests" | "benches");
    path.components().any(|part| part.as_os_str().to_str().is_some_and(is_folder))
        || path.ends_with("tests.rs")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Lines;

    #[test]
    fn lines_are_told_apart() {
        let text = "//! Docs.\n\n#[cfg(test)]\nmod tests;\n\nfn f() {}\n\n\
                    #[cfg(test)]\nmod inner {\n    // Why.\n    fn g() {}\n}\n";
        let mut lines = Lines::default();
        lines.add(Path::new("src/a.rs"), text);
        assert_eq!(lines, Lines { code: 3, tests: 4, comments: 2 });
        lines.add(Path::new("src/a/tests.rs"), "fn h() {}\n");
        assert_eq!(lines.tests, 5);
    }
}
