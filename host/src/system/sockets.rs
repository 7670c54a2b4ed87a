//! The options of TCP sockets to servers, one set for all runtimes.

use sdam_core::config::TcpOptions;
use socket2::{SockRef, TcpKeepalive};

/// Sets what a TCP socket to a server should have: small messages leave at once, and a peer that
/// is silent is given up when the options say so.
///
/// With the default, a connection that has gone without a word fails within 210 s, in the pool or
/// while a reply is awaited. It does not if something was sent over it after it had gone: the
/// system then sends no probes, and repeats what was sent for a quarter of an hour by default on
/// Linux. [`TcpOptions::user_timeout`] or a deadline of the operation ends that sooner. An option
/// that the system refuses is left as it is: the connection is as good as it would be without.
///
/// ```
/// use sdam_core::config::TcpOptions;
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let stream = std::net::TcpStream::connect(listener.local_addr()?)?;
/// sdam_host::system::configure_tcp(&stream, TcpOptions::default());
/// assert!(stream.nodelay()?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn configure_tcp<S>(socket: &S, options: TcpOptions)
where
    for<'s> SockRef<'s>: From<&'s S>,
{
    let socket = SockRef::from(socket);
    let keepalive = TcpKeepalive::new().with_time(options.keepalive_idle);
    #[cfg(any(
        target_os = "android",
        target_os = "freebsd",
        target_os = "ios",
        target_os = "linux",
        target_os = "macos",
        target_os = "netbsd",
        target_os = "windows",
    ))]
    let keepalive =
        keepalive.with_interval(options.keepalive_interval).with_retries(options.keepalive_probes);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    if options.user_timeout.is_some() {
        let _ = socket.set_tcp_user_timeout(options.user_timeout);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_socket_gets_every_option() {
        let noticing = TcpOptions::noticing_within(Duration::from_millis(4500));
        for options in [TcpOptions::default(), noticing] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            configure_tcp(&stream, options);
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), options.keepalive_idle);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), options.keepalive_interval);
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), options.keepalive_probes);
            assert_eq!(socket.tcp_user_timeout().unwrap(), options.user_timeout);
            assert!(socket.tcp_nodelay().unwrap());
        }
    }
}
