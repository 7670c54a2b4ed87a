//! The stream under a connection, what is read from it, and what was agreed on.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::ConnectionDescription;
use sdam_core::time::Instant;
use sdam_core::transport::Transport;
use sdam_core::wire::{
    Compression, Decompressor, Frames, Message, add_trace_context, may_be_compressed,
};
use zeroize::{Zeroize as _, Zeroizing};

use crate::net::socket::Socket;
use crate::sync::{CancellationToken, CoopBudget, Mutex};

/// The size of a read of a sealed stream.
const SEALED_READ_LEN: usize = 16_384;

/// A stream that is open, and whose handshakes with a proxy and of TLS have begun.
#[derive(Debug)]
#[non_exhaustive]
pub struct Connected<S> {
    /// The stream.
    pub socket: S,
    /// Its filters.
    pub transport: Transport,
    /// The first bytes that the filters have to send.
    pub wire: Vec<u8>,
}

/// A stream, its filters, and what interrupts its user.
pub(crate) struct Stream<S> {
    socket: S,
    transport: Transport,
    /// The sealed bytes read; kept for their memory, and absent where there is no filter.
    sealed: Vec<u8>,
    /// The sealed bytes to be sent; before the filters are open, perhaps the password for the
    /// proxy.
    wire: Zeroizing<Vec<u8>>,
    /// The number of bytes sent.
    written: usize,
    /// The number of reads without a wait.
    budget: CoopBudget,
    pub(crate) cancellation: Arc<CancellationToken>,
}

/// A connection that is established.
pub(crate) struct Connection<S> {
    pub(crate) stream: Stream<S>,
    pub(crate) frames: Frames,
    pub(crate) connection_description: ConnectionDescription,
    pub(crate) compression: Option<Compression>,
    pub(crate) decompressor: Decompressor,
    /// The message that is being sent; kept for its memory.
    pub(crate) outgoing: Vec<u8>,
    /// Since when it has been idle; known in the single-threaded mode only.
    pub(crate) idle_since: Option<Instant>,
}

impl<S: Socket> Stream<S> {
    pub(crate) fn new(connected: Connected<S>) -> Self {
        let Connected { socket, transport, wire } = connected;
        let cancellation = Arc::new(CancellationToken::new(socket.interrupter()));
        let (wire, sealed, budget) = (Zeroizing::new(wire), Vec::new(), CoopBudget::default());
        Self { socket, transport, sealed, wire, written: 0, budget, cancellation }
    }

    /// Finishes the handshakes of the filters, and says at each answer of theirs how far they are.
    pub(crate) async fn open(&mut self, answered: impl Fn(Stage)) -> Result<(), Failure> {
        loop {
            let written = self.flush(None).await;
            written.map_err(|error| self.transport.failure(&error))?;
            if self.transport.is_ready() {
                return Ok(());
            }
            let outcome = self.read_sealed(&mut Vec::new(), None).await;
            self.reply(outcome, None).await?;
            answered(self.transport.stage());
        }
    }

    /// Returns the stream as it was before somebody used it, but for what the handshakes of its
    /// filters have come to.
    #[cfg(feature = "ocsp")]
    pub(crate) fn into_connected(mut self) -> Connected<S> {
        let wire = std::mem::take(&mut *self.wire);
        Connected { socket: self.socket, transport: self.transport, wire }
    }

    pub(crate) const fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Sends plaintext.
    pub(crate) async fn send(&mut self, plain: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        if self.transport.is_transparent() {
            return self.write_all(plain, deadline).await;
        }
        self.transport.send(plain, &mut self.wire);
        self.flush(deadline).await
    }

    /// Receives some bytes, appending the plaintext; cancelling the wait loses nothing.
    pub(crate) async fn receive(
        &mut self,
        frames: &mut Frames,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        if self.transport.is_transparent() {
            let Self { socket, budget, cancellation, .. } = self;
            let read = read(socket, budget, cancellation, frames.spare(), deadline).await;
            let count = read.map_err(|error| self.failed(&error))?;
            frames.fill(count);
            return Ok(());
        }
        let outcome = self.read_sealed(frames, deadline).await;
        self.reply(outcome, deadline).await
    }

