//! What a client's operations tell its topology, and that what is stale is ignored.

use std::sync::Arc;

use sdam_core::address::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::failure::Stage;
use sdam_core::id::ServerId;
use sdam_core::machine::Machine;
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::topology::Input;

use super::Client;
use crate::sim::network::Network;
use crate::sim::witness::Sign;

/// AuthenticationFailed.
const AUTHENTICATION_FAILED: i32 = 18;

/// Returns whether this is a server's answer to whoever may not log in.
fn is_refused_login(error: &OperationError) -> bool {
    match error {
        OperationError::Reply { stage, error } => {
            *stage != Stage::Operate && error.code == Some(AUTHENTICATION_FAILED)
        }
        _ => false,
    }
}

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
        let (clears, abandoned) = (self.checks.clears(), self.checks.abandoned());
        let refused = is_refused_login(&failure.error).then(|| self.knows(server)).flatten();
        if !stale {
            self.reported = self.now;
        }
        self.tell(network, Input::OperationFailed { server, failure });
        let cleared = self.checks.clears() > clears;
        if stale && (cleared || !Arc::ptr_eq(&before, &self.view)) {
            self.checks.fail("stale errors change nothing", || format!("one of {server} does"));
        } else if stale {
            self.checks.note(Sign::StaleErrorIgnored);
        }
        if self.checks.abandoned() > abandoned {
            self.checks.note(Sign::CheckAbandoned);
        }
        if let Some(address) = refused.filter(|_| !stale && !self.options.load_balanced()) {
            self.check_refused_login(&address);
        }
    }

    fn knows(&self, server: ServerId) -> Option<ServerAddress> {
        self.servers.get(&server).map(|known| known.address.clone())
    }

    /// A server that has refused a login is Unknown, for that is what it is to this client
    /// (SDAM, "Authentication errors").
    pub(super) fn check_refused_login(&mut self, address: &ServerAddress) {
        self.checks.note(Sign::LoginRefused);
        let seen = self.view.description().server(address).map(|it| it.server_type);
        if let Some(seen) = seen.filter(|seen| *seen != ServerType::Unknown) {
            let what = || format!("{address} has refused one, and is a {seen}");
            self.checks.fail("a login that is refused makes its server Unknown", what);
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
