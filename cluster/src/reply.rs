//! The documents that members reply with.

use bson::oid::ObjectId;
use bson::raw::{CStr, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, RawDocumentBuf, Timestamp, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::command_error::CommandError;
use super::config::Lists;
use super::connection::Connection;
use super::member::{OpTime, Process, Role};
use super::model::Cluster;
use super::options::{MemberId, ServerVersion};
use super::protocol::Hello;

const MAX_BSON_OBJECT_SIZE: i32 = 16 * 1024 * 1024;
const MAX_MESSAGE_SIZE_BYTES: i32 = 48_000_000;
const SESSION_TIMEOUT_MINUTES: i32 = 30;

/// About how many bytes the reply to a hello has.
const HELLO_LEN: usize = 1024;

pub(super) fn ok() -> RawDocumentBuf {
    rawdoc! { "ok": 1.0 }
}

/// Answers `startSession` with an id of these bits, which is not stored.
pub(super) fn session(high: u64, low: u64) -> RawDocumentBuf {
    let mut bytes = [high.to_be_bytes(), low.to_be_bytes()].concat();
    // Version 4, variant 1 (RFC 9562).
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let id = Binary { subtype: BinarySubtype::Uuid, bytes };
    rawdoc! { "id": { "id": id }, "timeoutMinutes": SESSION_TIMEOUT_MINUTES, "ok": 1.0 }
}

/// An empty document with room for a hello, which need not grow in many steps.
fn roomy() -> RawDocumentBuf {
    let mut bytes = Vec::with_capacity(HELLO_LEN);
    bytes.extend_from_slice(RawDocumentBuf::new().as_bytes());
    RawDocumentBuf::from_bytes(bytes).expect("it is an empty document")
}

pub(super) fn error(error: &CommandError) -> RawDocumentBuf {
    let mut reply = rawdoc! {
        "ok": 0.0,
        "errmsg": error.message.as_str(),
        "code": error.code,
        "codeName": error.code_name.as_str(),
    };
    let details = RawDocumentBuf::try_from(&*error.details).unwrap_or_default();
    for (name, value) in details.iter().flatten() {
        reply.append(name, value);
    }
    reply
}

pub(super) fn build_info(version: ServerVersion) -> RawDocumentBuf {
    let (major, minor) = version.number();
    rawdoc! {
        "version": version.release(),
        "versionArray": [major, minor, 0, 0],
        "modules": [],
        "bits": 64,
        "debug": false,
        "maxBsonObjectSize": MAX_BSON_OBJECT_SIZE,
        "ok": 1.0,
    }
}

pub(super) fn topology_version(process: &Process) -> RawDocumentBuf {
    rawdoc! { "processId": process.process_id, "counter": process.counter }
}

/// Returns the id of an election, as of real servers: it grows with the term and exceeds older
/// schemes.
pub(super) fn election_id(term: i64) -> ObjectId {
    let mut bytes = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&term.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

impl Cluster {
    /// Returns the wall-clock time in milliseconds since the Unix epoch.
    pub(super) fn wall_millis(&self, at: Instant) -> i64 {
        let millis = i64::try_from(at.since_origin().as_millis()).unwrap_or(i64::MAX);
        self.options.wall_epoch_millis.saturating_add(millis)
    }

    /// Returns the logical time of what happened then.
    pub(super) fn timestamp(&self, at: Instant) -> Timestamp {
        let seconds = self.wall_millis(at).div_euclid(1000).max(0);
        Timestamp { time: u32::try_from(seconds).unwrap_or(u32::MAX), increment: 1 }
    }

    /// Returns the hello reply of a running member on a connection.
    pub(super) fn hello_reply(
        &self,
        now: Instant,
        connection: &Connection,
        hello: &Hello,
    ) -> RawDocumentBuf {
        let member = connection.member;
        let process = self.process(member).expect("only running members reply");
        let mut reply = roomy();
        if hello.hello_ok {
            reply.append(cstr!("helloOk"), true);
        }
        if process.version.has_awaitable_hello() {
            reply.append(cstr!("topologyVersion"), topology_version(process));
        }
        let writable = process.role.is_writable();
        match hello.legacy {
            true => reply.append(cstr!("ismaster"), writable),
            false => reply.append(cstr!("isWritablePrimary"), writable),
        }
        match process.role {
            Role::Mongos => {
                reply.append(cstr!("msg"), "isdbgrid");
                if let Some(service_id) = process.service_id.filter(|_| hello.load_balanced) {
                    reply.append(cstr!("serviceId"), service_id);
                }
            }
            Role::Standalone => {}
            Role::Unconfigured => self.append_no_set(member, process, &mut reply),
            _ => self.append_set(now, connection, process, &mut reply),
        }
        reply.append(cstr!("maxBsonObjectSize"), MAX_BSON_OBJECT_SIZE);
        reply.append(cstr!("maxMessageSizeBytes"), MAX_MESSAGE_SIZE_BYTES);
        reply.append(cstr!("maxWriteBatchSize"), self.options.max_write_batch_size);
        let local_time = DateTime::from_millis(self.wall_millis(now));
        reply.append(cstr!("localTime"), local_time);
        reply.append(cstr!("logicalSessionTimeoutMinutes"), SESSION_TIMEOUT_MINUTES);
        reply.append(cstr!("connectionId"), connection.number);
        reply.append(cstr!("minWireVersion"), 0);
        reply.append(cstr!("maxWireVersion"), process.version.max_wire_version());
        reply.append(cstr!("readOnly"), false);
        reply.append(cstr!("ok"), 1.0);
        reply
    }

    /// Returns whether a member without a valid configuration says of which set it has been.
    pub(super) fn ghost_names_set(&self, member: MemberId, process: &Process) -> bool {
        !process.version.has_awaitable_hello() && self.members[member.0].config.is_some()
    }

    /// Says that the server belongs to no replica set, though it could; before 4.4 it says from
    /// which one it was removed.
    pub(super) fn append_no_set(
        &self,
        member: MemberId,
        process: &Process,
        reply: &mut RawDocumentBuf,
    ) {
        if self.ghost_names_set(member, process) {
            reply.append(cstr!("setName"), self.options.set_name.as_str());
        }
        reply.append(cstr!("secondary"), false);
        reply.append(cstr!("info"), "no valid configuration of a replica set");
        reply.append(cstr!("isreplicaset"), true);
    }

    /// Says what the member is to its replica set, as the configuration it knows has it.
    pub(super) fn append_set(
        &self,
        now: Instant,
        connection: &Connection,
        process: &Process,
        reply: &mut RawDocumentBuf,
    ) {
        let member = connection.member;
        let config = self.members[member.0].config.as_ref().expect("it is configured");
        let own = config.get(member).expect("it is configured");
        let horizon = connection.server_name.as_deref().and_then(|name| own.horizon_of(name));
        let Lists { hosts, passives, arbiters } =
            config.lists(horizon).expect("each horizon has its lists");
        reply.append(cstr!("hosts"), &**hosts);
        let others = [(cstr!("passives"), passives), (cstr!("arbiters"), arbiters)];
        for (name, list) in others.iter().filter(|(_, list)| !list.is_empty()) {
            reply.append(*name, &***list);
        }
        reply.append(cstr!("setName"), self.options.set_name.as_str());
        reply.append(cstr!("setVersion"), config.version);
        reply.append(cstr!("secondary"), process.role == Role::Secondary);
        if let Some(primary) = process.primary.and_then(|primary| config.get(primary)) {
            reply.append(cstr!("primary"), primary.address_under(horizon).to_string());
        }
        let flags = [
            (cstr!("arbiterOnly"), own.arbiter),
            (cstr!("passive"), config.is_passive(member)),
            (cstr!("hidden"), own.hidden),
        ];
        for (name, _) in flags.iter().filter(|(_, is_set)| *is_set) {
            reply.append(*name, true);
        }
        if !own.tags.is_empty() {
            reply.append(cstr!("tags"), tags(&own.tags));
        }
        reply.append(cstr!("me"), own.address_under(horizon).to_string());
        if let Role::Primary { term, .. } = process.role {
            reply.append(cstr!("electionId"), election_id(term));
        }
        let last_write = self.last_write(now, member);
        reply.append(cstr!("lastWrite"), self.last_write_document(last_write));
    }

    fn last_write_document(&self, written: OpTime) -> RawDocumentBuf {
        let timestamp = self.timestamp(written.at);
        let date = DateTime::from_millis(self.wall_millis(written.at));
        rawdoc! {
            "opTime": { "ts": timestamp, "t": written.term },
            "lastWriteDate": date,
            "majorityOpTime": { "ts": timestamp, "t": written.term },
            "majorityWriteDate": date,
        }
    }
}

/// Returns the tags of a member as a document.
pub(super) fn tags(tags: &[(String, String)]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    for (name, value) in tags {
        let name = <&CStr>::try_from(name.as_str()).expect("validate_members() has seen the names");
        document.append(name, value.as_str());
    }
    document
}
