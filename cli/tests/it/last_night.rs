//! The page of the guide about a failover: each of its commands prints what the page says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The page, and the files that its commands read.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/last-night.md");
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/last-night");

/// Returns what a command prints, by a shell that finds the tool.
fn run(command: &str) -> String {
    let tool = PathBuf::from(env!("CARGO_BIN_EXE_sdam"));
    let mut path = tool.parent().expect("a folder").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-c", &format!("{command} 2>&1")])
        .current_dir(FOLDER)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .env("LC_ALL", "C")
        .env("COLUMNS", "100")
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the page with the output of each command below it.
fn filled(page: &str) -> (String, usize) {
    let (mut made, mut count, mut is_console) = (String::new(), 0, false);
    for line in page.lines() {
        match line {
            "```console" => is_console = true,
            "```" => is_console = false,
            _ => {}
        }
        let command = line.strip_prefix("$ ").filter(|_| is_console);
        if !is_console || command.is_some() || line == "```console" {
            made += &format!("{line}\n");
        }
        if let Some(command) = command {
            count += 1;
            made += &run(command);
        }
    }
    (made, count)
}

#[cfg(unix)]
#[test]
fn every_command_of_the_page_prints_what_it_says() {
    let page = fs::read_to_string(PAGE).expect("the page");
    let (made, count) = filled(&page);
    assert!(count > 5, "there are only {count} commands");
    if std::env::var_os("UPDATE_PAGE").is_some() {
        return fs::write(PAGE, made).expect("the page is written");
    }
    for (is, said) in made.lines().zip(page.lines()) {
        assert_eq!(is, said, "UPDATE_PAGE=1 writes the page again");
    }
    assert_eq!(made, page, "UPDATE_PAGE=1 writes the page again");
}

/// A reader of the page finds the files.
#[test]
fn the_files_of_the_page_are_there() {
    for name in ["before.txt", "after.txt", "shop.log", "shop.trace", "dashboard.svg"] {
        let file = Path::new(FOLDER).join(name);
        assert!(fs::metadata(&file).is_ok_and(|it| it.len() > 0), "{}", file.display());
    }
}
