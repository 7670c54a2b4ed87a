//! A TLS server in memory, with certificates made for each test.

mod chains;
pub(crate) mod fixture;
#[cfg(feature = "ocsp")]
mod revocation;
mod unsupported;

use std::io::Write;
use std::sync::Arc;

use proptest::prelude::{any, prop, prop_assert, proptest};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, version};

use super::{Cause, Stage, Transport, TransportConfig, address, eof, through_proxy};
use crate::transport::{TlsConfig, TlsConfigError, TlsMaterial, TrustAnchors};
use fixture::{Authority, Identity, Line, VERSIONS, connect, refusal, server, with_tls};

#[test]
fn a_good_certificate_is_accepted_in_tls_1_2_and_1_3() {
    let authority = Authority::new();
    let identity = authority.issue(&["db.example", "*.set.example"]);
    let config = with_tls(&authority.client());
    connect(&config, "db.example", &identity).unwrap();
    connect(&config, "a.set.example:1", &identity).unwrap();
}

#[test]
fn how_the_bytes_are_torn_changes_nothing() {
    let authority = Authority::new();
    let identity = authority.issue(&["db.example"]);
    let config = with_tls(&authority.client());
    for part in (1..=7).chain([usize::MAX]) {
        let server = server(&identity, None, &version::TLS13);
        let mut line = Line::open(&config, "db.example", server, part);
        line.echo(b"isMaster").unwrap();
        assert_eq!(line.plain, b"isMaster");
    }
}

#[test]
fn an_address_must_be_among_the_addresses_of_the_certificate() {
    let authority = Authority::new();
    let config = with_tls(&authority.client());
    let identity = authority.issue(&["127.0.0.1", "::1"]);
    connect(&config, "127.0.0.1", &identity).unwrap();
    connect(&config, "[::1]:5", &identity).unwrap();
    let failure = refusal(&config, "127.0.0.2", &identity);
    assert_eq!(failure.cause, Cause::CertificateName);
}

#[test]
fn a_wrong_name_is_told_with_the_names_of_the_certificate() {
    let authority = Authority::new();
    let identity = authority.issue(&["a.example", "b.example"]);
    let failure = refusal(&with_tls(&authority.client()), "db.example", &identity);
    assert_eq!(failure.cause, Cause::CertificateName);
    let detail = &failure.detail;
    assert!(
        ["db.example", "a.example", "b.example"].iter().all(|n| detail.contains(n)),
        "{detail}"
    );
}

#[test]
fn a_unix_domain_socket_is_localhost() {
    let authority = Authority::new();
    let config = with_tls(&authority.client());
    connect(&config, "/tmp/m.sock", &authority.issue(&["localhost"])).unwrap();
}

#[test]
fn an_expired_certificate_is_told_with_its_date() {
    let authority = Authority::new();
    let config = with_tls(&authority.client());
    let expired = authority.issue_with(&["a"], |params| {
        params.not_after = date_time_ymd(2024, 2, 29);
    });
    let failure = refusal(&config, "a", &expired);
    assert_eq!(failure.cause, Cause::CertificateExpired);
    assert!(failure.detail.contains("expired at 2024-02-29T00:00:00Z"), "{failure}");
    let early = authority.issue_with(&["a"], |params| {
        params.not_before = date_time_ymd(4000, 1, 1);
        params.not_after = date_time_ymd(4001, 1, 1);
    });
    let failure = refusal(&config, "a", &early);
    assert_eq!(failure.cause, Cause::CertificateExpired);
    assert!(failure.detail.contains("not valid before 4000-01-01"), "{failure}");
}

