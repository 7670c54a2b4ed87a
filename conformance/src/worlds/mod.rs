//! Exhaustive small worlds: a client and a replica set of three, in every order of messages, timers
//! and up to `k` faults.
//!
//! [`search`] begins with a client that knows nothing and with one that knows everything, and takes
//! every step that is possible: what is under way on a link arrives, time jumps to the next timer
//! (past what is under way, too), an operation begins to wait or gives up, or a fault happens. It
//! goes on breadth first, so that the path to a violation is a shortest one.
//!
//! What must hold is checked after every step: the laws of machines and those of `laws`. From every
//! world at the end of its path, faults stop and all that is under way arrives: the view has to
//! become the truth, and after a shutdown nothing may be left.
//!
//! **What is abstracted.** A server answers at once, with what it then is; how long the way back
//! takes is open. Messages come whole and nothing is corrupted, and time jumps from timer to timer.
//! Worlds that differ only in what decides nothing are one: round trip times, the numbers of links
//! and requests, how often checks have failed, and times that are over by more than 500 ms; other
//! times count from now. Two different worlds of the same digest would be taken for one, but it has
//! 128 bits.

mod deployment;
mod digest;
mod laws;
mod link;
mod search;
mod step;
mod world;

pub(crate) use link::request;
pub use search::{Limits, Report, search};
