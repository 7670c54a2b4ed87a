//! The way from an outcome to news: the description is updated and published, changes are reported,
//! monitors start and stop, and pools follow.

use std::sync::Arc;

use super::member::Member;
use super::monitor::{Context, Monitor, Outcome};
use super::update::Update;
use super::{Action, Topology};
use crate::config::MIN_HEARTBEAT_FREQUENCY;
use crate::description::{MAX_SERVERS, ServerDescription, ServerType, TopologyType};
use crate::failure::{Cause, Failure, Stage};
use crate::id::ServerId;
use crate::selection::Snapshot;
use crate::topology::EventKind;

impl Topology {
    /// Updates the description with what a check found, and lets its monitor go on.
    pub(super) fn check_ended(&mut self, id: ServerId, outcome: Outcome, out: &mut Vec<Action>) {
        let Some(current) = self.server(id) else { return };
        let was_known = current.server_type != ServerType::Unknown;
        let (server, failure) = match outcome {
            Ok(server) => (server, None),
            Err(failure) => {
                (Arc::new(current.failed(self.now.judged, failure.clone())), Some(failure))
            }
        };
        let is_news = !current.same_as(&server);
        if let Some(member) = self.members.get_mut(&id) {
            member.checked(failure.is_none(), self.now.judged);
        }
        let options = Arc::clone(&self.options);
        if let Some(update) =
            Update::new(&self.description, &options, self.now.judged, Arc::clone(&server))
        {
            self.publish(update, out);
            self.note_possible_primary(&server);
            if is_news {
                self.follow_hints(&server, out);
            }
        }
        // It answers, but is of no use: of another set than asked for, or a stale primary.
        let is_refused = failure.is_none()
            && self.server(id).is_some_and(|server| server.server_type == ServerType::Unknown);
        // "Clear the connection pool on both network and command errors"; a time-out says that
        // connections in use hang as well.
        if let (Some(cause), Some(member)) = (failure.clone(), self.members.get_mut(&id)) {
            let interrupt = cause.cause == Cause::Timeout;
            let command = member.clear(cause, interrupt);
            out.push(Action::Pool { server: id, command });
        }
        self.find_by_check(id, &server, failure.as_ref(), out);
        let needed = !self.waiters.is_empty();
        self.with_monitor(id, out, |monitor, ctx| {
            if is_refused {
                monitor.forget_round_trip_time();
            }
            monitor.settle(was_known, ctx);
            // "While no suitable server is available for an operation, the client MUST re-check
            // all servers every minHeartbeatFrequencyMS."
            if needed {
                monitor.request_check(ctx.now.judged);
            }
        });
    }

    /// Checks Unknown servers that another member names soon, if checks are eager: what it knows
    /// of them may be newer than what their monitors do.
    fn follow_hints(&mut self, member: &ServerDescription, out: &mut Vec<Action>) {
        if !self.options.eager_checks() || self.scans() {
            return;
        }
        let named = |server: &ServerDescription| {
            server.server_type == ServerType::Unknown
                && server.address != member.address
                && member.members().chain(&member.primary).any(|it| *it == server.address)
        };
        let servers = self.description.servers();
        let hinted: Vec<_> =
            servers.iter().filter(|server| named(server)).map(|server| server.id).collect();
        for id in hinted {
            self.with_monitor(id, out, |monitor, ctx| monitor.request_check(ctx.now.judged));
        }
    }

    /// Publishes an updated description, emits what has changed, and starts and stops monitors.
    ///
    /// Pools follow in an order that no reader of the view can see wrong: they exist before a view
    /// names their server, are ready before it can be selected, and end after it has gone.
    pub(super) fn publish(&mut self, update: Update<'_>, out: &mut Vec<Action>) {
        let is_news = update.is_news(&self.description);
        let Update { topology, server, changed, added, removed, sole, recheck, stale, .. } = update;
        let previous = std::mem::replace(&mut self.description, Arc::new(topology));
        let new = Arc::clone(&self.description);
        self.snapshot = Arc::new(match sole {
            Some((index, old)) => self.snapshot.after((index, &old), Arc::clone(&new)),
            None => Snapshot::new(Arc::clone(&new), &self.options),
        });
        self.history.learn(&new, &removed, self.now.judged);
        self.history.stale = stale.or_else(|| self.history.stale.take());
        self.stop_rescans_unless_sharded();
        for server in &added {
            self.join(server, out);
        }
        if let Some(server) = server {
            self.make_ready(server, out);
        }
        out.push(Action::Publish { snapshot: Arc::clone(&self.snapshot) });
        let mut ctx = self.context(out);
        for (previous, new) in changed {
            ctx.emit(EventKind::ServerDescriptionChanged { previous, new });
        }
        for server in &added {
            let (id, address) = (server.id, server.address.clone());
            ctx.emit(EventKind::ServerOpening { server: id, address });
        }
        if !removed.is_empty() {
            self.forget_departed();
        }
        for server in &removed {
            self.leave(server, "the server is no longer part of the deployment", out);
        }
        if is_news {
            self.context(out).emit(EventKind::TopologyDescriptionChanged { previous, new });
        }
        self.wake_waiters(out);
        self.watch_for_emptiness();
        for id in recheck {
            self.with_monitor(id, out, |monitor, ctx| {
                monitor.forget_round_trip_time();
                monitor.request_check(ctx.now.judged);
            });
        }
    }

