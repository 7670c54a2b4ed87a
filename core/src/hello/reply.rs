//! The reply to hello, read in place from the raw document in one pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{DateTime, RawBsonRef, RawDocument};

use super::fields::{
    REPLY_FIELDS, ReplyError, address, addresses, boolean, int32, last_write_date, message,
    natural, object_id, primary, read_ok, tags, text, topology_version, wire_version,
};
use crate::config::ServerAddress;
use crate::description::{ServerDescription, ServerType, TopologyVersion};
use crate::failure::{Cause, Failure, Stage};
use crate::id::ServerId;
use crate::wire::elements;

/// A reply to the hello of a load-balanced connection that names no service.
///
/// The text is that of the specification (Load Balancer Support, "Connection establishment").
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Driver attempted to initialize in load balancing mode, but the server does not support this \
     mode."
)]
pub struct MissingServiceId;

/// Finds the service behind a load balancer that a connection leads to; it is required there.
///
/// # Errors
///
/// The reply has no `serviceId`, or it is no ObjectId: the connection is of no use.
///
/// ```
/// use sdam_core::bson::{oid::ObjectId, rawdoc};
/// use sdam_core::hello::service_id;
///
/// let service = ObjectId::from_bytes([1; 12]);
/// assert_eq!(service_id(&rawdoc! { "ok": 1, "serviceId": service }), Ok(service));
/// assert!(service_id(&rawdoc! { "ok": 1 }).is_err());
/// ```
pub fn service_id(reply: &RawDocument) -> Result<ObjectId, MissingServiceId> {
    reply.get_object_id("serviceId").map_err(|_| MissingServiceId)
}

/// A reply to hello, or to another command where only `ok` and the error matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HelloReply {
    pub(crate) ok: bool,
    pub(crate) code: i32,
    pub(crate) code_name: String,
    pub(crate) errmsg: String,
    pub(crate) hello_ok: bool,
    is_writable_primary: Option<bool>,
    is_master: Option<bool>,
    secondary: bool,
    arbiter_only: bool,
    hidden: bool,
    is_replica_set: bool,
    is_dbgrid: bool,
    min_wire_version: i32,
    pub(crate) max_wire_version: i32,
    me: Option<ServerAddress>,
    hosts: Arc<[ServerAddress]>,
    passives: Arc<[ServerAddress]>,
    arbiters: Arc<[ServerAddress]>,
    primary: Option<ServerAddress>,
    tags: Option<Arc<BTreeMap<String, String>>>,
    set_name: Option<Arc<str>>,
    set_version: Option<i64>,
    election_id: Option<ObjectId>,
    last_write_date: Option<DateTime>,
    logical_session_timeout_minutes: Option<i64>,
    pub(crate) topology_version: Option<TopologyVersion>,
    iscryptd: bool,
}

impl HelloReply {
    /// Reads a reply; fields that are unknown, and fields that are null, count as absent.
    ///
    /// What says the same as in `known`, the last reply, is taken from there and not built again:
    /// most heartbeats bring no news.
    pub(crate) fn parse(
        document: &RawDocument,
        known: Option<&ServerDescription>,
    ) -> Result<Self, ReplyError> {
        let (mut reply, mut seen_ok) = (Self::default(), false);
        let malformed = |error: bson::error::Error| ReplyError::Bson(error.to_string());
        for element in elements(document) {
            let element = element.map_err(malformed)?;
            let name = element.name();
            let value = match (name, element.value()) {
                (_, Ok(RawBsonRef::Null)) => continue,
                ("codeName", _) => {
                    reply.code_name = message("codeName", &element)?;
                    continue;
                }
                ("errmsg" | "$err", _) => {
                    reply.errmsg = message("errmsg", &element)?;
                    continue;
                }
                (_, Ok(value)) => value,
                // A text that is no UTF-8 matters only where it says what the server is.
                (name, Err(error)) if name == "lastWrite" || REPLY_FIELDS.contains(&name) => {
                    return Err(malformed(error));
                }
                (_, Err(_)) => continue,
            };
            match name {
                "ok" => {
                    reply.ok = read_ok(value)?;
                    seen_ok = true;
                }
                "code" => reply.code = int32("code", value)?,
                name => reply.read(name, value, known)?,
            }
        }
        match seen_ok {
            true => Ok(reply),
            false => Err(ReplyError::Missing("ok")),
        }
    }

