//! Cursors as values: documents, or the command that asks for the next ones.
//!
//! Implements "find, getMore and killCursors commands".

mod batch;
mod state;
mod timing;

pub use batch::Batch;
pub use state::{CursorState, CursorStep, Settings};
pub use timing::{TimeoutMode, Timing, TimingError};
