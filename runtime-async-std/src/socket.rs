//! The byte streams under connections and links: sockets, and what the application opened.

use std::fmt;
use std::future::Future;
use std::io::{self, Read};
use std::net::{TcpStream, UdpSocket};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time;

use async_io::{Async, Timer};
use futures_io::{AsyncRead, AsyncWrite};
use sdam_core::time::Instant;
use sdam_host as host;

use crate::dialer::ByteStream;

/// The byte stream under a connection or a link.
pub struct Socket {
    stream: Box<dyn Stream>,
    /// The number of bytes that were written, and have perhaps not left the stream's buffers yet.
    unflushed: Option<usize>,
    /// The origin of the client's clock.
    epoch: time::Instant,
    /// Rings at the deadline of what is being waited for; kept for the next wait.
    alarm: Option<(Instant, Timer)>,
}

/// A stream that can be open.
pub(crate) trait Stream: ByteStream {
    /// Returns whether there is nothing to read. A byte read here may be lost: the stream is then
    /// not used again.
    fn is_quiet(&mut self) -> bool;
}

impl Stream for Async<TcpStream> {
    fn is_quiet(&mut self) -> bool {
        would_block(&self.get_ref().read(&mut [0]))
    }
}

#[cfg(unix)]
impl Stream for Async<UnixStream> {
    fn is_quiet(&mut self) -> bool {
        would_block(&self.get_ref().read(&mut [0]))
    }
}

impl Stream for Box<dyn ByteStream> {
    fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(self).poll_read(&mut cx, &mut [0]).is_pending()
    }
}

/// A socket that exchanges datagrams with one peer: each write sends one, each read receives one.
pub(crate) struct Datagrams(pub(crate) Async<UdpSocket>);

impl AsyncRead for Datagrams {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.0.get_ref().recv(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_readable(cx))?;
                }
                received => return Poll::Ready(received),
            }
        }
    }
}

impl AsyncWrite for Datagrams {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.0.get_ref().send(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_writable(cx))?;
                }
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Stream for Datagrams {
    fn is_quiet(&mut self) -> bool {
        would_block(&self.0.get_ref().recv(&mut [0]))
    }
}

fn would_block(read: &io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

impl Socket {
    pub(crate) fn new(stream: Box<dyn Stream>, epoch: time::Instant) -> Self {
        Self { stream, unflushed: None, epoch, alarm: None }
    }

    /// Fails at the deadline.
    fn poll_deadline<T>(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Option<Instant>,
    ) -> Poll<io::Result<T>> {
        let Some(deadline) = deadline else { return Poll::Pending };
        let at = self.epoch + deadline.since_origin();
        let (armed, timer) = self.alarm.get_or_insert_with(|| (deadline, Timer::at(at)));
        if *armed != deadline {
            *armed = deadline;
            timer.set_at(at);
        }
        ready!(Pin::new(timer).poll(cx));
        // A timer that has rung does not ring again.
        self.alarm = None;
        let text = "not done within the time allowed";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }

    /// Writes some bytes; ready only once they have left, as the stream may not be polled again.
    fn poll_write_out(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = match self.unflushed {
            Some(count) => count,
            None => ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?,
        };
        self.unflushed = Some(count);
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.unflushed = None;
        Poll::Ready(Ok(count))
    }
}

impl host::Socket for Socket {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Pending => self.poll_deadline(cx, deadline),
            read => read,
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        match self.poll_write_out(cx, bytes) {
            Poll::Pending => self.poll_deadline(cx, deadline),
            written => written,
        }
    }

    /// Costs a system call, unlike in other runtimes: nothing else has polled the socket meanwhile.
    fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").finish_non_exhaustive()
    }
}
