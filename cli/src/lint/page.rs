//! The table of rules in the page, which is made of the rules.

use super::rule;
use crate::pages;

fn table() -> String {
    let mut table =
        "| Rule | Severity | Promise | Written in | In drivers |\n|---|---|---|---|---|\n"
            .to_owned();
    for rule in rule::all() {
        let (specification, section) = rule.source;
        let needs = match rule.needs.argument() {
            "" => String::new(),
            argument => format!(", `{argument}`"),
        };
        table += &format!(
            "| `{}` | {}{needs} | {} | {specification}, \"{section}\" | {} |\n",
            rule.name,
            rule.severity.name(),
            rule.text,
            rule.breaks
        );
    }
    table
}

#[test]
fn the_page_has_every_rule() {
    pages::check_table("LINT.md", &table());
}
