//! A runtime that does nothing by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bson::DateTime;

use super::fixture::Wire;
use crate::machines::Host;
use crate::machines::alarm::Deadlines;
use crate::machines::runtime::{Offloaded, Runtime, Task, Work};
use crate::machines::tasks::Link;
use crate::machines::tasks::PendingConnection;
use crate::machines::tasks::Rescan;
use crate::net::credentials::Answering;
use crate::net::credentials::CredentialProvider;
use crate::net::reactor::Lane;
use crate::sync::Mutex;
use crate::sync::lock;
use sdam_core::auth::CredentialRequest;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::time::Instant;

/// Keeps what it is asked for, for the test to look at.
#[derive(Default)]
pub(super) struct Puppet {
    pub(super) now: Arc<Mutex<Instant>>,
    /// For how long the process is stopped when the clock was read once more.
    pub(super) stops: Mutex<Option<Duration>>,
    pub(super) links: Mutex<Vec<Link<Self>>>,
    pub(super) pending: Mutex<Vec<PendingConnection<Self>>>,
    pub(super) rescans: Mutex<Vec<Rescan<Self>>>,
    pub(super) alarm: Mutex<Option<Instant>>,
    /// The time of day at the origin of its clock, if it is known.
    pub(super) time_of_day: Option<DateTime>,
    /// True if streams are given up the moment they are asked for, as a runtime that is shutting
    /// down does.
    pub(super) dying: bool,
    /// The function that establishes connections, if the test does not.
    pub(super) establisher: Option<Box<dyn Fn(PendingConnection<Self>) + Send + Sync>>,
    /// True if it panics when its next deadline is set.
    pub(super) panics: AtomicBool,
    /// The function that opens links, if the test does not.
    pub(super) opener: Option<Box<dyn Fn(Link<Self>) + Send + Sync>>,
    /// The deadlines, if the test does not keep time.
    pub(super) deadlines: Option<Deadlines>,
    /// The tasks that the test is to poll.
    pub(super) tasks: Mutex<Vec<Task>>,
    /// The source of tokens, if there is one.
    pub(super) provider: Option<Box<dyn CredentialProvider>>,
    /// True if long work is left to the test.
    pub(super) leaves_work: bool,
    pub(super) work: Arc<Mutex<Option<Work>>>,
}

impl Runtime for Puppet {
    type Socket = Wire;

    fn now(&self) -> Instant {
        let mut now = lock(&self.now);
        let read = *now;
        *now = read + lock(&self.stops).take().unwrap_or_default();
        read
    }

    fn wall_clock(&self) -> Option<DateTime> {
        let since = lock(&self.now).since_origin().as_millis();
        let millis = |at: DateTime| at.timestamp_millis() + i64::try_from(since).unwrap();
        self.time_of_day.map(|at| DateTime::from_millis(millis(at)))
    }

    fn open(&self, link: Link<Self>, _: ServerAddress) {
        match &self.opener {
            Some(open) => open(link),
            None if self.dying => {}
            None => lock(&self.links).push(link),
        }
    }

    fn establish(&self, pending: PendingConnection<Self>, _: ServerAddress) {
        match &self.establisher {
            Some(establish) => establish(pending),
            None if self.dying => {}
            None => lock(&self.pending).push(pending),
        }
    }

    fn resolve(&self, rescan: Rescan<Self>) {
        if !self.dying {
            lock(&self.rescans).push(rescan);
        }
    }

    fn spawn(&self, task: Task) {
        lock(&self.tasks).push(task);
    }

    fn offload(&self, _lane: Lane, work: Work) -> Offloaded {
        if !self.leaves_work {
            work();
            return Box::pin(std::future::ready(()));
        }
        let left = Arc::clone(&self.work);
        *lock(&left) = Some(work);
        Box::pin(std::future::poll_fn(move |_| match *lock(&left) {
            Some(_) => Poll::Pending,
            None => Poll::Ready(()),
        }))
    }

    fn answer(&self, question: CredentialRequest) -> Answering {
        match &self.provider {
            Some(provider) => provider.answer(question),
            None => {
                let detail = "there are no tokens";
                let failure = Failure::new(Stage::Credentials, Cause::Configuration, detail);
                Box::pin(async { Err(failure) })
            }
        }
    }

    fn alarm(&self, deadline: Option<Instant>) {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "as a test wants it");
        *lock(&self.alarm) = deadline;
        self.deadlines.iter().for_each(|deadlines| deadlines.set(deadline));
    }
}

pub(super) fn host(uri: &str, dying: bool) -> Arc<Host<Puppet>> {
    let puppet = Puppet { dying, ..Puppet::default() };
    Host::new(Arc::new(Options::parse(uri).unwrap()), 1, puppet)
}

/// Lets time pass, and rings whenever the host has asked for it.
pub(super) fn pass(host: &Host<Puppet>, time: Duration) {
    let now = || *lock(&host.runtime().now);
    let end = now() + time;
    for rings in 0.. {
        assert!(rings < 100_000, "the host is due again and again");
        let alarm = *lock(&host.runtime().alarm);
        match alarm.filter(|alarm| *alarm <= end) {
            Some(alarm) => {
                *lock(&host.runtime().now) = alarm.max(now());
                host.ring();
            }
            None => break,
        }
    }
    *lock(&host.runtime().now) = end;
}

pub(super) fn take_link(host: &Host<Puppet>) -> Link<Puppet> {
    lock(&host.runtime().links).pop().expect("a link")
}
