//! The byte stream that a runtime supplies.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use sdam_core::time::Instant;

use crate::sync::Interrupter;

/// The byte stream under an application's connection, or under a monitoring link.
///
/// A blocking runtime never returns `Pending` to applications. Dropping it closes the stream.
///
/// No error may be [`Interrupted`](io::ErrorKind::Interrupted), which the host takes for itself: a
/// system call that a signal has interrupted is made again.
pub trait Socket: Send + 'static {
    /// Reads some bytes, 0 at the end of the stream, until `deadline` at most.
    ///
    /// What has already arrived is returned even after the deadline: the process may have been
    /// stopped meanwhile. So reading is tried first, and the deadline judged if there is nothing;
    /// the host then tries once more with the same deadline, for what has come in between.
    ///
    /// # Errors
    ///
    /// Fails with [`TimedOut`](io::ErrorKind::TimedOut) at the deadline.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>>;

    /// Writes some bytes, until `deadline` at most.
    ///
    /// # Errors
    ///
    /// Fails with [`TimedOut`](io::ErrorKind::TimedOut) at the deadline.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Poll<io::Result<usize>>;

    /// Returns whether the peer has neither ended the stream nor sent anything unasked, as far as
    /// it knows without a system call; called before an idle connection is handed out.
    fn is_quiet(&mut self) -> bool;

    /// Returns a handle that ends a read or a write that blocks another thread, by shutting the
    /// stream down, say: a monitor's time-out interrupts the threads that wait for the same server.
    /// It must return at once, and may be called when the socket is gone.
    ///
    /// Sockets that return `Pending` instead have no need of it.
    fn interrupter(&self) -> Option<Interrupter> {
        None
    }
}

/// Writes all of `bytes`, until `deadline` at most.
pub(crate) async fn write_all<S: Socket>(
    socket: &mut S,
    mut bytes: &[u8],
    deadline: Option<Instant>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|cx| socket.poll_write(cx, bytes, deadline)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    Ok(())
}
