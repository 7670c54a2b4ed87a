//! Checks a server's certificate, as strictly as the options demand.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, ServerName, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use super::unsupported::{Parts, RsaLength, rsa_length};

/// The facts that a certificate must prove.
#[derive(Debug)]
pub(super) enum Trust {
    /// That a trusted authority issued it to the server of that name.
    Strict(Arc<WebPkiServerVerifier>),
    /// That a trusted authority issued it: `tlsAllowInvalidHostnames`.
    AnyName(Arc<WebPkiServerVerifier>),
    /// Nothing: `tlsAllowInvalidCertificates`.
    Anything,
}

/// A verifier that is as strict as the options say, and finds out why a signature cannot be
/// checked.
///
/// Whatever the certificate, the server must prove that it has its key.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) trust: Trust,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// The authorities whose keys are of a length that no signature can be checked with, by the
    /// contents of their names.
    pub(super) odd_anchors: Vec<(Vec<u8>, RsaLength)>,
}

/// Returns the authorities whose keys are of such a length.
pub(super) fn odd_anchors(anchors: &RootCertStore) -> Vec<(Vec<u8>, RsaLength)> {
    let odd = anchors.roots.iter().filter_map(|anchor| {
        let length = rsa_length(&anchor.subject_public_key_info)?;
        Some((anchor.subject.to_vec(), length))
    });
    odd.collect()
}

impl Verifier {
    /// Returns the length of a key by which no signature in this chain can be checked.
    fn odd_issuer(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Option<RsaLength> {
        let has_issued = |name: &[u8]| {
            let mut all = [end_entity].into_iter().chain(intermediates);
            all.any(|it| Parts::of(it).is_some_and(|parts| parts.issuer == name))
        };
        intermediates.iter().find_map(length_of).or_else(|| {
            let odd = self.odd_anchors.iter().find(|(name, _)| has_issued(name));
            odd.map(|(_, length)| *length)
        })
    }

    const fn takes_anything(&self) -> bool {
        matches!(self.trust, Trust::Anything)
    }
}

/// The server has signed the handshake with another key.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "the server does not prove that it has the key of it, as its signature of the handshake is \
     wrong"
)]
struct NotProven;

/// Replaces the error of a signature that is wrong by what is found out about it.
fn explained<T>(outcome: Result<T, Error>, why: impl FnOnce() -> Error) -> Result<T, Error> {
    match outcome {
        Err(Error::InvalidCertificate(CertificateError::BadSignature)) => Err(why()),
        outcome => outcome,
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    CertificateError::Other(OtherError(Arc::new(error))).into()
}

/// Says why the signature of a handshake is wrong.
fn wrong_signature(certificate: &CertificateDer<'_>) -> Error {
    length_of(certificate).map_or_else(|| other(NotProven), other)
}

fn length_of(certificate: &CertificateDer<'_>) -> Option<RsaLength> {
    Parts::of(certificate)?.rsa_length()
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (Trust::Strict(strict) | Trust::AnyName(strict)) = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let verdict =
            strict.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match (verdict, &self.trust) {
            // The name is checked last: everything else is as it should be.
            (
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )),
                Trust::AnyName(_),
            ) => Ok(ServerCertVerified::assertion()),
            (verdict, _) => explained(verdict, || {
                let odd_issuer = self.odd_issuer(end_entity, intermediates);
                odd_issuer.map_or_else(|| CertificateError::BadSignature.into(), other)
            }),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let outcome = match self.takes_anything() {
            true => verify_any_tls12_signature(message, certificate, signature, &self.algorithms),
            false => verify_tls12_signature(message, certificate, signature, &self.algorithms),
        };
        explained(outcome, || wrong_signature(certificate))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let outcome = match self.takes_anything() {
            true => {
                let parts = Parts::of(certificate).ok_or(CertificateError::BadEncoding)?;
                let key = SubjectPublicKeyInfoDer::from(parts.key_info);
                verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
            }
            false => verify_tls13_signature(message, certificate, signature, &self.algorithms),
        };
        explained(outcome, || wrong_signature(certificate))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Checks a signature of TLS 1.2 with the key of any certificate, one that the library cannot read
/// included: with each algorithm that the scheme may stand for, as the library does.
fn verify_any_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let parts = Parts::of(certificate).ok_or(CertificateError::BadEncoding)?;
    let (key_algorithm, key) = parts.key().ok_or(CertificateError::BadEncoding)?;
    let of_scheme = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signature.scheme);
    let of_scheme = of_scheme.map_or(&[][..], |(_, algorithms)| algorithms);
    let is_of_key = |algorithm: &&&dyn SignatureVerificationAlgorithm| {
        algorithm.public_key_alg_id().as_ref() == key_algorithm
    };
    let mut candidates = of_scheme.iter().filter(is_of_key).peekable();
    if candidates.peek().is_none() {
        return Err(CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: Vec::new(),
            public_key_algorithm_id: key_algorithm.to_vec(),
        }
        .into());
    }
    match candidates.any(|it| it.verify_signature(key, message, signature.signature()).is_ok()) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}
