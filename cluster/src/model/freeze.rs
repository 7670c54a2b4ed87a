//! Members that read and do not answer.

use sdam_core::time::Instant;

use super::{Action, Cluster, Connection};
use crate::options::MemberId;

impl Cluster {
    /// Returns whether the member reads but does not answer.
    pub(crate) fn is_frozen(&self, member: MemberId) -> bool {
        self.process(member).is_some_and(|process| process.frozen)
    }

    pub(super) fn freeze(&mut self, member: MemberId) {
        self.revision += 1;
        if let Some(process) = self.process_mut(member) {
            process.frozen = true;
        }
    }

    /// Answers what has come meanwhile; who awaits a change hears how things are now.
    pub(super) fn thaw(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        let Some(process) = self.process_mut(member).filter(|process| process.frozen) else {
            return;
        };
        process.frozen = false;
        self.revision += 1;
        self.data_is_new = true;
        self.answer_awaiting(now, member, out);
        for id in self.connections_of(member) {
            match self.connections.get(&id).and_then(Connection::resumes_at) {
                Some(at) if at <= now => self.resume(now, id, out),
                _ => self.serve(now, id, out),
            }
        }
    }
}
