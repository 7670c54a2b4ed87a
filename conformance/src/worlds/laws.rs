//! What must hold of everything that a topology does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sdam_core::address::ServerAddress;
use sdam_core::description::{ServerType, TopologyDescription, TopologyType};
use sdam_core::event::EventKind;
use sdam_core::id::{LinkId, ServerId, WaiterId};
use sdam_core::pool::{Command, Generation};
use sdam_core::time::Instant;
use sdam_core::topology::Action;
use serde::Serialize;

use crate::sim::Violation;

/// What a check finds.
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
}

/// The largest (electionId, setVersion) that was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
struct Newest(Option<[u8; 12]>, Option<i64>);

/// What is known of the past, as far as what must hold depends on it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Laws {
    pub(super) joined: BTreeMap<ServerId, Joined>,
    /// The links that are open, or being opened.
    open: BTreeSet<LinkId>,
    newest: Newest,
    /// The operation that waits, and until when.
    pub(super) waiting: Option<(WaiterId, Instant)>,
    /// How many views were published.
    #[serde(skip)]
    pub(super) published: u32,
}

impl Laws {
    /// Looks at an action before it is performed.
    pub(super) fn action(&mut self, action: &Action) -> Finding {
        match action {
            Action::Open { link, .. } => {
                let news = self.is_known(link.server()) && self.open.insert(*link);
                ensure(news, "links are opened once, to members", || format!("{link}"))
            }
            Action::Send { link, .. } => self.link(*link),
            Action::Close { link } => {
                let is_open = self.open.remove(link);
                ensure(is_open, "only links that are open are closed", || format!("{link}"))
            }
            Action::Join { server, address } => self.join(*server, address),
            Action::Leave { server } => {
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
                let waited = self.waiting.take();
                ensure(
                    waited.is_some_and(|(id, _)| id == *waiter),
                    "only who waits is woken",
                    || format!("{waiter:?} was woken"),
                )
            }
            Action::Emit { event } => self.event(&event.kind),
            _ => Ok(()),
        }
    }

    /// A link is gone by other means than a `Close`.
    pub(super) fn lost(&mut self, link: LinkId) {
        self.open.remove(&link);
    }

    /// Looks at what a step has left behind.
    pub(super) fn after_step(&self, now: Instant, view: &TopologyDescription) -> Finding {
        let Some((_, until)) = self.waiting else { return Ok(()) };
        ensure(until > now, "who waits is answered by its deadline", || {
            format!("it is {now:?}, and the deadline was {until:?}")
        })?;
        ensure(view.primary().is_none(), "nobody waits for what is there", || {
            "there is a primary, and an operation waits for it".to_owned()
        })
    }

    /// Looks at what a client has left that was closed.
    pub(super) fn over(&self) -> Finding {
        let empty = self.joined.is_empty() && self.open.is_empty() && self.waiting.is_none();
        ensure(empty, "nothing is left of a client that was closed", || format!("{self:?}"))
    }

    fn is_known(&self, server: ServerId) -> bool {
        self.joined.contains_key(&server)
    }

    fn link(&self, link: LinkId) -> Finding {
        ensure(self.open.contains(&link), "only links that are open are used", || format!("{link}"))
    }

    fn join(&mut self, server: ServerId, address: &ServerAddress) -> Finding {
        let joined = Joined {
            address: address.clone(),
            generation: Generation::default(),
            is_ready: false,
            is_checked: false,
        };
        let twice = self.joined.values().any(|other| other.address == *address);
        let again = self.joined.insert(server, joined).is_some();
        ensure(!twice && !again, "servers join once", || format!("{server} at {address}"))
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
        let before = std::mem::replace(&mut self.newest, newest);
        ensure(newest >= before, "(electionId, setVersion) never goes back", || {
            format!("from {before:?} to {newest:?}")
        })
    }

    fn event(&mut self, kind: &EventKind) -> Finding {
        let (server, starts) = match kind {
            EventKind::ServerHeartbeatStarted { server, .. } => (server, true),
            EventKind::ServerHeartbeatSucceeded { server, .. }
            | EventKind::ServerHeartbeatFailed { server, .. } => (server, false),
            _ => return Ok(()),
        };
        let before = self.joined.get_mut(server).map(|it| {
            let before = it.is_checked;
            it.is_checked = starts;
            before
        });
        ensure(before == Some(!starts), "a member's heartbeats start and end in turn", || {
            format!("{server}: {}", if starts { "started" } else { "ended" })
        })
    }
}
