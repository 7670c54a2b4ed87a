//! A deployment as the suites of server selection describe it, shown to the client by servers that
//! reply to hello accordingly.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, RawArrayBuf, RawDocumentBuf, cstr, rawdoc};
use sdam_core::description::{ServerDescription, ServerType, TopologyType};
use sdam_core::time::Instant;
use serde::Deserialize;

use super::super::format::{Address, CaseError, ServerKind, TopologyKind};
use super::milliseconds;
use sdam_core::harness::{CheckOutcome, Harness};

/// The name of the replica set, which no case mentions.
const SET_NAME: &str = "rs";

/// The wire version of a server for which the case has none.
const MAX_WIRE_VERSION: i32 = 21;

/// The seed where a case has no server, as a client needs one; it never answers.
const NOBODY: &str = "nobody.invalid";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Deployment {
    #[serde(rename = "type")]
    topology_type: TopologyKind,
    servers: Vec<Server>,
}

/// A server; where a case expects or deprioritizes one, only its address counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Server {
    pub(super) address: Address,
    #[serde(rename = "avg_rtt_ms")]
    round_trip_time: Option<f64>,
    #[serde(rename = "type")]
    server_type: ServerKind,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    /// The time when the server was last checked, in milliseconds since some moment.
    last_update_time: Option<f64>,
    last_write: Option<LastWrite>,
    max_wire_version: Option<i32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LastWrite {
    /// In milliseconds since the epoch.
    last_write_date: i64,
}

/// A step of a server.
enum Deed {
    Accept,
    Reply(RawDocumentBuf),
}

impl Deployment {
    /// Lets the servers reply such that the client sees this deployment.
    ///
    /// The round trip time of a server is the time from the moment its connection is up to its
    /// reply, and its last update is the moment of that reply. Unknown servers never reply.
    pub(super) fn show(&self, heartbeat: Option<Duration>) -> Result<Harness, CaseError> {
        let mut fixture = Harness::new(&self.uri(), heartbeat)?;
        let mut deeds = Vec::new();
        let mut start = Instant::ZERO;
        for server in &self.servers {
            start = start.max(Instant::ZERO + server.round_trip_time()?);
        }
        for server in self.servers.iter().filter(|server| server.replies()) {
            let reply_at = start + server.last_update()?;
            let accept_at =
                Instant::ZERO + ((reply_at - Instant::ZERO) - server.round_trip_time()?);
            deeds.push((accept_at, &server.address, Deed::Accept));
            deeds.push((reply_at, &server.address, Deed::Reply(self.reply(server))));
        }
        // Stable: a server that takes no time to reply still accepts first.
        deeds.sort_by_key(|(at, _, _)| *at);
        for (at, address, deed) in deeds {
            fixture.pass(at);
            match deed {
                Deed::Accept => fixture.accept(&address.0)?,
                Deed::Reply(reply) => fixture.answer(&address.0, CheckOutcome::Reply(&reply))?,
            }
        }
        self.verify(&fixture, start)?;
        Ok(fixture)
    }

