//! The filters against peers in memory, whose bytes arrive torn.

mod socks5;
#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::io;

use super::{Login, ProxyConfig, Transport, TransportConfig};
use crate::config::ServerAddress;
use crate::failure::{Cause, Failure, Stage, UnsupportedCertificate};

fn address(text: &str) -> ServerAddress {
    text.parse().unwrap()
}

fn through_proxy(login: Option<Login>) -> TransportConfig {
    TransportConfig {
        proxy: Some(ProxyConfig { login }),
        #[cfg(feature = "tls")]
        tls: None,
    }
}

fn eof() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

#[test]
fn without_filters_all_bytes_pass() {
    let (mut wire, mut plain, mut reply) = (Vec::new(), Vec::new(), Vec::new());
    let config = TransportConfig::default();
    let mut transport = Transport::start(&config, &address("a"), &address("a"), &mut wire).unwrap();
    assert!(transport.is_ready() && wire.is_empty());
    transport.send(b"ping", &mut wire);
    transport.receive(b"pong", &mut plain, &mut reply).unwrap();
    assert_eq!((wire, plain, reply), (b"ping".to_vec(), b"pong".to_vec(), Vec::new()));
}

#[test]
fn a_server_that_closes_at_the_first_hello_may_expect_tls() {
    let config = TransportConfig::default();
    let mut transport =
        Transport::start(&config, &address("a"), &address("a"), &mut Vec::new()).unwrap();
    for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset] {
        let failure = transport.failure(&kind.into());
        assert_eq!((failure.stage, &failure.cause), (Stage::Hello, &Cause::Closed));
        assert!(failure.detail.ends_with("without an answer"), "{failure}");
    }
    transport.receive(b"x", &mut Vec::new(), &mut Vec::new()).unwrap();
    assert_eq!(&*transport.failure(&eof()).detail, "the server closed the connection");
}

/// Newer than the texts, "Backpressure labels": I/O errors of TLS count, certificates and proxies
/// do not.
#[test]
fn only_network_errors_of_the_server_may_be_overload() {
    let failure = |stage, cause| Failure::new(stage, cause, "");
    for cause in [Cause::Closed, Cause::Timeout, Cause::Io] {
        assert!(failure(Stage::Tls, cause.clone()).may_be_overload());
        assert!(!failure(Stage::Proxy, cause).may_be_overload());
    }
    for cause in [
        Cause::CertificateExpired,
        Cause::UnknownIssuer,
        Cause::CertificateName,
        Cause::CertificateUnsupported { unsupported: UnsupportedCertificate::Version },
        Cause::CertificateInvalid,
        Cause::Configuration,
    ] {
        assert!(!failure(Stage::Tls, cause).may_be_overload());
    }
}
