//! A stream in memory, whose other end answers before a write returns.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use sdam_core::time::Instant;

use super::lock;
use crate::measured::apart;
use crate::server::{Connection, Server};

/// A stream with a server at its other end.
pub(super) struct Pipe(Mutex<PipeState>);

struct PipeState {
    server: Connection,
    /// The bytes that the server has sent, and how much of them was read.
    sent: Vec<u8>,
    read: usize,
    reader: Option<Waker>,
}

/// A client's end of a stream.
pub(crate) struct Socket(pub(super) Arc<Pipe>);

impl Pipe {
    pub(super) fn new(server: &Arc<Server>, address: SocketAddr) -> Self {
        let server = Connection::new(Arc::clone(server), address);
        Self(Mutex::new(PipeState { server, sent: Vec::new(), read: 0, reader: None }))
    }

    /// Has the server say once more what it has said last, if a monitor waits for it to change.
    pub(super) fn repeat_hello(&self) -> bool {
        let PipeState { server, sent, reader, .. } = &mut *lock(&self.0);
        let repeats = server.repeat_hello(sent);
        let reader = reader.take_if(|_| repeats);
        reader.into_iter().for_each(Waker::wake);
        repeats
    }
}

impl sdam_host::Socket for Socket {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        let PipeState { sent, read, reader, .. } = &mut *lock(&self.0.0);
        let rest = &sent[*read..];
        if rest.is_empty() {
            *reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.len().min(rest.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        *read += count;
        if *read == sent.len() {
            sent.clear();
            *read = 0;
        }
        Poll::Ready(Ok(count))
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        let PipeState { server, sent, reader, .. } = &mut *lock(&self.0.0);
        apart(|| server.receive(bytes, sent));
        let reader = reader.take_if(|_| !sent.is_empty());
        reader.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(bytes.len()))
    }

    fn is_quiet(&mut self) -> bool {
        lock(&self.0.0).sent.is_empty()
    }
}
