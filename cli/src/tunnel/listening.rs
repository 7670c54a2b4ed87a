//! The local side: a listener for each member, and what is common to all connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdam_cluster::TlsIdentity;
use sdam_core::config::{ServerAddress, TcpOptions};
use sdam_core::hello::Relay;
use sdam_host::system::configure_tcp;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::dialer::Dialer;
use super::local_addresses::{LocalAddressError, LocalAddresses};
use super::news::{News, NewsSender};
use super::session::{End, carry, unless_gone};

/// The time that a client may take to open TLS.
const TLS_LIMIT: Duration = Duration::from_secs(30);

/// The pause after the system has refused to accept another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All that the connections of a tunnel share.
#[derive(Debug)]
pub(super) struct Tunnel {
    dialer: Dialer,
    local_addresses: Mutex<LocalAddresses>,
    clients: Clients,
    sender: NewsSender,
    /// The trouble with each member, as it was reported last.
    troubles: Mutex<BTreeMap<ServerAddress, String>>,
}

/// The manner in which clients reach a tunnel.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    /// The name by which they know the tunnel, if not by the address that they connect to.
    pub(super) host: Option<Arc<str>>,
    /// The certificate that they see, if they speak TLS with the tunnel.
    pub(super) identity: Option<TlsIdentity>,
    /// True if they speak TLS with the members.
    pub(super) pass_tls: bool,
}

impl Tunnel {
    /// Leads to members; nothing listens yet.
    pub(super) fn new(
        dialer: Dialer,
        local_addresses: LocalAddresses,
        clients: Clients,
        sender: NewsSender,
    ) -> Arc<Self> {
        let (local_addresses, troubles) = (Mutex::new(local_addresses), Mutex::default());
        Arc::new(Self { dialer, local_addresses, clients, sender, troubles })
    }

    /// Returns the local address of a member, and whether it is new; from now on something listens
    /// there.
    ///
    /// # Errors
    ///
    /// There is none for it.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub(super) fn open(
        self: &Arc<Self>,
        member: &ServerAddress,
    ) -> Result<(SocketAddr, bool), LocalAddressError> {
        let mut local_addresses = lock(&self.local_addresses);
        if let Some(address) = local_addresses.find(member) {
            return Ok((address, false));
        }
        let (address, listener) = local_addresses.listen(member)?;
        let listener = TcpListener::from_std(listener)
            .map_err(|error| LocalAddressError::Listen { address, error })?;
        tokio::spawn(Arc::clone(self).listen(member.clone(), listener));
        Ok((address, true))
    }

    /// Returns how clients call a local address that they reach by this one.
    pub(super) fn name(&self, local: SocketAddr, by: IpAddr) -> ServerAddress {
        let host = match &self.clients.host {
            Some(host) => Arc::clone(host),
            // The names of hosts lead there.
            None if self.clients.pass_tls => local.ip().to_string().into(),
            None => by.to_canonical().to_string().into(),
        };
        ServerAddress::Tcp { host, port: local.port() }
    }

    /// Finds the name for a member in a reply to hello; it may be one that was unknown.
    fn rename(self: &Arc<Self>, member: &ServerAddress, by: IpAddr) -> Option<ServerAddress> {
        match self.open(member) {
            Ok((local, is_new)) => {
                let name = self.name(local, by);
                if is_new {
                    let (member, address) = (member.to_string(), name.to_string());
                    self.sender.send(News::Opened { member, address });
                }
                Some(name)
            }
            Err(error) => {
                let reason = error.to_string();
                if self.is_news(member, &reason) {
                    let member = member.to_string();
                    self.sender.send(News::NotOpened { member, reason });
                }
                None
            }
        }
    }

    async fn listen(self: Arc<Self>, member: ServerAddress, listener: TcpListener) {
        let mut refused = false;
        loop {
            match listener.accept().await {
                Ok((client, peer)) => {
                    refused = false;
                    tokio::spawn(Arc::clone(&self).serve(member.clone(), client, peer));
                }
                // The error of a client that has gone again is soon over.
                Err(error) => {
                    if !std::mem::replace(&mut refused, true) {
                        let (member, reason) = (member.to_string(), error.to_string());
                        self.sender.send(News::NotAccepted { member, reason });
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Leads one client to a member, until either of them ends it.
    async fn serve(self: Arc<Self>, member: ServerAddress, client: TcpStream, peer: SocketAddr) {
        configure_tcp(&client, TcpOptions::default());
        let Ok(by) = client.local_addr() else { return };
        let opened = match unless_gone(&client, self.dialer.open(&member)).await {
            Some(Ok(opened)) => opened,
            Some(Err(failure)) => return self.unreachable(&member, failure.to_string()),
            None => return,
        };
        let relay = (!self.clients.pass_tls).then(Relay::new);
        let name = |it: &ServerAddress| self.rename(it, by.ip());
        let heard = || self.reachable(&member);
        let end = match &self.clients.identity {
            None => carry(client, opened, relay, name, heard).await,
            Some(identity) => {
                let client = match timeout(TLS_LIMIT, identity.acceptor().accept(client)).await {
                    Ok(Ok(client)) => client,
                    Ok(Err(error)) => return self.refused(&member, peer, tls_failed(&error)),
                    Err(_) => {
                        let reason = "it opens no TLS, which this port wants".to_owned();
                        return self.refused(&member, peer, reason);
                    }
                };
                carry(client, opened, relay, name, heard).await
            }
        };
        match end {
            End::Client | End::Member => {}
            End::Silent => {
                let reason = "it closed the connection without an answer".to_owned();
                self.unreachable(&member, reason);
            }
            End::Nonsense(error) => self.refused(&member, peer, error.to_string()),
        }
    }

    fn refused(&self, member: &ServerAddress, client: SocketAddr, reason: String) {
        let (client, member) = (client.to_string(), member.to_string());
        self.sender.send(News::Refused { client, member, reason });
    }

    fn unreachable(&self, member: &ServerAddress, reason: String) {
        if self.is_news(member, &reason) {
            self.sender.send(News::Unreachable { member: member.to_string(), reason });
        }
    }

    fn reachable(&self, member: &ServerAddress) {
        if lock(&self.troubles).remove(member).is_some() {
            self.sender.send(News::Reachable { member: member.to_string() });
        }
    }

    /// Keeps in mind what is wrong with a member, and returns whether that was not known.
    fn is_news(&self, member: &ServerAddress, reason: &str) -> bool {
        let mut troubles = lock(&self.troubles);
        let is_news = troubles.get(member).is_none_or(|known| known != reason);
        if is_news {
            troubles.insert(member.clone(), reason.to_owned());
        }
        is_news
    }
}

fn tls_failed(error: &std::io::Error) -> String {
    format!("TLS with the client failed: {error}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
