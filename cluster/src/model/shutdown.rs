//! The end of a process that was asked to end: it steps down, says so for a while, and dies.

use bson::RawDocumentBuf;
use bson::raw::cstr;
use sdam_core::bson;
use sdam_core::time::Instant;

use super::{Action, Cluster, Process, later};
use crate::options::MemberId;
use crate::wire::{CommandError, reply};

impl Cluster {
    /// Begins the end of a member that is up.
    ///
    /// Real servers since 5.0 do so for 15 s when their election timeout is 10 s; older ones die
    /// within a second, and here at once.
    pub(super) fn shut_down(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        if self.process(member).is_none_or(Process::is_ending) {
            return;
        }
        self.step_down(now, member, out);
        let ends_at = later(now, self.options.election_timeout * 3 / 2)
            .filter(|_| self.process(member).is_some_and(|it| it.version.has_quiesce_mode()));
        let Some(process) = self.process_mut(member).filter(|_| ends_at.is_some()) else {
            return self.kill(now, member, out);
        };
        process.ends_at = ends_at;
        self.bump(now, member, out);
        self.consider_takeover(now);
    }
}

/// Returns the reply to every hello of a process that is ending; it serves other commands as
/// before.
pub(crate) fn shutdown_reply(now: Instant, process: &Process) -> Option<RawDocumentBuf> {
    let left = process.ends_at? - now;
    let mut reply = reply::error(&CommandError::coded(91, "the server is shutting down"));
    reply.append(cstr!("topologyVersion"), process.topology_version());
    let left = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
    reply.append(cstr!("remainingQuiesceTimeMillis"), left);
    Some(reply)
}