    fn uri(&self) -> String {
        let addresses = self.servers.iter().map(|server| server.address.to_string());
        let seeds = match self.servers.is_empty() {
            true => NOBODY.to_owned(),
            false => addresses.collect::<Vec<_>>().join(","),
        };
        match self.topology_type.0 {
            TopologyType::Single => format!("mongodb://{seeds}/?directConnection=true"),
            TopologyType::LoadBalanced => format!("mongodb://{seeds}/?loadBalanced=true"),
            TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
                format!("mongodb://{seeds}/?replicaSet={SET_NAME}")
            }
            _ => format!("mongodb://{seeds}"),
        }
    }

    /// The reply to hello by which a server shows that it is what the case says.
    fn reply(&self, server: &Server) -> RawDocumentBuf {
        let mut reply = rawdoc! {
            "ok": 1,
            "helloOk": true,
            "minWireVersion": 0,
            "maxWireVersion": server.max_wire_version.unwrap_or(MAX_WIRE_VERSION),
        };
        let server_type = server.server_type.0;
        match server_type {
            ServerType::Standalone => reply.append(cstr!("isWritablePrimary"), true),
            ServerType::Mongos => reply.append(cstr!("msg"), "isdbgrid"),
            ServerType::RsGhost => reply.append(cstr!("isreplicaset"), true),
            ServerType::RsPrimary => {
                reply.append(cstr!("isWritablePrimary"), true);
                reply.append(cstr!("electionId"), ObjectId::from_bytes([1; 12]));
            }
            ServerType::RsSecondary => reply.append(cstr!("secondary"), true),
            ServerType::RsArbiter => reply.append(cstr!("arbiterOnly"), true),
            ServerType::RsOther => reply.append(cstr!("hidden"), true),
            _ => {}
        }
        if server.is_member() {
            let mut hosts = RawArrayBuf::new();
            self.servers.iter().for_each(|member| hosts.push(member.address.to_string()));
            reply.append(cstr!("setName"), SET_NAME);
            reply.append(cstr!("setVersion"), 1);
            reply.append(cstr!("me"), server.address.to_string());
            reply.append(cstr!("hosts"), hosts);
        }
        let tags: bson::Document =
            server.tags.iter().map(|(key, value)| (key.clone(), value.into())).collect();
        reply.append(cstr!("tags"), RawDocumentBuf::try_from(&tags).unwrap_or_default());
        if let Some(LastWrite { last_write_date }) = server.last_write {
            let date = DateTime::from_millis(last_write_date);
            reply.append(cstr!("lastWrite"), rawdoc! { "lastWriteDate": date });
        }
        reply
    }

    /// Makes sure that the client sees what the case describes, or what it selects means nothing.
    fn verify(&self, fixture: &Harness, start: Instant) -> Result<(), CaseError> {
        let mut expected = Vec::new();
        for server in &self.servers {
            expected.push(server.summary()?);
        }
        expected.sort_unstable();
        let seen = fixture.view().servers().iter();
        let seen = seen.filter(|server| server.address.host() != NOBODY);
        let mut seen: Vec<String> = seen.map(|server| summary_of(server, start)).collect();
        seen.sort_unstable();
        let expected = format!("{}: {}", self.topology_type.0, expected.join("; "));
        let seen = format!("{}: {}", fixture.view().topology_type, seen.join("; "));
        match expected == seen {
            true => Ok(()),
            false => Err(CaseError::Deployment { expected, seen }),
        }
    }
}

impl Server {
    fn replies(&self) -> bool {
        !matches!(self.server_type.0, ServerType::Unknown | ServerType::LoadBalancer)
    }

    fn is_member(&self) -> bool {
        matches!(
            self.server_type.0,
            ServerType::RsPrimary
                | ServerType::RsSecondary
                | ServerType::RsArbiter
                | ServerType::RsOther
        )
    }

    fn round_trip_time(&self) -> Result<Duration, CaseError> {
        milliseconds("avg_rtt_ms", self.round_trip_time.unwrap_or(0.0))
    }

    fn last_update(&self) -> Result<Duration, CaseError> {
        milliseconds("lastUpdateTime", self.last_update_time.unwrap_or(0.0))
    }

    fn summary(&self) -> Result<String, CaseError> {
        let (address, server_type) = (&self.address, self.server_type.0);
        if !self.replies() {
            return Ok(format!("{address} {server_type}"));
        }
        let (round_trip_time, update) = (self.round_trip_time()?, self.last_update()?);
        let write = self.last_write.as_ref().map(|write| write.last_write_date);
        let tags = &self.tags;
        Ok(format!("{address} {server_type} {round_trip_time:?} {update:?} {write:?} {tags:?}"))
    }
}

/// Returns a client's view of a server, in the form of [`Server::summary`].
fn summary_of(server: &ServerDescription, start: Instant) -> String {
    let (address, server_type, tags) = (&server.address, server.server_type, &server.tags);
    let (Some(round_trip_time), Some(updated)) = (server.round_trip_time, server.last_update_time)
    else {
        return format!("{address} {server_type}");
    };
    let (update, write) = (updated - start, server.last_write_date.map(DateTime::timestamp_millis));
    format!("{address} {server_type} {round_trip_time:?} {update:?} {write:?} {tags:?}")
}
