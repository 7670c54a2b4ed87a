//! The byte streams under connections and links: sockets that tasks wait for, and threads block on.

use std::fmt;
use std::future::Future;
use std::io::{self, Read};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{self, Duration};

use sdam_core::host::{self, Interrupter};
use sdam_core::time::Instant;
use socket2::Socket as Stream;

use crate::engine::{Engine, Interest, Registration, Sleep};

/// The byte stream under a connection or a link.
///
/// A task of the client's engine waits for it together with others; any other thread blocks.
pub struct Socket {
    stream: Arc<Stream>,
    engine: Arc<Engine>,
    /// The origin of the client's clock.
    epoch: time::Instant,
    mode: Mode,
    /// After how long a blocking read and a blocking write give up.
    patience: [Option<Duration>; 2],
}

/// Who uses it.
enum Mode {
    /// A task. What it waits with is made when there is something to wait for, and kept.
    Tasks { registration: Option<Registration>, alarm: Option<(Instant, Pin<Box<Sleep>>)> },
    /// A thread that blocks.
    Threads,
}

/// What is done with it.
#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl Socket {
    pub(crate) fn new(
        stream: Arc<Stream>,
        engine: Arc<Engine>,
        epoch: time::Instant,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let mode = Mode::Tasks { registration: None, alarm: None };
        Ok(Self { stream, engine, epoch, mode, patience: [None; 2] })
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        direction: Direction,
        deadline: Option<Instant>,
        mut work: impl FnMut(&Stream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if !self.engine.is_current() {
            return Poll::Ready(self.block(direction, deadline, work));
        }
        if matches!(self.mode, Mode::Threads) {
            self.stream.set_nonblocking(true)?;
            self.mode = Mode::Tasks { registration: None, alarm: None };
        }
        loop {
            match work(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.poll_wait(cx, direction, deadline);
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// Has the task woken when there is something to do; fails at the deadline.
    fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        direction: Direction,
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        let Mode::Tasks { registration, alarm } = &mut self.mode else {
            unreachable!("a task uses it");
        };
        let registration = match registration {
            Some(registration) => registration,
            none => none.insert(Registration::new(&self.engine, &self.stream)?),
        };
        registration.arm(cx, direction.interest())?;
        let Some(deadline) = deadline else { return Poll::Pending };
        if alarm.as_ref().is_none_or(|(armed, _)| *armed != deadline) {
            let until = self.epoch.checked_add(deadline.since_origin());
            *alarm = Some((deadline, Box::pin(self.engine.sleep_until(until))));
        }
        if let Some((_, sleep)) = alarm {
            ready!(sleep.as_mut().poll(cx));
        }
        *alarm = None;
        Poll::Ready(Err(too_late()))
    }

    /// Has this thread wait.
    fn block(
        &mut self,
        direction: Direction,
        deadline: Option<Instant>,
        mut work: impl FnMut(&Stream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !matches!(self.mode, Mode::Threads) {
            self.mode = Mode::Threads;
            self.stream.set_nonblocking(false)?;
        }
        let mut ran_out = false;
        loop {
            self.limit(direction, deadline, ran_out)?;
            match work(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    if deadline.is_some_and(|deadline| self.now() >= deadline) {
                        return Err(too_late());
                    }
                    ran_out = true;
                }
                done => return done,
            }
        }
    }

    /// Limits how long the next read or write blocks. A limit from before that is sooner is left as
    /// it is, which costs no system call, until it has been found to be too soon.
    fn limit(
        &mut self,
        direction: Direction,
        deadline: Option<Instant>,
        ran_out: bool,
    ) -> io::Result<()> {
        let known = self.patience[direction as usize];
        let left = deadline.map(|deadline| (deadline - self.now()).max(SHORTEST));
        let wanted = match (known, left) {
            (None, None) => return Ok(()),
            (Some(known), Some(left)) if known <= left && !ran_out => return Ok(()),
            (Some(_), None) if !ran_out => return Ok(()),
            // Of similar times much the same is made, so that the next operation can leave it.
            (_, left) if !ran_out => left.map(round_down),
            (_, left) => left,
        };
        match direction {
            Direction::Read => self.stream.set_read_timeout(wanted)?,
            Direction::Write => self.stream.set_write_timeout(wanted)?,
        }
        self.patience[direction as usize] = wanted;
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }
}

/// The shortest time that a socket can be told; none at all would be no limit.
const SHORTEST: Duration = Duration::from_micros(1);

/// Rounds down to a power of two of milliseconds, where there is one.
fn round_down(time: Duration) -> Duration {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    millis.checked_ilog2().map_or(time, |exponent| Duration::from_millis(1 << exponent))
}

fn too_late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "not done within the time allowed")
}

/// Platforms differ in how a blocking call says that its time has run out.
fn is_timeout(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::WouldBlock => true,
        // Elsewhere it is an error of the connection.
        io::ErrorKind::TimedOut => cfg!(windows),
        _ => false,
    }
}

/// Writes some bytes; no signal tells if the peer has gone, as it would end the process where the
/// program is not one of Rust.
fn send(stream: &Stream, bytes: &[u8]) -> io::Result<usize> {
    #[cfg(all(unix, not(target_vendor = "apple")))]
    return Ok(rustix::net::send(stream, bytes, rustix::net::SendFlags::NOSIGNAL)?);
    // Of the socket, there, it was asked when it was made.
    #[cfg(not(all(unix, not(target_vendor = "apple"))))]
    stream.send(bytes)
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
        self.poll(cx, Direction::Read, deadline, |mut stream| stream.read(buffer))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        self.poll(cx, Direction::Write, deadline, |stream| send(stream, bytes))
    }

    /// Costs a system call, unlike in other runtimes: nobody has watched the socket meanwhile.
    #[cfg(unix)]
    fn is_quiet(&mut self) -> bool {
        use rustix::net::{RecvFlags, recv};

        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&*self.stream, &mut [0; 1], flags).is_err_and(|error| {
            // A signal says nothing of the socket, and does not come again at once.
            error == rustix::io::Errno::AGAIN || error == rustix::io::Errno::INTR
        })
    }

    #[cfg(not(unix))]
    fn is_quiet(&mut self) -> bool {
        let blocks = matches!(self.mode, Mode::Threads);
        let peeked = self
            .stream
            .set_nonblocking(true)
            .and_then(|()| self.stream.peek(&mut [std::mem::MaybeUninit::uninit(); 1]));
        let restored = self.stream.set_nonblocking(!blocks);
        restored.is_ok() && peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
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
