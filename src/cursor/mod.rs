//! Cursors as values: documents, or the command that asks for the next ones.
//!
//! Implements "find, getMore and killCursors commands".

mod batch;
mod pace;
mod state;
mod timing;

pub(crate) use batch::Batch;
pub(crate) use pace::Pace;
pub(crate) use state::Settings;
pub use state::{CursorState, CursorStep};
pub use timing::{TimeoutMode, Timing};
