//! Waiting for a socket.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use polling::Event;
use socket2::Socket;

use super::{Engine, State};

/// The events that are waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    readable: bool,
    writable: bool,
}

impl Interest {
    pub(crate) const READABLE: Self = Self { readable: true, writable: false };
    pub(crate) const WRITABLE: Self = Self { readable: false, writable: true };

    const fn union(self, other: Self) -> Self {
        let readable = self.readable || other.readable;
        Self { readable, writable: self.writable || other.writable }
    }
}

/// The waiters of a socket.
#[derive(Default)]
pub(super) struct Source {
    armed: Interest,
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

    #[expect(unsafe_code, reason = "the poller wants to be promised that sockets are removed")]
    fn add(&self) -> io::Result<()> {
        let poller = self.engine.poller.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the socket must be removed from the poller before it is closed. It cannot be
        // closed before, because `self` has a reference to it until after `drop`, which removes it.
        // (If `self` is leaked, so is the socket. A process that was forked off removes nothing,
        // as the poller's list is its parent's, and closes nothing but its own number for the
        // socket, which stays open in the parent.)
        unsafe { poller.add(&*self.socket, Event::none(self.key)) }
    }

    /// Has `cx` woken once, when the socket is what is waited for; which is added to what was.
    pub(crate) fn arm(&self, cx: &Context<'_>, interest: Interest) -> io::Result<()> {
        let mut state = self.engine.lock();
        let source = state.sources.entry(self.key).or_default();
        let armed = source.armed.union(interest);
        let known = std::mem::replace(&mut source.armed, armed) == armed;
        let waker = source.waker.replace(cx.waker().clone());
        drop(state);
        drop(waker);
        match &self.engine.poller {
            Some(poller) if !known => {
                poller.modify(&*self.socket, Event::new(self.key, armed.readable, armed.writable))
            }
            _ => Ok(()),
        }
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
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            }
        })
    }
}

impl Source {
    fn waits(&self) -> bool {
        self.armed != Interest::default()
    }
}

impl State {
    /// Returns who waits for a socket that has become ready.
    pub(super) fn fired(&mut self, event: Event) -> Option<Waker> {
        let source = self.sources.get_mut(&event.key)?;
        // It tells only once.
        source.armed = Interest::default();
        source.waker.take()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.engine.is_ours() {
            return;
        }
        if let Some(poller) = &self.engine.poller {
            // It fails only if it was not added.
            let _ = poller.delete(&*self.socket);
        }
        let source = self.engine.lock().sources.remove(&self.key);
        drop(source);
    }
}
