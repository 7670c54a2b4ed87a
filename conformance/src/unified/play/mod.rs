//! A test that is played: a machine without I/O, whose caller performs what it asks for and feeds
//! back what came of it (Unified Test Format, "Executing a Test").
//!
//! [`needs`] says beforehand what a test asks of the client that the client does not have.
//! [`Play`] is the machine: its operations call the client's interface through [`Action`]s, one for
//! each call, and its waits are [`Input`]s and deadlines.

mod actor;
mod arguments;
mod assertion;
mod data;
mod entities;
mod events;
mod failed;
mod fault;
mod logged;
mod machine;
mod need;
mod observed;
mod operation;
mod runner;
mod session;
#[cfg(test)]
mod tests;
mod traced;
mod transaction;

pub use failed::Failed;
pub use fault::{Broken, Fault};
pub use logged::Logged;
pub use machine::{
    Action, Command, Ended, Input, OfSession, OpenClient, Operate, Play, Subject, Token,
    WithTransaction,
};
pub use need::{needs, needs_with_encryption};
pub use observed::Observed;
pub(in crate::unified) use operation::OPENING;
pub use traced::Traced;

use crate::spec::Difference;

/// Says that something is wrong at a place in the test.
fn wrong(
    place: impl Into<String>,
    expected: impl Into<String>,
    found: impl std::fmt::Display,
) -> Difference {
    Difference { place: place.into(), expected: expected.into(), found: found.to_string() }
}
