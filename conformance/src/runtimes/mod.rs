//! The runtimes that the facade has, as tests of all of them use them.

mod blocking;
mod executors;
mod tokios;

pub use blocking::Blocking;
pub use executors::{AsyncStd, Smol};
pub use tokios::Tokio;
