//! What a runtime's byte streams can do.

use std::io;
use std::task::{Context, Poll};

use sdam_core::time::Instant;

/// Makes the thread go on that a blocking socket holds; see [`Socket::interrupter`].
pub type Interrupter = Box<dyn Fn() + Send + Sync>;

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
    /// can be told without a system call; asked before an idle connection is handed out.
    fn is_quiet(&mut self) -> bool;

    /// Returns what makes a read or a write end that blocks another thread, by shutting the stream
    /// down, say: a monitor's time-out interrupts whoever waits for the same server. It must return
    /// at once, and may be called when the socket is gone.
    ///
    /// Sockets that return `Pending` instead have no need of it.
    fn interrupter(&self) -> Option<Interrupter> {
        None
    }
}
