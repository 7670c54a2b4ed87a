//! TCP and Unix domain sockets, and streams that the application opened, alike.

use std::io;
use std::task::{Context, Poll};

use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use crate::stream::Dialled;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    Dialled(Dialled),
}

impl Socket {
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_read_ready(cx),
            #[cfg(unix)]
            Self::Unix(socket) => socket.poll_read_ready(cx),
            Self::Dialled(stream) => stream.poll_read_ready(cx),
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => socket.poll_write_ready(cx),
            #[cfg(unix)]
            Self::Unix(socket) => socket.poll_write_ready(cx),
            Self::Dialled(stream) => stream.poll_write_ready(cx),
        }
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_read(buffer),
            #[cfg(unix)]
            Self::Unix(socket) => socket.try_read(buffer),
            Self::Dialled(stream) => stream.try_read(buffer),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(socket) => socket.try_write(bytes),
            Self::Dialled(stream) => stream.try_write(bytes),
        }
    }
}
