//! Documents: what clients have read and written is compared with what the members have.

use std::collections::BTreeSet;

use bson::RawDocumentBuf;
use sdam_core::bson;

use super::checks::Violation;
use super::client::{Acknowledged, Missed, writer_of};
use super::fault::{Fault, FaultKind};
use super::world::World;
use sdam_cluster::MemberId;

/// The database of the documents.
pub(super) const DATABASE: &str = "d";

/// The collection of the documents.
pub(super) const COLLECTION: &str = "w";

fn id(document: &RawDocumentBuf) -> i64 {
    document.get_i64("_id").unwrap_or_default()
}

impl World {
    /// Each write was done once at most, and those that a majority has acknowledged were done once.
    pub(super) fn check_documents(&self) -> Result<(), (usize, Violation)> {
        if !self.plan.cluster.keeps_data {
            return Ok(());
        }
        let members = || (0..self.oracle.current.members.len()).map(MemberId);
        for member in members() {
            for document in self.cluster.documents(member, DATABASE, COLLECTION) {
                if !matches!(document.get_i32("n"), Ok(1)) {
                    let detail = format!("{member:?} has {document:?}");
                    let violation = Violation::new("a write is done once at most", detail);
                    return Err((writer_of(id(&document)), violation));
                }
            }
        }
        let last = |member: &MemberId| {
            self.cluster.log(*member).last().map(|entry| (entry.term, entry.index))
        };
        let newest = members().max_by_key(last).unwrap_or(MemberId(0));
        // "w: majority" is of those who vote when a write is acknowledged. A member that joins
        // later, or comes back, has nothing of it at first, so that the members with it may no
        // longer be a majority.
        let kept = match self.has_changed() {
            true => self.cluster.documents(newest, DATABASE, COLLECTION),
            false => self.cluster.committed_documents(newest, DATABASE, COLLECTION),
        };
        let committed: BTreeSet<i64> = kept.iter().map(id).collect();
        for (index, client) in self.clients.iter().enumerate() {
            let ledger = client.ledger();
            let mut lasting = ledger.documents.lasting();
            if let Some((document, write)) = lasting.find(|(it, _)| !committed.contains(it)) {
                let detail = format!("{newest:?} does not have {document:#x}, {write:?}");
                let violation = Violation::new("what a majority has acknowledged lasts", detail);
                return Err((index, violation));
            }
        }
        Ok(())
    }

    /// Returns whether other members may belong to the set now than when a write was acknowledged.
    fn has_changed(&self) -> bool {
        let first = self.plan.cluster.members.len();
        let mut joined = self.oracle.current.members.iter().filter(|(id, _)| id.0 >= first);
        let is_reconfig = |fault: &Fault| fault.kind == FaultKind::Reconfig;
        joined.any(|(_, member)| member.options.is_some())
            || self.plan.faults.iter().any(is_reconfig)
    }

