//! Re-seeding: a topology that has lost its last server begins again with its seeds.
//!
//! Here we depart from the specification. It has the last server removed like any other, and calls
//! the state of a topology without servers terminal, "because servers can only be added if they are
//! reported by a server already in the topology" ("Other TopologyTypes"): a consequence that it
//! states, with no MUST or SHOULD. To a user it is a client that stays useless until it is
//! restarted, and then works. What may be restarted may begin again by itself: after a pause the
//! seeds join as new servers. All else that is known stays, so that neither a stale primary nor
//! another replica set is taken for the one that was lost; and so does why the last server was
//! removed, for errors to report until a server has answered that stays.
//!
//! The pause is a heartbeat, or 500 ms if somebody waits for a server or asks for a check, so that
//! a seed that is removed each time is asked no more often than one that fails. A single-threaded
//! client begins again with its next scan; and one whose hosts come from DNS with those of the last
//! lookup.

use serde::Serialize;

use super::update::Update;
use super::{Action, Topology};
use crate::config::{MIN_HEARTBEAT_FREQUENCY, ServerAddress};
use crate::time::Instant;

/// The new beginning of a topology without servers: its time, and its servers.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Reseed {
    /// The time when the last server was removed, and when the pause is over; while there are
    /// servers, and in the single-threaded mode, there is none.
    pause: Option<(Instant, Instant)>,
    /// The hosts of the last lookup in DNS, if there was one since the topology was opened.
    listed: Option<Vec<ServerAddress>>,
}

impl Reseed {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pause.map(|(_, due)| due)
    }

    /// Somebody needs a server: the pause is as short as one between two checks.
    pub(super) fn request(&mut self, now: Instant) {
        if let Some((emptied, due)) = &mut self.pause {
            *due = (*due).min(*emptied + MIN_HEARTBEAT_FREQUENCY).max(now);
        }
    }
}

impl Topology {
    /// Begins the pause when the last server has been removed, and ends it when one has joined.
    pub(super) fn watch_for_emptiness(&mut self) {
        let is_empty = self.description.servers().is_empty() && !self.scans();
        self.reseed.pause = is_empty.then(|| {
            let emptied = self.now.clock;
            (emptied, emptied + self.options.heartbeat_frequency())
        });
        if !self.waiters.is_empty() {
            self.reseed.request(self.now.judged);
        }
    }

    /// Remembers which hosts DNS names now, as far as they are used.
    pub(super) fn remember_listed(&mut self) {
        let servers = self.description.servers().iter();
        self.reseed.listed = Some(servers.map(|server| server.address.clone()).collect());
    }

    /// Begins again when the pause is over.
    pub(super) fn fire_reseed(&mut self, out: &mut Vec<Action>) {
        if self.reseed.deadline().is_some_and(|due| due <= self.now.judged) {
            self.reseed(out);
        }
    }

    /// Begins again if there is no server.
    pub(super) fn reseed(&mut self, out: &mut Vec<Action>) {
        if !self.description.servers().is_empty() {
            return;
        }
        let (options, listed) = (self.options.clone(), self.reseed.listed.clone());
        let seeds = listed.as_deref().unwrap_or(options.seeds());
        let update = Update::of_hosts(&self.description, &options, self.now.judged, seeds, &[]);
        self.publish(update, out);
    }
}
