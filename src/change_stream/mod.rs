//! Change streams as values: where one begins and goes on, what it resumes after, and its events.
//!
//! Implements Change Streams.

mod checkpoint;
mod event;
mod file_store;
mod fragments;
mod resumable;
mod resumption;
mod state;
mod token;

pub use checkpoint::CheckpointStore;
pub(crate) use checkpoint::{Checkpoint, Checkpoints, Superseded};
pub use event::{
    ChangeNamespace, ChangeStreamEvent, OperationType, SplitEvent, TruncatedArray,
    UpdateDescription,
};
pub use file_store::FileCheckpointStore;
pub(crate) use fragments::{Assembly, Fragments};
pub(crate) use resumable::is_resumable;
pub(crate) use resumption::Resumption;
pub(crate) use state::{ChangeStreamState, Start};
pub use token::ResumeToken;
