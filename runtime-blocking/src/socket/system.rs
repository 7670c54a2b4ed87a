//! The requests of a socket to the operating system, with or without waiting.

use std::io;
use std::time::Duration;

use socket2::Socket;

use super::Direction;

/// True if a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    Allowed,
    /// It fails with [`WouldBlock`](io::ErrorKind::WouldBlock) instead.
    Refused,
}

#[cfg(unix)]
pub(super) use unix::{await_ready, is_quiet, receive, send};

#[cfg(unix)]
mod unix {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;
    use rustix::net::{RecvFlags, SendFlags, recv};

    use super::{Direction, Duration, Socket, Waiting, io};

    pub(crate) fn receive(
        socket: &Socket,
        buffer: &mut [u8],
        waiting: Waiting,
    ) -> io::Result<usize> {
        let flags = match waiting {
            Waiting::Allowed => RecvFlags::empty(),
            Waiting::Refused => RecvFlags::DONTWAIT,
        };
        let (count, _) = recv(socket, buffer, flags)?;
        Ok(count)
    }

    pub(crate) fn send(socket: &Socket, bytes: &[u8], waiting: Waiting) -> io::Result<usize> {
        // No SIGPIPE when the peer has gone: it would end a process whose `main` is not Rust's.
        // Where there is no such flag, sockets are made so.
        #[cfg(not(target_vendor = "apple"))]
        let silent = SendFlags::NOSIGNAL;
        #[cfg(target_vendor = "apple")]
        let silent = SendFlags::empty();
        let flags = match waiting {
            Waiting::Allowed => silent,
            Waiting::Refused => silent | SendFlags::DONTWAIT,
        };
        Ok(rustix::net::send(socket, bytes, flags)?)
    }

    /// Returns whether nothing has come, and the stream has not ended.
    pub(crate) fn is_quiet(socket: &Socket) -> bool {
        let peeked = recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        peeked.is_err_and(|error| error == Errno::AGAIN)
    }

    /// Waits until something can be done with the socket, for `time` at most, or a signal comes.
    pub(crate) fn await_ready(
        socket: &Socket,
        direction: Direction,
        time: Duration,
    ) -> io::Result<()> {
        let flags = match direction {
            Direction::Read => PollFlags::IN,
            Direction::Write => PollFlags::OUT,
        };
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(socket, flags)], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(not(unix))]
pub(super) use elsewhere::{await_ready, is_quiet, receive, send};

#[cfg(not(unix))]
mod elsewhere {
    use std::io::{Read, Write};
    use std::mem::MaybeUninit;

    use super::{Direction, Duration, Socket, Waiting, io};

    pub(crate) fn receive(
        mut socket: &Socket,
        buffer: &mut [u8],
        waiting: Waiting,
    ) -> io::Result<usize> {
        call(socket, waiting, || socket.read(buffer))
    }

    pub(crate) fn send(mut socket: &Socket, bytes: &[u8], waiting: Waiting) -> io::Result<usize> {
        call(socket, waiting, || socket.write(bytes))
    }

    /// Returns whether nothing has come, and the stream has not ended.
    pub(crate) fn is_quiet(socket: &Socket) -> bool {
        let peeked =
            call(socket, Waiting::Refused, || socket.peek(&mut [MaybeUninit::uninit(); 1]));
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits for a little, though for `time` at most.
    pub(crate) fn await_ready(_: &Socket, _: Direction, time: Duration) -> io::Result<()> {
        std::thread::sleep(time.min(Duration::from_millis(1)));
        Ok(())
    }

    fn call(
        socket: &Socket,
        waiting: Waiting,
        work: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        if waiting == Waiting::Allowed {
            // Where time has run out, that is said in words that streams have for their end, too.
            return work().map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => io::ErrorKind::WouldBlock.into(),
                _ => error,
            });
        }
        socket.set_nonblocking(true)?;
        let outcome = work();
        socket.set_nonblocking(false)?;
        outcome
    }
}
