//! The way to the members: the one that the connection string describes, as its monitors go it.

use std::io;
use std::time::Duration;

use sdam_core::config::address_map::AddressMap;
use sdam_core::config::{Options, ServerAddress, TcpOptions};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::transport::{Transport, TransportConfig};
use sdam_host::system::{Certificates, configure_tcp};
use sdam_host::{ClientError, Connected, Connector, dial};
use sdam_tokio::ByteStream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::ssh::Place;
use crate::duration::precise;

/// The size of a read.
const READ_LEN: usize = 16 * 1024;

/// The way to the members of one deployment.
#[derive(Debug)]
pub(super) struct Way {
    connector: Connector,
    /// The certificates to trust, if TLS to the members begins here.
    certificates: Option<Certificates>,
    map: AddressMap,
    /// The ssh that stands for the proxy of the options.
    ssh: Option<Place>,
    /// The time that opening a stream may take.
    limit: Option<Duration>,
}

/// A stream to a member, through the proxy and TLS if there are any.
pub(super) struct Opened {
    pub(super) socket: Box<dyn ByteStream>,
    pub(super) transport: Transport,
    /// The bytes that the member has sent already.
    pub(super) plain: Vec<u8>,
    /// The bytes that are still to be sent to it, sealed.
    pub(super) wire: Vec<u8>,
}

impl Way {
    /// Goes as the options say, to `ssh` if that is their proxy; but for TLS if that is the
    /// clients' own business.
    ///
    /// # Errors
    ///
    /// Fails if the proxy's user name or password cannot be sent.
    pub(super) fn new(
        options: &Options,
        ssh: Option<Place>,
        passes_tls: bool,
    ) -> Result<Self, ClientError> {
        Ok(Self {
            connector: Connector::new(options)?,
            certificates: options
                .tls()
                .filter(|_| !passes_tls)
                .map(|tls| Certificates::of_files(tls.clone())),
            map: options.address_map().clone(),
            ssh,
            limit: options.connect_timeout(),
        })
    }

    /// Opens a stream to the member that advertises this address.
    pub(super) async fn open(&self, member: &ServerAddress) -> Result<Opened, Failure> {
        let opened = match self.limit {
            None => self.open_at_last(member).await,
            Some(limit) => timeout(limit, self.open_at_last(member)).await.unwrap_or_else(|_| {
                let detail = format!("it did not open within {}", precise(limit));
                Err(Failure::new(Stage::Connect, Cause::Timeout, detail))
            }),
        };
        opened.map_err(|failure| {
            let dialled = self.map.resolve(member);
            if dialled == *member {
                return failure;
            }
            let detail = format!("dialled as {dialled}: {}", failure.detail);
            Failure::new(failure.stage, failure.cause, detail)
        })
    }

    async fn open_at_last(&self, member: &ServerAddress) -> Result<Opened, Failure> {
        let route = self.connector.route(member, &self.filters().await?)?;
        let socket = match &self.ssh {
            None => connect(route.dial()).await,
            Some(ssh) => connect_ssh(ssh).await,
        };
        let Connected { mut socket, mut transport, wire, .. } = route.opened(socket)?;
        // The password for the proxy may be in it.
        let (mut wire, mut plain) = (Zeroizing::new(wire), Vec::new());
        let mut sealed = vec![0; READ_LEN];
        loop {
            let written = socket.write_all(&wire).await;
            written.map_err(|error| transport.failure(&error))?;
            wire.clear();
            if transport.is_ready() {
                break;
            }
            let count = match socket.read(&mut sealed).await {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            let count = count.map_err(|error| transport.failure(&error))?;
            let received = transport.receive(&sealed[..count], &mut plain, &mut wire);
            if let Err(failure) = received {
                // The alert that says why; that it cannot be sent says nothing new.
                let _ = socket.write_all(&wire).await;
                return Err(failure);
            }
        }
        Ok(Opened { socket, transport, plain, wire: Vec::new() })
    }

    async fn filters(&self) -> Result<TransportConfig, Failure> {
        let filters = self.connector.filters();
        let Some(certificates) = self.certificates.clone() else { return Ok(filters) };
        let loaded = tokio::task::spawn_blocking(move || certificates.load()).await;
        let loaded = loaded.map_err(|error| {
            let detail = format!("no certificates: {error}");
            Failure::new(Stage::Tls, Cause::Configuration, detail)
        })?;
        Ok(filters.with_tls(loaded?))
    }
}

async fn connect(address: &ServerAddress) -> Result<Box<dyn ByteStream>, Failure> {
    let host = address.host();
    let Some(port) = address.port() else { return connect_unix(host).await };
    let addresses = lookup_host((host, port)).await.map(Iterator::collect);
    let open = |address| async move {
        let stream = TcpStream::connect(address).await?;
        configure_tcp(&stream, TcpOptions::default());
        Ok(stream)
    };
    let stream = dial(host, addresses, |_| {}, open, sleep).await?;
    Ok(Box::new(stream))
}

async fn connect_ssh(ssh: &Place) -> Result<Box<dyn ByteStream>, Failure> {
    match ssh.connect().await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(Failure::from_io(Stage::Connect, &error)),
    }
}

#[cfg(unix)]
async fn connect_unix(path: &str) -> Result<Box<dyn ByteStream>, Failure> {
    let opened = tokio::net::UnixStream::connect(path).await;
    let opened = opened.map_err(|error| {
        let Failure { cause, .. } = Failure::from_io(Stage::Connect, &error);
        Failure::new(Stage::Connect, cause, format!("{path}: {error}"))
    })?;
    Ok(Box::new(opened))
}

#[cfg(not(unix))]
async fn connect_unix(path: &str) -> Result<Box<dyn ByteStream>, Failure> {
    let detail = format!("{path}: this platform has no Unix domain sockets");
    Err(Failure::new(Stage::Connect, Cause::Io, detail))
}
