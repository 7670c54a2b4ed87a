//! A deployment at the other end of streams in memory: three members of a replica set that answer
//! what is measured, with TLS and a user if that is wanted. Nothing of it is counted.

mod login;
mod replies;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use rustls::{ServerConfig, ServerConnection};
use sdam_core::wire::{Flags, Frames, Message, ReplyFlags, op_code, write_op_msg, write_op_reply};

use login::Login;
pub(crate) use login::{Keys, PASSWORD, USER};
pub(crate) use replies::{MEMBERS, member, things};

/// The deployment.
#[derive(Default)]
pub(crate) struct Server {
    /// Its certificate, if it speaks TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// The keys of its user, if it has one.
    pub(crate) keys: Option<Keys>,
    /// The number of members besides the seeds of clients.
    pub(crate) more_members: usize,
    /// Replies to `find` and to `getMore`, if it has documents.
    pub(crate) batches: Option<[RawDocumentBuf; 2]>,
}

/// A member's end of one stream.
pub(crate) struct Connection {
    server: Arc<Server>,
    address: SocketAddr,
    tls: Option<ServerConnection>,
    frames: Frames,
    login: Login,
    /// The number of the last message that was sent, and of the last one that was received.
    sent: i32,
    received: i32,
    /// The reply to a monitor that waits for it to change, or else empty.
    streamed: Option<RawDocumentBuf>,
}

impl Connection {
    pub(crate) fn new(server: Arc<Server>, address: SocketAddr) -> Self {
        let tls = server.tls.as_ref().map(|config| ServerConnection::new(Arc::clone(config)));
        let tls = tls.map(|tls| tls.expect("a valid configuration"));
        let (frames, login) = (Frames::new(), Login::default());
        Self { server, address, tls, frames, login, sent: 1000, received: 0, streamed: None }
    }

    /// Answers what has come, appending to `out`.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        let Some(mut tls) = self.tls.take() else {
            self.frames.extend(bytes);
            return self.answer_all(out);
        };
        let (mut plain, mut answers) = (Vec::new(), Vec::new());
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).expect("bytes in memory");
            tls.process_new_packets().expect("a client that speaks TLS");
            // An error says that nothing more is there.
            let _ = tls.reader().read_to_end(&mut plain);
        }
        self.frames.extend(&plain);
        self.answer_all(&mut answers);
        tls.set_buffer_limit(None);
        tls.writer().write_all(&answers).expect("a buffer without a limit");
        while tls.wants_write() {
            tls.write_tls(out).expect("bytes in memory");
        }
        self.tls = Some(tls);
    }

    fn answer_all(&mut self, out: &mut Vec<u8>) {
        while let Some(message) = self.frames.next().expect("a message") {
            self.answer(&message, out);
        }
    }

    fn answer(&mut self, message: &Message, out: &mut Vec<u8>) {
        self.received = message.header().request_id;
        self.sent += 1;
        if message.header().op_code == op_code::OP_QUERY {
            let query = message.op_query().expect("a query");
            let reply = self.reply(query.query);
            return write_op_reply(out, self.sent, self.received, ReplyFlags::NONE, &reply);
        }
        let op_msg = message.op_msg().expect("a command");
        let reply = match op_msg.sequences().next() {
            Some(documents) => replies::inserted(documents.documents().count()),
            None => self.reply(op_msg.body),
        };
        let flags = match message.flags().expect("flags").contains(Flags::EXHAUST_ALLOWED) {
            true => Flags::MORE_TO_COME,
            false => Flags::NONE,
        };
        write_op_msg(out, self.sent, self.received, flags, &reply);
        self.streamed = (flags == Flags::MORE_TO_COME).then_some(reply);
    }

    fn reply(&mut self, command: &RawDocument) -> RawDocumentBuf {
        let (name, _) = command.iter().next().expect("a field").expect("a document");
        match name.as_str() {
            "hello" | "isMaster" | "ismaster" => {
                let mut reply = replies::member_of(self.address, self.server.more_members);
                self.login.hello(command, &mut reply);
                reply
            }
            "saslContinue" => {
                let keys = self.server.keys.as_ref().expect("a user");
                self.login.last(keys, command)
            }
            "find" => self.batch(0),
            "getMore" => self.batch(1),
            _ => replies::ok(),
        }
    }

    fn batch(&self, index: usize) -> RawDocumentBuf {
        let batches = self.server.batches.as_ref().expect("documents");
        batches[index].clone()
    }

    /// Says once more what it has said last, if a monitor waits for it to change.
    pub(crate) fn repeat_hello(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(reply) = &self.streamed else { return false };
        let before = self.sent;
        self.sent += 1;
        write_op_msg(out, self.sent, before, Flags::MORE_TO_COME, reply);
        true
    }
}
