//! Resolves names and opens sockets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sdam_core::address::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::socket::Socket;

/// How long one address may keep the next one waiting ("Connection Attempt Delay" of RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Opens a socket to a server: to the first of its addresses that answers.
///
/// `reached` is told when the name is resolved.
pub(crate) async fn connect(
    address: &ServerAddress,
    reached: &(dyn Fn(Stage) + Send + Sync),
) -> Result<Socket, Failure> {
    match (address, address.port()) {
        (ServerAddress::Tcp { host, .. }, Some(port)) => tcp(host, port, reached).await,
        _ => unix(address.host()).await,
    }
}

async fn tcp(
    host: &str,
    port: u16,
    reached: &(dyn Fn(Stage) + Send + Sync),
) -> Result<Socket, Failure> {
    let not_resolved = |detail: String| {
        Failure::new(Stage::Resolve, Cause::NotResolved, format!("cannot resolve {host}: {detail}"))
    };
    let addresses = lookup_host((host, port)).await;
    let addresses = addresses.map_err(|error| not_resolved(error.to_string()))?;
    let addresses: Vec<SocketAddr> = interleave(addresses.collect());
    if addresses.is_empty() {
        return Err(not_resolved("the name has no address".into()));
    }
    reached(Stage::Connect);
    let socket = race(addresses).await?;
    // Heartbeats are small and urgent; the option failing would only make them slower.
    let _ = socket.set_nodelay(true);
    Ok(Socket::Tcp(socket))
}

#[cfg(unix)]
async fn unix(path: &str) -> Result<Socket, Failure> {
    let socket = tokio::net::UnixStream::connect(path).await;
    socket.map(Socket::Unix).map_err(|error| {
        let failure = Failure::from_io(Stage::Connect, &error);
        Failure::new(failure.stage, failure.cause, format!("{path}: {error}"))
    })
}

#[cfg(not(unix))]
async fn unix(path: &str) -> Result<Socket, Failure> {
    let detail = format!("{path}: this platform has no Unix domain sockets");
    Err(Failure::new(Stage::Connect, Cause::Io, detail))
}

/// Alternates between the address families, the resolver's first choice first, so that a family
/// without a route costs one delay at most (RFC 8305, "Sorting Addresses").
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut second, mut mixed) = (second.into_iter(), Vec::new());
    for address in first {
        mixed.push(address);
        mixed.extend(second.next());
    }
    mixed.extend(second);
    mixed
}

/// Connects to all addresses, each a little later than the one before or as soon as that one has
/// failed; the first that succeeds wins, and the others are dropped.
async fn race(addresses: Vec<SocketAddr>) -> Result<TcpStream, Failure> {
    let (mut attempts, mut errors) = (JoinSet::new(), Vec::new());
    let mut waiting = addresses.into_iter();
    loop {
        match waiting.next() {
            Some(address) => {
                attempts.spawn(async move { (address, TcpStream::connect(address).await) });
            }
            None if attempts.is_empty() => return Err(all_failed(errors)),
            None => {}
        }
        let joined = match waiting.len() {
            0 => attempts.join_next().await,
            _ => match timeout(ATTEMPT_DELAY, attempts.join_next()).await {
                Ok(joined) => joined,
                Err(_elapsed) => continue,
            },
        };
        match joined {
            Some(Ok((_, Ok(socket)))) => return Ok(socket),
            Some(Ok((address, Err(error)))) => errors.push((address, error)),
            Some(Err(_)) | None => {}
        }
    }
}

/// Says what went wrong at each address; the first one's error is the cause.
fn all_failed(mut errors: Vec<(SocketAddr, io::Error)>) -> Failure {
    // In an order of their own, so that a server that stays down fails in the same words.
    errors.sort_by_key(|(address, _)| *address);
    let details: Vec<String> =
        errors.iter().map(|(address, error)| format!("{address}: {error}")).collect();
    match errors.first() {
        Some((_, error)) => {
            let failure = Failure::from_io(Stage::Connect, error);
            Failure::new(failure.stage, failure.cause, details.join("; "))
        }
        None => Failure::new(Stage::Connect, Cause::Io, "the runtime gave the attempt up"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::interleave;

    #[test]
    fn address_families_take_turns() {
        let parse = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let sorted =
            interleave(parse(&["[::1]:1", "[::2]:1", "1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1"]));
        assert_eq!(sorted, parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "3.3.3.3:1"]));
    }
}