    /// "Marking the connection pool as ready": after a successful check of a server that can be
    /// used, or of any server that is connected to directly.
    fn make_ready(&mut self, id: ServerId, out: &mut Vec<Action>) {
        let Some(server) = self.server(id) else { return };
        let single = self.description.topology_type == TopologyType::Single;
        let usable = server.server_type.is_data_bearing()
            || (single && server.server_type != ServerType::Unknown);
        if usable
            && let Some(member) = self.members.get_mut(&id)
            && let Some(command) = member.make_ready()
        {
            out.push(Action::Pool { server: id, command });
        }
    }

    /// Creates a server's pool, and begins to monitor it unless it is a load balancer; the first
    /// check is due at once, or when a scan comes to it. A server that has left only just keeps its
    /// 500 ms, or two whose names are crossed would bring each other back as fast as they answer.
    pub(super) fn join(&mut self, server: &ServerDescription, out: &mut Vec<Action>) {
        let (id, address) = (server.id, server.address.clone());
        let monitored = self.description.topology_type != TopologyType::LoadBalanced;
        let checked = self.departed.remove(&address);
        let now = self.now.judged;
        let earliest = checked.map_or(now, |checked| now.max(checked + MIN_HEARTBEAT_FREQUENCY));
        let first = (!self.scans()).then_some(earliest);
        let monitor = monitored.then(|| Monitor::new(id, address.clone(), first, checked));
        let due = monitor.as_ref().and_then(Monitor::deadline);
        self.timers.extend(due.map(|due| (due, id)));
        self.members.insert(id, Member::new(address.clone(), monitor));
        out.push(Action::Join { server: id, address });
    }

    /// Forgets servers that have left and may be checked again.
    fn forget_departed(&mut self) {
        // A scan forgets them when it ends: to it they are checked, however long ago.
        if !self.scans() {
            let now = self.now.judged;
            self.departed.retain(|_, checked| *checked + MIN_HEARTBEAT_FREQUENCY > now);
        }
    }

    /// Stops monitoring a server, closes its pool, and emits that it is closed.
    pub(super) fn leave(
        &mut self,
        server: &ServerDescription,
        reason: &str,
        out: &mut Vec<Action>,
    ) {
        let member = self.members.remove(&server.id);
        if let Some(mut monitor) = member.and_then(|member| member.monitor) {
            if let Some(due) = monitor.deadline() {
                self.timers.remove(&(due, server.id));
            }
            let reason = Failure::new(Stage::Hello, Cause::Canceled, reason);
            monitor.stop(reason, &mut self.context(out));
            let checked = monitor.last_check();
            self.departed.extend(checked.map(|checked| (server.address.clone(), checked)));
            // However many names a hostile server invents within one scan.
            if self.departed.len() > MAX_SERVERS {
                self.departed.pop_first();
            }
        }
        out.push(Action::Leave { server: server.id });
        let address = server.address.clone();
        self.context(out).emit(EventKind::ServerClosed { server: server.id, address });
    }

    /// Returns what is known of a member.
    pub(super) fn server(&self, id: ServerId) -> Option<&Arc<ServerDescription>> {
        self.description.server(&self.members.get(&id)?.address)
    }

    /// Lets a monitor do something, and notes when it is next due; without effect if it is gone.
    pub(super) fn with_monitor<T>(
        &mut self,
        id: ServerId,
        out: &mut Vec<Action>,
        act: impl FnOnce(&mut Monitor, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let circumstances = self.circumstances();
        let monitor = self.members.get_mut(&id)?.monitor.as_mut()?;
        let mut ctx = circumstances.context((&self.options, &self.client), out);
        let before = monitor.deadline();
        let result = act(monitor, &mut ctx);
        let after = monitor.deadline();
        if before != after {
            if let Some(due) = before {
                self.timers.remove(&(due, id));
            }
            self.timers.extend(after.map(|due| (due, id)));
        }
        Some(result)
    }
}
