//! Change streams as values: where one begins and goes on, what it resumes after, and its events.
//!
//! Implements Change Streams.

mod event;
mod resumable;
mod resumption;
mod state;
mod token;

pub use event::{
    ChangeNamespace, ChangeStreamEvent, OperationType, SplitEvent, TruncatedArray,
    UpdateDescription,
};
pub(crate) use resumable::is_resumable;
pub(crate) use resumption::Resumption;
pub(crate) use state::{ChangeStreamState, Start};
pub use token::ResumeToken;
