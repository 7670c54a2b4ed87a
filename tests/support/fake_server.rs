//! A server that speaks the wire protocol, is a standalone or a primary, and answers commands as
//! the test says.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam_core::bson::spec::BinarySubtype;
use sdam_core::bson::{Binary, RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::wire::{Flags, Frames, ReplyFlags, op_code, write_op_msg, write_op_reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Waits, for as long as anything may take that depends on the machine's mood.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(90), work).await.expect("done in time")
}

/// Answers a command of a connection, which has a number; `None` closes the connection.
pub(crate) type Script =
    Arc<dyn Fn(u32, &RawDocument) -> Option<RawDocumentBuf> + Send + Sync + 'static>;

pub(crate) struct FakeServer {
    pub(crate) address: SocketAddr,
    /// The names of the commands but hello, in order.
    pub(crate) commands: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    /// Starts a server; it ends with the runtime.
    pub(crate) async fn start(script: Script) -> Self {
        Self::start_as(RawDocumentBuf::new(), script).await
    }

    /// Starts a server whose reply to hello has these fields, too.
    pub(crate) async fn start_as(role: RawDocumentBuf, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let commands = Arc::<Mutex<Vec<String>>>::default();
        let (known, connections) = (Arc::clone(&commands), AtomicU32::new(0));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = connections.fetch_add(1, Ordering::Relaxed);
                let (script, known) = (Arc::clone(&script), Arc::clone(&known));
                tokio::spawn(serve(stream, number, role.clone(), script, known));
            }
        });
        Self { address, commands }
    }

    /// Returns the number of times that a command was received.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.commands.lock().unwrap().iter().filter(|known| *known == name).count()
    }
}

async fn serve(
    mut stream: TcpStream,
    number: u32,
    role: RawDocumentBuf,
    script: Script,
    commands: Arc<Mutex<Vec<String>>>,
) {
    let (mut frames, mut buffer) = (Frames::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        frames.extend(&buffer[..count]);
        while let Ok(Some(message)) = frames.next() {
            let (id, by_query) =
                (message.header().request_id, message.header().op_code == op_code::OP_QUERY);
            let command = match by_query {
                true => message.op_query().unwrap().query.to_owned(),
                false => message.op_msg().unwrap().body.to_owned(),
            };
            let name = first_key(&command);
            let reply = if ["hello", "isMaster", "ismaster"].contains(&&*name) {
                Some(hello(number, &role, &command, &script))
            } else {
                commands.lock().unwrap().push(name);
                script(number, &command)
            };
            let Some(reply) = reply else { return };
            let mut out = Vec::new();
            match by_query {
                true => write_op_reply(&mut out, 1, id, ReplyFlags::NONE, &reply),
                false => write_op_msg(&mut out, 1, id, Flags::NONE, &reply),
            }
            if stream.write_all(&out).await.is_err() {
                return;
            }
        }
    }
}

/// Answers hello, and what is tried with it only if that succeeds.
fn hello(
    number: u32,
    role: &RawDocument,
    command: &RawDocument,
    script: &Script,
) -> RawDocumentBuf {
    let mut reply = rawdoc! {
        "isWritablePrimary": true, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 21,
        "ok": 1,
    };
    for field in role.iter() {
        let (name, value) = field.unwrap();
        reply.append(name, value);
    }
    if let Ok(tried) = command.get_document("speculativeAuthenticate")
        && let Some(answer) = script(number, tried)
        && answer.get_i32("ok").ok() == Some(1)
    {
        reply.append(cstr!("speculativeAuthenticate"), answer);
    }
    reply
}

pub(crate) fn first_key(command: &RawDocument) -> String {
    command.iter().next().unwrap().unwrap().0.to_string()
}

/// The payload of a step of SASL.
pub(crate) fn payload(command: &RawDocument) -> &[u8] {
    command.get_binary("payload").unwrap().bytes
}

/// The reply to a step of SASL.
pub(crate) fn sasl(done: bool, payload: &[u8]) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.to_vec() };
    rawdoc! { "conversationId": 1, "done": done, "payload": payload, "ok": 1 }
}

pub(crate) fn error(code: i32) -> RawDocumentBuf {
    rawdoc! { "ok": 0, "code": code, "errmsg": "no" }
}
