//! A connection: its stream, what is read from it, and what was agreed on.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Socket;
use super::switch::Switch;
use crate::failure::{Cause, Failure, Stage};
use crate::handshake::Agreement;
use crate::time::Instant;
use crate::transport::Transport;
use crate::wire::{Compression, Decompressor, Frames, Message};

/// How much of a sealed stream is read at once.
const SEALED_READ_LEN: usize = 16_384;

/// A stream that is open, and whose handshakes with a proxy and of TLS have begun.
#[derive(Debug)]
pub struct Connected<S> {
    /// The stream.
    pub socket: S,
    /// Its filters.
    pub transport: Transport,
    /// What the filters have to send first.
    pub wire: Vec<u8>,
}

/// A stream, its filters, and what interrupts whoever uses it.
pub(super) struct Stream<S> {
    socket: S,
    transport: Transport,
    /// What is to be sent, sealed.
    wire: Vec<u8>,
    pub(super) switch: Arc<Switch>,
}

/// A connection that is established.
pub(super) struct Connection<S> {
    pub(super) stream: Stream<S>,
    pub(super) frames: Frames,
    pub(super) agreement: Agreement,
    pub(super) compression: Option<Compression>,
    pub(super) decompressor: Decompressor,
    /// The message that is being sent; kept for its memory.
    pub(super) outgoing: Vec<u8>,
    pub(super) last_request: i32,
}

impl<S: Socket> Stream<S> {
    pub(super) fn new(connected: Connected<S>) -> Self {
        let Connected { socket, transport, wire } = connected;
        Self { socket, transport, wire, switch: Arc::default() }
    }

    /// Finishes the handshakes of the filters.
    pub(super) async fn open(&mut self) -> Result<(), Failure> {
        loop {
            let written = self.flush(None).await;
            written.map_err(|error| self.transport.failure(&error))?;
            if self.transport.is_ready() {
                return Ok(());
            }
            self.read_sealed(&mut Vec::new(), None).await?;
        }
    }

    pub(super) const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Sends plaintext.
    pub(super) async fn send(&mut self, plain: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        if self.transport.is_transparent() {
            return self.write_all(plain, deadline).await;
        }
        self.transport.send(plain, &mut self.wire);
        self.flush(deadline).await
    }

    /// Receives some bytes, appending the plaintext.
    pub(super) async fn receive(
        &mut self,
        frames: &mut Frames,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        if self.transport.is_transparent() {
            let read = self.read(frames.spare(), deadline).await;
            let count = read.map_err(|error| self.read_failure(&error))?;
            frames.fill(count);
            return Ok(());
        }
        let mut plain = Vec::new();
        let outcome = self.read_sealed(&mut plain, deadline).await;
        frames.extend(&plain);
        outcome
    }

    /// Receives some bytes of plaintext.
    pub(super) async fn receive_some(&mut self) -> Result<Vec<u8>, Failure> {
        let mut plain = Vec::new();
        while plain.is_empty() {
            self.read_sealed(&mut plain, None).await?;
        }
        Ok(plain)
    }

    async fn read_sealed(
        &mut self,
        plain: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        let mut sealed = vec![0; SEALED_READ_LEN];
        let read = self.read(&mut sealed, deadline).await;
        let count = read.map_err(|error| self.read_failure(&error))?;
        let outcome = self.transport.receive(&sealed[..count], plain, &mut self.wire);
        // Be it only the alert that says why; its own failure says nothing new.
        let flushed = self.flush(deadline).await;
        outcome?;
        flushed.map_err(|error| self.transport.failure(&error))
    }

    async fn flush(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let wire = std::mem::take(&mut self.wire);
        let written = self.write_all(&wire, deadline).await;
        self.wire = wire;
        self.wire.clear();
        written
    }

    async fn write_all(&mut self, mut bytes: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = self.until_interrupted(|socket, cx| socket.poll_write(cx, bytes, deadline));
            match count.await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    async fn read(&mut self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        let count = self.until_interrupted(|socket, cx| socket.poll_read(cx, buffer, deadline));
        match count.await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }

    fn until_interrupted<T>(
        &mut self,
        mut poll: impl FnMut(&mut S, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> impl Future<Output = io::Result<T>> {
        std::future::poll_fn(move |cx| match poll(&mut self.socket, cx) {
            Poll::Pending if self.switch.is_thrown_or_wake(cx.waker()) => {
                Poll::Ready(Err(io::ErrorKind::Interrupted.into()))
            }
            poll => poll,
        })
    }

    /// Returns whether nothing has come that nobody asked for, the end of the stream included.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.socket.is_quiet()
    }

    /// Says why there is nothing to read.
    fn read_failure(&self, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::Interrupted => interrupted(),
            _ => self.transport.failure(error),
        }
    }

    /// Says what has happened to an established connection.
    pub(super) fn failure(&self, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::Interrupted {
            return interrupted();
        }
        Failure::from_io(Stage::Operate, error)
    }
}

/// "Connection to <address> interrupted due to server monitor timeout"
fn interrupted() -> Failure {
    let detail = "the connection was interrupted due to a time-out of the server's monitor";
    Failure::new(Stage::Operate, Cause::Interrupted, detail)
}

impl<S: Socket> Connection<S> {
    /// Sends what is in `outgoing`.
    pub(super) async fn send(&mut self, deadline: Option<Instant>) -> Result<(), Failure> {
        let sent = self.stream.send(&self.outgoing, deadline).await;
        // A message that was large leaves no large buffer behind.
        if self.outgoing.capacity() > KEPT_LEN {
            self.outgoing = Vec::new();
        }
        sent.map_err(|error| self.stream.failure(&error))
    }

    /// Receives the next message, which may be compressed.
    pub(super) async fn receive(&mut self, deadline: Option<Instant>) -> Result<Message, Failure> {
        loop {
            if let Some(message) = self.frames.next().map_err(malformed)? {
                return Ok(message);
            }
            let received = self.stream.receive(&mut self.frames, deadline).await;
            // Whatever a filter says of its stage: the connection was in use.
            received.map_err(|failure| match failure.cause {
                Cause::Interrupted => failure,
                cause => Failure::new(Stage::Operate, cause, failure.detail),
            })?;
        }
    }
}

/// The server has sent what is no message.
pub(super) fn malformed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Stage::Operate, Cause::Malformed, error.to_string())
}

/// How large a buffer a connection keeps for the next message, in bytes.
const KEPT_LEN: usize = 65_536;

impl<S> std::fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("agreement", &self.agreement).finish_non_exhaustive()
    }
}
