//! The likely causes of what goes wrong, with advice: one vocabulary, and the place where verdicts
//! are found.
//!
//! A [`Verdict`] is a likely cause, with one sentence of [words](std::fmt::Display) and
//! [advice](Verdict::advice) apart from it. What a client knows by itself is judged here; verdicts
//! that need more evidence are found by tools that gather it, as `sdam doctor` does, in the same
//! vocabulary.

mod advice;
mod change_stream;
mod error;
mod failure;
mod judge;
mod limit;
mod operation;
mod records;
#[cfg(test)]
mod tests;
mod transaction;
mod verdict;

pub use advice::{Advice, Finding};
pub use change_stream::{ChangeStreamErrorFacts, ChangeStreamVerdict, resume_token_time};
pub use error::{Check, SelectionError, Trouble};
pub(crate) use judge::{Circumstances, Staleness};
pub use limit::other_timeout;
pub(crate) use operation::MANY_REFUSALS;
pub use operation::{Pause, ServerEvidence};
pub use transaction::{TRANSACTION_LIFETIME, TransactionErrorFacts, TransactionVerdict};
pub use verdict::{Disagreement, OplogBound, SLOW_LOOKUP, Verdict};
