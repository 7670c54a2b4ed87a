//! Creates clients, those included whose servers are named in DNS.

use std::net::SocketAddr;
use std::sync::Arc;

use sdam_core::dns::NameServers;
use sdam_core::host::Events;
use sdam_core::options::Options;

use crate::client::{Client, ClientError};
use crate::dns::{Resolver, SystemResolver, resolve};

/// Creates clients, those included whose servers are named in DNS.
///
/// ```no_run
/// # use sdam_core::options::Options;
/// # use sdam_tokio::{Client, ClientError};
/// # async fn example() -> Result<Client, Box<dyn std::error::Error>> {
/// let options = Options::parse("mongodb+srv://cluster0.example.com")?;
/// let client = Client::builder(options).name_servers([([192, 0, 2, 53], 53).into()]);
/// Ok(client.connect().await?)
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientBuilder {
    options: Options,
    resolver: Arc<dyn Resolver>,
}

impl ClientBuilder {
    pub(crate) fn new(options: Options) -> Self {
        Self { options, resolver: Arc::new(SystemResolver) }
    }

    /// Asks these name servers for SRV and TXT records, instead of those in `/etc/resolv.conf`.
    pub fn name_servers(self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.resolver(NameServers::new(addresses))
    }

    /// Looks SRV and TXT records up with a resolver of the application's own.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Looks up the servers if they are named in DNS, and creates the client; servers are
    /// connected to in the background.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::new`] does, and if DNS gives no hosts or options that can be used.
    ///
    /// # Panics
    ///
    /// As [`Client::new`].
    pub async fn connect(self) -> Result<Client, ClientError> {
        self.connect_with_events().await.map(|(client, _)| client)
    }

    /// As [`connect`](Self::connect), and subscribes to the client's events from the very first
    /// one.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub async fn connect_with_events(self) -> Result<(Client, Events), ClientError> {
        let options = resolve(&self.options, &*self.resolver).await?;
        Client::build(options, self.resolver)
    }
}
