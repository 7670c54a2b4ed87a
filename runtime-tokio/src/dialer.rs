//! A dialer: the application's own way to open the byte streams to servers.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use sdam_core::config::ServerAddress;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream in both directions, such as a socket or a channel of an SSH connection.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for S {}

/// The result of a [`Dialer`]: a byte stream, once it is open.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'a>>;

/// Opens the byte streams of a client in place of sockets, for instance through a tunnel.
///
/// Whatever it does, a server is known by the address it advertises. A closure that takes a
/// [`ServerAddress`] and returns a future of a stream is a dialer, too:
///
/// ```no_run
/// use sdam_core::config::ServerAddress;
/// use sdam_core::config::Options;
/// use sdam_tokio::Topology;
/// use tokio::net::TcpStream;
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Topology::builder(Options::parse("mongodb://db1.internal/?replicaSet=rs0")?)
///     .dialer(|address: ServerAddress| async move {
///         match address.host() {
///             "db1.internal" => TcpStream::connect("127.0.0.1:30001").await,
///             host => Err(std::io::Error::other(format!("there is no tunnel to {host}"))),
///         }
///     })
///     .build()?;
/// # Ok(())
/// # }
/// ```
pub trait Dialer: Send + Sync + 'static {
    /// Opens a stream to a server at `address`, which is the advertised one unless the
    /// [address map](sdam_core::config::Options::address_map) says otherwise, or to the proxy if
    /// the options name one.
    ///
    /// The future is dropped when the stream is not needed any more or connectTimeoutMS have
    /// passed. Options of the socket, as TCP keepalive, are the dialer's business. The error of the
    /// future is reported as the reason for which the server is unknown.
    fn dial<'a>(&'a self, address: &'a ServerAddress) -> Dialing<'a>;
}

impl<F, T, S> Dialer for F
where
    F: Fn(ServerAddress) -> T + Send + Sync + 'static,
    T: Future<Output = io::Result<S>> + Send + 'static,
    S: ByteStream,
{
    fn dial<'a>(&'a self, address: &'a ServerAddress) -> Dialing<'a> {
        let stream = self(address.clone());
        Box::pin(async move { Ok(Box::new(stream.await?) as Box<dyn ByteStream>) })
    }
}

impl fmt::Debug for dyn Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}
