//! Makes connections: through the proxy and with TLS, if the options ask for them.

use sdam_core::address::ServerAddress;
use sdam_core::failure::{Failure, Stage};
#[cfg(feature = "tls")]
use sdam_core::options::TlsOptions;
use sdam_core::options::{Options, ProxyOptions, Secret};
#[cfg(feature = "tls")]
use sdam_core::transport::TlsConfig;
use sdam_core::transport::{Login, ProxyConfig, Transport, TransportConfig};

#[cfg(feature = "tls")]
use crate::certificates::Certificates;
use crate::client::ClientError;
use crate::dialer::Route;
use crate::socket::Socket;

/// How the connections of one client are made.
#[derive(Debug)]
pub(crate) struct Connector {
    route: Route,
    proxy: Option<(ProxyOptions, ProxyConfig)>,
    #[cfg(feature = "tls")]
    tls: Option<Certificates>,
}

/// A connection whose handshakes with the proxy and of TLS have begun.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) transport: Transport,
    /// What is to be sent first.
    pub(crate) wire: Vec<u8>,
}

impl Connector {
    /// Makes connections as the options say, but with a configuration of TLS that is given.
    #[cfg(feature = "tls")]
    pub(crate) fn new(
        options: &Options,
        route: Route,
        given: Option<TlsConfig>,
    ) -> Result<Self, ClientError> {
        let tls = match (options.tls(), given) {
            (None, Some(_)) => return Err(ClientError::TlsNotAskedFor),
            (Some(files), Some(_)) if *files != TlsOptions::default() => {
                return Err(ClientError::TlsConfiguredTwice);
            }
            (Some(_), Some(given)) => Some(Certificates::Given(given)),
            (files, None) => files.cloned().map(Certificates::of_files),
        };
        Ok(Self { route, proxy: proxy(options)?, tls })
    }

    /// Makes connections as the options say, unless that is with TLS.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(options: &Options, route: Route) -> Result<Self, ClientError> {
        match options.tls() {
            Some(_) => Err(ClientError::TlsUnsupported),
            None => Ok(Self { route, proxy: proxy(options)? }),
        }
    }

    /// Opens a stream towards the server that advertises `address`: to where the address map says
    /// that it is, or else to the proxy, which is told the same. TLS verifies the advertised name.
    ///
    /// `reached` is told when the name is resolved.
    pub(crate) async fn connect(
        &self,
        address: &ServerAddress,
        reached: &(dyn Fn(Stage) + Send + Sync),
    ) -> Result<Connection, Failure> {
        let config = TransportConfig {
            proxy: self.proxy.as_ref().map(|(_, config)| config.clone()),
            #[cfg(feature = "tls")]
            tls: match &self.tls {
                Some(certificates) => Some(certificates.load().await?),
                None => None,
            },
        };
        let target = self.route.target(address);
        let mut wire = Vec::new();
        let transport = Transport::start(&config, address, &target, &mut wire)?;
        let socket = match (&self.proxy, &target) {
            (Some((proxy, _)), ServerAddress::Tcp { .. }) => {
                self.route.open(&proxy.address(), reached).await.map_err(of_proxy)?
            }
            _ => self.route.open(&target, reached).await?,
        };
        Ok(Connection { socket, transport, wire })
    }
}

/// The proxy is no server: whatever fails is said of the proxy.
fn of_proxy(failure: Failure) -> Failure {
    Failure::new(Stage::Proxy, failure.cause, format!("the proxy: {}", failure.detail))
}

fn proxy(options: &Options) -> Result<Option<(ProxyOptions, ProxyConfig)>, ClientError> {
    let Some(proxy) = options.proxy() else { return Ok(None) };
    let login = match (&proxy.username, &proxy.password) {
        (Some(username), password) => {
            let password = password.as_ref().map(Secret::expose).unwrap_or_default();
            Some(Login::new(username, password)?)
        }
        (None, _) => None,
    };
    Ok(Some((proxy.clone(), ProxyConfig { login })))
}
