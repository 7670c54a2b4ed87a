//! A monitor's byte stream, as the task sees it that moves its bytes until either side ends.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use sdam_core::failure::{Failure, Stage};
use sdam_core::transport::Transport;
use zeroize::Zeroizing;

use crate::machines::runtime::Runtime;
use crate::machines::tasks::Link;
use crate::net::socket::{Socket, write_all};
use crate::net::stream::Connected;
use crate::process::Own;
use crate::sync::CoopBudget;

/// The size of a read; most replies to hello are shorter.
const READ_LEN: usize = 2048;

/// The work to do.
enum Work {
    Write(Vec<u8>),
    /// Bytes came, and were reported.
    Read,
    LetGo,
}

/// Reports plaintext to the host.
struct Receiver<'a, R: Runtime>(&'a Link<R>);

impl<R: Runtime> io::Write for Receiver<'_, R> {
    fn write(&mut self, plain: &[u8]) -> io::Result<usize> {
        if !plain.is_empty() {
            self.0.received(plain);
        }
        Ok(plain.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<R: Runtime> Link<R> {
    /// Opens the stream with `connect`, finishes the handshakes of proxy and TLS, and moves bytes
    /// until the host lets go of the link or the stream fails.
    ///
    /// An idle link holds no buffer, neither for what it will read nor for what it has written. In
    /// a process that was forked off it never goes on, and leaves the stream as it is when it is
    /// dropped.
    pub fn run(
        self,
        connect: impl Future<Output = Result<Connected<R::Socket>, Failure>>,
    ) -> impl Future<Output = ()> {
        let process = self.running.process();
        Own::new(Box::pin(self.work(connect)), process)
    }

    async fn work(self, connect: impl Future<Output = Result<Connected<R::Socket>, Failure>>) {
        let (ended, barrier) = self.outgoing.read_by(pin!(self.pump(connect))).await;
        let failure = match ended {
            // The host has let go of the link: what it receives now does not matter any more.
            Ok(()) => Failure::from_io(Stage::Hello, &io::ErrorKind::UnexpectedEof.into()),
            Err(failure) => failure,
        };
        self.closed(failure);
        drop(barrier);
    }

    /// Returns when the host has let go of the link.
    async fn pump(
        &self,
        connect: impl Future<Output = Result<Connected<R::Socket>, Failure>>,
    ) -> Result<(), Failure> {
        let mut outgoing = Vec::new();
        let connected = self.unless_let_go(&mut outgoing, connect).await;
        let Some(connected) = connected else { return Ok(()) };
        let Connected { mut socket, mut transport, wire } = connected?;
        // The password for a proxy may come to be in there.
        let mut wire = Zeroizing::new(wire);
        let (mut opened, mut stage, mut budget) = (false, Stage::Connect, CoopBudget::default());
        loop {
            // Taken, so that an idle link holds no memory for what it has sent.
            let plain = std::mem::take(&mut outgoing);
            if !plain.is_empty() {
                transport.send(&plain, &mut wire);
            }
            if !transport.is_ready() && transport.stage() != stage {
                stage = transport.stage();
                self.progress().reached(stage);
            }
            let bytes = std::mem::take(&mut wire);
            if !bytes.is_empty() {
                let writing = write_all(&mut socket, &bytes, None);
                match self.unless_let_go(&mut outgoing, writing).await {
                    Some(written) => written.map_err(|error| transport.failure(&error))?,
                    None => return Ok(()),
                }
                continue;
            }
            if !opened && transport.is_ready() {
                self.opened();
                opened = true;
            }
            let work = |cx: &mut Context<'_>| {
                self.poll_work(&mut socket, &mut budget, &mut transport, &mut wire, cx)
            };
            match std::future::poll_fn(work).await? {
                Work::Write(bytes) => outgoing = bytes,
                Work::Read => {}
                Work::LetGo => return Ok(()),
            }
        }
    }

    /// Waits for something to do. The buffer is on the stack, so that an idle link holds none.
    fn poll_work(
        &self,
        socket: &mut R::Socket,
        budget: &mut CoopBudget,
        transport: &mut Transport,
        wire: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Work, Failure>> {
        match self.poll_outgoing(cx) {
            Poll::Ready(Some(bytes)) => return Poll::Ready(Ok(Work::Write(bytes))),
            Poll::Ready(None) => return Poll::Ready(Ok(Work::LetGo)),
            Poll::Pending => {}
        }
        let mut buffer = [0; READ_LEN];
        let read = match ready!(budget.poll(cx, |cx| socket.poll_read(cx, &mut buffer, None))) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
        let count = read.map_err(|error| transport.failure(&error))?;
        let outcome = transport.receive(&buffer[..count], &mut Receiver(self), wire);
        if outcome.is_err() {
            // The alert that says why, if any; a server that does not take it at once goes without.
            let _ = socket.poll_write(cx, wire, None);
        }
        Poll::Ready(outcome.map(|()| Work::Read))
    }

    /// Waits for `work`, or gives it up with `None` when the host lets go of the link; what is to
    /// be sent meanwhile is appended to `outgoing`.
    async fn unless_let_go<T>(
        &self,
        outgoing: &mut Vec<u8>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            loop {
                match self.poll_outgoing(cx) {
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Ready(Some(bytes)) => outgoing.extend(bytes),
                    Poll::Pending => return work.as_mut().poll(cx).map(Some),
                }
            }
        })
        .await
    }
}
