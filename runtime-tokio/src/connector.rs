//! Makes connections: through the proxy and with TLS, if the options ask for them.

use sdam_core::address::ServerAddress;
use sdam_core::failure::Failure;
use sdam_core::options::{Options, ProxyOptions, Secret};
#[cfg(feature = "tls")]
use sdam_core::transport::TlsConfig;
use sdam_core::transport::{Login, ProxyConfig, Transport, TransportConfig};

#[cfg(feature = "tls")]
use crate::certificates::Certificates;
use crate::client::ClientError;
use crate::connect::{connect, connect_to_proxy};
use crate::socket::Socket;

/// How the connections of one client are made.
#[derive(Debug)]
pub(crate) struct Connector {
    proxy: Option<(ProxyOptions, ProxyConfig)>,
    #[cfg(feature = "tls")]
    tls: Option<Certificates>,
}

/// A connection whose handshakes with the proxy and of TLS have begun.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) socket: Socket,
    pub(crate) transport: Transport,
    /// What is to be sent first.
    pub(crate) wire: Vec<u8>,
}

impl Connector {
    /// Makes connections as the options say.
    #[cfg(feature = "tls")]
    pub(crate) fn new(options: &Options) -> Result<Self, ClientError> {
        let tls = options.tls().cloned().map(Certificates::of_files);
        Ok(Self { proxy: proxy(options)?, tls })
    }

    /// Makes connections as the options say, but for the configuration of TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(options: &Options, tls: TlsConfig) -> Result<Self, ClientError> {
        if options.tls().is_none() {
            return Err(ClientError::TlsNotAskedFor);
        }
        Ok(Self { proxy: proxy(options)?, tls: Some(Certificates::Given(tls)) })
    }

    /// Makes connections as the options say, unless that is with TLS.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(options: &Options) -> Result<Self, ClientError> {
        match options.tls() {
            Some(_) => Err(ClientError::TlsUnsupported),
            None => Ok(Self { proxy: proxy(options)? }),
        }
    }

    /// Opens a socket to the server, or else to the proxy.
    pub(crate) async fn connect(&self, address: &ServerAddress) -> Result<Connected, Failure> {
        let config = TransportConfig {
            proxy: self.proxy.as_ref().map(|(_, config)| config.clone()),
            #[cfg(feature = "tls")]
            tls: match &self.tls {
                Some(certificates) => Some(certificates.load().await?),
                None => None,
            },
        };
        let mut wire = Vec::new();
        let transport = Transport::start(&config, address, &mut wire)?;
        let socket = match (&self.proxy, address) {
            (Some((proxy, _)), ServerAddress::Tcp { .. }) => connect_to_proxy(proxy).await?,
            _ => connect(address).await?,
        };
        Ok(Connected { socket, transport, wire })
    }
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
