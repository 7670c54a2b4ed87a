//! The data and the log of members, for a comparison with what clients have seen.

use bson::RawDocumentBuf;
use sdam_core::bson;

use super::cursors::raw;
use crate::model::Cluster;
use crate::options::MemberId;
use crate::store::{Change, Store};

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

impl Cluster {
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

fn listed(store: &Store, database: &str, collection: &str) -> Vec<RawDocumentBuf> {
    let collection = store.collection(&format!("{database}.{collection}"));
    let documents = collection.into_iter().flat_map(|it| it.documents());
    documents.filter_map(|(_, document)| raw(document).ok()).collect()
}
