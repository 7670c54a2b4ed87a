//! How operations select a server.

use std::sync::Arc;

use sdam_core::selection::SelectionError;
use sdam_core::topology;

use super::Client;
use super::operations::{OperationId, State};
use crate::sim::network::Network;

/// How often an operation may begin anew at one instant.
const MAX_ATTEMPTS: u32 = 20;

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
        let (at, attempts) = operation.attempts;
        operation.attempts = (self.now, if at == self.now { attempts + 1 } else { 0 });
        if operation.attempts.1 > MAX_ATTEMPTS {
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
            Ok(None) | Err(_) => self.wait(network, id),
        }
    }

    fn wait(&mut self, network: &mut Network, id: OperationId) {
        let (waiter, since) = (self.next_waiter(), self.now);
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.state = State::Selecting { waiter, since };
        let (criteria, deadline) = (Arc::clone(&operation.criteria), Some(operation.deadline));
        self.selecting.insert(waiter, id);
        self.checks.waits(self.now);
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
