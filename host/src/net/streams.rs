//! The opening of a client's streams: the way to the server, the name, the sockets.

#[cfg(feature = "ocsp")]
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
#[cfg(feature = "ocsp")]
use std::sync::Arc;

use sdam_core::config::{ServerAddress, TcpOptions};
#[cfg(any(feature = "tls", not(unix)))]
use sdam_core::failure::Cause;
use sdam_core::failure::{Failure, Stage};
#[cfg(feature = "ocsp")]
use sdam_core::rustls::pki_types::UnixTime;
#[cfg(feature = "ocsp")]
use sdam_core::time::Instant;
use sdam_core::transport::TransportConfig;

use crate::net::dial::{Connector, dial};
use crate::net::reactor::{Lane, Reactor};
#[cfg(feature = "ocsp")]
use crate::net::revocation;
use crate::net::stream::Connected;
#[cfg(feature = "ocsp")]
use crate::net::stream::Stream;
#[cfg(feature = "ocsp")]
use crate::sync::{Mutex, lock};
use crate::system;

/// The means by which the streams of one client are opened.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    pub(crate) connector: Connector,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<system::Certificates>,
    /// The time that opening a connection may take.
    #[cfg(feature = "ocsp")]
    pub(crate) connect_timeout: Option<std::time::Duration>,
    /// The times when the certificates of servers expire, in seconds since 1970.
    #[cfg(feature = "ocsp")]
    pub(crate) expiries: Arc<Mutex<BTreeMap<ServerAddress, u64>>>,
}

/// The number of servers whose certificates are remembered: more than any deployment has.
#[cfg(feature = "ocsp")]
const MAX_EXPIRIES: usize = 10_000;

impl Streams {
    /// Opens a stream towards the server that advertises `address`.
    ///
    /// Calls `reached` with each stage.
    pub(crate) async fn open<R: Reactor>(
        &self,
        reactor: &R,
        address: ServerAddress,
        reached: impl Fn(Stage) + Send + Sync,
    ) -> Result<Connected<R::Socket>, Failure> {
        #[cfg(feature = "ocsp")]
        let begun = reactor.now();
        let filters = self.filters(reactor, &reached).await?;
        let route = self.connector.route(&address, &filters)?;
        #[cfg(feature = "ocsp")]
        let answered = &reached;
        #[cfg(feature = "ocsp")]
        let reached = |stage| answered(stage);
        let reached = route.stages(reached);
        #[cfg(feature = "ocsp")]
        let server = filters.encrypts().then(|| address.clone());
        let lane = Lane::Server(address);
        let dial = route.dial().clone();
        let dialed = reactor.dial(&lane, &dial);
        reached(if dialed.is_none() { route.first_stage() } else { Stage::Connect });
        let socket = match dialed {
            None => connect(reactor, lane, &dial, route.tcp(), reached).await,
            Some(stream) => stream.await.map_err(|error| Failure::from_io(Stage::Connect, &error)),
        };
        let connected = route.opened(socket)?;
        #[cfg(feature = "ocsp")]
        if let Some(server) = server {
            return self.checked(reactor, (connected, server), begun, answered).await;
        }
        Ok(connected)
    }

    /// Returns when the certificate that a server has shown last expires, in seconds since 1970.
    #[cfg(feature = "ocsp")]
    pub(crate) fn certificate_expiry(&self, server: &ServerAddress) -> Option<u64> {
        lock(&self.expiries).get(server).copied()
    }

