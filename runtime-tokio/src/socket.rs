//! The byte streams under connections and links: sockets, and what the application opened.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use sdam_core::time::Instant;
use sdam_host as host;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use tokio::time::{self, Sleep};

use crate::dialer::ByteStream;

/// The byte stream under a connection or a link.
#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    /// The runtime whose timer is used, in every task.
    handle: Handle,
    /// The origin of the client's clock.
    epoch: time::Instant,
    /// Rings at the deadline of what is being waited for; kept for the next wait.
    alarm: Option<Pin<Box<Sleep>>>,
    armed: Option<Instant>,
    /// True if the alarm has rung, and rings once more.
    has_rung: bool,
}

/// The time from the deadline until the alarm rings once more. When a process that was stopped goes
/// on, tokio may learn of its timers before it learns which sockets are ready, and until then no
/// read is tried; it has learnt of both when a timer rings that was set afterwards.
const LOOK: Duration = Duration::from_millis(1);

/// A stream that can be open.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Udp(Datagrams),
    #[cfg(unix)]
    Unix(UnixStream),
    Dialled(Dialled),
}

/// A socket for datagrams.
///
/// An error without a datagram, such as a closed port, is returned by tokio only to a caller that
/// awaits `recv`; so that future is kept while it waits.
pub(crate) struct Datagrams {
    socket: Arc<UdpSocket>,
    receiving: Option<Receiving>,
}

/// The next datagram, once it is there.
type Receiving = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

impl Datagrams {
    pub(crate) fn new(socket: UdpSocket) -> Self {
        Self { socket: Arc::new(socket), receiving: None }
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining();
        let receiving = self.receiving.get_or_insert_with(|| {
            let socket = Arc::clone(&self.socket);
            Box::pin(async move {
                let mut datagram = vec![0; room];
                let count = socket.recv(&mut datagram).await?;
                datagram.truncate(count);
                Ok(datagram)
            })
        });
        let received = ready!(receiving.as_mut().poll(cx));
        self.receiving = None;
        let datagram = received?;
        // What does not fit is lost, as it is with any datagram.
        buffer.put_slice(&datagram[..datagram.len().min(room)]);
        Poll::Ready(Ok(()))
    }
}

/// A stream that an application opened.
pub(crate) struct Dialled {
    stream: Box<dyn ByteStream>,
    /// The number of bytes that were written, and have perhaps not left the stream's buffers yet.
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
            Self::Udp(datagrams) => datagrams.socket.fmt(f),
            #[cfg(unix)]
            Self::Unix(socket) => socket.fmt(f),
            Self::Dialled(_) => f.write_str("Dialled"),
        }
    }
}

impl Dialled {
    /// Writes some bytes; ready only once they have left, as the stream may not be polled again.
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
    pub(crate) const fn new(stream: Stream, handle: Handle, epoch: time::Instant) -> Self {
        Self { stream, handle, epoch, alarm: None, armed: None, has_rung: false }
    }

    /// Fails at the deadline.
    fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Option<Instant>,
    ) -> Poll<io::Error> {
        let Some(deadline) = deadline else { return Poll::Pending };
        let at = self.epoch + deadline.since_origin();
        let alarm = self.alarm.get_or_insert_with(|| {
            let _entered = self.handle.enter();
            Box::pin(time::sleep_until(at))
        });
        if self.armed != Some(deadline) {
            (self.armed, self.has_rung) = (Some(deadline), false);
            alarm.as_mut().reset(at);
        }
        ready!(alarm.as_mut().poll(cx));
        if !self.has_rung {
            self.has_rung = true;
            alarm.as_mut().reset(time::Instant::now() + LOOK);
            ready!(alarm.as_mut().poll(cx));
        }
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
            Stream::Udp(datagrams) => datagrams.poll_recv(cx, &mut buffer),
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
            Stream::Udp(datagrams) => datagrams.socket.poll_send(cx, bytes),
            #[cfg(unix)]
            Stream::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Dialled(dialled) => dialled.poll_write(cx, bytes),
        };
        match poll {
            Poll::Ready(written) => Poll::Ready(written),
            Poll::Pending => self.poll_deadline(cx, deadline).map(Err),
        }
    }

    /// A byte that is read here is lost, which does no harm: the connection is not used again.
    fn is_quiet(&mut self) -> bool {
        match &mut self.stream {
            // Not by polling, which returns `Pending` once the task has spent its coop budget.
            Stream::Tcp(socket) => would_block(&socket.try_read(&mut [0])),
            Stream::Udp(datagrams) => would_block(&datagrams.socket.try_recv(&mut [0])),
            #[cfg(unix)]
            Stream::Unix(socket) => would_block(&socket.try_read(&mut [0])),
            Stream::Dialled(dialled) => {
                let mut buffer = [0];
                let read = poll_fn(|cx| {
                    Pin::new(&mut dialled.stream).poll_read(cx, &mut ReadBuf::new(&mut buffer))
                });
                // Without the budget, which would make a socket below it return `Pending`.
                let mut cx = Context::from_waker(Waker::noop());
                pin!(unconstrained(read)).poll(&mut cx).is_pending()
            }
        }
    }
}

