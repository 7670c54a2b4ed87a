//! The laws of everything that a topology does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sdam_core::config::{MIN_HEARTBEAT_FREQUENCY, ServerAddress};
use sdam_core::description::{ServerDescription, ServerType, TopologyDescription, TopologyType};
use sdam_core::failure::Cause;
use sdam_core::id::{Generation, LinkId, ServerId, WaiterId};
use sdam_core::pool::Command;
use sdam_core::selection::{Criteria, Snapshot};
use sdam_core::time::Instant;
use sdam_core::topology::{Action, EventKind};
use serde::Serialize;

use crate::sim::Violation;

/// The finding of a check.
pub(super) type Finding = Result<(), Violation>;

/// Fails a check unless `holds`.
pub(super) fn ensure(holds: bool, check: &'static str, detail: impl FnOnce() -> String) -> Finding {
    if holds { Ok(()) } else { Err(Violation { check, detail: detail() }) }
}

/// A server that has joined.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Joined {
    #[serde(skip)]
    pub(super) address: ServerAddress,
    pub(super) generation: Generation,
    pub(super) is_ready: bool,
    is_checked: bool,
    /// The time when its last check ended, or else when it joined.
    idle_since: Instant,
    /// Since when it is to be checked as soon as possible.
    wanted_since: Option<Instant>,
    /// The time when it was last checked again for a network error, or is to be.
    retried: Option<Instant>,
    /// The link that was opened last.
    #[serde(skip)]
    latest: Option<LinkId>,
}

/// An operation that waits.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Waiting {
    pub(super) since: Instant,
    pub(super) until: Instant,
    #[serde(skip)]
    pub(super) criteria: Arc<Criteria>,
}

/// The largest (electionId, setVersion) that was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
struct Newest(Option<[u8; 12]>, Option<i64>);

/// The past, as far as the laws depend on it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Laws {
    pub(super) joined: BTreeMap<ServerId, Joined>,
    /// The links that are open, or being opened.
    open: BTreeSet<LinkId>,
    newest: Newest,
    pub(super) waiting: BTreeMap<WaiterId, Waiting>,
    /// Servers that are to be checked again before the step is over.
    recheck: BTreeSet<ServerId>,
    /// The server that joined last.
    #[serde(skip)]
    latest: Option<ServerId>,
    /// The view that was published last.
    #[serde(skip)]
    seen: Arc<TopologyDescription>,
    /// The number of views that were published.
    #[serde(skip)]
    pub(super) published: u32,
}

impl Laws {
    /// Looks at an action before it is performed.
    pub(super) fn action(&mut self, action: &Action, now: Instant) -> Finding {
        match action {
            Action::Open { link, .. } => {
                self.open.insert(*link);
                let server = self.joined.get_mut(&link.server());
                let news = server.is_some_and(|it| it.latest.replace(*link) < Some(*link));
                ensure(news, "links are opened once, to members", || format!("{link}"))
            }
            Action::Send { link, .. } => self.link(*link),
            Action::Close { link } => {
                let is_open = self.open.remove(link);
                ensure(is_open, "only links that are open are closed", || format!("{link}"))
            }
            Action::Join { server, address } => self.join(*server, address, now),
            Action::Leave { server } => {
                self.recheck.remove(server);
                let left = self.joined.remove(server);
                let idle = left.as_ref().is_some_and(|it| !it.is_checked);
                let linked = self.open.iter().any(|link| link.server() == *server);
                ensure(idle && !linked, "who leaves is a member and left alone", || {
                    format!("{server}: {left:?}, links {:?}", self.open)
                })
            }
            Action::Pool { server, command } => self.pool(*server, command),
            Action::Publish { snapshot } => self.view(snapshot.description()),
            Action::Wake { waiter, .. } => {
                let waited = self.waiting.remove(waiter).is_some();
                ensure(waited, "only who waits is woken", || format!("{waiter:?} was woken"))
            }
            Action::Emit { event } => self.event(&event.kind, now),
            _ => Ok(()),
        }
    }

