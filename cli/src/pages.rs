//! The pages of the project: their commands, whose arguments the tool has to take, and the tables
//! that are made of the tool itself.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::Cli;

/// The lines between which a page has its table.
const BEGIN: &str = "<!-- The table is made by the tests: UPDATE_PAGE=1. -->\n";
const END: &str = "<!-- The end of the table. -->\n";

/// Compares a table with that of a page of the tool, or writes it there with `UPDATE_PAGE=1`.
pub(crate) fn check_table(page: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let page = fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table");
    let (found, after) = rest.split_once(END).expect("the end of the table");
    if std::env::var_os("UPDATE_PAGE").is_some() {
        let page = format!("{before}{BEGIN}{table}{END}{after}");
        return fs::write(&path, page).expect("the page is written");
    }
    assert_eq!(found, table, "UPDATE_PAGE=1 writes it again");
}

/// Returns the lines of a page's `sh` blocks, with those that go on in one.
fn shell_lines(page: &str) -> Vec<String> {
    let (mut lines, mut is_open) = (Vec::new(), false);
    for line in page.replace("\\\n", " ").lines() {
        match line {
            "```sh" => is_open = true,
            "```" => is_open = false,
            line if is_open => lines.push(line.to_owned()),
            _ => {}
        }
    }
    lines
}

/// Returns the words of a line that calls the tool, up to what only concerns the shell.
fn arguments(line: &str) -> Option<Vec<String>> {
    let words = shlex::split(&line.replace(';', " ; "))?;
    let is_of_shell = |word: &String| {
        ["&", "|", ">", "2>", ";"].contains(&word.as_str()) || word.starts_with("<<")
    };
    let is_before = |word: &String| word == "until" || word.starts_with("SDAM_URI=");
    let words = words.into_iter().skip_while(is_before).take_while(|word| !is_of_shell(word));
    let words: Vec<String> = words.collect();
    let first = match words.first()?.as_str() {
        "sdam" => 1,
        "cargo" if words.windows(2).any(|pair| pair == ["-p", "sdam-cli"]) => {
            words.iter().position(|word| word == "--")? + 1
        }
        _ => return None,
    };
    Some([&["sdam".to_owned()], &words[first..]].concat())
}

/// Returns every page of the project that may say how the tool is used.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let mut found = vec![root.join("README.md")];
    for folder in ["docs", "cli"] {
        let entries = fs::read_dir(root.join(folder)).expect("the folder can be read");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|it| it == "md")));
    }
    found
}

#[test]
fn the_tool_takes_the_arguments_of_every_command_in_the_pages() {
    let (mut count, mut refused) = (0, Vec::new());
    for path in pages() {
        let page = fs::read_to_string(&path).expect("the page can be read");
        for arguments in shell_lines(&page).iter().filter_map(|line| arguments(line)) {
            count += 1;
            if let Err(error) = Cli::try_parse_from(&arguments) {
                refused.push(format!("{}: {}\n{error}", path.display(), arguments.join(" ")));
            }
        }
    }
    assert!(refused.is_empty(), "\n{}", refused.join("\n"));
    assert!(count > 15, "there are only {count} commands");
}

#[test]
fn commands_are_those_of_shell_blocks() {
    let page = "```sh\nssh a &\nsdam watch \\\n  'a b' | cat # c\n```\nsdam replay\n";
    let found: Vec<_> = shell_lines(page).iter().filter_map(|line| arguments(line)).collect();
    assert_eq!(found, [["sdam", "watch", "a b"]]);
    let found = arguments("until sdam status --for 2s; do sleep 1; done").expect("a command");
    assert_eq!(found, ["sdam", "status", "--for", "2s"]);
    let found = arguments("cargo run -p sdam-cli -- cluster --members 3").expect("a command");
    assert_eq!(found, ["sdam", "cluster", "--members", "3"]);
}