    /// A session finds what it has written, unless that was rolled back: which it was not if a
    /// majority had it, or if it was written since the last election and the primary has it.
    pub(super) fn check_missed(&self, missed: &Missed) -> Result<(), Violation> {
        let lasts = match missed.write.acknowledged {
            Acknowledged::Unknown => false,
            Acknowledged::ByMajority => true,
            Acknowledged::ByPrimary => {
                let primary = match self.oracle.has_mongos {
                    true => Some(MemberId(0)),
                    false => self.cluster.primary(),
                };
                missed.write.began > self.elected
                    && primary.is_some_and(|primary| {
                        let kept = self.cluster.documents(primary, DATABASE, COLLECTION);
                        kept.iter().any(|document| id(document) == missed.document)
                    })
            }
        };
        match lasts {
            true => {
                let Missed { document, write } = missed;
                let detail = format!("one does not find {document:#x}, {write:?}");
                Err(Violation::new("sessions read what they have written", detail))
            }
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use sdam_core::time::Instant;

    use super::*;
    use crate::sim::client::Write;
    use crate::sim::deployment::member;
    use crate::sim::network::StreamId;
    use crate::sim::quiet::{PLAIN, quiet_world_with};
    use crate::sim::request::message;
    use sdam_cluster::{Change, Input, ServerVersion};

    /// A minute of a world whose applications do nothing but to write and read documents.
    fn writing_world() -> World {
        quiet_world_with(PLAIN, |plan| {
            plan.cluster.keeps_data = true;
            plan.clients.iter_mut().for_each(|client| client.documents_percent = 100);
        })
    }

    fn lasting(world: &World) -> Vec<(i64, Write)> {
        world.clients[0].ledger().documents.lasting().collect()
    }

    fn check(world: &World) -> Option<&'static str> {
        world.check_documents().err().map(|(_, violation)| violation.check)
    }

    #[test]
    fn a_write_that_is_done_twice_is_found() {
        let mut world = writing_world();
        let written = lasting(&world);
        assert!(written.len() > 10, "{written:?}");
        assert_eq!(check(&world), None);
        let (member, connection) = (world.cluster.primary().unwrap(), StreamId(u64::MAX));
        let again = rawdoc! { "q": { "_id": written[3].0 }, "u": { "$inc": { "n": 1 } } };
        let again = message(1, &rawdoc! { "update": COLLECTION, "updates": [again] });
        world.input(Input::Accepted { connection, member });
        world.input(Input::Trusted { connection });
        world.input(Input::Received { connection, bytes: &again });
        assert_eq!(check(&world), Some("a write is done once at most"));
    }

    #[test]
    fn a_write_that_is_lost_is_found() {
        let world = writing_world();
        let write = lasting(&world)[0].1;
        world.clients[0].ledger().documents.writes.insert(-1, write);
        assert_eq!(check(&world), Some("what a majority has acknowledged lasts"));
    }

    /// The set of three has two who have a write, of whom one votes as one of four from then on.
    #[test]
    fn a_write_of_a_majority_lasts_where_a_member_joins_that_has_it_not_yet() {
        let mut world = quiet_world_with(PLAIN, |plan| {
            plan.cluster.keeps_data = true;
            plan.cluster.version = ServerVersion::V4_4;
        });
        let primary = world.cluster.primary().unwrap();
        let other = (0..3).map(MemberId).find(|it| *it != primary).unwrap();
        world.input(Input::Kill { member: other });
        let (document, connection) = (1_i64, StreamId(u64::MAX));
        let write = rawdoc! { "insert": COLLECTION, "documents": [{ "_id": document, "n": 1 }] };
        world.input(Input::Accepted { connection, member: primary });
        world.input(Input::Trusted { connection });
        world.input(Input::Received { connection, bytes: &message(1, &write) });
        let (began, acknowledged) = (world.network.now, Acknowledged::ByMajority);
        let write = Write { began, acknowledged };
        world.clients[0].ledger().documents.writes.insert(document, write);
        assert_eq!(check(&world), None);
        let joins = Change::Add(member(3, false));
        world.input(Input::Reconfig { changes: &[joins] });
        world.input(Input::Kill { member: MemberId(3) });
        let committed = world.cluster.committed_documents(primary, DATABASE, COLLECTION);
        assert!(!committed.iter().any(|it| id(it) == document), "two of four are no majority");
        assert_eq!(check(&world), None);
    }

    #[test]
    fn a_read_that_does_not_find_what_lasts_is_found() {
        let world = writing_world();
        let (document, write) = lasting(&world)[0];
        let missed = |acknowledged, document, began| {
            let write = Write { acknowledged, began };
            let found = world.check_missed(&Missed { document, write });
            found.err().map(|violation| violation.check)
        };
        let rule = Some("sessions read what they have written");
        assert_eq!(missed(Acknowledged::ByMajority, document, write.began), rule);
        assert_eq!(missed(Acknowledged::ByPrimary, document, write.began), rule);
        assert_eq!(missed(Acknowledged::Unknown, document, write.began), None);
        assert_eq!(missed(Acknowledged::ByPrimary, -1, write.began), None, "it was rolled back");
        let before = missed(Acknowledged::ByPrimary, document, Instant::ZERO);
        assert_eq!(before, None, "it may be back after an election");
    }
}