    /// Receives some bytes of plaintext.
    pub(crate) async fn receive_some(&mut self) -> Result<Vec<u8>, Failure> {
        let mut plain = Vec::new();
        while plain.is_empty() {
            let outcome = self.read_sealed(&mut plain, None).await;
            self.reply(outcome, None).await?;
        }
        Ok(plain)
    }

    /// Reads once; the caller sends the filters' answer.
    async fn read_sealed(
        &mut self,
        plain: &mut impl io::Write,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        let Self { socket, budget, cancellation, sealed, .. } = self;
        sealed.resize(SEALED_READ_LEN, 0);
        let read = read(socket, budget, cancellation, sealed, deadline).await;
        let count = read.map_err(|error| self.failed(&error))?;
        self.transport.receive(&self.sealed[..count], plain, &mut self.wire)
    }

    /// Sends what the filters have to say to what came, if only the alert that says why it was
    /// wrong; a failure to send it says nothing new.
    async fn reply(
        &mut self,
        outcome: Result<(), Failure>,
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        let flushed = self.flush(deadline).await;
        outcome?;
        flushed.map_err(|error| self.failed(&error))
    }

    async fn flush(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        while self.written < self.wire.len() {
            let rest = &self.wire[self.written..];
            self.written += write(&mut self.socket, &self.cancellation, rest, deadline).await?;
        }
        self.written = 0;
        if self.transport.is_ready() {
            self.wire.clear();
        } else {
            self.wire.zeroize();
        }
        if self.wire.capacity() > KEPT_LEN {
            self.wire = Zeroizing::new(Vec::new());
        }
        Ok(())
    }

    async fn write_all(&mut self, mut bytes: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = write(&mut self.socket, &self.cancellation, bytes, deadline).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Says what has happened, by how far the filters have come.
    fn failed(&self, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::Interrupted => self.interrupted(),
            _ => self.transport.failure(error),
        }
    }

    /// Says what has happened to an established connection.
    pub(crate) fn failure(&self, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::Interrupted {
            return self.interrupted();
        }
        Failure::from_io(Stage::Operate, error)
    }

    /// "Connection to <address> interrupted due to server monitor timeout", or as the client was
    /// closed.
    fn interrupted(&self) -> Failure {
        let (cause, detail) = match self.cancellation.has_ended() {
            true => (Cause::Canceled, "the client was closed"),
            false => (
                Cause::Interrupted,
                "the connection was interrupted due to a time-out of the server's monitor",
            ),
        };
        Failure::new(Stage::Operate, cause, detail)
    }
}

/// Reads some bytes, at least one. A deadline that has passed is believed when the socket says so
/// twice: the process may have been stopped after nothing was found and before the deadline was
/// judged, and what came meanwhile counts.
async fn read<S: Socket>(
    socket: &mut S,
    budget: &mut CoopBudget,
    cancellation: &CancellationToken,
    buffer: &mut [u8],
    deadline: Option<Instant>,
) -> io::Result<usize> {
    let mut believes = false;
    let mut read = |cx: &mut Context<'_>| match socket.poll_read(cx, buffer, deadline) {
        Poll::Ready(Err(error)) if !believes && is_late(&error) => {
            believes = true;
            socket.poll_read(cx, buffer, deadline)
        }
        poll => poll,
    };
    let poll = |cx: &mut Context<'_>| budget.poll(cx, &mut read);
    match until_interrupted(cancellation, poll).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

/// Returns whether a deadline has passed, as opposed to a time-out of the system's own, after which
/// the stream has ended.
fn is_late(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none()
}

/// Writes some bytes, at least one.
async fn write<S: Socket>(
    socket: &mut S,
    cancellation: &CancellationToken,
    bytes: &[u8],
    deadline: Option<Instant>,
) -> io::Result<usize> {
    match until_interrupted(cancellation, |cx| socket.poll_write(cx, bytes, deadline)).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        count => Ok(count),
    }
}

