//! The table of `cli/DOCTOR.md`, made by the tests: how each signature is made, what is said of it,
//! and after how long.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::signatures::ALL;
use crate::support::{Failure, Report, Said};

const BEGIN: &str = "<!-- signatures -->\n";
const END: &str = "<!-- end of signatures -->\n";

/// The words about a signature, one for each way in which it was made.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    said: Said,
    took: Duration,
    others: Vec<Row>,
}

impl Row {
    /// Takes what a report said.
    pub(crate) fn of(report: &Report, said: Said) -> Self {
        Self::of_library(said, report.took)
    }

    /// Takes what the library said.
    pub(crate) fn of_library(said: Said, took: Duration) -> Self {
        Self { said, took, others: Vec::new() }
    }

    /// Adds what was said where it was made in another way.
    pub(crate) fn with(mut self, other: Self) -> Self {
        self.others.push(other);
        self
    }

    /// Writes a name in place of an address that differs in each run.
    pub(crate) fn naming(mut self, address: &impl Display, name: &str) -> Self {
        let address = address.to_string();
        let replace = |text: &mut String| *text = text.replace(&address, name);
        replace(&mut self.said.cause);
        replace(&mut self.said.advice);
        self.said.lines.iter_mut().for_each(replace);
        self
    }

    /// Returns the cells that the same incident always has.
    fn cells(&self) -> [String; 4] {
        let code = self.said.lines.iter().map(|line| format!("`{}`", without_times(line)));
        let advice = [self.said.advice.clone()].into_iter().chain(code).collect::<Vec<_>>();
        [
            format!("`{}`", self.said.verdict),
            without_times(&self.said.cause),
            advice.join(": "),
            magnitude(self.took).to_owned(),
        ]
        .map(|cell| cell.replace('|', "\\|"))
    }
}

/// Says after how long, roughly: a machine that is busy takes longer.
const fn magnitude(took: Duration) -> &'static str {
    match took.as_secs() {
        0..2 => "at once",
        2..10 => "seconds",
        _ => "more than 10 s",
    }
}

/// Replaces lengths of time, times of the clock and numbers of connections, which differ in each
/// run.
fn without_times(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let mut out: Vec<String> = Vec::new();
    for word in words {
        let bare = word.trim_end_matches([',', ';', ')', ':']);
        let is_unit = ["ms", "s", "connections"].contains(&bare);
        let last = out.last_mut().filter(|_| is_unit);
        if let Some(last) = last.filter(|last| last.trim_start_matches('(').parse::<f64>().is_ok())
        {
            let bracket = if last.starts_with('(') { "(" } else { "" };
            *last = format!("{bracket}…");
            out.push(word.replace("ms", "s"));
            continue;
        }
        let is_date = word.len() > 18 && word.starts_with("20") && word.contains(['T', 'Z']);
        out.push(if is_date { "…".to_owned() } else { word });
    }
    out.join(" ")
}

/// Compares the table with the page, or writes it there with `UPDATE_PAGE=1`.
pub(crate) fn check(rows: &BTreeMap<u32, Row>) -> Result<(), Failure> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("DOCTOR.md");
    let page = fs::read_to_string(&path)?;
    let (before, rest) = page.split_once(BEGIN).ok_or("the page has no place for the table")?;
    let (old, after) = rest.split_once(END).ok_or("the table has no end")?;
    let mut table = "\n| # | how it is made | verdict | what is said | what to do | after |\n\
                     | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for signature in ALL {
        let row = rows.get(&signature.number).ok_or("a signature has no row")?;
        let (mut number, mut made) = (signature.number.to_string(), signature.made);
        for row in [row].into_iter().chain(&row.others) {
            let [verdict, cause, advice, after] = row.cells();
            table += &format!("| {number} | {made} | {verdict} | {cause} | {advice} | {after} |\n");
            (number, made) = (String::new(), "");
        }
    }
    table.push('\n');
    if std::env::var_os("UPDATE_PAGE").is_some() {
        return Ok(fs::write(&path, [before, BEGIN, &table, END, after].concat())?);
    }
    let without_last_cell = |table: &str| -> Vec<String> {
        let cut = |line: &str| line.rsplit_once(" | ").map_or(line, |(rest, _)| rest).to_owned();
        table.lines().map(cut).collect()
    };
    let (old, new) = (without_last_cell(old), without_last_cell(&table));
    match old.iter().zip(&new).find(|(old, new)| old != new) {
        None if old.len() == new.len() => Ok(()),
        None => Err("the table of DOCTOR.md has another length; run with UPDATE_PAGE=1".into()),
        Some((old, new)) => Err(format!(
            "the table of DOCTOR.md is another one; run with UPDATE_PAGE=1\n- {old}\n+ {new}"
        )
        .into()),
    }
}
