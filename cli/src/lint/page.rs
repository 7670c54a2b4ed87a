//! The table of rules in the page, which is made of the rules.

use super::rule::Rule;
use crate::findings::{Law, Rule as _};
use crate::pages;

fn table() -> String {
    let mut table =
        "| Rule | Severity | Promise | Written in | In drivers |\n|---|---|---|---|---|\n"
            .to_owned();
    for rule in <&Rule>::all() {
        let Law { name, text, specification, section } = rule.law();
        let needs = match rule.needs.argument() {
            "" => String::new(),
            argument => format!(", `{argument}`"),
        };
        table += &format!(
            "| `{name}` | {}{needs} | {text} | {specification}, \"{section}\" | {} |\n",
            rule.severity.name(),
            rule.breaks
        );
    }
    table
}

#[test]
fn the_page_has_every_rule() {
    pages::check_table("LINT.md", &table());
}
