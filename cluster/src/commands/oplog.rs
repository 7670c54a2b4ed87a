//! The oplog of members that keep data, as far as tools ask for its size and its age.

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::replication_status::int32;
use crate::model::Cluster;
use crate::options::MemberId;
use crate::wire::{CommandError, Request};

/// The bytes that an entry counts for: the log of a member holds so many entries, however long each
/// is.
const ENTRY: usize = 1024;

/// Returns whether a command asks for the statistics of the oplog.
pub(super) fn is_about_oplog(request: &Request<'_>) -> bool {
    request.command_name() == "collStats"
        && request.database == Some("local")
        && request.body.get_str("collStats").is_ok_and(|it| it == "oplog.rs")
}

impl Cluster {
    /// Answers `collStats` of `local.oplog.rs`.
    ///
    /// # Errors
    ///
    /// Fails as real servers do where there is no oplog.
    pub(super) fn oplog_stats(&self, member: MemberId) -> Result<RawDocumentBuf, CommandError> {
        if !self.options.deployment.has_set() {
            let reason = "Collection [local.oplog.rs] not found.";
            return Err(CommandError::coded(26, reason));
        }
        let count = self.data_of(member).entries().len();
        let most = self.options.oplog_entries.saturating_mul(ENTRY);
        Ok(rawdoc! {
            "ns": "local.oplog.rs",
            "size": int32(count.saturating_mul(ENTRY)),
            "count": int32(count),
            "capped": true,
            "maxSize": int32(most),
            "ok": 1.0,
        })
    }

    /// Returns the section `oplog` of `serverStatus`, if there is an entry.
    pub(super) fn oplog_section(&self, member: MemberId) -> Option<RawDocumentBuf> {
        if !self.options.keeps_data || !self.options.deployment.has_set() {
            return None;
        }
        let mut entries = self.data_of(member).entries();
        let first = entries.next()?.timestamp;
        let last = entries.next_back().map_or(first, |it| it.timestamp);
        let mut section = RawDocumentBuf::new();
        section.append(cstr!("latestOptime"), last);
        section.append(cstr!("earliestOptime"), first);
        Some(section)
    }
}
