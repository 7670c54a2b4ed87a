//! The options of TCP sockets to servers, one set for all runtimes.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// The time that nothing comes over a connection before the system asks its peer for a sign of
/// life.
///
/// Load balancers and firewalls forget a connection after some minutes of silence, and say so to
/// neither end: a command that is sent then waits for a quarter of an hour.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);

/// The time that the system waits for such a sign before it asks again.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The number of unanswered probes after which the system breaks the connection.
pub const KEEPALIVE_PROBES: u32 = 9;

/// Sets what a TCP socket to a server should have: small messages leave at once, and a peer that
/// is silent is asked for signs of life.
///
/// So a connection that has gone without a word fails within 210 s, in the pool or while a reply is
/// awaited. It does not if something was sent over it after it had gone: the system then asks for
/// nothing, and sends that again for as long as it likes, a quarter of an hour by default on Linux.
/// Only a deadline of the operation ends that sooner. An option that the system refuses is left as
/// it is: the connection is as good as it would be without.
///
/// ```
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let stream = std::net::TcpStream::connect(listener.local_addr()?)?;
/// sdam_host::system::configure_tcp(&stream);
/// assert!(stream.nodelay()?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn configure_tcp<S>(socket: &S)
where
    for<'s> SockRef<'s>: From<&'s S>,
{
    let socket = SockRef::from(socket);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE);
    #[cfg(any(
        target_os = "android",
        target_os = "freebsd",
        target_os = "ios",
        target_os = "linux",
        target_os = "macos",
        target_os = "netbsd",
        target_os = "windows",
    ))]
    let keepalive = keepalive.with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_socket_gets_all_five_options() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        configure_tcp(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_PROBES);
        assert!(socket.tcp_nodelay().unwrap());
    }
}
