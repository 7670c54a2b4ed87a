//! The byte filters under MongoDB's protocol: SOCKS5, then TLS, then plaintext.
//!
//! A runtime opens a socket, to the proxy if there is one, and from then on only moves bytes: what
//! it reads goes through [`Transport::receive`], what is to be sent through [`Transport::send`].
//! The stream is up when [`Transport::is_ready`]. Without a proxy and TLS, all bytes pass as they
//! are.
//!
//! This is the one part of core that is not deterministic, as rustls draws its own randomness and
//! compares certificates with the wall clock, unless the application's own `rustls::ClientConfig`
//! has another `TimeProvider`. The machines are above it and see plaintext only.

#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod chain;
#[cfg(feature = "ocsp")]
mod revocation;
mod socks5;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod unsupported;
#[cfg(feature = "tls")]
mod verifier;

use std::io;

#[cfg(feature = "tls")]
pub use certificates::{TlsConfig, TlsConfigError, TlsMaterial, TrustAnchors};
#[cfg(feature = "tls")]
pub use rustls;
pub use socks5::{Login, LoginError};

use crate::config::ServerAddress;
use crate::failure::{Cause, Failure, Stage};
#[cfg(feature = "ocsp")]
use crate::revocation::{Status, Subject};
#[cfg(feature = "ocsp")]
use rustls::pki_types::UnixTime;
use socks5::Socks5;
#[cfg(feature = "tls")]
use tls::Tls;

/// Plaintext goes to where there is room for all of it.
const TAKES_ALL: &str = "memory takes everything";

/// The filters of a stream.
#[derive(Clone, Debug, Default)]
pub struct TransportConfig {
    /// The proxy that streams go through.
    proxy: Option<ProxyConfig>,
    /// TLS inside that.
    #[cfg(feature = "tls")]
    tls: Option<TlsConfig>,
}

impl TransportConfig {
    /// Leads streams through this proxy.
    #[must_use]
    pub fn with_proxy(mut self, proxy: ProxyConfig) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// Returns the proxy that streams go through.
    pub const fn proxy(&self) -> Option<&ProxyConfig> {
        self.proxy.as_ref()
    }

    /// Returns whether streams are encrypted: then [`Transport::unchecked`] is to be heeded before
    /// anything is sent.
    #[cfg(feature = "ocsp")]
    pub const fn encrypts(&self) -> bool {
        self.tls.is_some()
    }

    /// Encrypts streams, inside the proxy's if there is one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(mut self, tls: TlsConfig) -> Self {
        self.tls = Some(tls);
        self
    }
}

/// The configuration of a SOCKS5 proxy, apart from its address, which only the runtime needs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// The login that it is given, if it asks.
    pub login: Option<Login>,
}

impl ProxyConfig {
    /// Names whom the proxy knows the client as, if anybody.
    pub const fn new(login: Option<Login>) -> Self {
        Self { login }
    }
}

/// The filters of one stream.
///
/// A Unix domain socket needs no proxy to be reached; if its server is asked for TLS, its
/// certificate must be for `localhost`.
///
/// ```
/// use sdam_core::transport::{ProxyConfig, Transport, TransportConfig};
///
/// let config = TransportConfig::default().with_proxy(ProxyConfig::default());
/// let mut wire = Vec::new();
/// let server = "db.example:27017".parse()?;
/// let mut transport = Transport::start(&config, &server, &server, &mut wire)?;
/// assert_eq!(wire, [5, 1, 0], "version 5, one method: no authentication");
///
/// let (mut plain, mut reply) = (Vec::new(), Vec::new());
/// transport.receive(&[5, 0], &mut plain, &mut reply)?;
/// assert_eq!(reply, b"\x05\x01\x00\x03\x0adb.example\x69\x89", "the name goes as it is");
/// transport.receive(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0], &mut plain, &mut reply)?;
/// assert!(transport.is_ready());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Transport {
    /// The conversation with the proxy, until it has opened the stream.
    proxy: Option<Socks5>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    /// True if the server has ever sent anything.
    heard: bool,
}

impl Transport {
    /// Begins the handshake with the proxy, or else that of TLS, appending its first bytes to
    /// `wire`.
    ///
    /// TLS expects a certificate for `name`, the address that the server advertises; the proxy
    /// connects to `target`, which differs from it where an address map says so.
    ///
    /// # Errors
    ///
    /// Fails if the proxy or TLS cannot express the address.
    pub fn start(
        config: &TransportConfig,
        name: &ServerAddress,
        target: &ServerAddress,
        wire: &mut Vec<u8>,
    ) -> Result<Self, Failure> {
        #[cfg(not(feature = "tls"))]
        let _ = name;
        #[cfg(feature = "tls")]
        let tls = match &config.tls {
            Some(tls) => Some(Tls::new(tls, name)?),
            None => None,
        };
        let proxy = match (&config.proxy, target) {
            (Some(proxy), ServerAddress::Tcp { host, port }) => {
                Some(Socks5::start(proxy.login.as_ref(), host, *port, wire)?)
            }
            (Some(_), ServerAddress::Unix { .. }) | (None, _) => None,
        };
        let mut transport = Self {
            proxy,
            #[cfg(feature = "tls")]
            tls,
            heard: false,
        };
        if transport.proxy.is_none() {
            transport.connected(wire);
        }
        Ok(transport)
    }

