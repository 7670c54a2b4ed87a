//! Exhaustive small worlds: a client and a replica set of three, in every order of messages, timers
//! and up to `k` faults.
//!
//! [`search`] begins with a client that knows nothing and with one that knows everything, and takes
//! every step that is possible: what is under way on a link arrives, time jumps to the next timer
//! (past what is under way, too), operations begin to wait or give up, or a fault happens. It goes
//! on breadth first, so that the path to a violation is a shortest one, and on all processors: what
//! they find is put together in the order of the layer, whichever thread was first.
//!
//! What must hold is checked after every step: the laws of machines and those of `laws`. From every
//! world that is met, faults stop and all that is under way arrives: within the bound of
//! simulations the view has to become the truth, for ever; and after a shutdown nothing may be
//! left. Where nothing goes wrong a world has one future, so that this is gone through once for all
//! worlds whose futures meet (`rest`).
//!
//! **What is abstracted.** A server answers at once, with what it then is; how long the way back
//! takes is open. Messages come whole and nothing is corrupted, and time jumps from timer to timer.
//! Worlds that differ only in what decides nothing are one (`digest`):
//!
//! - round trip times, the numbers of links and requests, how often checks have failed, and why;
//! - of what servers have said, what was used when it was heard; for clients that poll, how fresh
//!   it was;
//! - of a pool's generation, all but whether it is the first: errors come from the current one or
//!   the one before;
//! - times that are over by more than 500 ms; other times count from now.
//!
//! A world that was reached with no more faults, and no more steps, leads wherever the same world
//! leads that is reached later with more: only the first is gone on from. Two different worlds of
//! the same digest would be taken for one, but it has 128 bits.
//!
//! **Longer paths.** Every order is some ten steps, a heartbeat or two. With a limit on how many
//! steps are out of turn (`Limits::delays`) paths of thirty steps are all taken: what is under way
//! arrives from the oldest link on, then time passes, and only so many times something else comes
//! first; faults still happen anywhere. It is what is known as delay bounding (Emmi, Qadeer and
//! Rakamaric, 2011).
//!
//! **What is not reduced.** Members are not interchangeable: timers that are due at the same time
//! fire in the order of their servers, and one of the members leaves and returns. Arrivals from
//! different members do not commute either, as little as they seem to touch each other: each
//! updates the one description, whose order of updates decides which primary is stale, and laws are
//! checked in between.

mod deployment;
mod digest;
mod faults;
mod known;
mod laws;
mod link;
mod rest;
mod search;
mod step;
mod walk;
mod world;

pub use search::{Limits, Report, search};
