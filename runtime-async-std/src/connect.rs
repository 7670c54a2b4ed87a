//! Resolves names and opens sockets.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use async_io::{Async, Timer};
use blocking::unblock;
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Failure, Stage};
use sdam_host::dial;
use sdam_host::system::configure_tcp;

use crate::socket::Stream;

/// Opens a socket to a server: to the first of its addresses that answers.
///
/// `reached` is told when the name is resolved.
pub(crate) async fn connect(
    address: &ServerAddress,
    reached: impl FnOnce(Stage) + Send,
) -> Result<Box<dyn Stream>, Failure> {
    let Some(port) = address.port() else { return unix(address.host()).await };
    let addresses = resolve(address.host(), port).await;
    let open = Async::<TcpStream>::connect::<SocketAddr>;
    let socket = dial(address.host(), addresses, reached, open, sleep).await?;
    configure_tcp(&socket);
    Ok(Box::new(socket))
}

/// Resolves a name, for which the system needs a thread; an IP address needs none.
async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    // The thread of a lookup that is given up ends when the system gives up, too.
    unblock(move || (host, port).to_socket_addrs().map(Iterator::collect)).await
}

#[cfg(unix)]
async fn unix(path: &str) -> Result<Box<dyn Stream>, Failure> {
    use std::os::unix::net::UnixStream;

    match Async::<UnixStream>::connect(path).await {
        Ok(socket) => Ok(Box::new(socket)),
        Err(error) => {
            let Failure { cause, .. } = Failure::from_io(Stage::Connect, &error);
            Err(Failure::new(Stage::Connect, cause, format!("{path}: {error}")))
        }
    }
}

#[cfg(not(unix))]
async fn unix(path: &str) -> Result<Box<dyn Stream>, Failure> {
    let detail = format!("{path}: this platform has no Unix domain sockets");
    Err(Failure::new(Stage::Connect, sdam_core::failure::Cause::Io, detail))
}

/// Waits for some time.
pub(crate) fn sleep(time: Duration) -> impl Future<Output = ()> {
    let timer = Timer::after(time);
    async {
        timer.await;
    }
}
