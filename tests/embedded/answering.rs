//! A server that replies what a test makes up.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::wire::{Flags, Frames, ReplyFlags, write_op_msg, write_op_reply};

/// Makes the reply to a command; `None` is `{ ok: 1 }`.
type Script = dyn Fn(&str, &RawDocument) -> Option<RawDocumentBuf> + Send + Sync;

/// Makes the reply to hello.
type Hello = dyn Fn() -> RawDocumentBuf + Send + Sync;

/// The limits of servers: of writes, of documents and of messages.
const LIMITS: (i32, i32, i32) = (100_000, 16 << 20, 48_000_000);

/// A server by itself, each of whose connections has a thread.
pub(crate) struct Scripted {
    pub(crate) uri: String,
    opened: Arc<AtomicUsize>,
}

impl Scripted {
    /// Starts a server that speaks the protocol of this wire version.
    pub(crate) fn start(
        wire_version: i32,
        script: impl Fn(&str, &RawDocument) -> Option<RawDocumentBuf> + Send + Sync + 'static,
    ) -> Self {
        Self::with_hello(move || hello(wire_version, LIMITS), script)
    }

    /// As [`start`](Self::start), with a wire version that changes, for new connections.
    pub(crate) fn upgraded(
        wire_version: Arc<AtomicI32>,
        script: impl Fn(&str, &RawDocument) -> Option<RawDocumentBuf> + Send + Sync + 'static,
    ) -> Self {
        Self::with_hello(move || hello(wire_version.load(Ordering::Relaxed), LIMITS), script)
    }

    /// As [`start`](Self::start), with other limits: of writes, of documents and of messages.
    pub(crate) fn with_limits(
        limits: (i32, i32, i32),
        script: impl Fn(&str, &RawDocument) -> Option<RawDocumentBuf> + Send + Sync + 'static,
    ) -> Self {
        Self::with_hello(move || hello(25, limits), script)
    }

    fn with_hello(
        hello: impl Fn() -> RawDocumentBuf + Send + Sync + 'static,
        script: impl Fn(&str, &RawDocument) -> Option<RawDocumentBuf> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("mongodb://{}/?directConnection=true", listener.local_addr().unwrap());
        let (script, opened): (Arc<Script>, _) = (Arc::new(script), Arc::new(AtomicUsize::new(0)));
        let (of_server, hello): (_, Arc<Hello>) = (Arc::clone(&opened), Arc::new(hello));
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                of_server.fetch_add(1, Ordering::Relaxed);
                let (script, hello) = (Arc::clone(&script), Arc::clone(&hello));
                thread::spawn(move || serve(stream, &*hello, &*script));
            }
        });
        Self { uri, opened }
    }

    /// Returns how many connections have been opened.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

/// Answers all requests of a connection.
fn serve(mut stream: TcpStream, hello: &Hello, script: &Script) {
    let (mut frames, mut buffer) = (Frames::new(), vec![0; 1 << 16]);
    loop {
        let Ok(length @ 1..) = stream.read(&mut buffer) else { return };
        frames.extend(&buffer[..length]);
        while let Some(message) = frames.next().unwrap() {
            let (id, mut reply) = (message.header().request_id, Vec::new());
            match message.op_query() {
                Ok(_) => {
                    write_op_reply(&mut reply, 1, id, ReplyFlags::NONE, &hello());
                }
                Err(_) => {
                    let body = message.op_msg().unwrap().body;
                    let (name, _) = body.iter().next().unwrap().unwrap();
                    let document = match name.as_str() {
                        "hello" | "isMaster" | "ismaster" => hello(),
                        name => script(name, body).unwrap_or_else(|| rawdoc! { "ok": 1 }),
                    };
                    write_op_msg(&mut reply, 1, id, Flags::NONE, &document);
                }
            }
            if stream.write_all(&reply).is_err() {
                return;
            }
        }
    }
}

fn hello(wire_version: i32, (writes, document, message): (i32, i32, i32)) -> RawDocumentBuf {
    rawdoc! {
        "ok": 1,
        "helloOk": true,
        "ismaster": true,
        "isWritablePrimary": true,
        "maxBsonObjectSize": document,
        "maxMessageSizeBytes": message,
        "maxWriteBatchSize": writes,
        "logicalSessionTimeoutMinutes": 30,
        "minWireVersion": 0,
        "maxWireVersion": wire_version,
    }
}
