//! The signs of an incident in the events of a client.

use std::collections::{BTreeMap, BTreeSet};

use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerDescription, ServerType};
use sdam_core::failure::{Cause, Failure};
use sdam_core::id::ServerId;
use sdam_core::pool::PoolEvent;
use sdam_core::time::Instant;
use sdam_core::topology::{Event, EventKind};

use super::ELECTION_ID_FIRST;
use crate::sim::coverage::{Sign, Tally};

/// After how many failures a monitor that succeeds has recovered.
const MANY: u32 = 5;

/// ShutdownInProgress.
const SHUTDOWN_IN_PROGRESS: i32 = 91;

/// The checks of one server.
#[derive(Debug, Default)]
struct Watch {
    /// The time when the check in progress began, and whether its process was stopped meanwhile for
    /// long.
    started: Option<(Instant, bool)>,
    /// The number that have failed since the last one that did not.
    failures: u32,
    /// The time when the last one failed.
    failed: Option<Instant>,
    /// True if one of those that have failed got no answer.
    silent: bool,
}

/// Watches a client for signs.
#[derive(Debug, Default)]
pub(super) struct Observer {
    pub(super) signs: Tally,
    /// The number of checks that were abandoned.
    pub(super) abandoned: u64,
    watches: BTreeMap<ServerId, Watch>,
    /// Servers that have left.
    left: BTreeSet<ServerAddress>,
    /// The maxWireVersion of the last primary.
    primary: Option<i32>,
}

impl Observer {
    /// Looks at an event; `wanted` says whether an operation waits for a server.
    pub(super) fn event(&mut self, event: &Event, wanted: bool) {
        match &event.kind {
            EventKind::ServerHeartbeatStarted { server, .. } => {
                self.watches.entry(*server).or_default().started = Some((event.at, false));
            }
            EventKind::ServerHeartbeatSucceeded { server, awaited, .. } => {
                self.succeeded(*server, *awaited);
            }
            EventKind::ServerHeartbeatFailed { server, failure, .. } => {
                self.failed(*server, failure, event.at, wanted);
            }
            EventKind::ServerOpening { address, .. } if self.left.contains(address) => {
                self.signs.note(Sign::Rejoined);
            }
            EventKind::ServerClosed { server, address } => {
                self.watches.remove(server);
                self.left.insert(address.clone());
            }
            EventKind::ServerDescriptionChanged { new, .. } => self.changed(new),
            EventKind::TopologyDescriptionChanged { previous, new } => {
                match (previous.servers().is_empty(), new.servers().is_empty()) {
                    (false, true) => self.signs.note(Sign::Emptied),
                    (true, false) if self.signs.count(Sign::Emptied) > 0 => {
                        self.signs.note(Sign::Refilled);
                    }
                    _ => {}
                }
            }
            EventKind::Pool { event: PoolEvent::PoolCleared { service: Some(_), .. }, .. } => {
                self.signs.note(Sign::ServiceCleared);
            }
            _ => {}
        }
    }

    fn succeeded(&mut self, server: ServerId, awaited: bool) {
        let watch = self.watches.entry(server).or_default();
        let Watch { started, failures, failed, silent } = std::mem::take(watch);
        let signs = [
            (Sign::Streamed, awaited),
            (Sign::MonitorRecovered, failures >= MANY),
            (Sign::BackAfterSilence, silent),
            (Sign::CheckedAgainAtOnce, failed.is_some() && failed == started.map(|it| it.0)),
            (Sign::CheckOutlivedPause, started.is_some_and(|it| it.1)),
        ];
        signs.iter().filter(|it| it.1).for_each(|(sign, _)| self.signs.note(*sign));
    }

    fn failed(&mut self, server: ServerId, failure: &Failure, at: Instant, wanted: bool) {
        let watch = self.watches.entry(server).or_default();
        watch.started = None;
        if failure.cause == Cause::Canceled {
            self.abandoned += 1;
            return;
        }
        watch.failures += 1;
        watch.failed = Some(at);
        watch.silent |= failure.cause == Cause::Timeout;
        match &failure.cause {
            Cause::Timeout => self.signs.note(Sign::TimedOut),
            Cause::Refused if wanted => self.signs.note(Sign::RefusedWhileWanted),
            Cause::Command { code: SHUTDOWN_IN_PROGRESS, .. } => {
                self.signs.note(Sign::ShutdownAnnounced);
            }
            _ => {}
        }
    }

    fn changed(&mut self, new: &ServerDescription) {
        if new.error.as_ref().is_some_and(|error| error.cause == Cause::StalePrimary) {
            self.signs.note(Sign::StalePrimary);
        }
        if new.server_type == ServerType::RsPrimary {
            let is_new = new.max_wire_version >= ELECTION_ID_FIRST;
            match self.primary.replace(new.max_wire_version).map(|it| it >= ELECTION_ID_FIRST) {
                Some(false) if is_new => self.signs.note(Sign::PrimaryUpgraded),
                Some(true) if !is_new => self.signs.note(Sign::PrimaryDowngraded),
                _ => {}
            }
        }
    }

    /// The process was stopped for longer than a check in progress may take.
    pub(super) fn paused_for_long(&mut self) {
        for started in self.watches.values_mut().filter_map(|watch| watch.started.as_mut()) {
            started.1 = true;
        }
    }
}
