//! Traces: the inputs and the actions of a topology, as text that can be read and replayed.
//!
//! A trace is options, a seed, and every input with its time; nothing else decides what a machine
//! does. [`Recorder`] writes one, [`Trace`] reads it, and [`Replay`] does it all again and stops at
//! the first difference; a [`Script`] is there to do parts of it, many times.
//!
//! ```text
//! sdam-trace 2
//! sdam 0.1.0
//! machine topology
//! options mongodb://localhost:27017/?serverMonitoringMode=stream
//! seed 7
//! # A comment: whatever is behind a # is for people.
//! +0.000000000 tick
//!   > join s0 localhost:27017
//!   > open s0.0 localhost:27017
//! +0.000512000 opened s0.0
//!   > send s0.0 [{"id":1,"to":0,"msg":{"isMaster":1,"helloOk":true,"client":"…","$db":"admin"}}]
//! +0.000930000 received s0.0 [{"id":9,"to":1,"msg":{"ok":1.0,"isWritablePrimary":true}}]
//! ```
//!
//! A line that begins with `+` is a call of the machine: its time since the origin in seconds; with
//! `@` behind it, what the clock showed if that was later ([`Time`]); and the input. Below it is
//! what followed, line by line: behind `?` what predicates of the application answered, behind `>`
//! the actions. Values are JSON; messages are shown in extended JSON, and in base64 where that
//! would not give the same bytes again.
//!
//! A bare number among the messages of `received` counts bytes of a message that was not whole yet:
//! they are recorded with its last ones. That changes no action, as machines look at whole messages
//! only.
//!
//! # What is left out
//!
//! A flight recorder keeps no call that takes more than its part of the memory. In the place of an
//! input that is too long stands `omitted`, how many bytes it had, and what it was, as in
//! `+12.500000000 omitted 48000000 received s0.0`: a replay ends there ([`Trace::gap`]), and what
//! follows can be read only. In the place of actions stands `  > omitted` and how many bytes; a
//! replay goes on, and does not compare those. And of calls that bring a part of a message, and
//! change nothing, there are only those with which twice as much of it has come.
//!
//! # Operations
//!
//! Comments contain more than a topology decides: what happened to pools, and each attempt of an
//! operation that has failed, with where and how, and what its machine made of it.
//!
//! # Redaction
//!
//! What a trace says of the options is put together from the few that the machine looks at. There
//! are no names of users, no passwords, no files and no proxies among those, and monitors never
//! authenticate. Left out besides are what the client says of itself (`client` in hello), the
//! signatures of `$clusterTime`, and the messages of errors that operations and logins fail with,
//! as those may quote documents: a number stands for each.
//!
//! # Seals
//!
//! With `sealed` on its first line, every further line ends in ` ~` and a checksum of itself and
//! all lines before it ([`Seal`]), so that no byte can change unnoticed. To change a trace by hand,
//! take off `sealed` and those endings.
//!
//! [`Time`]: crate::time::Time

mod action;
mod comment;
mod criteria;
mod error;
#[cfg(feature = "export")]
mod export;
mod failure;
mod header;
mod input;
mod journal;
mod message;
mod minimize;
mod part;
mod read;
mod recorder;
mod redaction;
mod replay;
mod script;
mod seal;
#[cfg(test)]
mod tests;
mod time;

pub use comment::{AttemptComment, description_comment, pool_comment};
pub use error::{LineError, TraceError};
#[cfg(feature = "export")]
pub use export::{ExportError, Inexpressible, export};
pub use header::Header;
pub use journal::Journal;
pub use minimize::minimize;
pub use read::{Trace, TraceStep};
pub use recorder::Recorder;
pub use replay::{Difference, Replay};
pub use script::{Performance, Script};
pub use seal::Seal;

/// The version of the format that is written, which the first line names.
///
/// Version 2 has the input `reached`. A trace of version 1 is read as well; with that input among
/// its lines, too, as some were written before the number changed.
pub const FORMAT_VERSION: u32 = 2;

/// The oldest version of the format that is read.
pub const OLDEST_FORMAT_VERSION: u32 = 1;

/// The longest trace that is read, in bytes.
pub const MAX_TRACE_LEN: usize = 1 << 28;

/// The beginning of the first line.
const MAGIC: &str = "sdam-trace";

/// The mark before an action, and before the answers of predicates.
const ACTION: &str = "  > ";
const ANSWERS: &str = "  ? ";

/// The text in the place of an input or of actions that were too long to be kept.
const OMITTED: &str = "omitted";
