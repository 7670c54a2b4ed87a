//! The sockets of applications' connections: read and written by whoever has the connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use sdam_core::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{self, Sleep};

use crate::socket::Socket;

/// The byte stream under an application's connection.
#[derive(Debug)]
pub struct ApplicationSocket {
    socket: Socket,
    /// The origin of the client's clock.
    epoch: time::Instant,
    /// Rings at the deadline of what is being waited for; kept for the next wait.
    alarm: Option<Pin<Box<Sleep>>>,
    armed: Option<Instant>,
}

impl ApplicationSocket {
    pub(crate) const fn new(socket: Socket, epoch: time::Instant) -> Self {
        Self { socket, epoch, alarm: None, armed: None }
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

impl sdam_core::host::Socket for ApplicationSocket {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let poll = match &mut self.socket {
            // Unlike `try_read`, this knows from a short read that there is no more to come yet,
            // and spares the system call that would say so.
            Socket::Tcp(socket) => Pin::new(socket).poll_read(cx, &mut buffer),
            #[cfg(unix)]
            Socket::Unix(socket) => Pin::new(socket).poll_read(cx, &mut buffer),
            Socket::Dialled(stream) => stream.poll_read(cx, &mut buffer),
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
        let poll = match &mut self.socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            #[cfg(unix)]
            Socket::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
            Socket::Dialled(stream) => stream.poll_write(cx, bytes),
        };
        match poll {
            Poll::Ready(written) => Poll::Ready(written),
            Poll::Pending => self.poll_deadline(cx, deadline).map(Err),
        }
    }

    fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        if self.socket.poll_read_ready(&mut cx).is_pending() {
            return true;
        }
        // It may only not have been told yet that all was read.
        let read = self.socket.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
