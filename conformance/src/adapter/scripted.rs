//! A standalone that answers commands as a test wants, on threads of its own.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use sdam_core::bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::wire::{Flags, Frames, Message, ReplyFlags, op_code, write_op_msg, write_op_reply};

use super::port::Port;

/// The outcome of a command.
pub(super) enum ScriptedReply {
    Reply(RawDocumentBuf),
    /// Bytes that are no reply.
    Bytes(Vec<u8>),
    Nothing,
    /// The end of the connection.
    HangUp,
}

/// Answers a command, which begins with this name.
type Script = Box<dyn Fn(&str, &RawDocument) -> ScriptedReply + Send + Sync>;

/// A server; its threads end when their connections do.
pub(super) struct Scripted {
    port: Port,
    shared: Arc<Shared>,
}

struct Shared {
    script: Script,
    state: Mutex<ScriptState>,
    changed: Condvar,
}

#[derive(Default)]
struct ScriptState {
    /// The names of the commands that have come.
    commands: Vec<String>,
    /// The number of connections that there have been.
    connections: usize,
    /// The connections that have brought more than hello.
    of_applications: Vec<TcpStream>,
}

impl Scripted {
    pub(super) fn start(
        script: impl Fn(&str, &RawDocument) -> ScriptedReply + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { script: Box::new(script), state, changed });
        let known = Arc::clone(&shared);
        let port = Port::open(move |stream| known.serve(stream))?;
        Ok(Self { port, shared })
    }

    /// Starts a server that answers everything but one command.
    pub(super) fn silent_on(silent: &'static str) -> io::Result<Self> {
        Self::start(move |name, _| match name == silent {
            true => ScriptedReply::Nothing,
            false => reply(name),
        })
    }

    pub(super) fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.port.address())
    }

    /// Returns whether a command of this name has come.
    pub(super) fn has_seen(&self, name: &str) -> bool {
        self.shared.lock().commands.iter().any(|known| known == name)
    }

    /// Returns how many connections there have been.
    pub(super) fn connections(&self) -> usize {
        self.shared.lock().connections
    }

    /// Waits until a command of this name has come.
    pub(super) fn wait_for(&self, name: &str) {
        let unseen = |state: &mut ScriptState| state.commands.iter().all(|known| known != name);
        let seen = self.shared.changed.wait_while(self.shared.lock(), unseen);
        drop(seen.unwrap_or_else(PoisonError::into_inner));
    }

    /// Closes the connections of applications, which may be idle.
    pub(super) fn hang_up(&self) {
        for stream in self.shared.lock().of_applications.drain(..) {
            // One that is closed already needs no more.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// The reply of a standalone to a command of this name.
pub(super) fn reply(name: &str) -> ScriptedReply {
    ScriptedReply::Reply(match is_hello(name) {
        false => rawdoc! { "you": "said", "name": name, "ok": 1 },
        true => rawdoc! {
            "isWritablePrimary": true, "helloOk": true, "minWireVersion": 0,
            "maxWireVersion": 21, "ok": 1,
        },
    })
}

pub(super) fn is_hello(name: &str) -> bool {
    ["hello", "isMaster", "ismaster"].contains(&name)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ScriptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: TcpStream) {
        self.lock().connections += 1;
        let (mut frames, mut buffer) = (Frames::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            frames.extend(&buffer[..count]);
            while let Ok(Some(message)) = frames.next() {
                let Some(answer) = self.answer(&message, &stream) else {
                    // Those of applications have another handle, which keeps them open.
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                };
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
        }
    }

    /// Returns what to send; `None` ends the connection, also if the message is not understood.
    fn answer(&self, message: &Message, stream: &TcpStream) -> Option<Vec<u8>> {
        let header = message.header();
        let by_query = header.op_code == op_code::OP_QUERY;
        let command = match by_query {
            true => message.op_query().ok()?.query.to_owned(),
            false => message.op_msg().ok()?.body.to_owned(),
        };
        let name = command.iter().next()?.ok()?.0.to_string();
        let mut state = self.lock();
        if !is_hello(&name) {
            state.of_applications.extend(stream.try_clone());
        }
        state.commands.push(name.clone());
        drop(state);
        self.changed.notify_all();
        let answer = (self.script)(&name, &command);
        let mut out = Vec::new();
        match (answer, by_query) {
            (ScriptedReply::Nothing, _) => {}
            (ScriptedReply::HangUp, _) => return None,
            (ScriptedReply::Bytes(bytes), _) => out = bytes,
            (ScriptedReply::Reply(reply), true) => {
                write_op_reply(&mut out, 1, header.request_id, ReplyFlags::NONE, &reply);
            }
            (ScriptedReply::Reply(reply), false) => {
                write_op_msg(&mut out, 1, header.request_id, Flags::NONE, &reply);
            }
        }
        Some(out)
    }
}
