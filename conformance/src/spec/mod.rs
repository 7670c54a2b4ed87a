//! The official JSON suites, run against the core in virtual time.
//!
//! [`Folder::open`] finds the suites in a copy of the specifications; [`Folder::run`] runs them
//! and returns a [`Report`]. What a file says is read strictly: a key that this runner does not
//! know makes the case fail, as does a file that it cannot read.
//!
//! The seed lists in DNS are no matter of virtual time: a real name server serves them, if
//! `SDAM_DNS_ZONES` names a folder with its zones.
//!
//! The core is driven through its public interface only: replies and failures go in as bytes and
//! inputs, published views, events and commands to pools come out.

mod concern;
mod connection_string;
mod corpus;
mod difference;
mod discovery;
mod encryption;
mod folder;
mod format;
mod pooling;
mod report;
mod seedlist;
mod selection;
#[cfg(test)]
mod tests;
mod vectors;

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use thiserror::Error;

pub use difference::Difference;
pub use folder::{Folder, FolderError, FoundFile, FoundSuite, NotCovered};
#[cfg(feature = "adapter")]
pub(crate) use folder::{files, is_below};
use format::CaseError;
pub use report::{CaseReport, FileReport, Report, SuiteReport, Verdict};

/// The longest file that is read, in bytes; the longest official one is a hundredth of that.
const MAX_FILE_LEN: u64 = 16 << 20;

/// An official suite that this runner knows.
#[derive(Debug)]
pub struct Suite {
    /// The suite's name in reports.
    pub name: &'static str,
    /// The folder of its files, folders within it included, below the folder of the specifications.
    pub folder: &'static str,
    run: fn(&str) -> Result<Vec<CaseReport>, CaseError>,
}

/// The suites that this runner knows.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "initial-dns-seedlist-discovery/replica-set",
        folder: "initial-dns-seedlist-discovery/tests/replica-set",
        run: seedlist::run_replica_set,
    },
    Suite {
        name: "initial-dns-seedlist-discovery/sharded",
        folder: "initial-dns-seedlist-discovery/tests/sharded",
        run: seedlist::run_sharded,
    },
    Suite {
        name: "initial-dns-seedlist-discovery/load-balanced",
        folder: "initial-dns-seedlist-discovery/tests/load-balanced",
        run: seedlist::run_load_balanced,
    },
    Suite {
        name: "auth/legacy",
        folder: "auth/tests/legacy",
        run: connection_string::run_credentials,
    },
    Suite { name: "bson-binary-vector", folder: "bson-binary-vector/tests", run: vectors::run },
    Suite { name: "bson-corpus", folder: "bson-corpus/tests", run: corpus::run },
    Suite {
        name: "client-side-encryption/legacy",
        folder: "client-side-encryption/tests/legacy",
        run: encryption::run,
    },
    Suite {
        name: "connection-monitoring-and-pooling/cmap-format",
        folder: pooling::FOLDER,
        run: pooling::run,
    },
    Suite {
        name: "connection-string",
        folder: "connection-string/tests",
        run: connection_string::run_connection_strings,
    },
    Suite {
        name: "max-staleness",
        folder: "max-staleness/tests",
        run: selection::run_max_staleness,
    },
    Suite {
        name: "read-write-concern/connection-string",
        folder: "read-write-concern/tests/connection-string",
        run: connection_string::run_connection_strings,
    },
    Suite {
        name: "read-write-concern/document",
        folder: "read-write-concern/tests/document",
        run: concern::run,
    },
    Suite {
        name: "server-discovery-and-monitoring/errors",
        folder: "server-discovery-and-monitoring/tests/errors",
        run: discovery::run_states,
    },
    Suite {
        name: "server-discovery-and-monitoring/load-balanced",
        folder: "server-discovery-and-monitoring/tests/load-balanced",
        run: discovery::run_states,
    },
    Suite {
        name: "server-discovery-and-monitoring/monitoring",
        folder: "server-discovery-and-monitoring/tests/monitoring",
        run: discovery::run_events,
    },
    Suite {
        name: "server-discovery-and-monitoring/rs",
        folder: "server-discovery-and-monitoring/tests/rs",
        run: discovery::run_states,
    },
    Suite {
        name: "server-discovery-and-monitoring/sharded",
        folder: "server-discovery-and-monitoring/tests/sharded",
        run: discovery::run_states,
    },
    Suite {
        name: "server-discovery-and-monitoring/single",
        folder: "server-discovery-and-monitoring/tests/single",
        run: discovery::run_states,
    },
    Suite {
        name: "server-selection/in_window",
        folder: "server-selection/tests/in_window",
        run: selection::run_in_window,
    },
    Suite {
        name: "server-selection/rtt",
        folder: "server-selection/tests/rtt",
        run: selection::run_round_trip_time,
    },
    Suite {
        name: "server-selection/server_selection",
        folder: "server-selection/tests/server_selection",
        run: selection::run_server_selection,
    },
    Suite {
        name: "uri-options",
        folder: "uri-options/tests",
        run: connection_string::run_connection_strings,
    },
];

/// A file that is not run, by its path below the folder of the specifications, and why.
struct Skip {
    path: &'static str,
    reason: &'static str,
}

/// The files that are not run.
const SKIPS: &[Skip] = &[];

/// The reason why a file could not be read.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    #[error("the file cannot be read: {0}")]
    Io(std::io::Error),
    #[error("the file is {0} bytes long; at most {MAX_FILE_LEN} are read")]
    TooLong(u64),
}

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs one file of a suite. A case in which the core panics has failed.
pub fn run_file(suite: &Suite, file: &FoundFile) -> FileReport {
    let cases = match file.skip_reason() {
        Some(reason) => {
            let verdict = Verdict::Skipped { reason: reason.to_owned() };
            vec![CaseReport { name: String::new(), verdict }]
        }
        None => match read(&file.path) {
            Ok(text) => run_text(suite, &text),
            Err(error) => vec![CaseReport::cannot_run(error)],
        },
    };
    FileReport { file: file.name.clone(), cases }
}

fn skip_reason(skips: &[Skip], name: &str) -> Option<&'static str> {
    skips.iter().find(|skip| skip.path == name).map(|skip| skip.reason)
}

pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    match fs::metadata(path)?.len() {
        length if length > MAX_FILE_LEN => Err(FileError::TooLong(length)),
        _ => Ok(fs::read_to_string(path)?),
    }
}

fn run_text(suite: &Suite, text: &str) -> Vec<CaseReport> {
    // The laws of the machine are assertions; one that is broken fails its case, not the run.
    match catch_unwind(AssertUnwindSafe(|| (suite.run)(text))) {
        Ok(Ok(cases)) if cases.is_empty() => vec![CaseReport::cannot_run("the file has no case")],
        Ok(Ok(cases)) => cases,
        Ok(Err(error)) => vec![CaseReport::cannot_run(error)],
        Err(panic) => {
            vec![CaseReport::cannot_run(format!("the core panicked: {}", message(&*panic)))]
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
