//! A runtime that does nothing by itself.

use std::sync::{Arc, Mutex};

use super::super::{Host, Link, Rescan, Runtime, Slot, lock};
use super::stage::Wire;
use crate::address::ServerAddress;
use crate::options::Options;
use crate::time::Instant;

/// Keeps what it is asked for, for the test to look at.
#[derive(Default)]
pub(super) struct Puppet {
    pub(super) now: Arc<Mutex<Instant>>,
    pub(super) links: Mutex<Vec<Link<Self>>>,
    pub(super) slots: Mutex<Vec<Slot<Self>>>,
    pub(super) rescans: Mutex<Vec<Rescan<Self>>>,
    pub(super) alarm: Mutex<Option<Instant>>,
    /// Whether streams are given up the moment they are asked for, as a runtime that is shutting
    /// down does.
    pub(super) dying: bool,
}

impl Runtime for Puppet {
    type Socket = Wire;

    fn now(&self) -> Instant {
        *lock(&self.now)
    }

    fn open(&self, link: Link<Self>, _: ServerAddress) {
        if !self.dying {
            lock(&self.links).push(link);
        }
    }

    fn establish(&self, slot: Slot<Self>, _: ServerAddress) {
        if !self.dying {
            lock(&self.slots).push(slot);
        }
    }

    fn resolve(&self, rescan: Rescan<Self>) {
        if !self.dying {
            lock(&self.rescans).push(rescan);
        }
    }

    fn alarm(&self, deadline: Option<Instant>) {
        *lock(&self.alarm) = deadline;
    }
}

pub(super) fn host(uri: &str, dying: bool) -> Arc<Host<Puppet>> {
    let puppet = Puppet { dying, ..Puppet::default() };
    Host::new(Arc::new(Options::parse(uri).unwrap()), 1, puppet)
}

pub(super) fn take_link(host: &Host<Puppet>) -> Link<Puppet> {
    lock(&host.runtime().links).pop().expect("a link")
}
