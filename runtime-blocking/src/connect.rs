//! Resolves names and opens sockets.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::failure::{Failure, Stage};
use sdam_host::dial;
use sdam_host::system::configure_tcp;
use socket2::{SockAddr, Socket, Type};

use crate::engine::{Engine, Interest, Registration};
use crate::helper::{Helper, Lane};

/// Opens a socket to a server: to the first of its addresses that answers.
///
/// `reached` is told when the name is resolved, which takes its turn in `lane`.
pub(crate) async fn connect(
    engine: &Arc<Engine>,
    (helper, lane): (&Helper, Lane),
    address: &ServerAddress,
    reached: impl FnOnce(Stage) + Send,
) -> Result<Arc<Socket>, Failure> {
    let Some(port) = address.port() else { return connect_unix(engine, address.host()).await };
    let addresses = resolve(helper, lane, address.host(), port).await;
    let open = |address: SocketAddr| open(engine, SockAddr::from(address));
    let socket = dial(address.host(), addresses, reached, open, |time| engine.sleep(time)).await?;
    configure_tcp(&*socket);
    Ok(socket)
}

async fn resolve(
    helper: &Helper,
    lane: Lane,
    host: &str,
    port: u16,
) -> io::Result<Vec<SocketAddr>> {
    // Numbers are no business of the system's resolver, and wait for nobody.
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    helper.call(lane, move || (host, port).to_socket_addrs().map(Iterator::collect)).await?
}

#[cfg(unix)]
async fn connect_unix(engine: &Arc<Engine>, path: &str) -> Result<Arc<Socket>, Failure> {
    let opened = match SockAddr::unix(path) {
        Ok(address) => open(engine, address).await,
        Err(error) => Err(error),
    };
    opened.map_err(|error| {
        let Failure { cause, .. } = Failure::from_io(Stage::Connect, &error);
        Failure::new(Stage::Connect, cause, format!("{path}: {error}"))
    })
}

#[cfg(not(unix))]
async fn connect_unix(_: &Arc<Engine>, path: &str) -> Result<Arc<Socket>, Failure> {
    let detail = format!("{path}: this platform has no Unix domain sockets");
    Err(Failure::new(Stage::Connect, sdam_core::failure::Cause::Io, detail))
}

/// Opens a stream to one address.
pub(crate) async fn open(engine: &Arc<Engine>, address: SockAddr) -> io::Result<Arc<Socket>> {
    let socket = Arc::new(Socket::new(address.domain(), Type::STREAM, None)?);
    socket.set_nonblocking(true)?;
    match socket.connect(&address) {
        Ok(()) => return Ok(socket),
        Err(error) if is_in_progress(&error) => {}
        Err(error) => return Err(error),
    }
    Registration::new(engine, &socket)?.ready(Interest::WRITABLE).await?;
    match socket.take_error()? {
        None => Ok(socket),
        Some(error) => Err(error),
    }
}

#[cfg(unix)]
fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}

#[cfg(not(unix))]
fn is_in_progress(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