    /// Takes all of `wire`, which came from the peer; appends plaintext to `plain`, a `Vec` or
    /// [`Frames`](crate::wire::Frames), and what the peer is owed to `reply`. How the bytes are
    /// split changes nothing.
    ///
    /// What is appended to `reply` before the stream is up may contain the password for the proxy;
    /// it is for the caller to wipe it when it was sent.
    ///
    /// # Errors
    ///
    /// Fails if the peer refuses or breaks a protocol, or has ended TLS. What was appended before
    /// is to be used and sent nevertheless; after that the transport is of no more use.
    ///
    /// # Panics
    ///
    /// Panics if `plain` does not take what it is given.
    pub fn receive(
        &mut self,
        mut wire: &[u8],
        plain: &mut impl io::Write,
        reply: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if let Some(proxy) = &mut self.proxy {
            if !proxy.receive(&mut wire, reply)? {
                return Ok(());
            }
            self.proxy = None;
            self.connected(reply);
        }
        self.heard |= !wire.is_empty();
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return tls.receive(wire, plain, reply);
        }
        plain.write_all(wire).expect(TAKES_ALL);
        Ok(())
    }

    /// Seals `plain` onto `wire`.
    ///
    /// # Panics
    ///
    /// Panics unless [`is_ready`](Self::is_ready).
    pub fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        assert!(self.is_ready(), "plaintext may not flow before the handshakes are done");
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return tls.send(plain, wire);
        }
        wire.extend_from_slice(plain);
    }

    /// Returns the server's certificate if its revocation is still to be asked about, once the
    /// handshakes are done: no staple, nothing that is known and no list of the user says anything
    /// of it, and it names responders.
    ///
    /// # Errors
    ///
    /// Fails if it is known that the certificate was revoked.
    #[cfg(feature = "ocsp")]
    pub fn unchecked(&self, now: UnixTime) -> Result<Option<Subject>, Failure> {
        self.tls.as_ref().map_or(Ok(None), |tls| tls.unchecked(now))
    }

    /// Returns when the server's certificate expires, in seconds since 1970, once TLS is there.
    #[cfg(feature = "ocsp")]
    pub fn certificate_expiry(&self) -> Option<u64> {
        self.tls.as_ref()?.certificate_expiry()
    }

    /// Returns the failure of a connection to a server whose certificate has this status, if it
    /// was revoked.
    ///
    /// # Errors
    ///
    /// Fails if the certificate was revoked.
    #[cfg(feature = "ocsp")]
    pub fn heed(status: Status) -> Result<(), Failure> {
        match status {
            Status::Revoked { .. } => Err(revocation::revoked(status)),
            Status::Good | Status::Unknown => Ok(()),
        }
    }

    /// Returns whether the handshakes are done, and plaintext may flow.
    pub fn is_ready(&self) -> bool {
        #[cfg(feature = "tls")]
        let tls_is_ready = self.tls.as_ref().is_none_or(Tls::is_ready);
        #[cfg(not(feature = "tls"))]
        let tls_is_ready = true;
        self.proxy.is_none() && tls_is_ready
    }

    /// Returns whether plaintext may flow and passes as it is.
    pub fn is_transparent(&self) -> bool {
        self.is_ready() && !self.is_encrypted()
    }

    /// Returns whether the stream has TLS.
    pub const fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Returns how far the handshakes have come: [`Stage::Hello`] once they are done.
    pub fn stage(&self) -> Stage {
        match (self.proxy.is_some(), self.is_ready()) {
            (true, _) => Stage::Proxy,
            (false, false) => Stage::Tls,
            (false, true) => Stage::Hello,
        }
    }

    /// Translates an error of the byte stream, by how far the handshakes have come.
    ///
    /// The end of the stream is [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
    pub fn failure(&self, error: &io::Error) -> Failure {
        if self.proxy.is_some() {
            let failure = Failure::from_io(Stage::Proxy, error);
            let detail = match failure.cause {
                Cause::Closed => "the proxy closed the connection".into(),
                _ => format!("the connection to the proxy failed: {error}"),
            };
            return Failure::new(failure.stage, failure.cause, detail);
        }
        if !self.is_ready() {
            let failure = Failure::from_io(Stage::Tls, error);
            let detail = match (&failure.cause, self.heard) {
                (Cause::Closed, false) => {
                    "the server closed the connection when TLS was offered; it may not speak TLS"
                        .into()
                }
                _ => format!("the TLS handshake failed: {}", failure.detail),
            };
            return Failure::new(failure.stage, failure.cause, detail);
        }
        let failure = Failure::from_io(Stage::Hello, error);
        match failure.cause {
            Cause::Closed if !self.heard => Failure::new(
                failure.stage,
                failure.cause,
                "the server closed the connection without an answer",
            ),
            _ => failure,
        }
    }

    /// The stream to the server is open: TLS begins, if there is any.
    fn connected(&mut self, wire: &mut Vec<u8>) {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            tls.flush(wire);
        }
        #[cfg(not(feature = "tls"))]
        let _ = wire;
    }
}
