//! A stream to a server with its filters, and commands over it.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sdam_core::bson::{RawDocument, RawDocumentBuf};
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Failure, Stage};
use sdam_core::operation::unreadable;
use sdam_core::transport::{Transport, TransportConfig};
use sdam_core::wire::{Flags, Frames, WireError, other_protocol, write_op_msg};
use sdam_host::{Connected, Connector, dial, system};
use sdam_tokio::ByteStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The longest message that a server may send here, in bytes: far more than hello needs.
const MAX_REPLY_LEN: usize = 1 << 20;

/// A stream that is open.
pub(super) struct Talk {
    stream: Box<dyn ByteStream>,
    transport: Transport,
    frames: Frames,
    requests: i32,
}

/// The stage that an attempt has reached, for the caller that gives it up, and the times of stages.
#[derive(Debug)]
pub(super) struct Reached(Mutex<Progress>);

/// The stage that an attempt has reached, and the times of stages.
#[derive(Clone, Copy, Debug)]
struct Progress {
    stage: Stage,
    since: Instant,
    resolved: Option<Duration>,
}

impl Reached {
    pub(super) fn new() -> Self {
        let (stage, since) = (Stage::Resolve, Instant::now());
        Self(Mutex::new(Progress { stage, since, resolved: None }))
    }

    pub(super) fn set(&self, stage: Stage) {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.stage == stage {
            return;
        }
        let now = Instant::now();
        if progress.stage == Stage::Resolve {
            progress.resolved = Some(now - progress.since);
        }
        (progress.stage, progress.since) = (stage, now);
    }

    fn progress(&self) -> Progress {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stage(&self) -> Stage {
        self.progress().stage
    }

    /// Returns for how long it has been at that stage.
    pub(super) fn lasts(&self) -> Duration {
        self.progress().since.elapsed()
    }

    /// Returns how long the name was looked up, if that is over.
    pub(super) fn resolved(&self) -> Option<Duration> {
        self.progress().resolved
    }
}

impl Talk {
    /// Opens a stream to a server, through a proxy and with TLS if `filters` say so.
    pub(super) async fn open(
        connector: &Connector,
        address: &ServerAddress,
        filters: &TransportConfig,
        reached: &Reached,
    ) -> Result<Self, Failure> {
        let route = connector.route(address, filters)?;
        let target = route.dial().clone();
        reached.set(route.first_stage());
        let socket = {
            let stages = route.stages(|stage| reached.set(stage));
            open_socket(&target, stages).await
        };
        let Connected { socket: stream, transport, wire, .. } = route.opened(socket)?;
        let frames = Frames::with_limit(MAX_REPLY_LEN);
        let mut talk = Self { stream, transport, frames, requests: 0 };
        talk.write(&wire).await?;
        while !talk.transport.is_ready() {
            reached.set(talk.transport.stage());
            talk.read().await?;
        }
        reached.set(Stage::Hello);
        Ok(talk)
    }

    /// Returns the stream under the filters, which have nothing more to say.
    pub(super) fn into_stream(self) -> Box<dyn ByteStream> {
        self.stream
    }

    /// Sends a line of text, and returns the protocol of the answer.
    pub(super) async fn text_protocol(mut self) -> Option<&'static str> {
        self.stream.write_all(b"PING\r\n").await.ok()?;
        let mut first = [0; 4];
        self.stream.read_exact(&mut first).await.ok()?;
        other_protocol(&first)
    }

    /// Sends a command and waits for its reply, be that an error.
    pub(super) async fn command(
        &mut self,
        command: &RawDocument,
    ) -> Result<RawDocumentBuf, Failure> {
        self.requests += 1;
        let (mut message, mut wire) = (Vec::new(), Vec::new());
        write_op_msg(&mut message, self.requests, 0, Flags::NONE, command);
        self.transport.send(&message, &mut wire);
        self.write(&wire).await?;
        loop {
            let malformed = |error: WireError| unreadable(Stage::Hello, &error);
            if let Some(message) = self.frames.next().map_err(malformed)? {
                let reply = message.op_msg().map_err(malformed)?;
                return Ok(reply.body.to_owned());
            }
            self.read().await?;
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = match bytes {
            [] => Ok(()),
            bytes => self.stream.write_all(bytes).await,
        };
        written.map_err(|error| self.transport.failure(&error))
    }

    async fn read(&mut self) -> Result<(), Failure> {
        let (mut buffer, mut plain, mut reply) = ([0; 4096], Vec::new(), Vec::new());
        let read = match self.stream.read(&mut buffer).await {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
        let count = read.map_err(|error| self.transport.failure(&error))?;
        let outcome = self.transport.receive(&buffer[..count], &mut plain, &mut reply);
        self.frames.extend(&plain);
        let written = self.write(&reply).await;
        outcome.and(written)
    }
}

/// Opens a socket: to the first of a name's addresses that answers.
async fn open_socket(
    address: &ServerAddress,
    reached: impl Fn(Stage),
) -> Result<Box<dyn ByteStream>, Failure> {
    let host = address.host().to_owned();
    let Some(port) = address.port() else { return open_unix(&host).await };
    let addresses = resolve(host.clone(), port).await;
    let stream = dial(&host, addresses, reached, TcpStream::connect, sleep).await?;
    // Only how soon small messages leave depends on it.
    let _ = stream.set_nodelay(true);
    Ok(Box::new(stream))
}

#[cfg(unix)]
async fn open_unix(path: &str) -> Result<Box<dyn ByteStream>, Failure> {
    let stream = tokio::net::UnixStream::connect(path).await;
    let stream = stream.map_err(|error| Failure::from_io(Stage::Connect, &error))?;
    Ok(Box::new(stream))
}

#[cfg(not(unix))]
async fn open_unix(path: &str) -> Result<Box<dyn ByteStream>, Failure> {
    let detail = format!("{path}: this platform has no Unix domain sockets");
    Err(Failure::new(Stage::Connect, sdam_core::failure::Cause::Io, detail))
}

/// Resolves a name as the system does.
pub(super) async fn resolve(host: String, port: u16) -> io::Result<Vec<std::net::SocketAddr>> {
    let resolved = tokio::task::spawn_blocking(move || system::resolve(&host, port)).await;
    resolved.map_err(io::Error::other)?
}
