//! Hello: answered at once, awaited, or streamed.

use std::time::Duration;

use bson::raw::cstr;
use bson::{DateTime, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;
use sdam_core::wire::Flags;

use crate::model::fail_point::Injection;
use crate::model::{
    Action, Cluster, Connection, ConnectionId, Lists, OpTime, Process, Role, Then, later,
    shutdown_reply,
};
use crate::options::MemberId;
use crate::wire::{CommandError, Hello, ReplyForm, ReplyTo, reply};

/// The shortest time between two replies of a stream, so that a client that waits for no time at
/// all does not get them all at once.
const MIN_STREAM_INTERVAL: Duration = Duration::from_millis(1);

/// About how many bytes the reply has.
const HELLO_LEN: usize = 1024;

impl Cluster {
    /// Answers a hello, now or when there is something new to say; `fields` go with the answer.
    pub(super) fn begin_hello(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reply_to: ReplyTo,
        hello: Hello,
        fields: RawDocumentBuf,
        out: &mut Vec<Action>,
    ) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.login.hello_fields = Some(fields);
        }
        let member = self.connections.get(&id).map(|connection| connection.member);
        let Some(process) = member.and_then(|member| self.process(member)) else {
            return;
        };
        let counter = process.counter;
        // One that is shutting down has no time to wait.
        let known = hello.wait.filter(|it| it.process_id == process.process_id);
        let known = known.filter(|_| !process.is_ending());
        match known {
            Some(wait) if wait.counter > counter => {
                let error = CommandError::counter_ahead(wait.counter, counter);
                self.send(now, id, reply_to, Flags::NONE, reply::error(&error), out);
            }
            Some(wait) if wait.counter == counter && !wait.max.is_zero() => {
                self.wait(id, later(now, wait.max), Then::SayHello(reply_to, hello));
            }
            _ => self.send_hello(now, id, reply_to, hello, out),
        }
    }

    pub(crate) fn send_hello(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reply_to: ReplyTo,
        hello: Hello,
        out: &mut Vec<Action>,
    ) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        if let Some(shutdown_reply) =
            self.process(connection.member).and_then(|it| shutdown_reply(now, it))
        {
            self.send(now, id, reply_to, Flags::NONE, shutdown_reply, out);
            return;
        }
        let mut document = self.hello_reply(now, connection, &hello);
        let connection = self.connections.get_mut(&id);
        let fields = connection.and_then(|it| it.login.hello_fields.take()).unwrap_or_default();
        for (name, value) in fields.iter().flatten() {
            document.append(name, value);
        }
        let exhaust = matches!(reply_to.form, ReplyForm::Msg { exhaust: true, .. });
        if hello.wait.is_none() || !exhaust {
            self.send(now, id, reply_to, Flags::NONE, document, out);
            return;
        }
        // OP_MSG, "moreToCome On Responses": each reply answers the one before it.
        let request_id = self.send(now, id, reply_to, Flags::MORE_TO_COME, document, out);
        let reply_to = ReplyTo { request_id, ..reply_to };
        // The next hello of the stream begins, as if the client had asked for it.
        let injection = self.injection(id, hello.command());
        match injection.block {
            Duration::ZERO => self.continue_stream(now, id, reply_to, hello, injection, out),
            block => self.wait(id, later(now, block), Then::Stream(reply_to, hello, injection)),
        }
    }

    /// Goes on with a stream, unless a fail point ends it.
    pub(crate) fn continue_stream(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reply_to: ReplyTo,
        hello: Hello,
        injection: Injection,
        out: &mut Vec<Action>,
    ) {
        let member = self.connections.get(&id).map(|connection| connection.member);
        match (injection.error, member) {
            _ if injection.close => self.close(id, out),
            (Some(error), Some(member)) => {
                let document = self.error_reply(member, &error);
                self.send(now, id, reply_to, Flags::NONE, document, out);
            }
            _ => {
                let max = hello.wait.map_or(Duration::ZERO, |wait| wait.max);
                let until = later(now, max.max(MIN_STREAM_INTERVAL));
                self.wait(id, until, Then::SayHello(reply_to, hello));
            }
        }
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
            reply.append(cstr!("topologyVersion"), process.topology_version());
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
        reply.append(cstr!("maxBsonObjectSize"), reply::MAX_BSON_OBJECT_SIZE);
        reply.append(cstr!("maxMessageSizeBytes"), reply::MAX_MESSAGE_SIZE_BYTES);
        reply.append(cstr!("maxWriteBatchSize"), self.options.max_write_batch_size);
        let local_time = DateTime::from_millis(self.wall_millis(now));
        reply.append(cstr!("localTime"), local_time);
        reply.append(cstr!("logicalSessionTimeoutMinutes"), reply::SESSION_TIMEOUT_MINUTES);
        reply.append(cstr!("connectionId"), connection.number);
        reply.append(cstr!("minWireVersion"), 0);
        reply.append(cstr!("maxWireVersion"), process.version.max_wire_version());
        reply.append(cstr!("readOnly"), false);
        reply.append(cstr!("ok"), 1.0);
        reply
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
            reply.append(cstr!("tags"), reply::tags(&own.tags));
        }
        reply.append(cstr!("me"), own.address_under(horizon).to_string());
        if let Role::Primary { term, .. } = process.role {
            reply.append(cstr!("electionId"), reply::election_id(term));
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

/// An empty document with room for a hello, which need not grow in many steps.
fn roomy() -> RawDocumentBuf {
    let mut bytes = Vec::with_capacity(HELLO_LEN);
    bytes.extend_from_slice(RawDocumentBuf::new().as_bytes());
    RawDocumentBuf::from_bytes(bytes).expect("it is an empty document")
}
