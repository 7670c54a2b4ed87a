//! The official suites in the unified test format, and the table of their results, which no run may
//! be worse than.
//!
//! `SDAM_SPECIFICATIONS` names the folder `source` of the MongoDB specifications. Each file is
//! played with one runtime, on the newest servers that there are; with every runtime, on all of
//! them, if `SDAM_UNIFIED` is `all`. `UPDATE_PAGE=1` plays as much, and rewrites the table. Both
//! take `SDAM_UNIFIED_SUITE`, `SDAM_UNIFIED_SERVER` and `SDAM_UNIFIED_RUNTIME`, for a part of it,
//! as the tool has them as options.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use sdam_conformance::mongod::Availability;
use sdam_conformance::unified::run::{Runner, load, servers};
use sdam_conformance::unified::{Kept, Report, Verdict};

/// The environment variable that names the folder.
const FOLDER: &str = "SDAM_SPECIFICATIONS";

/// The lines around the tables of the page.
const BEGIN: &str = "<!-- The tables of results: UPDATE_PAGE=1 rewrites them. -->\n";
const END: &str = "<!-- The end of the tables. -->\n";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn is(variable: &str, wanted: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == wanted)
}

fn chosen(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|value| !value.is_empty())
}

/// Plays each file with one runtime on the newest servers, or with every runtime on all, or on
/// those that were chosen.
fn play(folder: &Path, all: bool) -> Result<Report, Box<dyn Error>> {
    let files = load(folder, chosen("SDAM_UNIFIED_SUITE").as_deref())?;
    let left_out = Availability::look().left_out().to_vec();
    assert!(!is("CI", "true") || left_out.is_empty(), "in CI there is a mongod: {left_out:?}");
    let server = chosen("SDAM_UNIFIED_SERVER");
    let default = if all { "all" } else { "" };
    let servers = servers(server.as_deref().unwrap_or(default))?;
    let runner = match chosen("SDAM_UNIFIED_RUNTIME") {
        Some(runtime) => Runner::all().only(&runtime)?,
        None if all => Runner::all(),
        None => Runner::all().in_turn(),
    };
    Ok(runner.run(&files, &servers))
}

/// Returns whether nothing was left out of what there is to play.
fn is_whole() -> bool {
    let parts = ["SDAM_UNIFIED_SUITE", "SDAM_UNIFIED_SERVER", "SDAM_UNIFIED_RUNTIME"];
    parts.into_iter().all(|variable| chosen(variable).is_none())
}

/// The files of this repository: what the official ones do not show of the runner.
#[test]
fn the_runners_own_files_pass() -> Result<(), Box<dyn Error>> {
    let files = load(&path("tests/unified/own"), None)?;
    let report = Runner::all().run(&files, &servers("embedded-8.0")?);
    assert!(!report.has_failures(), "{report}");
    let passed = report.rows.iter().filter(|row| row.verdict == Verdict::Passed).count();
    assert_eq!(passed, report.rows.len(), "{report}");
    Ok(())
}

#[test]
fn no_run_is_worse_than_the_table() -> Result<(), Box<dyn Error>> {
    let Some(folder) = env::var_os(FOLDER) else {
        assert!(!is("CI", "true"), "{FOLDER} is not set, and in CI the suites must be run");
        eprintln!("the official suites are left out, as {FOLDER} names no folder");
        return Ok(());
    };
    let is_update = is("UPDATE_PAGE", "1");
    let report = play(Path::new(&folder), is_update || is("SDAM_UNIFIED", "all"))?;
    println!("{report}");
    let page = fs::read_to_string(path("UNIFIED.md"))?;
    let (before, rest) = page.split_once(BEGIN).ok_or("UNIFIED.md has lost its tables")?;
    let (_, after) = rest.split_once(END).ok_or("the tables of UNIFIED.md have no end")?;
    let kept = fs::read_to_string(path("unified.json"))?;
    let mut kept: Kept = serde_json::from_str(&kept)?;
    if is_update {
        let run = Kept::of(&report);
        match is_whole() {
            true => kept = run,
            false => kept.update(run),
        }
        fs::write(path("UNIFIED.md"), [before, BEGIN, &kept.page(), END, after].concat())?;
        fs::write(path("unified.json"), serde_json::to_string_pretty(&kept)? + "\n")?;
    }
    let lost = kept.lost(&report);
    assert!(lost.is_empty(), "passed once, and pass no more:\n{}", lost.join("\n"));
    assert!(!report.has_failures(), "tests fail; the report above says how");
    Ok(())
}
