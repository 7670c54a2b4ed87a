//! Opens streams to the members, as the connection string describes and monitors do.

use std::time::Duration;

use sdam_core::config::address_map::AddressMap;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::transport::TransportConfig;
use sdam_host::system::Certificates;
use sdam_host::{ClientError, Connector};
use sdam_tokio::ByteStream;
use tokio::time::timeout;

use super::ssh::Place;
use crate::duration::precise;
use crate::stream::{Stream, connect};

/// Opens streams to the members of one deployment.
#[derive(Debug)]
pub(super) struct Dialer {
    connector: Connector,
    /// The certificates to trust, if TLS to the members begins here.
    certificates: Option<Certificates>,
    map: AddressMap,
    /// The ssh that stands for the proxy of the options.
    ssh: Option<Place>,
    /// The time that opening a stream may take.
    limit: Option<Duration>,
}

impl Dialer {
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
    pub(super) async fn open(&self, member: &ServerAddress) -> Result<Stream, Failure> {
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

    async fn open_at_last(&self, member: &ServerAddress) -> Result<Stream, Failure> {
        let route = self.connector.route(member, &self.filters().await?)?;
        let socket = match &self.ssh {
            None => connect(route.dial(), route.tcp(), |_| {}).await,
            Some(ssh) => connect_ssh(ssh).await,
        };
        Stream::open(route, socket, |_| {}).await
    }

    async fn filters(&self) -> Result<TransportConfig, Failure> {
        let filters = self.connector.filters();
        let Some(certificates) = self.certificates.clone() else { return Ok(filters) };
        let loaded = tokio::task::spawn_blocking(move || certificates.load()).await;
        let loaded = loaded.map_err(|error| {
            let detail = format!("the certificates that TLS needs were not read: {error}");
            Failure::new(Stage::Certificates, Cause::Configuration, detail)
        })?;
        Ok(filters.with_tls(loaded?))
    }
}

async fn connect_ssh(ssh: &Place) -> Result<Box<dyn ByteStream>, Failure> {
    match ssh.connect().await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(Failure::from_io(Stage::Connect, &error)),
    }
}
