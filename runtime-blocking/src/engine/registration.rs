//! Waiting for a socket.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use socket2::Socket;

use super::poller::Fired;
use super::{Engine, EngineState};

/// The events that are waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl Interest {
    pub(crate) const READABLE: Self = Self { readable: true, writable: false };
    pub(crate) const WRITABLE: Self = Self { readable: false, writable: true };

    const NONE: Self = Self { readable: false, writable: false };

    const fn union(self, other: Self) -> Self {
        let readable = self.readable || other.readable;
        Self { readable, writable: self.writable || other.writable }
    }

    const fn without(self, other: Self) -> Self {
        let readable = self.readable && !other.readable;
        Self { readable, writable: self.writable && !other.writable }
    }
}

/// The waiters of a socket.
#[derive(Default)]
pub(super) struct Source {
    armed: Interest,
    /// The readiness reported since it was last waited for, which may have passed.
    told: Interest,
    /// True if the peer sends nothing more: a read finds that at once.
    closed: bool,
    waker: Option<Waker>,
}

/// A socket that an engine waits for, until this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    engine: Arc<Engine>,
    key: usize,
    socket: Arc<Socket>,
}

impl Registration {
    pub(crate) fn new(engine: &Arc<Engine>, socket: &Arc<Socket>) -> io::Result<Self> {
        let mut state = engine.lock();
        let key = state.new_key();
        state.sources.insert(key, Source::default());
        drop(state);
        // Whatever comes of it, this is dropped, and that undoes it.
        let registration = Self { engine: Arc::clone(engine), key, socket: Arc::clone(socket) };
        registration.add()?;
        Ok(registration)
    }

    fn add(&self) -> io::Result<()> {
        let poller = self.engine.poller.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        poller.add(&self.socket, self.key)
    }

    /// Has `cx` woken once, when the socket is what is waited for, which is added to what was;
    /// returns false if the socket has become that since somebody waited for it last, so that there
    /// is perhaps nothing to wait for.
    pub(crate) fn arm(&self, cx: &Context<'_>, interest: Interest) -> io::Result<bool> {
        let mut state = self.engine.lock();
        let source = state.sources.entry(self.key).or_default();
        let told = source.told;
        source.told = told.without(interest);
        if source.told != told || (source.closed && interest.readable) {
            return Ok(false);
        }
        let armed = source.armed.union(interest);
        let known = std::mem::replace(&mut source.armed, armed) == armed;
        let waker = source.waker.replace(cx.waker().clone());
        drop(state);
        drop(waker);
        match &self.engine.poller {
            Some(poller) if !known => poller.expect(&self.socket, self.key, armed),
            _ => Ok(()),
        }?;
        Ok(true)
    }

    /// Waits until the socket is what is waited for.
    pub(crate) fn ready(&self, interest: Interest) -> impl Future<Output = io::Result<()>> + Send {
        let mut waits = false;
        std::future::poll_fn(move |cx| {
            let fired = || !self.engine.lock().sources.get(&self.key).is_some_and(Source::waits);
            if std::mem::replace(&mut waits, true) && fired() {
                return Poll::Ready(Ok(()));
            }
            match self.arm(cx, interest) {
                Ok(true) => Poll::Pending,
                Ok(false) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            }
        })
    }
}

impl Source {
    fn waits(&self) -> bool {
        self.armed != Interest::NONE
    }
}

impl EngineState {
    /// Returns who waits for a socket that has become ready.
    pub(super) fn fired(&mut self, Fired { key, interest, closed }: Fired) -> Option<Waker> {
        let source = self.sources.get_mut(&key)?;
        source.closed |= closed;
        source.told = source.told.union(interest.without(source.armed));
        if source.armed.without(interest) == source.armed {
            return None;
        }
        // It fires only once.
        source.armed = Interest::NONE;
        source.waker.take()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.engine.is_ours() {
            return;
        }
        if let Some(poller) = &self.engine.poller {
            poller.delete(&self.socket);
        }
        let source = self.engine.lock().sources.remove(&self.key);
        drop(source);
    }
}
