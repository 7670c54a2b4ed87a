//! The page about runtimes shows the example that the suite runs, and that is as short as it says.

const EXAMPLE: &str = include_str!("../../examples/own_runtime.rs");
const PAGE: &str = include_str!("../../docs/write-your-own-runtime.md");

#[test]
fn the_page_shows_the_example_as_it_is() {
    assert!(PAGE.contains(&format!("```rust\n{EXAMPLE}```\n")), "copy the example to the page");
}

#[test]
fn the_example_has_less_than_seventy_lines_besides_its_imports() {
    let is_code = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("//") && !line.starts_with("use ")
    };
    let lines = EXAMPLE.lines().filter(is_code).count();
    assert!(lines < 70, "there are {lines}");
}
