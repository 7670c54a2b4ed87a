//! The certificate of a server, whether anybody trusts it or not.

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sdam_core::config::{Options, ServerAddress, TlsOptions};
use sdam_core::failure::Stage;
use sdam_core::transport::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use sdam_core::transport::rustls::crypto::ring;
use sdam_core::transport::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use sdam_core::transport::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Means;
use super::talk::{Reached, Talk};
use crate::doctor::evidence::{Certificate, Responder, is_conclusive};
use crate::duration::precise;

/// The number of names that are reported.
const MAX_NAMES: usize = 20;

/// The time that a responder has to take a connection.
const RESPONDER: Duration = Duration::from_secs(2);

/// Takes any certificate: it is to be looked at, and nothing is sent. Notes whether a response of
/// its responder comes with it.
#[derive(Debug, Default)]
struct Anything {
    is_stapled: AtomicBool,
}

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.is_stapled.store(!response.is_empty(), Ordering::Relaxed);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the certificate that the server shows; `None` if it shows none in time. The responder
/// that it names is `asked`, or else connected to.
pub(super) async fn of(
    means: &Means,
    address: &ServerAddress,
    asked: Option<Responder>,
) -> Option<Certificate> {
    let seen = Arc::<Anything>::default();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::<Anything>::clone(&seen))
        .with_no_client_auth();
    let host = if address.port().is_some() { address.host() } else { "localhost" };
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let plain = means.shared.connector.filters();
    let shaken = async {
        let reached = Reached::new();
        let talk = Talk::open(&means.shared.connector, address, &plain, &reached).await.ok()?;
        TlsConnector::from(Arc::new(config)).connect(name, talk.into_stream()).await.ok()
    };
    let stream = timeout(means.step(), shaken).await.ok()??;
    let connection = stream.get_ref().1;
    let chain = connection.peer_certificates()?;
    let version = connection.protocol_version().and_then(|version| version.as_str());
    let (mut certificate, responder) = parsed(chain.first()?)?;
    certificate.chain_length = chain.len();
    certificate.version = version.map(|it| it.replace("TLSv1_", "TLS 1."));
    certificate.is_stapled = seen.is_stapled.load(Ordering::Relaxed);
    certificate.responder = match responder {
        _ if asked.is_some() => asked,
        Some(url) if !certificate.is_stapled && asks(means.options()) => {
            Some(responded(url, RESPONDER.min(means.left())).await)
        }
        _ => None,
    };
    Some(certificate)
}

/// Returns whether drivers ask a responder, as far as the options decide.
fn asks(options: &Options) -> bool {
    let is_turned_off = |tls: &TlsOptions| {
        tls.disable_ocsp_endpoint_check
            || tls.disable_certificate_revocation_check
            || tls.allow_invalid_certificates
    };
    !options.tls().is_some_and(is_turned_off)
}

/// Reads a certificate, and the URL of its responder.
fn parsed(der: &CertificateDer<'_>) -> Option<(Certificate, Option<String>)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let (mut names, mut responder) = (Vec::new(), None);
    for extension in certificate.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(alternative) => {
                names.extend(alternative.general_names.iter().take(MAX_NAMES).map(
                    |name| match name {
                        GeneralName::DNSName(name) => (*name).to_owned(),
                        GeneralName::IPAddress(bytes) => ip_address(bytes),
                        other => other.to_string(),
                    },
                ));
            }
            ParsedExtension::AuthorityInfoAccess(access) => {
                let ocsp = access
                    .accessdescs
                    .iter()
                    .filter(|it| it.access_method.to_id_string() == "1.3.6.1.5.5.7.48.1");
                responder = ocsp
                    .filter_map(|it| match it.access_location {
                        GeneralName::URI(url) => Some(url.to_owned()),
                        _ => None,
                    })
                    .next();
            }
            _ => {}
        }
    }
    let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
    let days = |from: i64, to: i64| to.saturating_sub(from).div_euclid(24 * 3600);
    let validity = certificate.validity();
    let (begin, end) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let certificate = Certificate {
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        names,
        days_left: days(now, end),
        days_in_all: days(begin, end),
        ..Certificate::default()
    };
    Some((certificate, responder))
}

fn ip_address(bytes: &[u8]) -> String {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return std::net::Ipv4Addr::from(bytes).to_string();
    }
    <[u8; 16]>::try_from(bytes)
        .map_or_else(|_| "no IP address".to_owned(), |it| std::net::Ipv6Addr::from(it).to_string())
}

/// Connects to a responder, and asks it nothing.
async fn responded(url: String, limit: Duration) -> Responder {
    let begun = Instant::now();
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default().to_owned();
    let default = if url.starts_with("https") { 443 } else { 80 };
    let connecting = async {
        let resolved = tokio::task::spawn_blocking(move || match authority.to_socket_addrs() {
            Ok(addresses) => Ok(addresses.collect::<Vec<_>>()),
            Err(_) => (authority.as_str(), default).to_socket_addrs().map(Iterator::collect),
        });
        let addresses = resolved.await.map_err(std::io::Error::other)??;
        TcpStream::connect(&*addresses).await
    };
    let connected = timeout(limit, connecting).await;
    let is_silent = connected.is_err() && is_conclusive(Stage::Connect, limit);
    let failure = match connected {
        Ok(connected) => connected.err().map(|error| error.to_string()),
        Err(_) => Some(format!("no connection within {}", precise(limit))),
    };
    let (is_asked, took) = (false, begun.elapsed());
    Responder { url, failure, is_silent, is_asked, status: None, took }
}

#[cfg(test)]
mod tests {
    use sdam_cluster::certificates::Authority;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;

    use super::*;

    /// A server that sends this with its certificate.
    async fn stapling(response: &[u8]) -> ServerAddress {
        let authority = Authority::new("sdam test").expect("an authority");
        let file = authority.issue("server", &["127.0.0.1"]).expect("a certificate");
        let chain = CertificateDer::pem_file_iter(&file).expect("a file");
        let chain = chain.collect::<Result<Vec<_>, _>>().expect("certificates");
        let key = PrivateKeyDer::from_pem_file(&file).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert_with_ocsp(chain, key, response.to_vec())
            .expect("a certificate and its key");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            // How it ends is for the client to see.
            let _ = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
        });
        address.parse().expect("an address")
    }

    #[tokio::test]
    async fn a_response_that_comes_with_a_certificate_is_seen() {
        for response in [&b"a response"[..], b""] {
            let address = stapling(response).await;
            let uri = format!("mongodb://{address}/?tls=true");
            let options = Options::parse(&uri).expect("options");
            let limit = Duration::from_secs(60);
            let means = Means::new(options, (Instant::now() + limit, limit)).expect("means");
            let certificate = of(&means, &address, None).await.expect("a certificate");
            assert_eq!(certificate.is_stapled, !response.is_empty());
        }
    }
}
