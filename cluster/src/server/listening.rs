//! Listeners of members: addresses, ports, and new connections.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::task::Poll;

use sdam_core::config::ServerAddress;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep_until;

use crate::options::MemberId;

/// The number of connections that the system may hold for a member before it accepts them.
pub(crate) const BACKLOG: u32 = 128;

/// A free port of the loopback interface.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Listens for the member with this index, at the port that is meant for it or a free one.
pub(super) fn listener(first_port: Option<u16>, index: usize) -> io::Result<TcpListener> {
    let Some(first) = first_port.filter(|port| *port != 0) else {
        return bind(ANY_PORT)?.listen(BACKLOG);
    };
    let port = u16::try_from(index).ok().and_then(|index| first.checked_add(index));
    let port = port.ok_or_else(|| {
        let reason = format!("there is no port {} after {first}", usize::from(first) + index);
        io::Error::new(io::ErrorKind::InvalidInput, reason)
    })?;
    let address = SocketAddr::new(ANY_PORT.ip(), port);
    let bound = bind(address).and_then(|socket| socket.listen(BACKLOG));
    bound.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
}

/// Takes an address, even if connections of an earlier listener linger there.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Reads the address of a member as one to listen at.
pub(super) fn socket_address(address: &ServerAddress) -> io::Result<SocketAddr> {
    let reason = || format!("{address}: a member of an embedded deployment has an IP address");
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, reason());
    address.to_string().parse().map_err(invalid)
}

/// Returns the address of a member that listens here.
pub(super) fn server_address(address: SocketAddr) -> ServerAddress {
    ServerAddress::Tcp { host: address.ip().to_string().into(), port: address.port() }
}

/// Waits for that time, and for a connection to any member that listens.
pub(super) async fn accept(
    listeners: &[Option<TcpListener>],
    from: tokio::time::Instant,
) -> (MemberId, io::Result<TcpStream>) {
    if from > tokio::time::Instant::now() {
        sleep_until(from).await;
    }
    poll_fn(|context| {
        for (index, listener) in listeners.iter().enumerate() {
            if let Some(listener) = listener
                && let Poll::Ready(accepted) = listener.poll_accept(context)
            {
                return Poll::Ready((MemberId(index), accepted.map(|(stream, _)| stream)));
            }
        }
        Poll::Pending
    })
    .await
}
