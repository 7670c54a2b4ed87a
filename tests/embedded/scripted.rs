//! A server that follows the script of a test, and sends bytes that no real one would.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use bson::{RawDocumentBuf, rawdoc};
use sdam_core::wire::{Flags, Frames, OpMsg, write_op_msg};

/// The answer to a command: its replies, of which all but the last announce another, and bytes
/// behind them.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) replies: Vec<RawDocumentBuf>,
    /// Makes the bytes, of the number of the message that they should answer. The last reply
    /// announces another, too, if there are any.
    pub(crate) then: Option<fn(i32) -> Vec<u8>>,
    /// True if the server first hangs up on all other connections that had commands.
    pub(crate) hangs_up_others: bool,
}

impl Answer {
    /// One reply.
    pub(crate) fn of(reply: RawDocumentBuf) -> Self {
        Self { replies: vec![reply], ..Self::default() }
    }
}

type Script = dyn Fn(&OpMsg<'_>) -> Answer + Send + Sync;

/// The connections that had commands other than hello.
type Used = Mutex<Vec<TcpStream>>;

/// A server for as long as the test runs.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
}

impl Scripted {
    /// Listens; every command but hello is answered by the script.
    pub(crate) fn start(script: impl Fn(&OpMsg<'_>) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (script, used): (Arc<Script>, Arc<Used>) = (Arc::new(script), Arc::default());
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (script, used) = (Arc::clone(&script), Arc::clone(&used));
                thread::spawn(move || serve(stream, &*script, &used));
            }
        });
        Self { address }
    }

    pub(crate) fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true&serverMonitoringMode=poll", self.address)
    }
}

/// Returns the name of a command.
pub(crate) fn name(command: &OpMsg<'_>) -> String {
    command.body.iter().next().map_or_else(String::new, |first| first.unwrap().0.to_string())
}

/// Answers until the client hangs up.
fn serve(mut stream: TcpStream, script: &Script, used: &Used) {
    let (mut frames, mut buffer) = (Frames::new(), vec![0; 64 * 1024]);
    let mut is_used = false;
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        frames.extend(&buffer[..length]);
        while let Some(message) = frames.next().unwrap() {
            let command = message.op_msg().unwrap();
            let answer = match &*name(&command) {
                "hello" | "ismaster" | "isMaster" => Answer::of(hello()),
                _ => {
                    if !std::mem::replace(&mut is_used, true) {
                        used.lock().unwrap().push(stream.try_clone().unwrap());
                    }
                    script(&command)
                }
            };
            if answer.hangs_up_others {
                hang_up_others(used, &stream);
            }
            let mut answered = message.header().request_id;
            let (mut out, last) = (Vec::new(), answer.replies.len());
            for (number, reply) in answer.replies.iter().enumerate() {
                let is_last = number + 1 == last && answer.then.is_none();
                let flags = if is_last { Flags::NONE } else { Flags::MORE_TO_COME };
                let id = 1000 + answered;
                write_op_msg(&mut out, id, answered, flags, reply);
                answered = id;
            }
            out.extend(answer.then.map_or_else(Vec::new, |then| then(answered)));
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    }
}

/// Hangs up on all connections but this one.
fn hang_up_others(used: &Used, own: &TcpStream) {
    let own = own.peer_addr().unwrap();
    for other in used.lock().unwrap().iter() {
        // One on which the client has hung up has no peer any more.
        if other.peer_addr().is_ok_and(|peer| peer != own) {
            let _ = other.shutdown(Shutdown::Both);
        }
    }
}

fn hello() -> RawDocumentBuf {
    rawdoc! {
        "isWritablePrimary": true, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 17,
        "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000, "logicalSessionTimeoutMinutes": 30, "ok": 1,
    }
}
