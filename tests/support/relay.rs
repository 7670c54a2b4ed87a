//! A relay in front of a server, which notes the commands that pass.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use sdam_core::wire::{Flags, Frames, OpMsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A relay. It works while the runtime that it was started in does.
pub(crate) struct Relay {
    /// The address at which it takes connections.
    pub(crate) address: SocketAddr,
    passed: Passed,
}

/// The commands that have passed, by name: the trace that each names, and its flags.
type Passed = Arc<Mutex<Vec<(String, Seen)>>>;
pub(crate) type Seen = (Option<String>, Flags);

impl Relay {
    /// Starts one in front of a server.
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Self { address: listener.local_addr().unwrap(), passed: Passed::default() };
        let passed = Arc::clone(&relay.passed);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(server).await else { continue };
                pass(client, server, &passed);
            }
        });
        relay
    }

    /// Returns the commands of a name, in their order: the trace that each names, and its flags.
    pub(crate) fn passed(&self, command: &str) -> Vec<Seen> {
        let passed = self.passed.lock().unwrap();
        let of_name = passed.iter().filter(|(name, _)| name == command);
        of_name.map(|(_, seen)| seen.clone()).collect()
    }
}

fn pass(client: TcpStream, server: TcpStream, passed: &Passed) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let passed = Arc::clone(passed);
    tokio::spawn(async move {
        let (mut frames, mut buffer) = (Frames::new(), vec![0; 65_536]);
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            frames.extend(&buffer[..count]);
            note(&mut frames, &passed);
            if to_server.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    });
}

fn note(frames: &mut Frames, passed: &Passed) {
    while let Some(message) = frames.next().unwrap() {
        let Ok(command) = message.op_msg() else { continue };
        let name = command.body.iter().next().unwrap().unwrap().0.to_string();
        passed.lock().unwrap().push((name, (trace_of(&command), command.flags)));
    }
}

/// Returns the trace that a command names.
pub(crate) fn trace_of(command: &OpMsg<'_>) -> Option<String> {
    let context = command.trace_context()?;
    assert_eq!(context.iter().count(), 1);
    Some(context.get_document("otel").unwrap().get_str("traceparent").unwrap().to_owned())
}
