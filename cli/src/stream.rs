//! A stream to a server, through the proxy and TLS if there are any, over which any bytes may go.
//!
//! For the commands that look at servers from below: `doctor`, `lint` and `tunnel`. A client of the
//! library does not do for them: it begins each connection with hello, sends no message that is
//! wrong, and keeps the headers of replies to itself. The way is the library's: the address map,
//! the proxy, the race between addresses, and the filters.

use std::io;
use std::net::SocketAddr;

use sdam_core::config::{ServerAddress, TcpOptions};
use sdam_core::failure::{Failure, Stage};
use sdam_core::transport::Transport;
use sdam_host::{Connected, Route, dial, system};
use sdam_tokio::ByteStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;
use zeroize::{Zeroize as _, Zeroizing};

/// The number of bytes that are read at once, and so about what may wait in each direction.
pub(crate) const READ_LEN: usize = 16 * 1024;

/// A stream that is open, and whose filters have finished their handshakes.
pub(crate) struct Stream {
    pub(crate) socket: Box<dyn ByteStream>,
    pub(crate) transport: Transport,
    /// The plaintext that the server has sent with the last message of a handshake.
    pub(crate) early: Vec<u8>,
    /// The room of a read: apart, as a future that holds it is moved more often than it is read.
    pub(crate) buffer: Vec<u8>,
    /// The sealed bytes to be sent; in a handshake perhaps the password for the proxy.
    wire: Zeroizing<Vec<u8>>,
}

/// The reason why a stream is of no more use.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// The socket has failed, or the server has closed it: then the error is
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
    Socket(io::Error),
    /// A filter has refused what came.
    Filter(Failure),
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl Stream {
    /// Takes the socket that was opened to where `route` leads, or what became of that, and
    /// finishes the handshakes; calls `reached` with the stage of each.
    pub(crate) async fn open(
        route: Route,
        socket: Result<Box<dyn ByteStream>, Failure>,
        reached: impl Fn(Stage),
    ) -> Result<Self, Failure> {
        let Connected { socket, transport, wire, .. } = route.opened(socket)?;
        let mut stream = Self::of(socket, transport);
        *stream.wire = wire;
        let mut early = Vec::new();
        stream.flush().await.map_err(|error| stream.failure(error.into()))?;
        while !stream.transport.is_ready() {
            reached(stream.transport.stage());
            stream.receive(&mut early).await.map_err(|error| stream.failure(error))?;
        }
        stream.early = early;
        Ok(stream)
    }

    /// Makes a stream whose filters have nothing to send.
    pub(crate) fn of(socket: Box<dyn ByteStream>, transport: Transport) -> Self {
        let (buffer, wire) = (vec![0; READ_LEN], Zeroizing::default());
        Self { socket, transport, early: Vec::new(), buffer, wire }
    }

    /// Sends plaintext.
    pub(crate) async fn send(&mut self, plain: &[u8]) -> io::Result<()> {
        self.transport.send(plain, &mut self.wire);
        self.flush().await
    }

    /// Receives some bytes, and appends the plaintext, of which there may be none yet.
    pub(crate) async fn receive(&mut self, plain: &mut impl io::Write) -> Result<(), StreamError> {
        if !self.early.is_empty() {
            return Ok(plain.write_all(&std::mem::take(&mut self.early))?);
        }
        let count = match self.socket.read(&mut self.buffer).await? {
            0 => return Err(StreamError::Socket(io::ErrorKind::UnexpectedEof.into())),
            count => count,
        };
        let received = self.transport.receive(&self.buffer[..count], plain, &mut self.wire);
        // After a failure, too: an alert says why.
        let flushed = self.flush().await;
        received.map_err(StreamError::Filter)?;
        Ok(flushed?)
    }

    /// Returns the failure in the library's words, by how far the filters have come.
    pub(crate) fn failure(&self, error: StreamError) -> Failure {
        match error {
            StreamError::Socket(error) => self.transport.failure(&error),
            StreamError::Filter(failure) => failure,
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        if self.wire.is_empty() {
            return Ok(());
        }
        let written = self.socket.write_all(&self.wire).await;
        self.wire.zeroize();
        written
    }
}

/// Opens a socket: to the first of a name's addresses that answers. Calls `reached` when the name
/// is resolved.
pub(crate) async fn connect(
    address: &ServerAddress,
    tcp: TcpOptions,
    reached: impl FnOnce(Stage),
) -> Result<Box<dyn ByteStream>, Failure> {
    let host = address.host();
    let Some(port) = address.port() else { return connect_unix(host).await };
    let addresses = resolve(host.to_owned(), port).await;
    let open = |address| async move {
        let socket = TcpStream::connect(address).await?;
        system::configure_tcp(&socket, tcp);
        Ok(socket)
    };
    Ok(Box::new(dial(host, addresses, reached, open, sleep).await?))
}

#[cfg(unix)]
async fn connect_unix(path: &str) -> Result<Box<dyn ByteStream>, Failure> {
    match tokio::net::UnixStream::connect(path).await {
        Ok(socket) => Ok(Box::new(socket)),
        Err(error) => Err(Failure::from_io(Stage::Connect, &error)),
    }
}

#[cfg(not(unix))]
async fn connect_unix(path: &str) -> Result<Box<dyn ByteStream>, Failure> {
    let detail = format!("{path}: this platform has no Unix domain sockets");
    Err(Failure::new(Stage::Connect, sdam_core::failure::Cause::Io, detail))
}

/// Resolves a name as the system does.
pub(crate) async fn resolve(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let resolved = tokio::task::spawn_blocking(move || system::resolve(&host, port)).await;
    resolved.map_err(io::Error::other)?
}
