//! Chains of certificates that lead to no trusted authority: the cause is that of the chain which
//! would be used, and is said in words.

use std::slice;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, GeneralSubtree, IsCa, Issuer, KeyPair,
    NameConstraints, PKCS_ECDSA_P384_SHA384, PublicKeyData,
};
use rustls::pki_types::CertificateDer;
use rustls::sign::SigningKey;

use super::fixture::{Authority, Identity, with_tls};
use super::unsupported::{Rsa, Scribbler, der, echo_of_chain, key, lax, signed_by_rsa};
use crate::failure::{Cause, Failure, UnsupportedCertificate as Unsupported};
use crate::transport::{TlsMaterial, TransportConfig, TrustAnchors};

fn authority_of(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// Has an authority issue the certificate of another one.
fn intermediate(
    name: &str,
    key: &impl PublicKeyData,
    authority: &Authority,
) -> CertificateDer<'static> {
    authority_of(name).signed_by(key, &authority.issuer).unwrap().into()
}

fn refused(
    config: &TransportConfig,
    chain: &[CertificateDer<'static>],
    key: &Arc<dyn SigningKey>,
) -> Failure {
    let failure = echo_of_chain(config, chain, key).unwrap_err();
    let dump = ["Maximum", "Exceeded", "OtherError", "Context", "{", "["];
    assert!(!dump.iter().any(|it| failure.detail.contains(it)), "{failure}");
    failure
}

fn unsupported(failure: &Failure) -> Unsupported {
    match failure.cause {
        Cause::CertificateUnsupported { unsupported } => unsupported,
        _ => panic!("{failure:?}"),
    }
}

/// Each of them is tried, and has two signatures that are checked.
#[test]
fn more_certificates_than_are_tried_are_said_in_words() {
    let authority = Authority::new();
    let own = Authority::named("between");
    let identity = own.issue(&["db.example"]);
    let mut chain = vec![der(&identity)];
    chain.extend((0..60).map(|_| {
        let other = KeyPair::generate().unwrap();
        intermediate("between", &other, &authority)
    }));
    let failure = refused(&with_tls(&authority.client()), &chain, &key(&identity));
    assert_eq!(unsupported(&failure), Unsupported::Chain);
    assert!(failure.detail.contains("to a trusted authority"), "{failure}");
}

#[test]
fn more_names_than_are_compared_are_said_in_words() {
    let authority = Authority::new();
    let mut params = authority_of("between");
    let excluded = (0..500).map(|n| GeneralSubtree::DnsName(format!("x{n}.test")));
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: Vec::new(),
        excluded_subtrees: excluded.collect(),
    });
    let issuer = KeyPair::generate().unwrap();
    let between = params.signed_by(&issuer, &authority.issuer).unwrap();
    let issuer = Issuer::new(params, issuer);
    let names: Vec<String> = (0..501).map(|n| format!("n{n}.example")).collect();
    let own = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().signed_by(&own, &issuer).unwrap();
    let identity = Identity { certificate: certificate.pem(), key: own.serialize_pem() };
    let chain = [certificate.into(), between.into()];
    let failure = refused(&with_tls(&authority.client()), &chain, &key(&identity));
    assert_eq!(unsupported(&failure), Unsupported::Names);
    assert!(failure.detail.contains("more names"), "{failure}");
}

