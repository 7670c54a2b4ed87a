//! The official JSON suites, one test for each file.
//!
//! `SDAM_SPECIFICATIONS` names the folder `source` of the MongoDB specifications.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use sdam_conformance::spec::{Folder, FolderError, FoundFile, Suite, Verdict, run_file};

/// The environment variable that names the folder.
const FOLDER: &str = "SDAM_SPECIFICATIONS";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = match env::var_os(FOLDER) {
        Some(folder) => match trials(Path::new(&folder)) {
            Ok(trials) => trials,
            Err(error) => {
                eprintln!("{FOLDER}: {error}");
                return ExitCode::FAILURE;
            }
        },
        None if env::var_os("CI").is_some_and(|ci| ci == "true") => {
            eprintln!("{FOLDER} is not set, and in CI the official suites must be run");
            return ExitCode::FAILURE;
        }
        None => {
            eprintln!(
                "the official suites are left out; to run them, set {FOLDER} to the folder \
                 `source` of a checkout of https://github.com/mongodb/specifications"
            );
            Vec::new()
        }
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(folder: &Path) -> Result<Vec<Trial>, FolderError> {
    let mut trials = Vec::new();
    for found in Folder::open(folder)?.suites {
        trials.extend(found.files.into_iter().map(|file| trial(found.suite, file)));
    }
    Ok(trials)
}

/// A skipped file is an ignored test that shows the reason.
fn trial(suite: &'static Suite, file: FoundFile) -> Trial {
    let (name, skip) = (file.name.clone(), file.skip_reason());
    let trial = Trial::test(name, move || {
        let cases = run_file(suite, &file).cases;
        let failed = cases.iter().filter(|case| matches!(case.verdict, Verdict::Failed { .. }));
        let failed: Vec<String> = failed.map(ToString::to_string).collect();
        match failed.is_empty() {
            true => Ok(()),
            false => Err(failed.concat().into()),
        }
    });
    trial.with_ignored_flag(skip.is_some()).with_kind(skip.unwrap_or_default())
}
