//! Streams to servers: where they lead to, with which filters, and the race between a name's
//! addresses (RFC 8305).

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sdam_core::config::address_map::AddressMap;
use sdam_core::config::{Options, Secret, ServerAddress, TcpOptions};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::transport::{Login, ProxyConfig, Transport, TransportConfig};

use crate::error::ClientError;
use crate::net::stream::Connected;
use crate::sync::before;

/// The way of one client's streams: through the address map, and to the proxy if the options name
/// one.
#[derive(Clone, Debug)]
pub struct Connector {
    map: AddressMap,
    proxy: Option<(ServerAddress, ProxyConfig)>,
    tcp: TcpOptions,
}

/// One stream that is to be opened, and whose filters have begun.
#[derive(Debug)]
#[must_use]
pub struct Route {
    dial: ServerAddress,
    is_proxy: bool,
    transport: Transport,
    wire: Vec<u8>,
    tcp: TcpOptions,
}

impl Connector {
    /// Makes connections as the options say.
    ///
    /// # Errors
    ///
    /// Fails if the proxy's user name or password cannot be sent.
    pub fn new(options: &Options) -> Result<Self, ClientError> {
        let proxy = match options.proxy() {
            None => None,
            Some(proxy) => {
                let password = proxy.password.as_ref().map(Secret::expose).unwrap_or_default();
                let login = proxy.username.as_deref().map(|name| Login::new(name, password));
                Some((proxy.address(), ProxyConfig::new(login.transpose()?)))
            }
        };
        Ok(Self { map: options.address_map().clone(), proxy, tcp: options.tcp() })
    }

    /// Returns which filters streams have, but for TLS, whose configuration is the runtime's
    /// business.
    pub fn filters(&self) -> TransportConfig {
        match &self.proxy {
            Some((_, proxy)) => TransportConfig::default().with_proxy(proxy.clone()),
            None => TransportConfig::default(),
        }
    }

    /// Begins a stream towards the server that advertises `address`: to where the address map says
    /// that it is, or else to the proxy, which gets the same address. TLS verifies the advertised
    /// name.
    ///
    /// # Errors
    ///
    /// Fails if neither the proxy nor TLS can take the address.
    pub fn route(
        &self,
        address: &ServerAddress,
        filters: &TransportConfig,
    ) -> Result<Route, Failure> {
        let (target, mut wire) = (self.map.resolve(address), Vec::new());
        let transport = Transport::start(filters, address, &target, &mut wire)?;
        let (dial, is_proxy) = match (&self.proxy, &target) {
            (Some((proxy, _)), ServerAddress::Tcp { .. }) => (proxy.clone(), true),
            _ => (target, false),
        };
        Ok(Route { dial, is_proxy, transport, wire, tcp: self.tcp })
    }
}

impl Route {
    /// Returns what the stream is to be opened to.
    pub const fn dial(&self) -> &ServerAddress {
        &self.dial
    }

    /// Returns the options that a socket of TCP is to have, which
    /// [`configure_tcp`](crate::system::configure_tcp) sets.
    pub const fn tcp(&self) -> TcpOptions {
        self.tcp
    }

    /// Returns the stage with which opening the stream begins: that of a name is to resolve it.
    pub fn first_stage(&self) -> Stage {
        let is_name = self.dial.port().is_some() && self.dial.host().parse::<IpAddr>().is_err();
        if is_name { Stage::Resolve } else { Stage::Connect }
    }

    /// Returns a callback that passes the stages of opening the stream to `reached`; with a proxy,
    /// all of them are the proxy's.
    pub fn stages<F: Fn(Stage)>(&self, reached: F) -> impl Fn(Stage) + use<F> {
        let is_proxy = self.is_proxy;
        move |stage| reached(if is_proxy { Stage::Proxy } else { stage })
    }