    /// Finishes the handshakes of a stream's filters, and asks about the certificate of its server
    /// what is left to be asked.
    #[cfg(feature = "ocsp")]
    async fn checked<R: Reactor>(
        &self,
        reactor: &R,
        (connected, server): (Connected<R::Socket>, ServerAddress),
        begun: Instant,
        answered: impl Fn(Stage) + Send + Sync,
    ) -> Result<Connected<R::Socket>, Failure> {
        let mut stream = Stream::new(connected);
        // The stream is not ready for hello before its certificate is checked.
        let answered = |stage| {
            if stage != Stage::Hello {
                answered(stage);
            }
        };
        answered(stream.transport().stage());
        stream.open(answered).await?;
        if let Some(expiry) = stream.transport().certificate_expiry() {
            let mut expiries = lock(&self.expiries);
            if expiries.len() >= MAX_EXPIRIES {
                expiries.clear();
            }
            expiries.insert(server.clone(), expiry);
        }
        if let Some(subject) = stream.transport().unchecked(UnixTime::now())? {
            answered(Stage::Revocation);
            let time = revocation::time_for(self.connect_timeout, begun, reactor.now());
            let statuses = system::Statuses::of_process();
            let start = |inquiry| revocation::start(reactor, inquiry);
            let sleep = |time| reactor.sleep(time);
            let of = (&server, &subject);
            revocation::vouch(&statuses, of, time, UnixTime::now, start, sleep).await?;
        }
        Ok(stream.into_connected())
    }

    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "TLS reads files"))]
    async fn filters<R: Reactor>(
        &self,
        reactor: &R,
        reached: impl Fn(Stage) + Send + Sync,
    ) -> Result<TransportConfig, Failure> {
        let filters = self.connector.filters();
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.tls {
            if certificates.given().is_none() {
                reached(Stage::Certificates);
            }
            return Ok(filters.with_tls(load(reactor, certificates).await?));
        }
        Ok(filters)
    }

    /// Returns the same for a process that was forked off, which shares no locks with this one.
    pub(crate) fn for_fork(&self) -> Self {
        Self {
            connector: self.connector.clone(),
            #[cfg(feature = "tls")]
            tls: self.tls.as_ref().map(system::Certificates::for_fork),
            #[cfg(feature = "ocsp")]
            connect_timeout: self.connect_timeout,
            #[cfg(feature = "ocsp")]
            expiries: Arc::default(),
        }
    }
}

/// Reads certificates, unless they are given.
#[cfg(feature = "tls")]
pub(crate) async fn load<R: Reactor>(
    reactor: &R,
    certificates: &system::Certificates,
) -> Result<sdam_core::transport::TlsConfig, Failure> {
    if let Some(config) = certificates.given() {
        return Ok(config.clone());
    }
    let (certificates, turn) = (certificates.clone(), certificates.turn().await);
    let read = move || {
        let loaded = certificates.load();
        drop(turn);
        loaded
    };
    let loaded = reactor.block(Lane::Certificates, read).await;
    loaded.map_err(|error| {
        let detail = format!("the certificates that TLS needs were not read: {error}");
        Failure::new(Stage::Certificates, Cause::Configuration, detail)
    })?
}

/// Opens a socket: to the first of a name's addresses that answers.
///
/// Calls `reached` when the name is resolved, which takes its turn in `lane`.
pub(crate) async fn connect<R: Reactor>(
    reactor: &R,
    lane: Lane,
    address: &ServerAddress,
    tcp: TcpOptions,
    reached: impl FnOnce(Stage) + Send,
) -> Result<R::Socket, Failure> {
    let host = address.host();
    let Some(port) = address.port() else { return connect_unix(reactor, host).await };
    let addresses = resolve(reactor, lane, host, port).await;
    let open = |address| reactor.open_tcp(address, tcp);
    dial(host, addresses, reached, open, |time| reactor.sleep(time)).await
}

/// Resolves a name, for which the system needs a thread; an IP address needs none.
async fn resolve<R: Reactor>(
    reactor: &R,
    lane: Lane,
    host: &str,
    port: u16,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    // The thread of a lookup that is given up ends when the system gives up, too.
    reactor.block(lane, move || system::resolve(&host, port)).await?
}

#[cfg(unix)]
async fn connect_unix<R: Reactor>(reactor: &R, path: &str) -> Result<R::Socket, Failure> {
    reactor.open_unix(path).await.map_err(|error| {
        let Failure { cause, .. } = Failure::from_io(Stage::Connect, &error);
        Failure::new(Stage::Connect, cause, format!("{path}: {error}"))
    })
}

#[cfg(not(unix))]
async fn connect_unix<R: Reactor>(_: &R, path: &str) -> Result<R::Socket, Failure> {
    let detail = format!("{path}: this platform has no Unix domain sockets");
    Err(Failure::new(Stage::Connect, Cause::Io, detail))
}
