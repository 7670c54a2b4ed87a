//! A stream to a server, and commands over it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sdam_core::bson::{RawDocument, RawDocumentBuf};
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Failure, Stage};
use sdam_core::operation::unreadable;
use sdam_core::revocation::Subject;
use sdam_core::transport::TransportConfig;
use sdam_core::transport::rustls::pki_types::UnixTime;
use sdam_core::wire::{Flags, Frames, WireError, other_protocol, write_op_msg};
use sdam_host::Connector;
use sdam_tokio::ByteStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::stream::{Stream, connect};

/// The longest message that a server may send here, in bytes: far more than hello needs.
const MAX_REPLY_LEN: usize = 1 << 20;

/// A stream that is open.
pub(super) struct Talk {
    stream: Stream,
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
        reached.set(route.first_stage());
        let stages = route.stages(|stage| reached.set(stage));
        let socket = connect(route.dial(), route.tcp(), stages).await;
        let stream = Stream::open(route, socket, |stage| reached.set(stage)).await?;
        reached.set(Stage::Hello);
        Ok(Self { stream, frames: Frames::with_limit(MAX_REPLY_LEN), requests: 0 })
    }

    /// Returns the server's certificate if drivers have to ask about its revocation.
    pub(super) fn unchecked(&self) -> Result<Option<Subject>, Failure> {
        self.stream.transport.unchecked(UnixTime::now())
    }

    /// Returns the stream under the filters, which have nothing more to say.
    pub(super) fn into_stream(self) -> Box<dyn ByteStream> {
        self.stream.socket
    }

    /// Sends a line of text, and returns the protocol of the answer.
    pub(super) async fn text_protocol(mut self) -> Option<&'static str> {
        self.stream.socket.write_all(b"PING\r\n").await.ok()?;
        let mut first = [0; 4];
        self.stream.socket.read_exact(&mut first).await.ok()?;
        other_protocol(&first)
    }

    /// Sends a command and waits for its reply, which may be an error.
    pub(super) async fn command(
        &mut self,
        command: &RawDocument,
    ) -> Result<RawDocumentBuf, Failure> {
        self.requests += 1;
        let mut message = Vec::new();
        write_op_msg(&mut message, self.requests, 0, Flags::NONE, command);
        let sent = self.stream.send(&message).await;
        sent.map_err(|error| self.stream.failure(error.into()))?;
        loop {
            let malformed = |error: WireError| unreadable(Stage::Hello, &error);
            if let Some(message) = self.frames.next().map_err(malformed)? {
                let reply = message.op_msg().map_err(malformed)?;
                return Ok(reply.body.to_owned());
            }
            let received = self.stream.receive(&mut self.frames).await;
            received.map_err(|error| self.stream.failure(error))?;
        }
    }
}