    /// Takes the stream, or what became of it.
    ///
    /// # Errors
    ///
    /// Fails as opening it did; the proxy is no server, so that whatever failed is said of the
    /// proxy.
    pub fn opened<S>(self, socket: Result<S, Failure>) -> Result<Connected<S>, Failure> {
        let Self { is_proxy, transport, wire, .. } = self;
        match socket {
            Ok(socket) => Ok(Connected { socket, transport, wire }),
            Err(Failure { cause, detail, .. }) if is_proxy => {
                Err(Failure::new(Stage::Proxy, cause, format!("the proxy: {detail}")))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// The time that one address may keep the next one waiting ("Connection Attempt Delay" of RFC
/// 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to all `addresses` of `host`, each a little later than the one before or as soon as
/// that one has failed; the first that succeeds wins, and the others are dropped.
///
/// Calls `reached` when there are addresses to connect to.
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
    let not_resolved = |cause: Cause, detail: &str| {
        Failure::new(Stage::Resolve, cause, format!("cannot resolve {host}: {detail}"))
    };
    let addresses = addresses.map_err(|error| {
        let detail = error.to_string();
        not_resolved(lookup_cause(&detail), &detail)
    })?;
    if addresses.is_empty() {
        return Err(not_resolved(Cause::NotResolved, "the name has no address"));
    }
    reached(Stage::Connect);
    let (mut attempts, mut errors) = (Vec::new(), Vec::new());
    let mut waiting = interleave(addresses).into_iter();
    loop {
        match waiting.next() {
            Some(address) => attempts.push((address, Box::pin(connect(address)))),
            None if attempts.is_empty() => return Err(all_failed(host, errors)),
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

/// Distinguishes a resolver that gives no answer (EAI_AGAIN) from one that knows no address. The
/// standard library hands on the words of the C library only, which are those of glibc and macOS,
/// or of musl.
fn lookup_cause(detail: &str) -> Cause {
    let is_temporary =
        ["Temporary failure in name resolution", "Try again"].iter().any(|it| detail.contains(it));
    if is_temporary { Cause::LookupFailed } else { Cause::NotResolved }
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

/// Says what went wrong at each address; the first one's error is the cause. A host that is an
/// address itself has no other, and the message need not name it.
fn all_failed(host: &str, mut errors: Vec<(SocketAddr, io::Error)>) -> Failure {
    // In an order of their own, so that a server that stays down fails in the same words.
    errors.sort_by_key(|(address, _)| *address);
    let is_address = host.parse::<IpAddr>().is_ok();
    let detail = |(address, error): &(SocketAddr, io::Error)| match is_address {
        true => error.to_string(),
        false => format!("{address}: {error}"),
    };
    let details: Vec<String> = errors.iter().map(detail).collect();
    let cause = errors.first().map(|(_, error)| Failure::from_io(Stage::Connect, error).cause);
    Failure::new(Stage::Connect, cause.unwrap_or(Cause::Io), details.join("; "))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{Ready, pending, ready};
    use std::io;
    use std::net::SocketAddr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::{dial, interleave};
    use sdam_core::failure::{Cause, Failure};

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

    /// The last address is waited for, without a timer: there is none that could be tried next.
    #[test]
    fn the_last_address_has_all_the_time_there_is() {
        let sleeps = Cell::new(0);
        let sleep = |_| {
            sleeps.set(sleeps.get() + 1);
            pending::<()>()
        };
        let connect = |_| pending::<io::Result<u16>>();
        let addresses = Ok(parse(&["1.1.1.1:1", "1.1.1.1:2"]));
        let mut race = pin!(dial("db", addresses, |_| {}, connect, sleep));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(race.as_mut().poll(&mut cx).is_pending());
        assert_eq!(sleeps.get(), 1);
        let (sleeps, connect) = (Cell::new(0), |_| pending::<io::Result<u16>>());
        let at_once = |_| {
            sleeps.set(sleeps.get() + 1);
            ready(())
        };
        let addresses = Ok(parse(&["1.1.1.1:1", "1.1.1.1:2"]));
        let mut race = pin!(dial("db", addresses, |_| {}, connect, at_once));
        assert!(race.as_mut().poll(&mut cx).is_pending());
        assert_eq!(sleeps.get(), 1, "once between the two");
    }

    #[test]
    fn an_address_that_fails_ends_no_attempt_that_is_still_going_on() {
        let connect = |address: SocketAddr| {
            let is_first = address.port() == 1;
            std::future::poll_fn(move |_| match is_first {
                true => Poll::<io::Result<u16>>::Pending,
                false => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            })
        };
        let addresses = Ok(parse(&["1.1.1.1:1", "1.1.1.1:2"]));
        let mut race = pin!(dial("db", addresses, |_| {}, connect, |_| ready(())));
        assert!(race.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    fn lookup(host: &str, addresses: io::Result<Vec<SocketAddr>>) -> Failure {
        let refused = |_| ready(Err::<(), _>(io::ErrorKind::ConnectionRefused.into()));
        let mut dialled = pin!(dial(host, addresses, |_| {}, refused, |_| pending::<()>()));
        match dialled.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome.unwrap_err(),
            Poll::Pending => panic!("it waits for nothing"),
        }
    }

    #[test]
    fn a_host_that_is_an_address_is_not_named_again() {
        for (host, address) in [("1.1.1.1", "1.1.1.1:1"), ("::1", "[::1]:1")] {
            assert_eq!(&*lookup(host, Ok(parse(&[address]))).detail, "connection refused");
        }
    }

    #[test]
    fn a_resolver_that_gives_no_answer_is_told_from_one_that_knows_no_address() {
        let cause = |detail: &str| {
            let error = format!("failed to lookup address information: {detail}");
            lookup("db", Err(io::Error::other(error))).cause
        };
        assert_eq!(cause("Temporary failure in name resolution"), Cause::LookupFailed);
        assert_eq!(cause("Try again"), Cause::LookupFailed);
        assert_eq!(cause("Name or service not known"), Cause::NotResolved);
        assert_eq!(cause("No address associated with hostname"), Cause::NotResolved);
    }
}
