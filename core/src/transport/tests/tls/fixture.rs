//! An authority, a TLS server in memory that echoes, and a client connected to it.

use std::io::{Read, Write};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion, version};

use crate::failure::{Failure, Stage};
use crate::transport::tests::address;
use crate::transport::{TlsConfig, TlsMaterial, Transport, TransportConfig, TrustAnchors};

/// An authority, which issues certificates.
pub(crate) struct Authority {
    pub(super) issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("the authority")
    }

    pub(super) fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn issue(&self, names: &[&str]) -> Identity {
        self.issue_with(names, |_| {})
    }

    pub(crate) fn issue_with(
        &self,
        names: &[&str],
        change: fn(&mut CertificateParams),
    ) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    /// A client that trusts this authority.
    pub(crate) fn client(&self) -> TlsMaterial<'_> {
        TlsMaterial { anchors: TrustAnchors::Pem(self.pem.as_bytes()), ..TlsMaterial::default() }
    }
}

pub(crate) fn with_tls(material: &TlsMaterial<'_>) -> TransportConfig {
    let tls = Some(TlsConfig::from_pem(material).unwrap());
    TransportConfig { tls, ..TransportConfig::default() }
}

pub(super) const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

/// A server that demands a certificate of its clients if it is given an authority for them.
pub(crate) fn server(
    identity: &Identity,
    clients: Option<&Authority>,
    version: &'static SupportedProtocolVersion,
) -> ServerConnection {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let pem = authority.pem.as_bytes();
            roots.add(CertificateDer::from_pem_slice(pem).unwrap()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let certificates =
        vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    ServerConnection::new(Arc::new(builder.with_single_cert(certificates, key).unwrap())).unwrap()
}

/// A client connected to a server that echoes, whose bytes arrive in parts of this length.
pub(super) struct Line {
    pub(super) transport: Transport,
    pub(super) server: ServerConnection,
    pub(super) part: usize,
    pub(super) wire: Vec<u8>,
    pub(super) plain: Vec<u8>,
}

impl Line {
    pub(super) fn open(
        config: &TransportConfig,
        host: &str,
        server: ServerConnection,
        part: usize,
    ) -> Self {
        let mut wire = Vec::new();
        let transport =
            Transport::start(config, &address(host), &address(host), &mut wire).unwrap();
        Self { transport, server, part, wire, plain: Vec::new() }
    }

    /// Passes bytes to and fro until neither side has any more.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        loop {
            let sent = std::mem::take(&mut self.wire);
            let answer = self.answer(&sent);
            for part in answer.chunks(self.part) {
                self.transport.receive(part, &mut self.plain, &mut self.wire)?;
            }
            if self.wire.is_empty() {
                return Ok(());
            }
        }
    }

    /// Returns the server's answer to these bytes; an error of its own it puts into an alert.
    pub(super) fn answer(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let (mut answer, mut echo) = (Vec::new(), Vec::new());
        while !bytes.is_empty() {
            self.server.read_tls(&mut bytes).unwrap();
            let healthy = self.server.process_new_packets().is_ok();
            let _ = self.server.reader().read_to_end(&mut echo);
            self.server.set_buffer_limit(None);
            self.server.writer().write_all(&std::mem::take(&mut echo)).unwrap();
            while self.server.wants_write() {
                self.server.write_tls(&mut answer).unwrap();
            }
            if !healthy {
                break;
            }
        }
        answer
    }

    pub(super) fn echo(&mut self, plain: &[u8]) -> Result<(), Failure> {
        self.settle()?;
        assert!(self.transport.is_ready());
        self.transport.send(plain, &mut self.wire);
        self.settle()
    }
}

/// Connects to a server with this certificate; what is echoed is 300 kB in parts of 7 bytes.
pub(super) fn connect(
    config: &TransportConfig,
    host: &str,
    identity: &Identity,
) -> Result<(), Failure> {
    for version in VERSIONS {
        let mut line = Line::open(config, host, server(identity, None, version), 7);
        let message: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        line.echo(&message)?;
        assert!(line.plain == message, "what came back is what was sent");
    }
    Ok(())
}

pub(super) fn refusal(config: &TransportConfig, host: &str, identity: &Identity) -> Failure {
    let failure = connect(config, host, identity).unwrap_err();
    assert_eq!(failure.stage, Stage::Tls);
    assert!(!failure.may_be_overload(), "a certificate is never overload: {failure}");
    failure
}
