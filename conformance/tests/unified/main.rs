//! The official suites in the unified test format, and the table of their results, which no run may
//! be worse than.
//!
//! `SDAM_SPECIFICATIONS` names the folder `source` of the MongoDB specifications. Each file is
//! played with one runtime, on the newest servers that there are; with every runtime, on all of
//! them, if `SDAM_UNIFIED` is `all`. `UPDATE_PAGE=1` plays as much, and rewrites the table. Both
//! take `SDAM_UNIFIED_SUITE`, `SDAM_UNIFIED_SERVER` and `SDAM_UNIFIED_RUNTIME`, for a part of it,
//! as the tool has them as options. `SDAM_UNIFIED_COMPRESSOR` names what clients compress with: all
//! that passes without has to pass with it.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sdam_conformance::mongod::Availability;
use sdam_conformance::unified::run::{Runner, load, servers};
use sdam_conformance::unified::{Baseline, Report, Row, Table, Verdict};

/// The environment variable that names the folder.
const FOLDER: &str = "SDAM_SPECIFICATIONS";

/// The environment variable that names a compressor.
const COMPRESSOR: &str = "SDAM_UNIFIED_COMPRESSOR";

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
    let runner = match chosen(COMPRESSOR) {
        Some(compressor) => runner.with_compressor(&compressor)?,
        None => runner,
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
    let tests = |rows: &mut dyn Iterator<Item = &Row>| -> BTreeSet<String> {
        rows.map(|row| row.test.clone()).collect()
    };
    let all = tests(&mut report.rows.iter());
    let passed = tests(&mut report.rows.iter().filter(|row| row.verdict == Verdict::Passed));
    assert_eq!(passed, all, "{report}");
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
    assert!(!is_update || chosen(COMPRESSOR).is_none(), "the table is of runs without compression");
    let report = play(Path::new(&folder), is_update || is("SDAM_UNIFIED", "all"))?;
    println!("{report}");
    for flaky in &report.flaky {
        // What is printed is not shown of a test that passes, and a flaky test is to be mended.
        writeln!(io::stderr(), "flaky: {flaky}")?;
    }
    let table = Table::of_folder(Path::new(env!("CARGO_MANIFEST_DIR")));
    let baseline = match is_update {
        true => table.update(|baseline| {
            let run = Baseline::of(&report);
            match is_whole() {
                true => *baseline = run,
                false => baseline.update(run),
            }
        })?,
        false => table.read()?,
    };
    let lost = baseline.lost(&report);
    assert!(lost.is_empty(), "passed once, and pass no more:\n{}", lost.join("\n"));
    assert!(!report.has_failures(), "tests fail; the report above says how");
    Ok(())
}
