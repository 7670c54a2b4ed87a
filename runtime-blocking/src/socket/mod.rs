//! The byte streams under connections and links: sockets that tasks wait for, and threads block on.

mod system;

#[cfg(all(test, unix))]
mod tests;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{self, Duration};

use sdam_core::time::Instant;
use sdam_host::{self as host, Interrupter};
use socket2::Socket as Stream;

use crate::engine::{Engine, Interest, Registration, Sleep};
use system::{Waiting, await_ready, is_quiet, receive, send};

/// The byte stream under a connection or a link.
///
/// A task of the client's engine waits for it together with others; any other thread blocks.
pub struct Socket {
    stream: Arc<Stream>,
    /// False for datagrams.
    is_stream: bool,
    engine: Arc<Engine>,
    /// The origin of the client's clock.
    epoch: time::Instant,
    /// The registration of a task, once there was something to wait for.
    registration: Option<Registration>,
    /// True if a task has just read all that there was.
    drained: bool,
    /// The time when a thread has read all that there was.
    quiet_since: Option<time::Instant>,
    /// The alarm that wakes a task at its deadline.
    alarm: Option<(Instant, Pin<Box<Sleep>>)>,
    /// After how long a read and a write that block give up.
    patience: [Option<Duration>; 2],
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug)]
enum Direction {
    Read,
    Write,
}

/// The shortest time that is left to the system's own limit for reads and writes that block, which
/// costs nothing once it is set, but is late by some milliseconds.
const COARSE: Duration = Duration::from_millis(32);

/// The time for which a connection is taken to be as it was after the last reply: who uses it again
/// at once, as busy threads do, need not ask the system. Other runtimes learn of what has come a
/// little later, too.
const FRESH: Duration = Duration::from_millis(1);

impl Socket {
    pub(crate) fn new(
        stream: Arc<Stream>,
        engine: Arc<Engine>,
        epoch: time::Instant,
    ) -> io::Result<Self> {
        // Tasks say with each call that they do not want to wait.
        stream.set_nonblocking(false)?;
        let (registration, alarm) = (None, None);
        let (drained, quiet_since, patience) = (false, None, [None; 2]);
        Ok(Self {
            stream,
            is_stream: true,
            engine,
            epoch,
            registration,
            drained,
            quiet_since,
            alarm,
            patience,
        })
    }

