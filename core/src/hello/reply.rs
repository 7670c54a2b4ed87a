//! The reply to hello, read in place from the raw document in one pass.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{DateTime, RawArray, RawBsonRef, RawDocument};
use bytes::Bytes;

use crate::address::{AddressError, ServerAddress};
use crate::description::{ServerDescription, ServerType, TopologyVersion};
use crate::id::ServerId;

/// How many members a server may list; real replica sets have at most 50.
pub const MAX_MEMBERS: usize = 1000;

/// How many tags a server may have, and how long the text of each field may be, in bytes.
const MAX_TAGS: usize = 1000;
const MAX_TEXT_LEN: usize = 1024;

/// A reply as the server sent it, in the memory it was read into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyDocument(Bytes);

impl ReplyDocument {
    /// Shares the memory of `message`, which `document` is a part of.
    pub(crate) fn new(message: &Bytes, document: &RawDocument) -> Self {
        Self(message.slice_ref(document.as_bytes()))
    }
}

impl Deref for ReplyDocument {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        RawDocument::from_bytes(&self.0).expect("a slice of a message that was read as a document")
    }
}

/// What is wrong with a reply to hello.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// A document that is not BSON.
    #[error("malformed BSON: {0}")]
    Bson(String),
    /// A field of another type than the specification gives it.
    #[error("{field} is {found}, not {expected}")]
    Type {
        /// The field.
        field: &'static str,
        /// The type it has.
        found: String,
        /// The type it must have.
        expected: &'static str,
    },
    /// A number outside its range.
    #[error("{field} is {found}, which is out of range")]
    Range {
        /// The field.
        field: &'static str,
        /// The number.
        found: i64,
    },
    /// A name that is no server address.
    #[error("{field} has a member that is no address: {error}")]
    Address {
        /// The field.
        field: &'static str,
        /// What is wrong with the address.
        error: AddressError,
    },
    /// More elements than are accepted.
    #[error("{field} has more than {limit} elements")]
    TooMany {
        /// The field.
        field: &'static str,
        /// How many are accepted.
        limit: usize,
    },
    /// A text that is longer than accepted.
    #[error("{field} is {length} bytes long; at most {MAX_TEXT_LEN} are accepted")]
    TooLong {
        /// The field.
        field: &'static str,
        /// How long it is.
        length: usize,
    },
    /// A field that every reply must have is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
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
    hosts: Vec<ServerAddress>,
    passives: Vec<ServerAddress>,
    arbiters: Vec<ServerAddress>,
    primary: Option<ServerAddress>,
    tags: BTreeMap<String, String>,
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
    pub(crate) fn parse(document: &RawDocument) -> Result<Self, ReplyError> {
        let (mut reply, mut seen_ok) = (Self::default(), false);
        for element in document {
            let (name, value) = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
            if value == RawBsonRef::Null {
                continue;
            }
            match name.as_str() {
                "ok" => {
                    reply.ok = number("ok", value)? == 1.0;
                    seen_ok = true;
                }
                "code" => reply.code = int32("code", value)?,
                "codeName" => reply.code_name = text("codeName", value)?.to_owned(),
                "errmsg" | "$err" => reply.errmsg = message(value)?,
                _ => reply.read(name.as_str(), value)?,
            }
        }
        match seen_ok {
            true => Ok(reply),
            false => Err(ReplyError::Missing("ok")),
        }
    }

    fn read(&mut self, name: &str, value: RawBsonRef<'_>) -> Result<(), ReplyError> {
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
            "me" => self.me = Some(address("me", value)?),
            "hosts" => self.hosts = addresses("hosts", value)?,
            "passives" => self.passives = addresses("passives", value)?,
            "arbiters" => self.arbiters = addresses("arbiters", value)?,
            "primary" => self.primary = primary(value)?,
            "tags" => self.tags = tags(value)?,
            "setName" => self.set_name = Some(text("setName", value)?.into()),
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
    fn server_type(&self) -> ServerType {
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
            tags: self.tags,
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

type Field<T> = Result<T, ReplyError>;

fn wrong_type<T>(field: &'static str, value: RawBsonRef<'_>, expected: &'static str) -> Field<T> {
    Err(ReplyError::Type { field, found: format!("{:?}", value.element_type()), expected })
}

fn boolean(field: &'static str, value: RawBsonRef<'_>) -> Field<bool> {
    value.as_bool().map_or_else(|| wrong_type(field, value, "a boolean"), Ok)
}

fn number(field: &'static str, value: RawBsonRef<'_>) -> Field<f64> {
    match value {
        RawBsonRef::Double(double) => Ok(double),
        RawBsonRef::Int32(int) => Ok(f64::from(int)),
        // Only compared with 1, where rounding cannot matter.
        RawBsonRef::Int64(int) => Ok(int as f64),
        _ => wrong_type(field, value, "a number"),
    }
}

/// Reads an integer of whatever numeric type, as servers differ in what they send.
fn integer(field: &'static str, value: RawBsonRef<'_>) -> Field<i64> {
    match value {
        RawBsonRef::Int32(int) => Ok(i64::from(int)),
        RawBsonRef::Int64(int) => Ok(int),
        RawBsonRef::Double(double) if double.fract() == 0.0 && double.abs() < 2_f64.powi(53) => {
            Ok(double as i64)
        }
        _ => wrong_type(field, value, "an integer"),
    }
}

fn natural(field: &'static str, value: RawBsonRef<'_>) -> Field<i64> {
    match integer(field, value)? {
        found if found < 0 => Err(ReplyError::Range { field, found }),
        found => Ok(found),
    }
}

fn int32(field: &'static str, value: RawBsonRef<'_>) -> Field<i32> {
    let found = integer(field, value)?;
    i32::try_from(found).map_err(|_| ReplyError::Range { field, found })
}

fn wire_version(field: &'static str, value: RawBsonRef<'_>) -> Field<i32> {
    let found = natural(field, value)?;
    i32::try_from(found).map_err(|_| ReplyError::Range { field, found })
}

fn text<'a>(field: &'static str, value: RawBsonRef<'a>) -> Field<&'a str> {
    match value.as_str() {
        Some(text) if text.len() > MAX_TEXT_LEN => {
            Err(ReplyError::TooLong { field, length: text.len() })
        }
        Some(text) => Ok(text),
        None => wrong_type(field, value, "a string"),
    }
}

/// Reads an error message; one that is too long is cut, not refused, as it is for people only.
fn message(value: RawBsonRef<'_>) -> Field<String> {
    let message = value.as_str().map_or_else(|| wrong_type("errmsg", value, "a string"), Ok)?;
    Ok(message[..message.floor_char_boundary(MAX_TEXT_LEN)].to_owned())
}

fn document<'a>(field: &'static str, value: RawBsonRef<'a>) -> Field<&'a RawDocument> {
    value.as_document().map_or_else(|| wrong_type(field, value, "a document"), Ok)
}

fn object_id(field: &'static str, value: RawBsonRef<'_>) -> Field<ObjectId> {
    value.as_object_id().map_or_else(|| wrong_type(field, value, "an ObjectId"), Ok)
}

fn address(field: &'static str, value: RawBsonRef<'_>) -> Field<ServerAddress> {
    let text = value.as_str().map_or_else(|| wrong_type(field, value, "a string"), Ok)?;
    text.parse().map_err(|error| ReplyError::Address { field, error })
}

/// Reads who the server thinks is primary; some versions send an empty name for none.
fn primary(value: RawBsonRef<'_>) -> Field<Option<ServerAddress>> {
    match value.as_str() {
        Some("") => Ok(None),
        _ => address("primary", value).map(Some),
    }
}

fn addresses(field: &'static str, value: RawBsonRef<'_>) -> Field<Vec<ServerAddress>> {
    let array: &RawArray =
        value.as_array().map_or_else(|| wrong_type(field, value, "an array"), Ok)?;
    let mut addresses = Vec::new();
    for element in array {
        if addresses.len() == MAX_MEMBERS {
            return Err(ReplyError::TooMany { field, limit: MAX_MEMBERS });
        }
        let element = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
        addresses.push(address(field, element)?);
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

fn tags(value: RawBsonRef<'_>) -> Field<BTreeMap<String, String>> {
    let mut tags = BTreeMap::new();
    for element in document("tags", value)? {
        let (key, value) = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
        let (key, value) = (key.as_str(), text("tags", value)?);
        if key.len() > MAX_TEXT_LEN {
            return Err(ReplyError::TooLong { field: "tags", length: key.len() });
        }
        if tags.len() == MAX_TAGS {
            return Err(ReplyError::TooMany { field: "tags", limit: MAX_TAGS });
        }
        tags.insert(key.to_owned(), value.to_owned());
    }
    Ok(tags)
}

fn last_write_date(value: RawBsonRef<'_>) -> Field<Option<DateTime>> {
    for element in document("lastWrite", value)? {
        let (key, value) = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
        if key == "lastWriteDate" {
            let date = value.as_datetime();
            return date.map_or_else(
                || wrong_type("lastWrite.lastWriteDate", value, "a date"),
                |date| Ok(Some(date)),
            );
        }
    }
    Ok(None)
}

fn topology_version(value: RawBsonRef<'_>) -> Field<TopologyVersion> {
    let (mut process_id, mut counter) = (None, None);
    for element in document("topologyVersion", value)? {
        let (key, value) = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
        match key.as_str() {
            "processId" => process_id = Some(object_id("topologyVersion.processId", value)?),
            "counter" => counter = Some(natural("topologyVersion.counter", value)?),
            _ => {}
        }
    }
    Ok(TopologyVersion {
        process_id: process_id.ok_or(ReplyError::Missing("topologyVersion.processId"))?,
        counter: counter.ok_or(ReplyError::Missing("topologyVersion.counter"))?,
    })
}
