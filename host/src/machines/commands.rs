//! The commands that run and whose start subscribers have seen: each gets an event of its end, too
//! (Command Logging and Monitoring, "Guarantees").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::command::{CommandEvent, MonitoredCommand};
use sdam_core::config::ServerAddress;
use sdam_core::id::{ServerId, TopologyId};
use sdam_core::time::Instant;
use sdam_core::topology::{Event, EventKind, Topics};
use sdam_core::wire::OpMsg;

use crate::error::given_up;
use crate::machines::Shared;
use crate::machines::runtime::Runtime;
use crate::observe::subscription::Subscribers;
use crate::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use crate::sync::{Mutex, lock};

/// The commands of a client that run and whose start was published, and the numbers of all.
///
/// Events of commands are published under its lock, which calls nothing: so a command that ends
/// while the client is closed has one end, and that comes before the last event.
#[derive(Debug, Default)]
pub(crate) struct RunningCommands {
    last_request: AtomicU32,
    last_operation: AtomicI64,
    state: Mutex<CommandsState>,
}

#[derive(Debug, Default)]
struct CommandsState {
    /// The number of the last command.
    last: u64,
    running: BTreeMap<u64, Running>,
    /// True if the client is closed, and no further event is published.
    closed: bool,
}

/// A command whose start was published.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) server: ServerId,
    pub(crate) address: ServerAddress,
    pub(crate) command: Arc<MonitoredCommand>,
    pub(crate) since: Instant,
}

impl RunningCommands {
    /// Numbers the next message: from 1, and from there again after the greatest.
    pub(crate) fn next_request(&self) -> i32 {
        loop {
            let next = self.last_request.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            // Nonnegative: the number of a message is signed.
            match (next & (u32::MAX >> 1)).cast_signed() {
                0 => {}
                id => return id,
            }
        }
    }

    /// Numbers the next operation, from 1.
    pub(crate) fn next_operation(&self) -> i64 {
        self.last_operation.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl RunningCommands {
    /// Publishes for every command that still runs that it was given up, as the client is closed;
    /// wake subscribers afterwards.
    pub(crate) fn give_up(&self, events: &Subscribers<Event>, topology: TopologyId, now: Instant) {
        let mut state = lock(&self.state);
        state.closed = true;
        for running in std::mem::take(&mut state.running).values() {
            let error = given_up("the client was closed before the reply came");
            let failed = running.command.failed(now - running.since, error);
            events.put(Topics::COMMANDS, running.event(topology, now, failed));
        }
    }
}

impl Running {
    fn event(&self, topology: TopologyId, at: Instant, event: CommandEvent) -> Event {
        let (address, command) = (self.address.clone(), Arc::clone(&self.command));
        let kind = EventKind::Command { server: self.server, address, command, event };
        Event::new(topology, at, kind)
    }
}

/// A command whose start was published. Dropped before its end was, it is given up: no caller waits
/// for its reply any more.
pub(crate) struct StartedCommand<R: Runtime> {
    shared: Arc<Shared<R>>,
    /// Absent once its end was published.
    number: Option<u64>,
}

impl<R: Runtime> StartedCommand<R> {
    /// Publishes that a command is about to be sent, with the written message; `None` if the client
    /// is closed.
    pub(crate) fn begin(
        shared: &Arc<Shared<R>>,
        running: Running,
        message: &OpMsg<'_>,
    ) -> Option<Self> {
        let started = running.command.started(message);
        let event = running.event(shared.topology, running.since, started);
        let mut state = lock(&shared.commands.state);
        if state.closed {
            return None;
        }
        state.last += 1;
        let number = state.last;
        state.running.insert(number, running);
        shared.events.put(Topics::COMMANDS, event);
        drop(state);
        // First, so that it has an end whatever becomes of those who are woken.
        let started = Self { shared: Arc::clone(shared), number: Some(number) };
        shared.events.wake(Topics::COMMANDS);
        Some(started)
    }

    /// Publishes how the command has ended.
    pub(crate) fn end(mut self, outcome: impl FnOnce(&MonitoredCommand, Duration) -> CommandEvent) {
        self.end_once(outcome);
    }

    /// Publishes how the command has ended, unless that was done.
    fn end_once(&mut self, outcome: impl FnOnce(&MonitoredCommand, Duration) -> CommandEvent) {
        let Some(number) = self.number.take() else { return };
        let shared = &self.shared;
        // In a process that was forked off, the lock may be held by a thread that is not there.
        if !shared.process.is_current() {
            return;
        }
        let now = shared.runtime.now();
        let mut state = lock(&shared.commands.state);
        // Otherwise the client was closed meanwhile.
        if let Some(running) = state.running.remove(&number) {
            let outcome = outcome(&running.command, now - running.since);
            shared.events.put(Topics::COMMANDS, running.event(shared.topology, now, outcome));
        }
        drop(state);
        shared.events.wake(Topics::COMMANDS);
    }
}

impl<R: Runtime> Drop for StartedCommand<R> {
    fn drop(&mut self) {
        let error = || given_up("the wait for the reply was abandoned");
        self.end_once(|command, time| command.failed(time, error()));
    }
}
