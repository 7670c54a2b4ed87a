//! The steps of a host's machines, for checkers.

use sdam_core::pool::{self, CheckOut, Pool, PoolEvent};
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};

/// A step of the topology, as [`Runtime::on_topology`](crate::Runtime::on_topology) sees it.
///
/// An input or a tick comes first, then the actions, each before it is performed, and then the end;
/// nothing of another step of the topology comes in between.
#[derive(Debug)]
pub enum TopologyStep<'a> {
    /// The topology is about to receive an input.
    Input {
        /// Up to when deadlines are judged.
        at: Instant,
        /// The input.
        input: &'a Input<'a>,
    },
    /// The topology is about to judge its deadlines.
    Tick {
        /// Up to when.
        at: Instant,
        /// The time when it is due.
        due: Option<Instant>,
    },
    /// An action is about to be performed.
    Action(&'a Action),
    /// All actions were performed.
    Done(&'a Topology),
}

/// A step of a pool, as [`Runtime::on_pool`](crate::Runtime::on_pool) sees it; in the order of
/// [`TopologyStep`], except for check-outs of idle connections, and their returns, which have no
/// actions.
#[derive(Debug)]
pub enum PoolStep<'a, C> {
    /// The pool is about to receive an input.
    Input(&'a pool::Input<C>),
    /// The pool is about to judge its deadlines.
    Tick {
        /// Up to when.
        at: Instant,
        /// The time when it is due.
        due: Option<Instant>,
    },
    /// An action is about to be performed.
    Action(&'a pool::Action<C>),
    /// All actions were performed.
    Done(&'a Pool<C>),
    /// An idle connection was checked out.
    CheckedOut(&'a CheckOut, &'a Pool<C>),
    /// A connection was returned, and no caller waits for one.
    CheckedIn(&'a CheckOut, &'a Pool<C>),
    /// One of these two is about to be published, with the time at which it happened.
    Published(Instant, &'a PoolEvent),
}
