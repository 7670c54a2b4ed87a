//! The possible next steps in a world.

use std::fmt;

use sdam_core::id::{LinkId, WaiterId};

use super::deployment::NAMES;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorldStep {
    /// A message under way on this link arrives.
    Arrive(LinkId),
    /// Time passes until the next timer.
    Time,
    /// Two operations begin to wait: for a primary, and for any server.
    Wait,
    /// An operation waits no more.
    Abandon(WaiterId),
    /// Something goes wrong, or is put right by somebody.
    Fault(Fault),
}

/// A fault, or its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A server dies, or is started again.
    Toggle(usize),
    /// A primary steps down.
    StepDown(usize),
    /// A server is elected; a primary that was does not know it yet.
    Elect(usize),
    /// The third member is removed from the configuration, or added again.
    Reconfigure,
    /// A link is reset, and what was under way on it is lost.
    Reset(LinkId),
    /// An operation fails on that server with "not writable primary".
    NotPrimary(usize),
    /// An operation fails on that server with a network error.
    Network(usize),
    /// The same, on a connection from before the pool was last cleared.
    StaleNetwork(usize),
}

impl fmt::Display for WorldStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrive(link) => write!(f, "what is under way on link {link} arrives"),
            Self::Time => f.write_str("time passes until the next timer"),
            Self::Wait => f.write_str("operations begin to wait for a primary and for any server"),
            Self::Abandon(waiter) => write!(f, "operation {} waits no more", waiter.0),
            Self::Fault(fault) => write!(f, "FAULT: {fault}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Toggle(member) => write!(f, "{} dies, or is started again", NAMES[member]),
            Self::StepDown(member) => write!(f, "{} steps down", NAMES[member]),
            Self::Elect(member) => write!(f, "{} is elected", NAMES[member]),
            Self::Reconfigure => f.write_str("the third member is removed, or added again"),
            Self::Reset(link) => write!(f, "link {link} is reset"),
            Self::NotPrimary(member) => {
                write!(f, "an operation finds {} not writable", NAMES[member])
            }
            Self::Network(member) => {
                write!(f, "an operation's connection to {} breaks", NAMES[member])
            }
            Self::StaleNetwork(member) => {
                write!(f, "an operation's old connection to {} breaks", NAMES[member])
            }
        }
    }
}
