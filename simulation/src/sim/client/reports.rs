//! What a client's operations tell its topology, and that what is stale is ignored.

use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Stage};
use sdam_core::id::ServerId;
use sdam_core::machine::Machine;
use sdam_core::operation::{OperationError, OperationFailure, StateChange};
use sdam_core::topology::Input;

use super::Client;
use super::exchanges::NO_SECONDARY_OK;
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

/// Returns what a server's answer to an operation says of its role.
fn told_by_server(error: &OperationError) -> Option<StateChange> {
    match error {
        OperationError::Reply { stage: Stage::Operate, error } => error.state_change(),
        _ => None,
    }
}

/// Returns whether this says that connections to a server fail: not what it replies to commands,
/// nor that a command takes long, nor that whoever sheds load turns connections away.
pub(super) fn is_to_blame(error: &OperationError) -> bool {
    let is_up = error.stage() == Stage::Operate;
    match error {
        _ if error.is_overload() => false,
        OperationError::Stream(failure) => match failure.cause {
            Cause::Interrupted | Cause::Canceled => false,
            Cause::Timeout => !is_up,
            _ => true,
        },
        OperationError::Reply { error, .. } => !is_up && error.state_change().is_none(),
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
        if is_refused_login(&failure.error) && !stale && !self.options.load_balanced() {
            self.checks.note(Sign::LoginRefused);
        }
        let blamed = is_to_blame(&failure.error) && !stale && !self.options.load_balanced();
        let blamed = blamed.then(|| self.knows(server)).flatten();
        let (is_checking, error) = (self.checks.is_checking(server), failure.error.clone());
        let known = self.complains_of_its_command(server, &failure.error);
        if !stale {
            self.reported = self.now;
            if let Some(server) = self.servers.get_mut(&server) {
                let change = told_by_server(&failure.error);
                server.refused = change.map(|change| (self.now, change)).or(server.refused);
            }
        }
        self.tell(network, Input::OperationFailed { server, failure });
        let cleared = self.checks.clears() > clears;
        if stale && (cleared || !Arc::ptr_eq(&before, &self.view)) {
            self.checks.fail("stale errors change nothing", || format!("one of {server} does"));
        } else if stale {
            self.checks.note(Sign::StaleErrorIgnored);
        }
        if known && (cleared || !Arc::ptr_eq(&before, &self.view)) {
            let what = || format!("{server} was known to be a secondary");
            self.checks.fail("a secondary that was not told that it is meant is one still", what);
        }
        let is_abandoned = self.checks.abandoned() > abandoned;
        if is_abandoned {
            self.checks.note(Sign::CheckAbandoned);
        }
        if let Some(address) = blamed {
            self.check_blame(&address, &error, (cleared, is_abandoned || !is_checking));
        }
    }

    /// Returns whether a server says that it is no primary, and is known to be a secondary.
    fn complains_of_its_command(&self, server: ServerId, error: &OperationError) -> bool {
        let OperationError::Reply { error, .. } = error else { return false };
        let known =
            self.servers.get(&server).and_then(|it| self.view.description().server(&it.address));
        error.code == Some(NO_SECONDARY_OK)
            && known.is_some_and(|it| it.server_type == ServerType::RsSecondary)
    }

    fn knows(&self, server: ServerId) -> Option<ServerAddress> {
        self.servers.get(&server).map(|known| known.address.clone())
    }

    /// A server whose connections fail is Unknown, its pool is cleared, and a check of it that is
    /// in progress is given up (SDAM, "Network error when reading or writing", "Authentication
    /// errors"; Server Monitoring, "hello or legacy hello Cancellation").
    pub(super) fn check_blame(
        &mut self,
        address: &ServerAddress,
        error: &OperationError,
        (is_cleared, is_unchecked): (bool, bool),
    ) {
        let seen = self.view.description().server(address).map(|it| it.server_type);
        if let Some(seen) = seen.filter(|seen| *seen != ServerType::Unknown) {
            let what = || format!("{address} is a {seen} after {error}");
            self.checks.fail("a server whose connections fail is Unknown", what);
        }
        if !is_cleared {
            let what = || format!("that of {address} is not, after {error}");
            self.checks.fail("a pool whose connections fail is cleared", what);
        }
        if !is_unchecked {
            let what = || format!("that of {address} goes on, after {error}");
            self.checks.fail("a check ends with the connections of its server", what);
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
