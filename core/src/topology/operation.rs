//! The effect of an operation's failure on the topology.
//!
//! Implements "Application errors" of the SDAM specification, in the order of its pseudocode
//! `handleError`.

use std::sync::Arc;

use super::update::Update;
use super::{Action, Topology};
use crate::description::{ServerDescription, ServerType, TopologyType};
use crate::failure::{Cause, Failure, Stage};
use crate::id::ServerId;
use crate::operation::{CommandError, OperationError, OperationFailure, StateChange};

/// Servers before 4.2 close their connections when they step down.
const KEEPS_CONNECTIONS_WIRE_VERSION: i32 = 8;

impl Topology {
    /// Takes an operation's word that something is wrong with its server.
    pub(super) fn operation_failed(
        &mut self,
        server: ServerId,
        failure: &OperationFailure,
        out: &mut Vec<Action>,
    ) {
        let Some(member) = self.members.get(&server) else { return };
        // "the error is considered stale and the client MUST NOT update any topology state"
        if failure.generation < member.generation(failure.service) {
            return;
        }
        match &failure.error {
            OperationError::Reply { error, .. } if error.state_change().is_some() => {
                self.state_changed(server, failure, error, out);
            }
            error if error.is_overload() => {
                // A server that sheds load refuses connections, and so does one that is gone; in
                // the single-threaded mode there is no monitor to find out which it is.
                if error.stage() != Stage::Operate {
                    self.mark_stale();
                }
            }
            OperationError::Reply { stage: Stage::Operate, .. } | OperationError::Invalid(_) => {}
            // Its monitor has said so before, and has cleared the pool.
            OperationError::Stream(Failure { cause: Cause::Interrupted, .. }) => {}
            // The client itself has given up, for instance because its runtime ends.
            OperationError::Stream(Failure { cause: Cause::Canceled, .. }) => {}
            // The server was not asked for anything yet.
            OperationError::Stream(Failure {
                stage: Stage::Certificates | Stage::Revocation,
                ..
            }) => {}
            // "A timeout may indicate a slow operation on the server"
            OperationError::Stream(Failure {
                stage: Stage::Operate,
                cause: Cause::Timeout,
                ..
            }) => {}
            OperationError::Reply { .. } | OperationError::Stream(_) => {
                self.connection_failed(server, failure, out);
            }
        }
    }

    /// "not writable primary" and "node is recovering": the server answers, but is not what it was.
    fn state_changed(
        &mut self,
        server: ServerId,
        failure: &OperationFailure,
        error: &CommandError,
        out: &mut Vec<Action>,
    ) {
        let Some(current) = self.server(server) else { return };
        // It is no primary, which was known; what it complains of is the command.
        if error.wants_secondary_ok() && is_no_primary(current.server_type) {
            return;
        }
        let current = Arc::clone(current);
        self.find_by_refusal(server, &current, error, out);
        // Any state change comes with a new topologyVersion, so an equal one is stale too.
        if let (Some(known), Some(new)) = (&current.topology_version, &error.topology_version)
            && !known.is_older_than(new)
            && known.process_id == new.process_id
        {
            return;
        }
        let cause = failure.error.to_failure();
        if !self.is_load_balanced() {
            let unknown = ServerDescription {
                topology_version: error.topology_version,
                ..current.failed(self.now.judged, cause.clone())
            };
            self.mark_unknown(unknown, out);
        }
        // "For a "node is recovering" error, single-threaded clients MUST NOT mark the topology as
        // "stale"", which a "node is shutting down" error is, too, but for this purpose.
        if let Some(StateChange::NotWritablePrimary | StateChange::ShuttingDown) =
            error.state_change()
        {
            self.mark_stale();
        }
        if error.state_change() == Some(StateChange::ShuttingDown)
            || failure.max_wire_version < KEEPS_CONNECTIONS_WIRE_VERSION
        {
            self.clear_pool(server, failure, cause, out);
        }
        self.with_monitor(server, out, |monitor, ctx| {
            monitor.forget_round_trip_time();
            monitor.request_check(ctx.now.judged);
        });
    }

    /// Network errors, and errors of whatever kind before the handshake has completed.
    fn connection_failed(
        &mut self,
        server: ServerId,
        failure: &OperationFailure,
        out: &mut Vec<Action>,
    ) {
        let Some(current) = self.server(server) else { return };
        let cause = failure.error.to_failure();
        if !self.is_load_balanced() {
            let unknown = current.failed(self.now.judged, cause.clone());
            self.mark_unknown(unknown, out);
        }
        self.clear_pool(server, failure, cause, out);
        // "Drivers cancel in-progress monitor checks"; the next one is not hastened, unless an
        // operation waits, or checks are eager.
        let needed = !self.waiters.is_empty() || self.options.eager_checks();
        let cancelled = self.with_monitor(server, out, |monitor, ctx| {
            let is_checking = !monitor.is_sleeping();
            monitor.cancel_check(ctx);
            if needed {
                monitor.request_check(ctx.now.judged);
            }
            is_checking
        });
        // Another scan finds out what the cancelled check would have found.
        if cancelled == Some(true)
            && let Some(scan) = &mut self.scan
        {
            scan.mark_stale();
        }
    }

    fn mark_unknown(&mut self, unknown: ServerDescription, out: &mut Vec<Action>) {
        let options = Arc::clone(&self.options);
        if let Some(update) =
            Update::new(&self.description, &options, self.now.judged, Arc::new(unknown))
        {
            self.publish(update, out);
        }
    }

    /// Clears the pool, or behind a load balancer what belongs to one service, if it is known.
    fn clear_pool(
        &mut self,
        server: ServerId,
        failure: &OperationFailure,
        cause: Failure,
        out: &mut Vec<Action>,
    ) {
        let load_balanced = self.is_load_balanced();
        let Some(member) = self.members.get_mut(&server) else { return };
        let command = match (load_balanced, failure.service) {
            (true, Some(service)) => member.clear_service(service, cause),
            (true, None) => return,
            (false, _) => member.clear(cause, false),
        };
        out.push(Action::Pool { server, command });
    }

    fn is_load_balanced(&self) -> bool {
        self.description.topology_type == TopologyType::LoadBalanced
    }
}

/// Returns whether a server is known to be a member of a replica set, and not its primary.
const fn is_no_primary(server: ServerType) -> bool {
    use ServerType::{RsArbiter, RsGhost, RsOther, RsSecondary};
    matches!(server, RsSecondary | RsArbiter | RsOther | RsGhost)
}
