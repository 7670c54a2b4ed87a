//! Streams of bytes in virtual time.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::LinkId;
use sdam_core::time::Instant;
use sdam_host::Socket;

use super::{Call, Desk};
use crate::sim::network::{Packet, StreamId};

/// The reason why a stream was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Refusal {
    Refused,
    NotResolved,
    Closed,
}

/// The client's end of a stream, which the network fills.
#[derive(Debug)]
pub(in crate::sim) struct End {
    /// The monitor's link that it belongs to.
    link: Option<LinkId>,
    state: Mutex<SocketState>,
}

#[derive(Debug, Default)]
struct SocketState {
    stream: Option<StreamId>,
    opened: Option<Result<(), Refusal>>,
    /// The bytes that have come, and the number that was read.
    incoming: Vec<u8>,
    read: usize,
    ended: bool,
    waker: Option<Waker>,
    /// The time when the reader is woken because of its deadline.
    armed: Option<Instant>,
}

impl End {
    fn lock(&self) -> MutexGuard<'_, SocketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::sim) const fn link(&self) -> Option<LinkId> {
        self.link
    }

    /// Returns the stream, once it is being opened.
    pub(in crate::sim) fn stream(&self) -> Option<StreamId> {
        self.lock().stream
    }

    pub(in crate::sim) fn set_stream(&self, stream: StreamId) {
        self.lock().stream = Some(stream);
    }

    fn change(&self, act: impl FnOnce(&mut SocketState)) {
        let mut state = self.lock();
        act(&mut state);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The stream is open, or will never be.
    pub(in crate::sim) fn open(&self, opened: Result<(), Refusal>) {
        self.change(|state| {
            state.opened.get_or_insert(opened);
        });
    }

    /// Bytes have come.
    fn receive(&self, bytes: &[u8]) {
        self.change(|state| state.incoming.extend_from_slice(bytes));
    }

    /// The peer has ended the stream.
    fn end(&self) {
        self.change(|state| {
            state.opened.get_or_insert(Err(Refusal::Closed));
            state.ended = true;
        });
    }

    /// A packet has come.
    pub(in crate::sim) fn arrived(&self, packet: &Packet) {
        match packet {
            Packet::Syn | Packet::SynAck => self.open(Ok(())),
            Packet::Refused => self.open(Err(Refusal::Refused)),
            Packet::NotResolved => self.open(Err(Refusal::NotResolved)),
            Packet::Bytes(bytes) => self.receive(bytes),
            Packet::Fin => self.end(),
        }
    }

    /// Makes the reader look at the clock.
    pub(in crate::sim) fn ripen(&self) {
        self.change(|state| state.armed = None);
    }
}

/// A stream of bytes in virtual time.
#[derive(Debug)]
pub struct VirtualSocket {
    desk: Arc<Desk>,
    end: Arc<End>,
}

impl VirtualSocket {
    pub(super) fn dial(desk: Arc<Desk>, address: ServerAddress, link: Option<LinkId>) -> Self {
        let end = Arc::new(End { link, state: Mutex::default() });
        desk.call(Call::Open { end: Arc::clone(&end), address });
        Self { desk, end }
    }

    /// Waits until the stream is open.
    pub(super) async fn opened(&self) -> Result<(), Failure> {
        let opened = std::future::poll_fn(|cx| {
            let mut state = self.end.lock();
            if let Some(opened) = state.opened {
                return Poll::Ready(opened);
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        });
        opened.await.map_err(|refusal| match refusal {
            Refusal::Refused => Failure::new(Stage::Connect, Cause::Refused, "connection refused"),
            Refusal::NotResolved => {
                Failure::new(Stage::Resolve, Cause::NotResolved, "no such host")
            }
            Refusal::Closed => {
                Failure::new(Stage::Connect, Cause::Closed, "the server closed the connection")
            }
        })
    }
}

impl Socket for VirtualSocket {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.end.lock();
        let unread = state.incoming.len() - state.read;
        if unread > 0 {
            let count = unread.min(buffer.len());
            let from = state.read;
            buffer[..count].copy_from_slice(&state.incoming[from..from + count]);
            state.read += count;
            if count == unread {
                state.read = 0;
                state.incoming.clear();
            }
            return Poll::Ready(Ok(count));
        }
        if state.ended {
            return Poll::Ready(Ok(0));
        }
        if deadline.is_some_and(|deadline| deadline <= self.desk.now()) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        if let Some(at) = deadline
            && state.armed.replace(at) != deadline
        {
            drop(state);
            self.desk.call(Call::Ripen { at, end: Arc::clone(&self.end) });
        }
        Poll::Pending
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        self.desk.call(Call::Send { end: Arc::clone(&self.end), bytes: bytes.to_vec() });
        Poll::Ready(Ok(bytes.len()))
    }

    fn is_quiet(&mut self) -> bool {
        let state = self.end.lock();
        state.incoming.is_empty() && !state.ended
    }
}

impl Drop for VirtualSocket {
    fn drop(&mut self) {
        self.desk.call(Call::Close { end: Arc::clone(&self.end) });
    }
}
