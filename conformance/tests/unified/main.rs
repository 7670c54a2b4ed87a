//! The official suites in the unified test format, and the table of their results, which no run may
//! be worse than.
//!
//! `SDAM_SPECIFICATIONS` names the folder `source` of the MongoDB specifications. Each file is played
//! with one runtime, on the newest mongod that there is; with every runtime, on all of them, if
//! `SDAM_UNIFIED` is `all`, and with `UPDATE_PAGE=1`, which rewrites the table.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use sdam_conformance::mongod::Availability;
use sdam_conformance::unified::run::{Runner, embedded, load, real};
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

/// Plays each file with one runtime on the newest server, or with every runtime on all.
fn play(folder: &Path, all: bool) -> Result<Report, Box<dyn Error>> {
    let files = load(folder, None)?;
    let availability = Availability::look();
    let binaries = availability.binaries();
    assert!(!is("CI", "true") || availability.left_out().is_empty(), "in CI there is a mongod");
    let Some((newest, older)) = binaries.split_last() else {
        return Ok(Runner::all().in_turn().run(&files, &embedded()));
    };
    let deployments = [embedded(), real(newest)].concat();
    if !all {
        return Ok(Runner::all().in_turn().run(&files, &deployments));
    }
    let runner = Runner::all();
    let mut report = runner.run(&files, &deployments);
    for binary in older {
        // Files that are judged by their form were judged already.
        let mut rows = runner.run(&files, &real(binary)).rows;
        rows.retain(|row| row.server != "none");
        report.extend(Report { rows });
    }
    Ok(report)
}

/// The files of this repository: what the official ones do not show of the runner.
#[test]
fn the_runners_own_files_pass() -> Result<(), Box<dyn Error>> {
    let files = load(&path("tests/unified/own"), None)?;
    let report = Runner::all().run(&files, &embedded());
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
    if is_update {
        let tables = [report.page(), report.needs_page(), report.obstacles_page()].join("\n");
        fs::write(path("UNIFIED.md"), [before, BEGIN, &tables, END, after].concat())?;
        let kept = serde_json::to_string_pretty(&Kept::of(&report))?;
        fs::write(path("unified.json"), kept + "\n")?;
    }
    let kept: Kept = serde_json::from_str(&fs::read_to_string(path("unified.json"))?)?;
    let lost = kept.lost(&report);
    assert!(lost.is_empty(), "passed once, and pass no more:\n{}", lost.join("\n"));
    assert!(!report.has_failures(), "tests fail; the report above says how");
    Ok(())
}
