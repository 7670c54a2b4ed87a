//! A dialer: the application's own way to open the byte streams to servers.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use futures_io::{AsyncRead, AsyncWrite};
use sdam_core::config::ServerAddress;

/// A byte stream in both directions, with the traits of `futures-io`.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for S {}

/// The result of a [`Dialer`]: a byte stream, once it is open.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send>>;

/// Opens the byte streams of a client in place of sockets, for instance through a tunnel: a
/// closure that takes a [`ServerAddress`] and returns a future of a stream.
///
/// The address is the advertised one unless the
/// [address map](sdam_core::config::Options::address_map) says otherwise, or that of the proxy if
/// the options name one. Options of the socket, as TCP keepalive, are the dialer's business. The
/// error of the future is reported as the reason for which the server is unknown.
pub trait Dialer: Send + Sync + 'static {
    /// Opens a stream; the future is dropped when it is not needed any more.
    fn dial(&self, address: ServerAddress) -> Dialing;
}

impl<F, T, S> Dialer for F
where
    F: Fn(ServerAddress) -> T + Send + Sync + 'static,
    T: Future<Output = io::Result<S>> + Send + 'static,
    S: ByteStream,
{
    fn dial(&self, address: ServerAddress) -> Dialing {
        let stream = self(address);
        Box::pin(async { stream.await.map(|stream| Box::new(stream) as Box<dyn ByteStream>) })
    }
}

impl fmt::Debug for dyn Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}
