//! The data and the log of members, for a comparison with what clients have seen.

use bson::{Bson, Document, RawDocumentBuf, Timestamp};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::cursors::raw;
use crate::model::Cluster;
use crate::options::MemberId;
use crate::store::{Change, Data, Entry, Position, Store};

/// An entry of a member's log: a command that has written, a transaction, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoggedWrite {
    /// The election term of the primary that has written it.
    pub term: i64,
    /// Its place in the log, where an entry of a later term may stand in the place of one that was
    /// rolled back.
    pub index: u64,
    /// The id of the session and the transaction number, if the command could be retried, or if it
    /// is a transaction.
    pub session: Option<(Vec<u8>, i64)>,
    /// The number of documents that it has put, replaced or removed, each as often as it has.
    pub documents: usize,
    /// True if a majority of the members has it: it will never be rolled back.
    pub committed: bool,
}

/// The part of a log that a majority of the members has.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CommittedChanges {
    /// The election term and the index of its last entry.
    pub until: (i64, u64),
    /// True if the log still has all entries since the one that was asked for.
    pub is_whole: bool,
    /// The changes, in order.
    pub changes: Vec<CommittedChange>,
}

impl Default for CommittedChanges {
    fn default() -> Self {
        Self { until: (0, 0), is_whole: true, changes: Vec::new() }
    }
}

/// A change that a majority of the members has, as change streams report it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CommittedChange {
    /// The time when the primary has written it.
    pub at: Instant,
    /// The operation time.
    pub time: Timestamp,
    /// The index of its entry.
    pub index: u64,
    /// The kind: `insert`, `update`, `delete`, `drop` and so on.
    pub kind: &'static str,
    /// The database, a dot and the collection.
    pub namespace: String,
    /// The `_id` of the document, if it is one that has changed.
    pub id: Option<Bson>,
    /// The document after the change.
    pub document: Option<Document>,
}

impl CommittedChange {
    fn of((entry, time): (&Entry, Timestamp), change: &Change) -> Option<Self> {
        let (at, index) = (entry.at, entry.position.index);
        let (kind, namespace, id, document) = match change {
            Change::Document { namespace, before, after, .. } => {
                let kind = match (before, after) {
                    (None, _) => "insert",
                    (_, None) => "delete",
                    _ => "update",
                };
                let known = after.as_ref().or(before.as_ref());
                let id = known.and_then(|it| it.get("_id")).cloned();
                (kind, namespace, id, after.as_deref().cloned())
            }
            Change::Definition(it) if !it.is_expanded() => (it.name(), &it.namespace, None, None),
            _ => return None,
        };
        Some(Self { at, time, index, kind, namespace: (**namespace).to_owned(), id, document })
    }
}

impl Cluster {
    /// Returns the changes of data that a majority of the members has, behind the place in the log
    /// where an election term and an index are; (0, 0) is the beginning. They are never rolled
    /// back.
    ///
    /// A place that was rolled back itself is not found, so that the rest is not whole.
    pub fn committed_changes(&self, after: (i64, u64)) -> CommittedChanges {
        let owners = (0..self.members.len()).filter(|it| self.owner(MemberId(*it)) == *it);
        let known = owners.map(|it| &self.members[it].data);
        let known = known.map(|data| (self.committed(data), data)).max_by_key(|(it, _)| *it);
        let after = Position { term: after.0, index: after.1 };
        let Some((committed, data)) = known.filter(|(committed, _)| *committed > after) else {
            return CommittedChanges { until: (after.term, after.index), ..Default::default() };
        };
        CommittedChanges {
            until: (committed.term, committed.index),
            is_whole: data.has(after),
            changes: changes_between(data, after, committed),
        }
    }

    /// Returns the documents of a collection as a member, up or down, has them, in the order in
    /// which they came; mongos have the same.
    ///
    /// There are none if the deployment
    /// [keeps no data](crate::ClusterOptions::keeps_data), or if there is no such member or
    /// collection.
    pub fn documents(
        &self,
        member: MemberId,
        database: &str,
        collection: &str,
    ) -> Vec<RawDocumentBuf> {
        let data = self.members.get(self.owner(member)).map(|it| &it.data);
        data.map_or_else(Vec::new, |it| listed(&it.store, database, collection))
    }

    /// Returns those documents of a collection that a member knows a majority to have: what is
    /// acknowledged with `w: "majority"` is among them for ever, until it is overwritten.
    pub fn committed_documents(
        &self,
        member: MemberId,
        database: &str,
        collection: &str,
    ) -> Vec<RawDocumentBuf> {
        let Some(data) = self.members.get(self.owner(member)).map(|it| &it.data) else {
            return Vec::new();
        };
        let committed = self.committed(data);
        listed(&data.until(|entry| entry.position <= committed), database, collection)
    }

    /// Returns the log of a member, oldest entry first: what it has written or taken over, and has
    /// not rolled back. Of a long log, the last entries are kept.
    pub fn log(&self, member: MemberId) -> Vec<LoggedWrite> {
        let Some(data) = self.members.get(self.owner(member)).map(|it| &it.data) else {
            return Vec::new();
        };
        let committed = self.committed(data);
        let logged = data.entries().map(|entry| {
            let is_document = |it: &&Change| matches!(it, Change::Document { .. });
            LoggedWrite {
                term: entry.position.term,
                index: entry.position.index,
                session: entry.changes.iter().find_map(|change| match change {
                    Change::Session { id, after, .. } => Some((id.clone(), after.as_ref()?.number)),
                    _ => None,
                }),
                documents: entry.changes.iter().filter(is_document).count(),
                committed: entry.position <= committed,
            }
        });
        logged.collect()
    }
}

fn changes_between(data: &Data, after: Position, until: Position) -> Vec<CommittedChange> {
    let entries = data.entries().skip_while(|it| it.position <= after);
    let entries = entries.take_while(|it| it.position <= until);
    let changes = entries.flat_map(|entry| {
        let reported = entry.reported();
        reported.filter_map(|(place, it)| CommittedChange::of((entry, place.timestamp()), it))
    });
    changes.collect()
}

fn listed(store: &Store, database: &str, collection: &str) -> Vec<RawDocumentBuf> {
    let collection = store.collection(&format!("{database}.{collection}"));
    let documents = collection.into_iter().flat_map(|it| it.documents());
    documents.filter_map(|(_, document)| raw(document).ok()).collect()
}
