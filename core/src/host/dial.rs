//! Opens a stream to the first of a name's addresses that answers (RFC 8305).

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::before::before;
use crate::failure::{Cause, Failure, Stage};

/// How long one address may keep the next one waiting ("Connection Attempt Delay" of RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to all `addresses` of `host`, each a little later than the one before or as soon as
/// that one has failed; the first that succeeds wins, and the others are dropped.
///
/// `reached` is told when there are addresses to connect to.
///
/// # Errors
///
/// Fails if the name was not resolved, and if no address answers.
pub async fn dial<S, C, T>(
    host: &str,
    addresses: io::Result<Vec<SocketAddr>>,
    reached: impl FnOnce(Stage),
    connect: impl Fn(SocketAddr) -> C,
    sleep: impl Fn(Duration) -> T,
) -> Result<S, Failure>
where
    C: Future<Output = io::Result<S>>,
    T: Future,
{
    let not_resolved = |detail: &str| {
        let detail = format!("cannot resolve {host}: {detail}");
        Failure::new(Stage::Resolve, Cause::NotResolved, detail)
    };
    let addresses = addresses.map_err(|error| not_resolved(&error.to_string()))?;
    if addresses.is_empty() {
        return Err(not_resolved("the name has no address"));
    }
    reached(Stage::Connect);
    let (mut attempts, mut errors) = (Vec::new(), Vec::new());
    let mut waiting = interleave(addresses).into_iter();
    loop {
        match waiting.next() {
            Some(address) => attempts.push((address, Box::pin(connect(address)))),
            None if attempts.is_empty() => return Err(all_failed(errors)),
            None => {}
        }
        let next = std::future::poll_fn(|cx| poll_any(&mut attempts, cx));
        let ended = match waiting.len() {
            0 => Some(next.await),
            _ => before(sleep(ATTEMPT_DELAY), next).await,
        };
        match ended {
            Some((_, Ok(socket))) => return Ok(socket),
            Some((address, Err(error))) => errors.push((address, error)),
            None => {}
        }
    }
}

/// Returns the first attempt that has ended.
fn poll_any<S, C: Future<Output = io::Result<S>>>(
    attempts: &mut Vec<(SocketAddr, Pin<Box<C>>)>,
    cx: &mut Context<'_>,
) -> Poll<(SocketAddr, io::Result<S>)> {
    for (index, (address, attempt)) in attempts.iter_mut().enumerate() {
        if let Poll::Ready(outcome) = attempt.as_mut().poll(cx) {
            let address = *address;
            drop(attempts.swap_remove(index));
            return Poll::Ready((address, outcome));
        }
    }
    Poll::Pending
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

/// Says what went wrong at each address; the first one's error is the cause.
fn all_failed(mut errors: Vec<(SocketAddr, io::Error)>) -> Failure {
    // In an order of their own, so that a server that stays down fails in the same words.
    errors.sort_by_key(|(address, _)| *address);
    let details: Vec<String> =
        errors.iter().map(|(address, error)| format!("{address}: {error}")).collect();
    let cause = errors.first().map(|(_, error)| Failure::from_io(Stage::Connect, error).cause);
    Failure::new(Stage::Connect, cause.unwrap_or(Cause::Io), details.join("; "))
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, pending, ready};
    use std::io;
    use std::net::SocketAddr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::{dial, interleave};
    use crate::failure::Failure;

    fn parse(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn address_families_take_turns() {
        let sorted =
            interleave(parse(&["[::1]:1", "[::2]:1", "1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1"]));
        assert_eq!(sorted, parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "3.3.3.3:1"]));
    }

    fn race(
        addresses: &[&str],
        connect: impl Fn(SocketAddr) -> Ready<io::Result<u16>>,
    ) -> Result<u16, Failure> {
        let never = |_| pending::<()>();
        let mut race = pin!(dial("db", Ok(parse(addresses)), |_| {}, connect, never));
        match race.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("it waits for an address that has failed"),
        }
    }

    #[test]
    fn an_address_that_fails_makes_room_for_the_next_at_once() {
        let port = race(&["1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3"], |address| {
            ready(match address.port() {
                1 => Err(io::ErrorKind::ConnectionRefused.into()),
                port => Ok(port),
            })
        });
        assert_eq!(port, Ok(2));
    }

    #[test]
    fn if_all_addresses_fail_each_says_why_in_an_order_of_its_own() {
        let refused = |_| ready(Err(io::ErrorKind::ConnectionRefused.into()));
        let failure = race(&["1.1.1.2:1", "1.1.1.1:1"], refused).unwrap_err();
        assert_eq!(
            &*failure.detail,
            "1.1.1.1:1: connection refused; 1.1.1.2:1: connection refused"
        );
        let failure = race(&[], refused).unwrap_err();
        assert_eq!(&*failure.detail, "cannot resolve db: the name has no address");
    }
}