    fn read(
        &mut self,
        name: &str,
        value: RawBsonRef<'_>,
        known: Option<&ServerDescription>,
    ) -> Result<(), ReplyError> {
        match name {
            "helloOk" => self.hello_ok = boolean("helloOk", value)?,
            "isWritablePrimary" => {
                self.is_writable_primary = Some(boolean("isWritablePrimary", value)?);
            }
            "ismaster" => self.is_master = Some(boolean("ismaster", value)?),
            "secondary" => self.secondary = boolean("secondary", value)?,
            "arbiterOnly" => self.arbiter_only = boolean("arbiterOnly", value)?,
            "hidden" => self.hidden = boolean("hidden", value)?,
            "isreplicaset" => self.is_replica_set = boolean("isreplicaset", value)?,
            "msg" => self.is_dbgrid = text("msg", value)? == "isdbgrid",
            "minWireVersion" => self.min_wire_version = wire_version("minWireVersion", value)?,
            "maxWireVersion" => self.max_wire_version = wire_version("maxWireVersion", value)?,
            "me" => {
                let known = known.and_then(|known| known.me.as_ref());
                self.me = Some(address("me", value, known)?);
            }
            "hosts" => {
                self.hosts = addresses("hosts", value, known.map(|known| &known.hosts))?;
            }
            "passives" => {
                self.passives = addresses("passives", value, known.map(|known| &known.passives))?;
            }
            "arbiters" => {
                self.arbiters = addresses("arbiters", value, known.map(|known| &known.arbiters))?;
            }
            "primary" => {
                self.primary = primary(value, known.and_then(|known| known.primary.as_ref()))?;
            }
            "tags" => self.tags = Some(tags(value, known.map(|known| &known.tags))?),
            "setName" => {
                let (name, known) =
                    (text("setName", value)?, known.and_then(|k| k.set_name.as_ref()));
                let same = known.filter(|known| ***known == *name);
                self.set_name = Some(same.cloned().unwrap_or_else(|| name.into()));
            }
            "setVersion" => self.set_version = Some(natural("setVersion", value)?),
            "electionId" => self.election_id = Some(object_id("electionId", value)?),
            "lastWrite" => self.last_write_date = last_write_date(value)?,
            "logicalSessionTimeoutMinutes" => {
                let minutes = natural("logicalSessionTimeoutMinutes", value)?;
                self.logical_session_timeout_minutes = Some(minutes);
            }
            "topologyVersion" => self.topology_version = Some(topology_version(value)?),
            "iscryptd" => self.iscryptd = boolean("iscryptd", value)?,
            _ => {}
        }
        Ok(())
    }

    /// Says what the server is (SDAM: the table under "type"), from top to bottom except that a
    /// hidden member is RSOther whatever else it claims.
    pub(crate) fn server_type(&self) -> ServerType {
        let primary = self.is_writable_primary.or(self.is_master).unwrap_or(false);
        if self.is_dbgrid {
            ServerType::Mongos
        } else if self.is_replica_set {
            ServerType::RsGhost
        } else if self.set_name.is_none() {
            ServerType::Standalone
        } else if self.hidden {
            ServerType::RsOther
        } else if primary {
            ServerType::RsPrimary
        } else if self.secondary {
            ServerType::RsSecondary
        } else if self.arbiter_only {
            ServerType::RsArbiter
        } else {
            ServerType::RsOther
        }
    }

    /// Says why the server refused hello, if it did.
    pub(crate) fn refusal(&self) -> Failure {
        let cause = Cause::Command { code: self.code, name: self.code_name.as_str().into() };
        let detail = match self.errmsg.as_str() {
            "" => "the server refused hello without a message",
            message => message,
        };
        Failure::new(Stage::Hello, cause, detail)
    }

    /// Describes the server that sent this reply; times are for the caller to add.
    pub(crate) fn into_description(
        self,
        id: ServerId,
        address: ServerAddress,
    ) -> ServerDescription {
        ServerDescription {
            server_type: self.server_type(),
            last_write_date: self.last_write_date,
            min_wire_version: self.min_wire_version,
            max_wire_version: self.max_wire_version,
            me: self.me,
            hosts: self.hosts,
            passives: self.passives,
            arbiters: self.arbiters,
            tags: self.tags.unwrap_or_default(),
            set_name: self.set_name,
            election_id: self.election_id,
            set_version: self.set_version,
            primary: self.primary,
            logical_session_timeout_minutes: self.logical_session_timeout_minutes,
            topology_version: self.topology_version,
            iscryptd: self.iscryptd,
            ..ServerDescription::unknown(id, address)
        }
    }
}

#[cfg(test)]
impl HelloReply {
    /// Returns what a reply says that repeats this one.
    pub(super) fn again(self, repetition: super::Repetition) -> Self {
        let super::Repetition { topology_version, last_write_date } = repetition;
        Self { topology_version, last_write_date, ..self }
    }
}
