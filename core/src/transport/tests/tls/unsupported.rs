//! Certificates of kinds that the library does not take: accepted where anything is, and else
//! refused in words.

use std::slice;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    PublicKeyData,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::{
    Error, ServerConfig, ServerConnection, SignatureAlgorithm, SignatureScheme,
    SupportedProtocolVersion,
};

use super::fixture::{Authority, Identity, Line, VERSIONS, refusal, with_tls};
use crate::failure::{Cause, Failure, UnsupportedCertificate as Unsupported};
use crate::transport::{TlsMaterial, TransportConfig, TrustAnchors};

/// A client that accepts any certificate.
pub(super) fn lax() -> TransportConfig {
    with_tls(&TlsMaterial { allow_invalid_certificates: true, ..TlsMaterial::default() })
}

/// A server that shows certificates which its library need not be able to read.
fn showing(
    chain: &[CertificateDer<'static>],
    key: Arc<dyn SigningKey>,
    version: &'static SupportedProtocolVersion,
) -> ServerConnection {
    let shown = SingleCertAndKey::from(CertifiedKey::new(chain.to_vec(), key));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    ServerConnection::new(Arc::new(config)).unwrap()
}

pub(super) fn der(identity: &Identity) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()
}

pub(super) fn key(identity: &Identity) -> Arc<dyn SigningKey> {
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    ring::default_provider().key_provider.load_private_key(key).unwrap()
}

/// Connects in both versions of TLS, and has something echoed.
fn echo(
    config: &TransportConfig,
    certificate: &CertificateDer<'static>,
    key: &Arc<dyn SigningKey>,
) -> Result<(), Failure> {
    echo_of_chain(config, slice::from_ref(certificate), key)
}

/// As [`echo`], of a server that shows more than its own certificate.
pub(super) fn echo_of_chain(
    config: &TransportConfig,
    chain: &[CertificateDer<'static>],
    key: &Arc<dyn SigningKey>,
) -> Result<(), Failure> {
    for version in VERSIONS {
        let server = showing(chain, Arc::clone(key), version);
        let mut line = Line::open(config, "db.example", server, 50);
        line.echo(b"isMaster")?;
        assert_eq!(line.plain, b"isMaster");
    }
    Ok(())
}

/// Returns the kind that is refused, which both versions of TLS agree on.
fn kind(
    config: &TransportConfig,
    certificate: &CertificateDer<'static>,
    key: &Arc<dyn SigningKey>,
) -> (Unsupported, Failure) {
    let failure = echo(config, certificate, key).unwrap_err();
    match failure.cause {
        Cause::CertificateUnsupported { unsupported } => (unsupported, failure),
        _ => panic!("{failure:?}"),
    }
}

/// Writes an element of DER.
pub(super) fn element(tag: u8, contents: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(contents.len()).unwrap().to_be_bytes();
    let header = match (high, low) {
        (0, 0..=0x7f) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [&header[..], contents].concat()
}

/// Splits elements of DER whose lengths are written in one to three bytes.
fn elements(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let header = match bytes[1] {
            long @ 0x81..=0x82 => 2 + usize::from(long & 0x7f),
            _ => 2,
        };
        let digits = if header == 2 { &bytes[1..2] } else { &bytes[2..header] };
        let length = digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit));
        let (element, rest) = bytes.split_at(header + length);
        found.push(element);
        bytes = rest;
    }
    found
}

pub(super) fn inside(element: &[u8]) -> Vec<&[u8]> {
    let header = if element[1] < 0x80 { 2 } else { 2 + usize::from(element[1] & 0x7f) };
    elements(&element[header..])
}

/// The same certificate as version 1, as `openssl x509 -req` makes them: without its version and
/// its extensions.
fn of_version_1(certificate: &CertificateDer<'_>) -> CertificateDer<'static> {
    let parts = inside(certificate);
    let signed: Vec<u8> = inside(parts[0])
        .into_iter()
        .filter(|it| ![0xa0, 0xa3].contains(&it[0]))
        .flatten()
        .copied()
        .collect();
    let signed = element(0x30, &signed);
    element(0x30, &[&signed, parts[1], parts[2]].concat()).into()
}

/// The same certificate with what looks like the signature of an RSA key with so many bits.
pub(super) fn signed_by_rsa(
    certificate: &CertificateDer<'_>,
    bits: usize,
) -> CertificateDer<'static> {
    let rsa_with_sha_256 = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
    let algorithm = element(0x30, &[element(0x06, &rsa_with_sha_256), vec![5, 0]].concat());
    let mut signed = inside(inside(certificate)[0]);
    signed[2] = &algorithm;
    let signed = element(0x30, &signed.concat());
    let signature = element(0x03, &vec![0; 1 + bits / 8]);
    element(0x30, &[signed, algorithm, signature].concat()).into()
}

fn with_critical_extension(params: &mut CertificateParams) {
    let mut extension =
        CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
}

/// A public key of RSA with so many bits, without a private one.
pub(super) struct Rsa(Vec<u8>);

impl Rsa {
    pub(super) fn new(bits: usize) -> Self {
        let modulus = [&[0][..], &vec![0xc3; bits / 8]].concat();
        Self(element(0x30, &[element(2, &modulus), vec![2, 3, 1, 0, 1]].concat()))
    }
}

impl PublicKeyData for Rsa {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_RSA_SHA256
    }
}

/// Signs as RSA does, with what is no signature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scribbler;

impl SigningKey for Scribbler {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(*self))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

