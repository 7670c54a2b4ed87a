//! A stream that an application opened, read and written as a socket is: when it is ready.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::dialer::ByteStream;

/// How much is read at once, and how much may wait to be written.
const BUFFER_LEN: usize = 16_384;

/// A stream that an application opened.
///
/// What was written moves on whenever the stream is polled, be it only to be read.
pub(crate) struct Dialled(Mutex<Buffered>);

struct Buffered {
    stream: Box<dyn ByteStream>,
    /// What was read from the stream, and not taken yet.
    incoming: Vec<u8>,
    /// Whether the peer has ended the stream.
    ended: bool,
    /// What was accepted, and not written to the stream yet.
    outgoing: Vec<u8>,
    /// Whether something was written to the stream that may not have left it yet.
    unflushed: bool,
    /// What [`Dialled::poll_write`] has accepted and not told yet.
    accepted: Option<usize>,
}

impl Dialled {
    pub(crate) fn new(stream: Box<dyn ByteStream>) -> Self {
        let (incoming, outgoing) = (Vec::new(), Vec::new());
        Self(Mutex::new(Buffered {
            stream,
            incoming,
            ended: false,
            outgoing,
            unflushed: false,
            accepted: None,
        }))
    }

    /// Only the task that moves the bytes ever locks this, so nobody waits.
    fn lock(&self) -> MutexGuard<'_, Buffered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut this = self.lock();
        if let Poll::Ready(Err(error)) = this.poll_write_out(cx) {
            return Poll::Ready(Err(error));
        }
        this.poll_read_in(cx)
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().poll_write_out(cx)
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut this = self.lock();
        if this.incoming.is_empty() {
            return match this.ended {
                true => Ok(0),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let count = buffer.len().min(this.incoming.len());
        buffer[..count].copy_from_slice(&this.incoming[..count]);
        match count == this.incoming.len() {
            // An idle stream holds no memory.
            true => this.incoming = Vec::new(),
            false => drop(this.incoming.drain(..count)),
        }
        Ok(count)
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut this = self.lock();
        if !this.outgoing.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(BUFFER_LEN);
        this.outgoing.extend_from_slice(&bytes[..count]);
        Ok(count)
    }
}

impl Dialled {
    /// Reads what is there, or the end.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_read_ready(cx))?;
        let count = self.try_read(buffer.initialize_unfilled())?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }

    /// Writes some bytes; ready only once they have left, as nobody may poll the stream later.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut this = self.lock();
        if this.accepted.is_none() {
            ready!(this.poll_write_out(cx))?;
            let count = bytes.len().min(BUFFER_LEN);
            this.outgoing.extend_from_slice(&bytes[..count]);
            this.accepted = Some(count);
        }
        ready!(this.poll_write_out(cx))?;
        Poll::Ready(Ok(this.accepted.take().unwrap_or_default()))
    }
}

impl Buffered {
    /// Ready once there is something to take: bytes, or the end.
    fn poll_read_in(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ended || !self.incoming.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let mut bytes = [0; BUFFER_LEN];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        self.incoming.extend_from_slice(buffer.filled());
        self.ended = self.incoming.is_empty();
        Poll::Ready(Ok(()))
    }

    /// Ready once everything that was accepted has left.
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.outgoing))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            match count == self.outgoing.len() {
                true => self.outgoing = Vec::new(),
                false => drop(self.outgoing.drain(..count)),
            }
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for Dialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialled")
    }
}
