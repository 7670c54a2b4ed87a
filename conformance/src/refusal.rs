//! A port that refuses connections for as long as a test wants it to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port that is bound but not listened at: it refuses connections, on every loopback address, and
/// no other process can take it before this is dropped.
#[derive(Debug)]
pub struct RefusingPort {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl RefusingPort {
    /// Takes a free port; no runtime is needed for that.
    ///
    /// # Errors
    ///
    /// Fails if the system has no port left, or no socket.
    pub fn new() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::UNSPECIFIED, 0).into())?;
        let address = (Ipv4Addr::LOCALHOST, socket.local_addr()?.port()).into();
        Ok(Self { address, _socket: socket })
    }

    /// Returns the address, which refuses every connection.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};

    use super::RefusingPort;

    #[test]
    fn it_refuses_connections_and_cannot_be_taken() {
        let port = RefusingPort::new().unwrap();
        let refused = TcpStream::connect(port.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(TcpListener::bind(port.address()).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