impl Signer for Scribbler {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(vec![7; 128])
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::RSA_PSS_SHA256
    }
}

/// URI Options, `tlsAllowInvalidCertificates`: any certificate is any certificate.
#[test]
fn where_any_certificate_will_do_so_does_one_that_the_library_cannot_read() {
    let authority = Authority::new();
    let identity = authority.issue(&["other"]);
    let old = of_version_1(&der(&identity));
    echo(&lax(), &old, &key(&identity)).unwrap();
    let (unsupported, failure) = kind(&with_tls(&authority.client()), &old, &key(&identity));
    assert_eq!(unsupported, Unsupported::Version);
    assert!(failure.detail.contains("an older version of X.509"), "{failure}");

    let critical = authority.issue_with(&["db.example"], with_critical_extension);
    echo(&lax(), &der(&critical), &key(&critical)).unwrap();
    let strict = with_tls(&authority.client());
    let (unsupported, _) = kind(&strict, &der(&critical), &key(&critical));
    assert_eq!(unsupported, Unsupported::CriticalExtension);
}

#[test]
fn even_where_any_certificate_will_do_the_server_must_have_its_key() {
    let authority = Authority::new();
    let (identity, other) = (authority.issue(&["a"]), authority.issue(&["a"]));
    for certificate in [der(&identity), of_version_1(&der(&identity))] {
        let failure = echo(&lax(), &certificate, &key(&other)).unwrap_err();
        assert_eq!(failure.cause, Cause::CertificateInvalid);
        assert!(failure.detail.contains("does not prove that it has the key"), "{failure}");
    }
    let garbage = CertificateDer::from(b"no certificate at all".to_vec());
    assert_eq!(kind(&lax(), &garbage, &key(&other)).0, Unsupported::Encoding);
}

#[test]
fn a_key_of_rsa_that_is_too_short_is_named_with_its_length() {
    let authority = Authority::new();
    let params = CertificateParams::new(["db.example".to_owned()]).unwrap();
    let short = params.signed_by(&Rsa::new(1024), &authority.issuer).unwrap();
    let scribbler: Arc<dyn SigningKey> = Arc::new(Scribbler);
    for config in [lax(), with_tls(&authority.client())] {
        let (unsupported, failure) = kind(&config, short.der(), &scribbler);
        assert_eq!(unsupported, Unsupported::RsaLength);
        let expected = "its RSA key has 1024 bits, and keys of RSA must have from 2048";
        assert!(failure.detail.contains(expected), "{failure}");
    }
    // One that is long enough says what it is: a signature that proves nothing.
    let long = params.signed_by(&Rsa::new(2048), &authority.issuer).unwrap();
    let failure = echo(&lax(), long.der(), &scribbler).unwrap_err();
    assert_eq!(failure.cause, Cause::CertificateInvalid, "{failure}");
}

#[test]
fn an_authority_whose_key_is_too_short_is_named_and_not_taken_for_another_one() {
    let authority = Authority::new();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "the authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let weak = params.signed_by(&Rsa::new(1024), &authority.issuer).unwrap().pem();
    let anchors = TrustAnchors::Pem(weak.as_bytes());
    let config = with_tls(&TlsMaterial { anchors, ..TlsMaterial::default() });
    // A certificate of that name's, with what is no signature of RSA.
    let identity = authority.issue(&["db.example"]);
    let certificate = signed_by_rsa(&der(&identity), 1024);
    let (unsupported, failure) = kind(&config, &certificate, &key(&identity));
    assert_eq!(unsupported, Unsupported::RsaLength);
    assert!(failure.detail.contains("1024 bits"), "{failure}");
}

#[test]
fn what_else_is_not_supported_is_said_in_words() {
    let authority = Authority::new();
    let strict = with_tls(&authority.client());
    let unsupported = |config: &TransportConfig, identity: &Identity| {
        let failure = refusal(config, "db.example", identity);
        let dump = ["OtherError", "Context", "{", "[", "Ca"];
        assert!(!dump.iter().any(|it| failure.detail.contains(it)), "{failure}");
        match failure.cause {
            Cause::CertificateUnsupported { unsupported } => unsupported,
            _ => panic!("{failure:?}"),
        }
    };
    // A certificate as `openssl req -x509` makes it, which is its own authority.
    let own = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["db.example".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&own).unwrap().pem();
    let identity = Identity { certificate, key: own.serialize_pem() };
    let anchors = TrustAnchors::Pem(identity.certificate.as_bytes());
    let config = with_tls(&TlsMaterial { anchors, ..TlsMaterial::default() });
    assert_eq!(unsupported(&config, &identity), Unsupported::Authority);

    let for_clients = authority.issue_with(&["db.example"], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    assert_eq!(unsupported(&strict, &for_clients), Unsupported::Purpose);

    // ECDSA with SHA-224 in place of SHA-256, wherever the algorithm stands.
    let identity = authority.issue(&["db.example"]);
    let mut certificate = der(&identity).to_vec();
    let sha_256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
    let places: Vec<usize> = certificate
        .windows(sha_256.len())
        .enumerate()
        .filter(|(_, it)| *it == sha_256)
        .map(|(at, _)| at)
        .collect();
    assert_eq!(places.len(), 2);
    places.iter().for_each(|at| certificate[at + sha_256.len() - 1] = 0x01);
    let (unsupported, failure) = kind(&strict, &certificate.into(), &key(&identity));
    assert_eq!(unsupported, Unsupported::Signature);
    assert!(failure.detail.contains("SHA-1") && !failure.detail.contains('['), "{failure}");
}