#[test]
fn who_issued_it_must_be_trusted() {
    let authority = Authority::new();
    let config = with_tls(&authority.client());
    for name in ["another authority", "the authority"] {
        let failure = refusal(&config, "a", &Authority::named(name).issue(&["a"]));
        assert_eq!(failure.cause, Cause::UnknownIssuer, "{failure}");
    }
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(["a".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
    let self_signed = Identity { certificate, key: key.serialize_pem() };
    assert_eq!(refusal(&config, "a", &self_signed).cause, Cause::UnknownIssuer);
    // Whose authority is the certificate itself, that one is trusted.
    let anchors = TrustAnchors::Pem(self_signed.certificate.as_bytes());
    let config = with_tls(&TlsMaterial { anchors, ..TlsMaterial::default() });
    connect(&config, "a", &self_signed).unwrap();
}

/// URI Options: `tlsAllowInvalidHostnames`.
#[test]
fn any_name_will_do_if_asked_for_but_nothing_else_is_forgiven() {
    let authority = Authority::new();
    let material = TlsMaterial { allow_invalid_hostnames: true, ..authority.client() };
    let config = with_tls(&material);
    connect(&config, "db.example", &authority.issue(&["other"])).unwrap();
    let stranger = Authority::new().issue(&["db.example"]);
    assert_eq!(refusal(&config, "db.example", &stranger).cause, Cause::UnknownIssuer);
    let expired = authority.issue_with(&["other"], |params| {
        params.not_after = date_time_ymd(2024, 2, 29);
    });
    assert_eq!(refusal(&config, "db.example", &expired).cause, Cause::CertificateExpired);
}

/// URI Options: `tlsAllowInvalidCertificates`.
#[test]
fn any_certificate_will_do_if_asked_for_and_no_authority_is_needed() {
    let material = TlsMaterial { allow_invalid_certificates: true, ..TlsMaterial::default() };
    let expired = Authority::new().issue_with(&["other"], |params| {
        params.not_after = date_time_ymd(2024, 2, 29);
    });
    connect(&with_tls(&material), "db.example", &expired).unwrap();
}

#[test]
fn a_client_certificate_is_sent_where_it_is_required() {
    let authority = Authority::new();
    let (identity, client) = (authority.issue(&["a"]), authority.issue(&["client"]));
    let pem = [client.key.clone(), client.certificate.clone()].concat();
    let material = TlsMaterial { certificate_key: Some(pem.as_bytes()), ..authority.client() };
    for version in VERSIONS {
        let demanding = || server(&identity, Some(&authority), version);
        let mut line = Line::open(&with_tls(&material), "a", demanding(), 5);
        line.echo(b"hello").unwrap();

        let mut line = Line::open(&with_tls(&authority.client()), "a", demanding(), 5);
        let failure = line.settle().unwrap_err();
        assert_eq!(failure.stage, Stage::Tls);
        assert!(matches!(failure.cause, Cause::TlsRefused { alert: Some(_) }), "{failure:?}");
        assert!(failure.detail.contains("the alert"), "{failure}");
    }
}

#[test]
fn an_application_may_bring_its_own_configuration() {
    let authority = Authority::new();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let own = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = Some(TlsConfig::from(Arc::new(own)));
    let config = TransportConfig { tls, ..TransportConfig::default() };
    let identity = authority.issue(&["a"]);
    let mut line = Line::open(&config, "a", server(&identity, None, &version::TLS13), 3);
    line.echo(b"hello").unwrap();
    let mut line = Line::open(&config, "a", server(&identity, None, &version::TLS12), 3);
    let cause = line.settle().unwrap_err().cause;
    assert!(matches!(cause, Cause::TlsRefused { .. }), "{cause:?}");
}

#[test]
fn a_server_that_does_not_speak_tls_is_told() {
    let config = with_tls(&Authority::new().client());
    for answer in ["HTTP/1.1 400 Bad Request\r\n", "\0\0\0\0\0\0\0\0", "SSH-2.0-x\r\n"] {
        for part in [1, 3, 100] {
            let mut transport =
                Transport::start(&config, &address("a"), &address("a"), &mut Vec::new()).unwrap();
            let outcome = answer
                .as_bytes()
                .chunks(part)
                .try_for_each(|part| transport.receive(part, &mut Vec::new(), &mut Vec::new()));
            let failure = outcome.unwrap_err();
            assert_eq!((failure.stage, failure.cause), (Stage::Tls, Cause::NotTls));
        }
    }
}

#[test]
fn an_end_during_the_handshake_is_a_network_error() {
    let config = with_tls(&Authority::new().client());
    let mut transport =
        Transport::start(&config, &address("a"), &address("a"), &mut Vec::new()).unwrap();
    let failure = transport.failure(&eof());
    assert_eq!((failure.stage, &failure.cause), (Stage::Tls, &Cause::Closed));
    assert!(failure.is_network_error() && failure.may_be_overload());
    assert!(failure.detail.contains("may not speak TLS"), "{failure}");
    transport.receive(&[22], &mut Vec::new(), &mut Vec::new()).unwrap();
    let failure = transport.failure(&eof());
    assert!(!failure.detail.contains("may not speak TLS"), "{failure}");
}

#[test]
fn the_end_of_tls_is_the_end_of_the_stream() {
    let authority = Authority::new();
    let identity = authority.issue(&["a"]);
    let config = with_tls(&authority.client());
    let mut line = Line::open(&config, "a", server(&identity, None, &version::TLS13), 2);
    line.settle().unwrap();
    line.server.writer().write_all(b"bye").unwrap();
    line.server.send_close_notify();
    let mut last = Vec::new();
    while line.server.wants_write() {
        line.server.write_tls(&mut last).unwrap();
    }
    last.extend(b"junk");
    let failure = line.transport.receive(&last, &mut line.plain, &mut line.wire).unwrap_err();
    assert_eq!(failure.cause, Cause::Closed);
    assert_eq!(line.plain, b"bye", "what came before counts");
}

#[test]
fn tls_goes_through_a_proxy() {
    let authority = Authority::new();
    let identity = authority.issue(&["a"]);
    let tls = with_tls(&authority.client()).tls;
    let config = TransportConfig { tls, ..through_proxy(None) };
    let mut line = Line::open(&config, "a", server(&identity, None, &version::TLS13), 4);
    let mut receive = |bytes: &[u8]| {
        line.wire.clear();
        line.transport.receive(bytes, &mut line.plain, &mut line.wire)
    };
    receive(&[5, 0]).unwrap();
    receive(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(line.wire[0], 22, "TLS begins when the proxy has opened the stream");
    line.echo(b"hello").unwrap();
    assert_eq!(line.plain, b"hello");
}

#[test]
fn a_name_that_no_certificate_can_have_is_refused() {
    let config = with_tls(&Authority::new().client());
    let failure = Transport::start(&config, &address("a$b"), &address("a$b"), &mut vec![]);
    assert_eq!(failure.unwrap_err().cause, Cause::CertificateName);
}

#[test]
fn files_that_are_not_what_they_should_be_are_refused() {
    let authority = Authority::new();
    let (one, other) = (authority.issue(&["a"]), authority.issue(&["b"]));
    let of = |pem: &str, password| {
        let certificate_key = Some(pem.as_bytes());
        TlsConfig::from_pem(&TlsMaterial { certificate_key, password, ..authority.client() })
            .unwrap_err()
    };
    assert_eq!(of(&one.key, None), TlsConfigError::NoCertificate);
    assert_eq!(of(&one.certificate, None), TlsConfigError::NoPrivateKey);
    let mixed = [one.certificate.as_str(), &other.key].concat();
    assert_eq!(of(&mixed, None), TlsConfigError::KeyMismatch);
    let torn = &mixed[..mixed.len() - 10];
    assert!(matches!(of(torn, None), TlsConfigError::CertificateKeyPem(_)));
    let legacy = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n\
                  -----END RSA PRIVATE KEY-----\n";
    let legacy = [one.certificate.as_str(), legacy].concat();
    assert_eq!(of(&legacy, Some("x")), TlsConfigError::LegacyEncryption);

    for pem in ["", "nothing", &one.key] {
        let anchors = TrustAnchors::Pem(pem.as_bytes());
        let material = TlsMaterial { anchors, ..TlsMaterial::default() };
        assert_eq!(TlsConfig::from_pem(&material).unwrap_err(), TlsConfigError::NoAnchors);
    }
}

#[cfg(feature = "tls-encrypted-keys")]
#[test]
fn an_encrypted_key_needs_its_password() {
    use pkcs8::PrivateKeyInfoRef;
    use pkcs8::der::pem::LineEnding;
    use pkcs8::pkcs5::pbes2;

    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::default().signed_by(&key, &authority.issuer).unwrap().pem();
    let der = key.serialize_der();
    let parameters =
        pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(2, b"saltsalt", [7; 16]).unwrap();
    let plain = PrivateKeyInfoRef::try_from(der.as_slice()).unwrap();
    let encrypted = plain.encrypt_with_params(parameters, "secret").unwrap();
    let encrypted = encrypted.to_pem("ENCRYPTED PRIVATE KEY", LineEnding::LF).unwrap();
    let pem = [certificate.as_str(), &encrypted].concat();
    let with = |password| {
        let certificate_key = Some(pem.as_bytes());
        TlsConfig::from_pem(&TlsMaterial { certificate_key, password, ..authority.client() })
    };
    assert!(with(Some("secret")).is_ok());
    assert_eq!(with(None).unwrap_err(), TlsConfigError::PasswordNeeded);
    assert!(matches!(with(Some("wrong")).unwrap_err(), TlsConfigError::Decryption(_)));
}

proptest! {
    #[test]
    fn any_answer_is_a_stream_or_a_failure(
        first in 20_u8..25,
        noise in prop::collection::vec(any::<u8>(), 0..400),
        part in 1_usize..8,
    ) {
        let config = with_tls(&TlsMaterial {
            allow_invalid_certificates: true,
            ..TlsMaterial::default()
        });
        let mut bytes = vec![first, 3, 3, 0];
        bytes.extend(noise);
        let outcome = |part: usize| {
            let mut transport =
                Transport::start(&config, &address("a"), &address("a"), &mut Vec::new()).unwrap();
            let (mut plain, mut reply) = (Vec::new(), Vec::new());
            bytes.chunks(part).try_for_each(|part| {
                transport.receive(part, &mut plain, &mut reply)
            }).map_err(|failure| failure.cause)
        };
        let whole = outcome(bytes.len());
        prop_assert!(outcome(part) == whole, "{whole:?}");
    }
}
