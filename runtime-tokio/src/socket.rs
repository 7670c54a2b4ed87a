//! The byte streams under connections and links: sockets, and what the application opened.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use sdam_core::host;
use sdam_core::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::{self, Sleep};

use crate::dialer::ByteStream;

/// The byte stream under a connection or a link.
#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    /// The origin of the client's clock.
    epoch: time::Instant,
    /// Rings at the deadline of what is being waited for; kept for the next wait.
    alarm: Option<Pin<Box<Sleep>>>,
    armed: Option<Instant>,
}

/// What can be open.
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    Dialled(Dialled),
}

/// A stream that an application opened.
pub(crate) struct Dialled {
    stream: Box<dyn ByteStream>,
    /// What was written, and has perhaps not left the stream's buffers yet.
    unflushed: Option<usize>,
}

impl Stream {
    pub(crate) const fn dialled(stream: Box<dyn ByteStream>) -> Self {
        Self::Dialled(Dialled { stream, unflushed: None })
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(socket) => socket.fmt(f),
            #[cfg(unix)]
            Self::Unix(socket) => socket.fmt(f),
            Self::Dialled(_) => f.write_str("Dialled"),
        }
    }
}

impl Dialled {
    /// Writes some bytes; ready only once they have left, as nobody may poll the stream later.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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

impl Socket {
    pub(crate) const fn new(stream: Stream, epoch: time::Instant) -> Self {
        Self { stream, epoch, alarm: None, armed: None }
    }

    /// Fails at the deadline.
    fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Option<Instant>,
    ) -> Poll<io::Error> {
        let Some(deadline) = deadline else { return Poll::Pending };
        let at = self.epoch + deadline.since_origin();
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(time::sleep_until(at)));
        if self.armed != Some(deadline) {
            self.armed = Some(deadline);
            alarm.as_mut().reset(at);
        }
        ready!(alarm.as_mut().poll(cx));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "not done within the time allowed"))
    }
}

impl host::Socket for Socket {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let poll = match &mut self.stream {
            // Unlike `try_read`, this knows from a short read that there is no more to come yet,
            // and spares the system call that would say so.
            Stream::Tcp(socket) => Pin::new(socket).poll_read(cx, &mut buffer),
            #[cfg(unix)]
            Stream::Unix(socket) => Pin::new(socket).poll_read(cx, &mut buffer),
            Stream::Dialled(dialled) => Pin::new(&mut dialled.stream).poll_read(cx, &mut buffer),
        };
        match poll {
            Poll::Ready(read) => Poll::Ready(read.map(|()| buffer.filled().len())),
            Poll::Pending => self.poll_deadline(cx, deadline).map(Err),
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        let poll = match &mut self.stream {
            Stream::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            #[cfg(unix)]
            Stream::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Dialled(dialled) => dialled.poll_write(cx, bytes),
        };
        match poll {
            Poll::Ready(written) => Poll::Ready(written),
            Poll::Pending => self.poll_deadline(cx, deadline).map(Err),
        }
    }

    /// Whatever is read, nobody will miss it: the connection is not used again.
    fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        host::Socket::poll_read(self, &mut cx, &mut [0], None).is_pending()
    }
}
