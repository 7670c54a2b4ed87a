//! Where the streams of one client lead to, and which filters they have.

use std::net::IpAddr;

use super::{ClientError, Connected};
use sdam_core::config::address_map::AddressMap;
use sdam_core::config::{Options, Secret, ServerAddress};
use sdam_core::failure::{Failure, Stage};
use sdam_core::transport::{Login, ProxyConfig, Transport, TransportConfig};

/// Where the streams of one client lead to: through the address map, and to the proxy if the
/// options name one.
#[derive(Clone, Debug)]
pub struct Connector {
    map: AddressMap,
    proxy: Option<(ServerAddress, ProxyConfig)>,
}

/// One stream that is to be opened, and whose filters have begun.
#[derive(Debug)]
#[must_use]
pub struct Route {
    dial: ServerAddress,
    is_proxy: bool,
    transport: Transport,
    wire: Vec<u8>,
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
                Some((proxy.address(), ProxyConfig { login: login.transpose()? }))
            }
        };
        Ok(Self { map: options.address_map().clone(), proxy })
    }

    /// Returns which filters streams have, but for TLS, whose configuration is the runtime's
    /// business.
    pub fn filters(&self) -> TransportConfig {
        let proxy = self.proxy.as_ref().map(|(_, config)| config.clone());
        TransportConfig {
            proxy,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Begins a stream towards the server that advertises `address`: to where the address map says
    /// that it is, or else to the proxy, which is told the same. TLS verifies the advertised name.
    ///
    /// # Errors
    ///
    /// Fails if the address is none that the proxy or TLS could be told.
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
        Ok(Route { dial, is_proxy, transport, wire })
    }
}

impl Route {
    /// Returns what the stream is to be opened to.
    pub const fn dial(&self) -> &ServerAddress {
        &self.dial
    }

    /// Returns the stage with which opening the stream begins: that of a name is to resolve it.
    pub fn first_stage(&self) -> Stage {
        let is_name = self.dial.port().is_some() && self.dial.host().parse::<IpAddr>().is_err();
        if is_name { Stage::Resolve } else { Stage::Connect }
    }

    /// Returns what tells `reached` the stages of opening the stream, all of which are the proxy's
    /// if there is one.
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