    /// Takes the socket for one of datagrams, each of which is read by itself.
    pub(crate) fn of_datagrams(mut self) -> Self {
        self.is_stream = false;
        self
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        direction: Direction,
        deadline: Option<Instant>,
        mut work: impl FnMut(&Stream, Waiting) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if !self.engine.is_current() {
            return Poll::Ready(self.block(direction, deadline, work));
        }
        // Spares the system call that would say so.
        if matches!(direction, Direction::Read)
            && std::mem::take(&mut self.drained)
            && let Some(waits) = self.poll_wait(cx, direction, deadline)?
        {
            return waits.map(Err);
        }
        loop {
            match work(&self.stream, Waiting::Refused) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some(waits) = self.poll_wait(cx, direction, deadline)? {
                        return waits.map(Err);
                    }
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// Has the task woken when there is something to do, unless that may be so now; fails at the
    /// deadline.
    fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        direction: Direction,
        deadline: Option<Instant>,
    ) -> io::Result<Option<Poll<io::Error>>> {
        let registration = match &mut self.registration {
            Some(registration) => registration,
            none => none.insert(Registration::new(&self.engine, &self.stream)?),
        };
        if !registration.arm(cx, direction.interest())? {
            return Ok(None);
        }
        let Some(deadline) = deadline else { return Ok(Some(Poll::Pending)) };
        if self.alarm.as_ref().is_none_or(|(armed, _)| *armed != deadline) {
            let until = self.epoch.checked_add(deadline.since_origin());
            self.alarm = Some((deadline, Box::pin(self.engine.sleep_until(until))));
        }
        if let Some((_, sleep)) = &mut self.alarm
            && sleep.as_mut().poll(cx).is_pending()
        {
            return Ok(Some(Poll::Pending));
        }
        self.alarm = None;
        Ok(Some(Poll::Ready(too_late())))
    }

    /// Has this thread wait.
    fn block(
        &mut self,
        direction: Direction,
        deadline: Option<Instant>,
        mut work: impl FnMut(&Stream, Waiting) -> io::Result<usize>,
    ) -> io::Result<usize> {
        (self.registration, self.alarm) = (None, None);
        let mut ran_out = false;
        loop {
            let left = deadline.map(|deadline| deadline - self.now());
            let soon = left.filter(|left| *left < COARSE);
            let waiting = match soon {
                Some(_) => Waiting::Refused,
                None => {
                    self.limit(direction, left, ran_out)?;
                    Waiting::Allowed
                }
            };
            match (work(&self.stream, waiting), soon) {
                (Err(error), _) if error.kind() == io::ErrorKind::Interrupted => {}
                (Err(error), soon) if error.kind() == io::ErrorKind::WouldBlock => match soon {
                    // What had come by now was looked at.
                    Some(Duration::ZERO) => return Err(too_late()),
                    Some(left) => await_ready(&self.stream, direction, left)?,
                    None => ran_out = true,
                },
                (done, _) => return done,
            }
        }
    }

    /// Limits how long the next read or write blocks, to half of the time that is left, for it may
    /// be late. A shorter limit from before is left as it is, which costs no system call, until it
    /// has run out.
    fn limit(
        &mut self,
        direction: Direction,
        left: Option<Duration>,
        ran_out: bool,
    ) -> io::Result<()> {
        let known = &mut self.patience[direction as usize];
        let most = left.map(|left| left / 2);
        let suits = match *known {
            None => most.is_none(),
            Some(known) => !ran_out && most.is_none_or(|most| known <= most),
        };
        if suits {
            return Ok(());
        }
        // Of similar times the same is made, so that the next operation can leave it.
        let wanted = most.map(round_down);
        match direction {
            Direction::Read => self.stream.set_read_timeout(wanted)?,
            Direction::Write => self.stream.set_write_timeout(wanted)?,
        }
        *known = wanted;
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }
}

/// Rounds down to a power of two of milliseconds, where there is one.
fn round_down(time: Duration) -> Duration {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    millis.checked_ilog2().map_or(time, |exponent| Duration::from_millis(1 << exponent))
}

fn too_late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "not done within the time allowed")
}

impl Direction {
    const fn interest(self) -> Interest {
        match self {
            Self::Read => Interest::READABLE,
            Self::Write => Interest::WRITABLE,
        }
    }
}

impl host::Socket for Socket {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        let length = buffer.len();
        let read = |stream: &Stream, waiting| receive(stream, buffer, waiting);
        let poll = self.poll(cx, Direction::Read, deadline, read);
        let is_short = matches!(poll, Poll::Ready(Ok(count)) if 0 < count && count < length);
        // After a datagram, another one may have come.
        self.drained = is_short && self.is_stream;
        self.quiet_since = self.drained.then(time::Instant::now);
        poll
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, Direction::Write, deadline, |stream, waiting| send(stream, bytes, waiting))
    }

    /// Costs a system call, unlike in other runtimes, where somebody has watched the socket
    /// meanwhile; but not within `FRESH` of the last reply.
    fn is_quiet(&mut self) -> bool {
        self.quiet_since.is_some_and(|since| since.elapsed() < FRESH) || is_quiet(&self.stream)
    }

    fn interrupter(&self) -> Option<Interrupter> {
        let stream = Arc::downgrade(&self.stream);
        Some(Box::new(move || {
            if let Some(stream) = stream.upgrade() {
                // It fails if the stream has ended already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A process that was forked off has the stream, too: that this one closes its own would not
        // end it. Nor may that one end what is not its own.
        if self.engine.is_ours() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("stream", &self.stream).finish_non_exhaustive()
    }
}
