//! What a client's operations tell its topology, and that what is stale is ignored.

use std::sync::Arc;

use sdam_core::id::ServerId;
use sdam_core::machine::Machine;
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::topology::Input;

use super::Client;
use crate::sim::network::Network;

impl Client {
    /// Tells the topology of a failure; one that is stale is to change nothing.
    pub(super) fn report(
        &mut self,
        network: &mut Network,
        server: ServerId,
        failure: OperationFailure,
    ) {
        let now = self.not_yet_due(self.topology.deadline());
        self.run(network, |topology, _, out| topology.tick(now, out));
        let (before, stale) = (Arc::clone(&self.view), self.is_stale(server, &failure));
        let clears = self.checks.clears();
        self.reported = self.now;
        self.tell(network, Input::OperationFailed { server, failure });
        let cleared = self.checks.clears() > clears;
        if stale && (cleared || !Arc::ptr_eq(&before, &self.view)) {
            self.checks.fail("stale errors change nothing", || format!("one of {server} does"));
        }
    }

    /// Judges by generation and topologyVersion whether a failure is stale.
    fn is_stale(&self, id: ServerId, failure: &OperationFailure) -> bool {
        let Some(server) = self.servers.get(&id) else { return true };
        let of_past = failure.generation.number() < server.ledger.generation(failure.service);
        let known = self.view.description().server(&server.address);
        let known = known.and_then(|known| known.topology_version);
        let told = match &failure.error {
            OperationError::Reply { error, .. } => error.topology_version,
            _ => None,
        };
        let of_version = known.zip(told).is_some_and(|(known, told)| {
            known.process_id == told.process_id && told.counter <= known.counter
        });
        server.left || of_past || of_version
    }
}
