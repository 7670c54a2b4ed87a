//! The context of a monitor and its connections, and their identities.

use serde::Serialize;

use super::conversation::Conversation;
use crate::config::{Options, ServerAddress};
use crate::failure::{Cause, Failure, Stage};
use crate::id::{LinkId, ServerId, TopologyId};
use crate::time::{Instant, Time};
use crate::topology::{Action, Event, EventKind};

/// The part of its topology that a monitor needs, for the length of one call.
pub(crate) struct Context<'a> {
    pub(crate) options: &'a Options,
    /// The `client` document of a handshake.
    pub(crate) client: &'a bson::RawDocument,
    pub(crate) topology: TopologyId,
    pub(crate) now: Time,
    /// True if what comes is read soon: in the single-threaded mode, while somebody waits.
    pub(crate) attended: bool,
    /// True if there are so many servers that measurements wait for each other.
    pub(crate) crowded: bool,
    pub(crate) out: &'a mut Vec<Action>,
}

/// The values of a context, which are copied; the rest of it is borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances {
    pub(crate) topology: TopologyId,
    pub(crate) now: Time,
    pub(crate) attended: bool,
    pub(crate) crowded: bool,
}

impl Circumstances {
    /// Makes the context of a call.
    pub(crate) const fn context<'a>(
        self,
        (options, client): (&'a Options, &'a bson::RawDocument),
        out: &'a mut Vec<Action>,
    ) -> Context<'a> {
        let Self { topology, now, attended, crowded } = self;
        Context { options, client, topology, now, attended, crowded, out }
    }
}

impl Context<'_> {
    /// Appends an event that happens now.
    pub(crate) fn emit(&mut self, kind: EventKind) {
        let event = Event { topology: self.topology, at: self.now.clock, kind };
        self.out.push(Action::Emit { event });
    }

    /// Returns when an answer came to what was asked at `asked`: in time, as far as deadlines were
    /// judged, but not before it was asked.
    pub(super) fn answered_at(&self, asked: Instant) -> Instant {
        if asked <= self.now.judged { self.now.judged } else { self.now.clock }
    }

    pub(super) fn connect_deadline(&self) -> Option<Instant> {
        self.options.connect_timeout().map(|timeout| self.now.clock + timeout)
    }

    /// "Socket timeout": a time-out of zero stays unlimited for awaited replies too.
    pub(super) fn await_deadline(&self) -> Option<Instant> {
        self.connect_deadline().map(|deadline| deadline + self.options.heartbeat_frequency())
    }

    /// Says what has not come in time, at the stage that the check has come to.
    pub(super) fn timeout(&self, awaited: bool, stage: Stage) -> Failure {
        let connect = self.options.connect_timeout().unwrap_or_default();
        let detail = match awaited && stage >= Stage::Hello {
            true => {
                let most = connect.saturating_add(self.options.heartbeat_frequency());
                format!("no awaited reply within {most:?}")
            }
            false => format!("{} within {connect:?}", stage.unfinished()),
        };
        Failure::new(stage, Cause::Timeout, detail)
    }

    /// Says what it may mean that the server has hung up when it was greeted: it may expect TLS,
    /// unless it has answered without before.
    pub(super) fn hung_up(&self, failure: Failure, has_answered: bool) -> Failure {
        if (failure.stage, &failure.cause) != (Stage::Hello, &Cause::Closed) {
            return failure;
        }
        let guess = match (self.options.tls().is_some(), has_answered) {
            (false, false) => "it may expect TLS, or accept no more connections",
            (true, _) | (_, true) => "it may be ending, or accept no more connections",
        };
        Failure::new(failure.stage, failure.cause, format!("{}; {guess}", failure.detail))
    }
}

/// The server whose monitor this is, and the source of its links' ids.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Identity {
    pub(super) server: ServerId,
    pub(super) address: ServerAddress,
    links: u64,
}

impl Identity {
    pub(super) fn new(server: ServerId, address: ServerAddress) -> Self {
        Self { server, address, links: 0 }
    }

    /// Returns the link that is opened next.
    pub(super) const fn next_link(&self) -> LinkId {
        LinkId { server: self.server, number: self.links }
    }

    /// Opens a new link.
    pub(super) fn open(&mut self, ctx: &mut Context<'_>) -> Conversation {
        let link = self.next_link();
        self.links += 1;
        ctx.out.push(Action::Open { link, address: self.address.clone() });
        Conversation::new(link)
    }
}