fn would_block(read: &io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use sdam_core::time::Instant;
    use sdam_host::Socket as _;
    use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
    use tokio::net::TcpStream;
    use tokio::runtime::Handle;
    use tokio::task::coop;
    use tokio::time;

    use super::{Socket, Stream};
    use crate::dialer::ByteStream;

    /// A stream that fails when it is read.
    struct Failing(DuplexStream);

    impl AsyncRead for Failing {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }
    }

    impl AsyncWrite for Failing {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    fn socket(stream: impl ByteStream) -> Socket {
        let stream = Stream::dialled(Box::new(stream));
        Socket::new(stream, Handle::current(), time::Instant::now())
    }

    #[tokio::test]
    async fn a_stream_that_was_reset_while_it_was_idle_is_not_quiet() {
        let (near, far) = tokio::io::duplex(64);
        assert!(socket(near).is_quiet());
        assert!(!socket(Failing(far)).is_quiet());
    }

    /// Spends the coop budget of the task, so that whatever it polls is pending.
    fn exhaust() {
        let mut cx = Context::from_waker(Waker::noop());
        while coop::has_budget_remaining() {
            assert!(std::pin::pin!(coop::consume_budget()).poll(&mut cx).is_ready());
        }
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_is_not_quiet_to_a_task_that_has_done_much() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().unwrap();
        let mut quiet = Socket::new(Stream::Tcp(near), Handle::current(), time::Instant::now());
        exhaust();
        assert!(quiet.is_quiet());
        drop(far);
        let Stream::Tcp(near) = &quiet.stream else { unreachable!("it is one") };
        near.readable().await.unwrap();
        exhaust();
        assert!(!quiet.is_quiet());

        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        drop(listener.accept().unwrap());
        near.readable().await.unwrap();
        let mut dialled = socket(near);
        exhaust();
        assert!(!dialled.is_quiet());
    }

    /// A process that was stopped learns of its timers before it learns what has arrived.
    #[tokio::test]
    async fn what_has_arrived_is_returned_after_the_deadline() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.write_all(b"reply").unwrap();
        let long_ago = time::Instant::now() - Duration::from_secs(1);
        let mut socket = Socket::new(Stream::Tcp(near), Handle::current(), long_ago);
        let (mut buffer, deadline) = ([0; 16], Some(Instant::ZERO));
        let mut read =
            async || std::future::poll_fn(|cx| socket.poll_read(cx, &mut buffer, deadline)).await;
        assert_eq!(read().await.unwrap(), 5);
        assert_eq!(read().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    /// A connection may be used by whatever polls its futures, once the client was created.
    #[tokio::test]
    async fn deadlines_need_no_runtime_around_whoever_waits() {
        let (near, _far) = tokio::io::duplex(64);
        let mut socket = socket(near);
        let elsewhere = std::thread::spawn(move || {
            let mut cx = Context::from_waker(Waker::noop());
            let deadline = Some(Instant::from_millis(600_000));
            socket.poll_read(&mut cx, &mut [0], deadline).is_pending()
        });
        assert!(elsewhere.join().unwrap());
    }
}
