//! How operations select a server.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::selection::SelectionError;
use sdam_core::topology;

use super::Client;
use super::operations::{OperationId, State, Timer};
use super::pools::Task;
use crate::sim::checks::most_wake_ups;
use crate::sim::network::Network;
use crate::sim::witness::Sign;
use crate::sim::world::Event;

/// The longest that an operation takes between looking for a server and waiting for one.
const HESITATION: Duration = Duration::from_millis(300);

/// What is long for an operation to wait.
const LONG: Duration = Duration::from_secs(10);

impl Client {
    /// Selects a server from the view, or waits for another view; in the single-threaded mode,
    /// whether the view needs a scan first is for the machine to say.
    pub(super) fn select(&mut self, network: &mut Network, id: OperationId) {
        if self.loses_cursor(id) {
            return;
        }
        match self.options.is_single_threaded() {
            true => self.wait(network, id),
            false => self.choose(network, id),
        }
    }

    fn choose(&mut self, network: &mut Network, id: OperationId) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.state = State::Idle;
        let (since, attempts) = operation.attempts;
        operation.attempts = match self.now - since < Duration::from_secs(1) {
            true => (since, attempts + 1),
            false => (self.now, 0),
        };
        // One that was found, and had no connection in the end, is not found again before a check.
        let servers = u32::try_from(self.view.description().servers().len()).unwrap_or(u32::MAX);
        if operation.attempts.1 > most_wake_ups(servers) {
            return self.checks.fail("no busy loop", || format!("{id:?} selects on and on"));
        }
        let criteria = Arc::clone(&operation.criteria);
        let (servers, known) = (self.view.description().servers(), &self.servers);
        let load = |index: usize| known.get(&servers[index].id).map_or(0, |server| server.load);
        match self.view.select(&criteria, load, self.random.bits()) {
            Ok(Some(index)) => {
                if operation.is_first_to_nearest() {
                    self.checks.chosen(&self.view, index);
                }
                operation.chosen =
                    Some((self.view.description().topology_type, servers[index].server_type));
                let server = servers[index].id;
                match self.servers.get_mut(&server) {
                    Some(chosen) => chosen.load += 1,
                    None => {
                        let what = || format!("{server} is selected and has no pool");
                        return self.checks.fail("views name servers with pools", what);
                    }
                }
                self.check_out(network, id, server, None);
            }
            Ok(None) if operation.hesitates => {
                operation.hesitates = false;
                operation.state = State::Looking;
                let pause = self.random.between(Duration::ZERO, HESITATION);
                let (client, timer) = (self.index, Timer::Wait);
                network.plan(pause, Event::OperationTimer { client, operation: id, timer });
            }
            Ok(None) | Err(_) => self.wait(network, id),
        }
    }

    /// An operation that has looked in vain waits; what came meanwhile it must not miss.
    pub(super) fn wait_at_last(&mut self, network: &mut Network, id: OperationId) {
        if let Some(operation) = self.operations.get_mut(&id) {
            operation.wants_since = self.now;
        }
        self.wait(network, id);
        let is_answer = |it: &Task| matches!(it, Task::Woken(woken, Ok(())) if *woken == id);
        if self.tasks.iter().any(is_answer) {
            self.checks.note(Sign::PublishedMeanwhile);
        }
    }

    fn wait(&mut self, network: &mut Network, id: OperationId) {
        let (waiter, since) = (self.next_waiter(), self.now);
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.state = State::Selecting { waiter, since };
        let (criteria, deadline) = (Arc::clone(&operation.criteria), Some(operation.deadline));
        self.selecting.insert(waiter, id);
        self.tell(network, topology::Input::Wait { waiter, criteria, deadline });
    }

    pub(super) fn woken(
        &mut self,
        network: &mut Network,
        id: OperationId,
        outcome: Result<(), Box<SelectionError>>,
    ) {
        match outcome {
            Ok(()) => {
                self.looked_at(id);
                let since = self.operations.get(&id).map(|operation| operation.wants_since);
                if since.is_some_and(|since| self.now - since >= LONG) {
                    self.checks.note(Sign::WaitedLong);
                }
                self.choose(network, id);
            }
            Err(error) => {
                if let Some(operation) = self.operations.remove(&id) {
                    self.gives_up(id, &operation, &error);
                }
            }
        }
    }
}
