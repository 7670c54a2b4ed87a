//! The locks and atomics of the host: those of std, or under `--cfg sdam_shuttle` those of a
//! scheduler that tries how threads may interleave.
//!
//! `Arc` and the swap of the view are not among them: nothing comes between their steps.

#[cfg(all(test, sdam_shuttle))]
pub(super) use shuttle::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(all(test, sdam_shuttle)))]
pub(super) use std::sync::{Mutex, MutexGuard, atomic};
