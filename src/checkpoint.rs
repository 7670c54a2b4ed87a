//! Checkpoints of change streams: the places that keep a token, so that another process goes on
//! where one has ended.
//!
//! A stream that was begun by `watch().checkpoint(store)` goes on behind the token that the store
//! has, and saves those that it comes to.

pub use crate::change_stream::{CheckpointStore, FileCheckpointStore};
pub use crate::handle::CollectionCheckpointStore;