/// Waits for the socket, or fails when the token is canceled; afterwards no task is kept in mind.
fn until_interrupted(
    cancellation: &CancellationToken,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
) -> impl Future<Output = io::Result<usize>> {
    let mut waited = false;
    std::future::poll_fn(move |cx| match poll(cx) {
        Poll::Pending if cancellation.is_canceled_or_wake(cx.waker()) => {
            Poll::Ready(Err(io::ErrorKind::Interrupted.into()))
        }
        Poll::Pending => {
            waited = true;
            Poll::Pending
        }
        Poll::Ready(outcome) => {
            if waited {
                cancellation.forget();
            }
            Poll::Ready(match outcome {
                // What a thread that was blocked sees of it.
                Ok(0) | Err(_) if cancellation.is_canceled() => {
                    Err(io::ErrorKind::Interrupted.into())
                }
                outcome => outcome,
            })
        }
    })
}

impl<S: Socket> Connection<S> {
    /// Returns whether no unexpected data has come, the end of the stream included.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.frames.is_empty() && self.stream.socket.is_quiet()
    }

    /// Has the command in `outgoing` name the trace that it belongs to.
    pub(crate) fn name_trace(&mut self, traceparent: &str) {
        let limit = self.connection_description.max_message_size_bytes;
        add_trace_context(&mut self.outgoing, traceparent, limit);
    }

    /// Compresses the command in `outgoing`, if that was agreed on and it may be.
    pub(crate) fn compress(&mut self, name: &str) {
        if let Some(compression) = &mut self.compression
            && may_be_compressed(name)
        {
            compression.compress(&mut self.outgoing, 0);
        }
    }

    /// Sends what is in `outgoing`.
    pub(crate) async fn send(&mut self, deadline: Option<Instant>) -> Result<(), Failure> {
        let sent = self.stream.send(&self.outgoing, deadline).await;
        sent.map_err(|error| self.stream.failure(&error))
    }

    /// Lets go of the buffer of a message that was large, which no connection keeps for itself.
    pub(crate) fn take_large(&mut self) -> Option<Vec<u8>> {
        (self.outgoing.capacity() > KEPT_LEN).then(|| std::mem::take(&mut self.outgoing))
    }

    /// Receives the next message, which may be compressed.
    pub(crate) async fn receive(&mut self, deadline: Option<Instant>) -> Result<Message, Failure> {
        loop {
            if let Some(message) = self.frames.next().map_err(malformed)? {
                return Ok(message);
            }
            let received = self.stream.receive(&mut self.frames, deadline).await;
            // Whatever a filter says of its stage: the connection was in use.
            received.map_err(|failure| match failure.cause {
                Cause::Interrupted | Cause::Canceled => failure,
                cause => Failure::new(Stage::Operate, cause, failure.detail),
            })?;
        }
    }
}

/// The server has sent what is no message.
pub(crate) fn malformed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Stage::Operate, Cause::Malformed, error.to_string())
}

/// The size of the buffer that a connection keeps for the next message, in bytes.
pub(crate) const KEPT_LEN: usize = 65_536;

/// The size of the buffer that a client keeps for the next large message of any connection, in
/// bytes.
const SPARE_LEN: usize = 1 << 20;

/// A buffer for large messages, which those who send them take in turn, so that not each has the
/// system give memory and take it back.
#[derive(Default)]
pub(crate) struct SpareBuffer(Mutex<Vec<u8>>);

impl SpareBuffer {
    /// Returns the buffer, or an empty one if another message is in it.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.try_lock().map_or_else(|_| Vec::new(), |mut spare| std::mem::take(&mut *spare))
    }

    /// Keeps a buffer that is not too large, unless there is a larger one.
    pub(crate) fn give(&self, buffer: Vec<u8>) {
        if let Ok(mut spare) = self.0.try_lock()
            && (spare.capacity() + 1..=SPARE_LEN).contains(&buffer.capacity())
        {
            *spare = buffer;
        }
    }
}

impl<S> std::fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("agreement", &self.connection_description)
            .finish_non_exhaustive()
    }
}
