//! Resolves names and opens sockets.

use std::net::SocketAddr;

use sdam_core::config::ServerAddress;
#[cfg(not(unix))]
use sdam_core::failure::Cause;
use sdam_core::failure::{Failure, Stage};
use sdam_host::dial;
use sdam_host::system::configure_tcp;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

use crate::socket::Stream;

/// Opens a socket to a server: to the first of its addresses that answers.
///
/// `reached` is told when the name is resolved.
pub(crate) async fn connect(
    address: &ServerAddress,
    reached: impl FnOnce(Stage) + Send,
) -> Result<Stream, Failure> {
    let host = address.host();
    let Some(port) = address.port() else { return unix(host).await };
    let addresses = lookup_host((host, port)).await.map(Iterator::collect);
    let socket = dial(host, addresses, reached, TcpStream::connect::<SocketAddr>, sleep).await?;
    configure_tcp(&socket);
    Ok(Stream::Tcp(socket))
}

#[cfg(unix)]
async fn unix(path: &str) -> Result<Stream, Failure> {
    let socket = tokio::net::UnixStream::connect(path).await;
    socket.map(Stream::Unix).map_err(|error| {
        let failure = Failure::from_io(Stage::Connect, &error);
        Failure::new(failure.stage, failure.cause, format!("{path}: {error}"))
    })
}

#[cfg(not(unix))]
async fn unix(path: &str) -> Result<Stream, Failure> {
    let detail = format!("{path}: this platform has no Unix domain sockets");
    Err(Failure::new(Stage::Connect, Cause::Io, detail))
}
