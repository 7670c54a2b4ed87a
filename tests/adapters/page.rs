//! The table of runtimes in the guide, which is made from that of the suite.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use sdam_conformance::adapter::{Column, Conclusion};

/// The lines around the table.
const BEGIN: &str = "<!-- The table of runtimes: UPDATE_PAGE=1 rewrites it. -->\n";
const END: &str = "<!-- The end of the table. -->\n";

/// A row: its feature, what one gets, its example, and the adapter whose column says how it fares.
const ROWS: [(Option<&str>, &str, &str, &str); 6] = [
    (Some("tokio"), "`sdam::tokio`: tasks of tokio", "version_tokio", "tokio"),
    (Some("tokio"), "the same, on a runtime of one thread", "version_tokio", "tokio-1"),
    (Some("smol"), "`sdam::smol`: tasks of smol", "version_smol", "smol"),
    (Some("async-std"), "`sdam::async_std`: tasks of async-std", "version_async_std", "async-std"),
    (Some("blocking"), "`sdam::blocking`: threads that block", "version_blocking", "blocking"),
    (
        None,
        "[a runtime of one's own](write-your-own-runtime.md): sockets, timers, tasks",
        "own_runtime",
        "example",
    ),
];

/// Compares the page with what came of a run of everything, or rewrites it if
/// `UPDATE_PAGE=1`.
pub(crate) fn check(conclusion: &Conclusion) -> Result<(), Box<dyn Error>> {
    let is_whole = conclusion.table.is_complete() && conclusion.left_out.is_empty();
    if !is_whole || !conclusion.is_success {
        return Ok(());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runtimes.md");
    let page = fs::read_to_string(&path)?;
    let (before, rest) = page.split_once(BEGIN).ok_or("docs/runtimes.md has lost its table")?;
    let (_, after) = rest.split_once(END).ok_or("the table of docs/runtimes.md has no end")?;
    let current = [before, BEGIN, &table(&conclusion.table.columns)?, END, after].concat();
    if current == page {
        return Ok(());
    }
    match env::var_os("UPDATE_PAGE").is_some_and(|value| value == "1") {
        true => Ok(fs::write(&path, current)?),
        false => Err("the table of docs/runtimes.md is not that of this run; \
                      with UPDATE_PAGE=1 the run rewrites it"
            .into()),
    }
}

fn table(columns: &[Column]) -> Result<String, Box<dyn Error>> {
    let core = crates(None)?;
    let mut table = "| feature | what you get | crates besides the core's | example | suite |\n\
                     | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (feature, what, example, adapter) in ROWS {
        let column = columns.iter().find(|column| column.name == adapter);
        let column = column.ok_or_else(|| format!("the suite has no column {adapter}"))?;
        let shown = feature.map_or("none".to_owned(), |feature| format!("`{feature}`"));
        let crates = match feature {
            Some(feature) => crates(Some(feature))?.difference(&core).count().to_string(),
            None => "its own".to_owned(),
        };
        let example = format!("[{example}](../examples/{example}.rs)");
        let suite = format!("{} of {}", column.passed(), column.total());
        table += &format!("| {shown} | {what} | {crates} | {example} | {suite} |\n");
    }
    Ok(table)
}

/// Returns the names of all crates that are built for a feature, or without any.
fn crates(feature: Option<&str>) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["tree", "--offline", "--edges", "normal", "--prefix", "none"]);
    command.args(["--package", "sdam", "--no-default-features"]);
    command.args(feature.map(|feature| format!("--features={feature}")));
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}