#[test]
fn a_forged_chain_is_not_blamed_on_a_key_of_odd_length() {
    let (authority, forger) = (Authority::new(), Authority::new());
    let config = with_tls(&authority.client());
    let weak = Rsa::new(1024);
    let identity = Authority::named("between").issue(&["db.example"]);
    let proof = key(&identity);
    let leaf = signed_by_rsa(&der(&identity), 1024);

    // What the trusted authority has issued cannot be checked further.
    let genuine = intermediate("between", &weak, &authority);
    let failure = refused(&config, &[leaf.clone(), genuine.clone()], &proof);
    assert_eq!(unsupported(&failure), Unsupported::RsaLength);
    assert!(failure.detail.contains("1024 bits"), "{failure}");

    // The key of an authority that is not what it says it is does not matter.
    let forged = intermediate("between", &weak, &forger);
    let failure = refused(&config, &[leaf.clone(), forged], &proof);
    assert_eq!(failure.cause, Cause::UnknownIssuer, "{failure}");

    // Nor one by which the certificate cannot be signed, as its signature is longer.
    let longer = signed_by_rsa(&der(&identity), 2048);
    let failure = refused(&config, &[longer, genuine.clone()], &proof);
    assert_eq!(failure.cause, Cause::UnknownIssuer, "{failure}");

    // Nor one beside the way to the authority.
    let identity = forger.issue(&["db.example"]);
    let failure = refused(&config, &[der(&identity), genuine], &key(&identity));
    assert_eq!(failure.cause, Cause::UnknownIssuer, "{failure}");
}

/// The trusted authority has the same name twice, as one whose key was renewed.
#[test]
fn an_old_key_of_odd_length_does_not_excuse_a_forged_signature() {
    let authority = Authority::new();
    let weak = authority_of("the authority").signed_by(&Rsa::new(1024), &authority.issuer).unwrap();
    let both = [weak.pem(), authority.pem.clone()].concat();
    let anchors = TrustAnchors::Pem(both.as_bytes());
    let config = with_tls(&TlsMaterial { anchors, ..TlsMaterial::default() });
    let identity = Authority::new().issue(&["db.example"]);
    let failure = refused(&config, &[der(&identity)], &key(&identity));
    assert_eq!(failure.cause, Cause::UnknownIssuer, "{failure}");
}

#[test]
fn a_key_of_a_known_kind_is_not_called_unknown() {
    // The server signs the handshake as RSA does, and its key is one of ECDSA over P-384.
    let authority = Authority::new();
    let own = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let params = CertificateParams::new(["db.example".to_owned()]).unwrap();
    let certificate: CertificateDer<'static> =
        params.signed_by(&own, &authority.issuer).unwrap().into();
    let scribbler: Arc<dyn SigningKey> = Arc::new(Scribbler);
    for config in [lax(), with_tls(&authority.client())] {
        let failure = refused(&config, slice::from_ref(&certificate), &scribbler);
        assert_eq!(failure.cause, Cause::CertificateInvalid, "{failure}");
        assert!(failure.detail.contains("an algorithm that its key is not for"), "{failure}");
    }

    // A certificate that RSA has signed was not issued by an authority with such a key.
    let params = authority_of("between");
    let issuer = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let between = intermediate("between", &issuer, &authority);
    let issuer = Issuer::new(params, issuer);
    let own = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["db.example".to_owned()]).unwrap();
    let leaf = params.signed_by(&own, &issuer).unwrap();
    let identity = Identity { certificate: leaf.pem(), key: own.serialize_pem() };
    let config = with_tls(&authority.client());
    let leaf = leaf.into();
    echo_of_chain(&config, &[CertificateDer::clone(&leaf), between.clone()], &key(&identity))
        .unwrap();
    let failure = refused(&config, &[signed_by_rsa(&leaf, 2048), between], &key(&identity));
    assert_eq!(failure.cause, Cause::UnknownIssuer, "{failure}");
}

#[test]
fn a_key_of_an_unknown_kind_is_called_unknown() {
    let authority = Authority::new();
    let identity = authority.issue(&["db.example"]);
    let mut certificate = der(&identity).to_vec();
    // The last byte makes P-256 another curve, which nothing here knows.
    let p_256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    let place = certificate.windows(p_256.len()).position(|it| it == p_256).unwrap();
    certificate[place + p_256.len() - 1] = 0x04;
    let failure = refused(&lax(), &[certificate.into()], &key(&identity));
    assert_eq!(unsupported(&failure), Unsupported::PublicKey);
}