    /// A link is gone by other means than a `Close`.
    pub(super) fn lost(&mut self, link: LinkId) {
        self.open.remove(&link);
    }

    /// Looks at what a step has left behind.
    pub(super) fn after_step(&self, now: Instant, view: &Snapshot) -> Finding {
        let checked = self.recheck.is_empty();
        ensure(checked, "a known server is checked again after a network error", || {
            format!("{:?}", self.recheck)
        })?;
        let late = self.joined.iter().find(|it| self.next_check(it.1).is_some_and(|at| at <= now));
        ensure(late.is_none(), "who is wanted is checked as soon as possible", || {
            format!("it is {now:?}, and {late:?}")
        })?;
        for Waiting { until, criteria, .. } in self.waiting.values() {
            ensure(*until > now, "who waits is answered by its deadline", || {
                format!("it is {now:?}, and the deadline was {until:?}")
            })?;
            let nothing = matches!(view.select(criteria, |_| 0, 0), Ok(None));
            ensure(nothing, "nothing waits for what is there", || criteria.to_string())?;
        }
        Ok(())
    }

    /// Returns when something has to have happened.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let checks = self.joined.values().filter_map(|it| self.next_check(it));
        self.waiting.values().map(|it| it.until).chain(checks).min()
    }

    /// Returns when a server is to be checked: "clients MUST re-check all servers every
    /// minHeartbeatFrequencyMS" while an operation waits, and "as soon as possible" on demand, but
    /// not before that time has passed since its last check.
    fn next_check(&self, server: &Joined) -> Option<Instant> {
        let waiting = self.waiting.values().map(|it| it.since);
        let since = waiting.chain(server.wanted_since).min().filter(|_| !server.is_checked)?;
        Some(since.max(server.idle_since + MIN_HEARTBEAT_FREQUENCY))
    }

    /// A server is to be checked, unless it is being checked.
    pub(super) fn want(&mut self, server: ServerId, now: Instant) {
        if let Some(server) = self.joined.get_mut(&server).filter(|it| !it.is_checked) {
            server.wanted_since.get_or_insert(now);
        }
    }

    /// A known server's check has failed by a network error: returns whether the next one begins in
    /// the same step.
    fn retries_at_once(&mut self, server: ServerId, now: Instant) -> bool {
        let Some(server) = self.joined.get_mut(&server) else { return false };
        let earliest = server.retried.map_or(now, |last| last + MIN_HEARTBEAT_FREQUENCY);
        server.retried = Some(earliest.max(now));
        earliest <= now
    }

    /// Looks at what a client has left that was closed.
    pub(super) fn over(&self) -> Finding {
        let empty = self.joined.is_empty() && self.open.is_empty() && self.waiting.is_empty();
        ensure(empty, "nothing is left of a client that was closed", || format!("{self:?}"))
    }

    /// Returns whether that server is seen as anything but Unknown.
    fn sees(&self, server: ServerId) -> bool {
        let is_known = |it: &ServerDescription| it.server_type != ServerType::Unknown;
        self.seen.servers().iter().any(|it| it.id == server && is_known(it))
    }

    fn link(&self, link: LinkId) -> Finding {
        ensure(self.open.contains(&link), "only links that are open are used", || format!("{link}"))
    }

    fn join(&mut self, server: ServerId, address: &ServerAddress, now: Instant) -> Finding {
        let joined = Joined {
            address: address.clone(),
            generation: Generation::default(),
            is_ready: false,
            is_checked: false,
            idle_since: now,
            wanted_since: None,
            retried: None,
            latest: None,
        };
        let twice = self.joined.values().any(|other| other.address == *address);
        self.joined.insert(server, joined);
        let is_new = self.latest.replace(server) < Some(server);
        ensure(is_new && !twice, "servers join once", || format!("{server} at {address}"))
    }

    fn pool(&mut self, server: ServerId, command: &Command) -> Finding {
        let Some(pool) = self.joined.get_mut(&server) else {
            return ensure(false, "pools are those of members", || format!("{server}"));
        };
        match command {
            Command::Ready => {
                let again = std::mem::replace(&mut pool.is_ready, true);
                ensure(!again, "pools become ready once", || format!("{server}"))
            }
            Command::Clear { to, .. } => {
                let from = std::mem::replace(&mut pool.generation, *to);
                pool.is_ready = false;
                ensure(to.number() == from.number() + 1, "generations count", || {
                    format!("{server} goes from {from} to {to}")
                })
            }
            _ => ensure(false, "there are no services", || format!("{server}")),
        }
    }

    fn view(&mut self, view: &Arc<TopologyDescription>) -> Finding {
        self.published += 1;
        self.seen = Arc::clone(view);
        let servers = || view.servers().iter();
        let primaries = servers().filter(|it| it.server_type == ServerType::RsPrimary).count();
        let has_primary = view.topology_type == TopologyType::ReplicaSetWithPrimary;
        ensure(primaries == usize::from(has_primary), "there is one primary at most", || {
            format!("{primaries} primaries in a {}", view.topology_type)
        })?;
        for server in servers() {
            let pool = self.joined.get(&server.id);
            let usable = server.server_type.is_data_bearing();
            ensure(
                pool.is_some_and(|pool| pool.is_ready || !usable),
                "a view names only servers whose pool is there, and ready if it can be used",
                || format!("{} is {}, its pool {pool:?}", server.address, server.server_type),
            )?;
        }
        // A client that was closed knows nothing any more.
        if view.servers().is_empty() {
            return Ok(());
        }
        let newest = Newest(view.max_election_id.map(|id| id.bytes()), view.max_set_version);
        let is_newest = |it: &ServerDescription| {
            Newest(it.election_id.map(|id| id.bytes()), it.set_version) >= newest
        };
        let is_fresh = view.primary().is_none_or(|primary| is_newest(primary));
        ensure(is_fresh, "the primary is that of the latest election", || format!("{newest:?}"))?;
        let before = std::mem::replace(&mut self.newest, newest);
        ensure(newest >= before, "(electionId, setVersion) never goes back", || {
            format!("from {before:?} to {newest:?}")
        })
    }

    fn event(&mut self, kind: &EventKind, now: Instant) -> Finding {
        let mut is_wanted = false;
        let (server, starts) = match kind {
            EventKind::ServerHeartbeatStarted { server, .. } => {
                self.recheck.remove(server);
                (server, true)
            }
            // "Network or Command Error During Server Check": once more at once, if it was known,
            // and if that was not done within 500 ms; then it is done when they are over.
            EventKind::ServerHeartbeatFailed { server, failure, .. }
                if failure.is_network_error() && self.sees(*server) =>
            {
                is_wanted = !self.retries_at_once(*server, now);
                if !is_wanted {
                    self.recheck.insert(*server);
                }
                (server, false)
            }
            EventKind::ServerHeartbeatSucceeded { server, .. }
            | EventKind::ServerHeartbeatFailed { server, .. } => (server, false),
            // "A note on invalidating the old primary"
            EventKind::ServerDescriptionChanged { new, .. } => {
                if new.error.as_ref().is_some_and(|error| error.cause == Cause::NewerPrimary) {
                    self.want(new.id, now);
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        let before = self.joined.get_mut(server).map(|it| {
            (it.idle_since, it.wanted_since) = (now, None);
            std::mem::replace(&mut it.is_checked, starts)
        });
        if is_wanted {
            self.want(*server, now);
        }
        ensure(before == Some(!starts), "a member's heartbeats start and end in turn", || {
            format!("{server}: {}", if starts { "started" } else { "ended" })
        })
    }
}
