//! The unified test format: the official suites of real systems, on every runtime.
//!
//! - [`format`](mod@format): the files, read strictly into typed values.
//! - [`matching`]: the rules by which values match ("Evaluating Matches").
//! - [`play`]: a test that is played, a machine without I/O, and what a test needs beforehand.
//! - `perform`, with the feature `adapter`: deployments, and the clients that do what the machine
//!   asks for.
//! - `run`, with the same feature: files on deployments with runtimes, which makes a [`Report`].

mod baseline;
#[cfg(feature = "adapter")]
mod flaky;
pub mod format;
pub mod matching;
mod page;
#[cfg(feature = "adapter")]
pub mod perform;
pub mod play;
mod report;
#[cfg(feature = "adapter")]
pub mod run;
mod table;

pub use baseline::Baseline;
pub use report::{Report, Row, Verdict};
pub use table::{Table, TableError};
