//! A dialer: the application's own way to open the byte streams to servers.

use std::fmt;
use std::io;
use std::net::TcpStream;
#[cfg(unix)]
use std::os::{fd::OwnedFd, unix::net::UnixStream};

use sdam_core::config::ServerAddress;
use socket2::Socket;

/// A byte stream in both directions: a socket, for it is waited for together with others.
///
/// To move bytes another way, make a pair of sockets with
/// [`UnixStream::pair`](std::os::unix::net::UnixStream::pair), and keep one end.
#[derive(Debug)]
pub struct ByteStream(pub(crate) Socket);

impl From<TcpStream> for ByteStream {
    fn from(stream: TcpStream) -> Self {
        Self(stream.into())
    }
}

#[cfg(unix)]
impl From<UnixStream> for ByteStream {
    fn from(stream: UnixStream) -> Self {
        Self(OwnedFd::from(stream).into())
    }
}

/// Opens the byte streams of a client in place of sockets, for instance through a tunnel: a
/// closure that takes a [`ServerAddress`] and returns a stream.
///
/// The address is the advertised one unless the
/// [address map](sdam_core::config::Options::address_map) says otherwise, or that of the proxy if
/// the options name one. It may block: one call after another for each server, and for 8 servers at
/// once at most, so that a call that hangs holds up its own server only. Options of the socket, as
/// TCP keepalive, are the dialer's business. Its error is reported as the reason for which the
/// server is unknown.
pub trait Dialer: Send + Sync + 'static {
    /// Opens a stream.
    ///
    /// # Errors
    ///
    /// Fails if there is none to be had.
    fn dial(&self, address: ServerAddress) -> io::Result<ByteStream>;
}

impl<F, S> Dialer for F
where
    F: Fn(ServerAddress) -> io::Result<S> + Send + Sync + 'static,
    S: Into<ByteStream>,
{
    fn dial(&self, address: ServerAddress) -> io::Result<ByteStream> {
        self(address).map(Into::into)
    }
}

impl fmt::Debug for dyn Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}
