//! Inputs to begin with: ideas of our own, and what the official suites contain.
//!
//! Those of our own are committed in `corpora/`; a copy of the specifications is not ours to
//! commit, so that its inputs are read where it lies.

mod documents;
mod streams;
mod structured;
mod suites;
mod texts;
mod traces;

pub(super) use documents::documents;
pub(super) use streams::{compressed, frames, hello, relay};
pub(super) use structured::{chunks, operations, pool, selection, topology};
pub use suites::from_suites;
pub(super) use texts::{dns, scram, socks5, uri};
pub(super) use traces::traces;

/// An input, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seed {
    /// The name of its file.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

impl Seed {
    fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}
