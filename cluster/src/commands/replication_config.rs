//! `replSetGetConfig`: the configuration that a member has heard of.

use bson::raw::{CStr, cstr};
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::replication_status::int32;
use crate::model::Cluster;
use crate::options::{MemberId, MemberOptions, ServerVersion};
use crate::wire::CommandError;
use crate::wire::reply::tags;

impl Cluster {
    /// Answers `replSetGetConfig`; a member that was removed returns the configuration without it.
    ///
    /// # Errors
    ///
    /// Fails as real servers do if the member has heard of no configuration.
    pub(super) fn replication_config(
        &self,
        now: Instant,
        member: MemberId,
    ) -> Result<RawDocumentBuf, CommandError> {
        let config = self.known_config(member)?;
        let version = self.process(member).map_or(self.options.version, |it| it.version);
        let members = config.members().map(|(id, options)| described(id, options, version));
        let mut document = rawdoc! {
            "_id": self.options.set_name.as_str(),
            "version": config.version,
        };
        if version.has_awaitable_hello() {
            // Each primary makes the configuration one of its own term.
            let term = i32::try_from(self.known_term(now, member)).unwrap_or(i32::MAX);
            document.append(cstr!("term"), term);
        }
        document.append(cstr!("members"), members.collect::<RawArrayBuf>());
        document.append(cstr!("protocolVersion"), 1_i64);
        document.append(cstr!("writeConcernMajorityJournalDefault"), true);
        let timeout = self.options.election_timeout.as_millis();
        let settings = rawdoc! {
            "chainingAllowed": false,
            "heartbeatIntervalMillis": self.heartbeat_millis(),
            "electionTimeoutMillis": i32::try_from(timeout).unwrap_or(i32::MAX),
        };
        document.append(cstr!("settings"), settings);
        Ok(rawdoc! { "config": document, "ok": 1.0 })
    }
}

/// Describes a member as it is configured.
fn described(id: MemberId, options: &MemberOptions, version: ServerVersion) -> RawDocumentBuf {
    // An arbiter never becomes primary, and real servers say so too.
    let priority = if options.arbiter { 0 } else { options.priority };
    let mut member = rawdoc! {
        "_id": int32(id.0),
        "host": options.address.to_string(),
        "arbiterOnly": options.arbiter,
        "buildIndexes": true,
        "hidden": options.hidden,
        "priority": f64::from(priority),
        "tags": tags(&options.tags),
    };
    let delay = match version.has_hello_ok() {
        true => cstr!("secondaryDelaySecs"),
        false => cstr!("slaveDelay"),
    };
    member.append(delay, 0_i64);
    member.append(cstr!("votes"), 1);
    if !options.horizons.is_empty() {
        let names = options.horizons.keys().filter_map(|name| <&CStr>::try_from(&**name).ok());
        let mut horizons = RawDocumentBuf::new();
        for (name, address) in names.zip(options.horizons.values()) {
            horizons.append(name, address.to_string());
        }
        member.append(cstr!("horizons"), horizons);
    }
    member
}
