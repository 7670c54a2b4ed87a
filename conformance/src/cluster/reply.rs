//! The documents that members reply with.

use bson::oid::ObjectId;
use bson::raw::{CStr, RawArrayBuf, cstr};
use bson::{DateTime, RawDocumentBuf, Timestamp, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::command_error::CommandError;
use super::member::{OpTime, Process, Role};
use super::model::Cluster;
use super::options::{MemberId, ServerVersion};
use super::protocol::Hello;

const MAX_BSON_OBJECT_SIZE: i32 = 16 * 1024 * 1024;
const MAX_MESSAGE_SIZE_BYTES: i32 = 48_000_000;
const MAX_WRITE_BATCH_SIZE: i32 = 100_000;
const SET_VERSION: i32 = 1;

pub(super) fn ok() -> RawDocumentBuf {
    rawdoc! { "ok": 1.0 }
}

pub(super) fn error(error: &CommandError) -> RawDocumentBuf {
    rawdoc! {
        "ok": 0.0,
        "errmsg": error.message.as_str(),
        "code": error.code,
        "codeName": error.code_name.as_str(),
    }
}

pub(super) fn build_info(version: ServerVersion) -> RawDocumentBuf {
    let (major, minor) = version.number();
    rawdoc! {
        "version": format!("{major}.{minor}.0"),
        "versionArray": [major, minor, 0, 0],
        "maxBsonObjectSize": MAX_BSON_OBJECT_SIZE,
        "ok": 1.0,
    }
}

pub(super) fn topology_version(process: &Process) -> RawDocumentBuf {
    rawdoc! { "processId": process.process_id, "counter": process.counter }
}

/// What real servers give for an election: it grows with the term and exceeds every older scheme.
fn election_id(term: i64) -> ObjectId {
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

    /// What a running `member` says of itself on its connection number `connection`.
    pub(super) fn hello_reply(
        &self,
        now: Instant,
        member: MemberId,
        connection: i32,
        hello: &Hello,
    ) -> RawDocumentBuf {
        let process = self.process(member).expect("only running members reply");
        let mut reply = RawDocumentBuf::new();
        if hello.hello_ok {
            reply.append(cstr!("helloOk"), true);
        }
        if self.options.version.has_awaitable_hello() {
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
            _ => self.append_set(now, member, process, &mut reply),
        }
        reply.append(cstr!("maxBsonObjectSize"), MAX_BSON_OBJECT_SIZE);
        reply.append(cstr!("maxMessageSizeBytes"), MAX_MESSAGE_SIZE_BYTES);
        reply.append(cstr!("maxWriteBatchSize"), MAX_WRITE_BATCH_SIZE);
        let local_time = DateTime::from_millis(self.wall_millis(now));
        reply.append(cstr!("localTime"), local_time);
        reply.append(cstr!("logicalSessionTimeoutMinutes"), 30);
        reply.append(cstr!("connectionId"), connection);
        reply.append(cstr!("minWireVersion"), 0);
        let max_wire_version = self.options.version.max_wire_version();
        reply.append(cstr!("maxWireVersion"), max_wire_version);
        reply.append(cstr!("readOnly"), false);
        reply.append(cstr!("ok"), 1.0);
        reply
    }

    /// Says what the member is to its replica set.
    fn append_set(
        &self,
        now: Instant,
        member: MemberId,
        process: &Process,
        reply: &mut RawDocumentBuf,
    ) {
        let address = |member: MemberId| self.options.members[member.0].address.to_string();
        let hosts: RawArrayBuf = (0..self.members.len()).map(|it| address(MemberId(it))).collect();
        reply.append(cstr!("hosts"), hosts);
        reply.append(cstr!("setName"), self.options.set_name.as_str());
        reply.append(cstr!("setVersion"), SET_VERSION);
        reply.append(cstr!("secondary"), process.role == Role::Secondary);
        if let Some(primary) = process.primary {
            reply.append(cstr!("primary"), address(primary));
        }
        self.append_tags(member, reply);
        reply.append(cstr!("me"), address(member));
        if matches!(process.role, Role::Primary(_)) {
            reply.append(cstr!("electionId"), election_id(self.term()));
        }
        let last_write = self.last_write(now, member);
        reply.append(cstr!("lastWrite"), self.last_write_document(last_write));
    }

    fn append_tags(&self, member: MemberId, reply: &mut RawDocumentBuf) {
        let tags = &self.options.members[member.0].tags;
        if tags.is_empty() {
            return;
        }
        let mut document = RawDocumentBuf::new();
        for (name, value) in tags {
            let name = <&CStr>::try_from(name.as_str()).expect("validate() has seen the names");
            document.append(name, value.as_str());
        }
        reply.append(cstr!("tags"), document);
    }

    fn last_write_document(&self, written: OpTime) -> RawDocumentBuf {
        let millis = self.wall_millis(written.at);
        let seconds = u32::try_from(millis.div_euclid(1000).max(0)).unwrap_or(u32::MAX);
        let timestamp = Timestamp { time: seconds, increment: 1 };
        let date = DateTime::from_millis(millis);
        rawdoc! {
            "opTime": { "ts": timestamp, "t": written.term },
            "lastWriteDate": date,
            "majorityOpTime": { "ts": timestamp, "t": written.term },
            "majorityWriteDate": date,
        }
    }
}
