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

use super::chain;
#[cfg(feature = "ocsp")]
use super::revocation::Revocation;
use super::unsupported::{Parts, RsaLength};

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
    /// The authorities that are trusted; none where anything is.
    pub(super) anchors: Arc<RootCertStore>,
    /// The means to find out about revocation, if that matters.
    #[cfg(feature = "ocsp")]
    pub(super) revocation: Option<Arc<Revocation>>,
}

impl Verifier {
    /// Returns whether signatures can be checked with keys of this kind.
    fn knows(&self, key_algorithm: &[u8]) -> bool {
        self.algorithms.all.iter().any(|it| it.public_key_alg_id().as_ref() == key_algorithm)
    }

    /// Replaces the error of a signature in a chain by what is found out about it: that it is
    /// wrong, or made with another key.
    fn explained_chain(
        &self,
        error: Error,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> Error {
        match self.wrong(&error) {
            None => error,
            Some(Wrong::OtherKind) => CertificateError::BadSignature.into(),
            Some(Wrong::Signature) => {
                let anchors = &self.anchors.roots;
                let odd = chain::odd_issuer(end_entity, intermediates, anchors, &self.algorithms);
                odd.map_or(error, other)
            }
        }
    }

    /// The same for the signature of a handshake.
    fn explained_handshake<T>(
        &self,
        outcome: Result<T, Error>,
        certificate: &CertificateDer<'_>,
    ) -> Result<T, Error> {
        outcome.map_err(|error| match self.wrong(&error) {
            None => error,
            Some(Wrong::OtherKind) => other(OtherKind),
            Some(Wrong::Signature) => {
                length_of(certificate).map_or_else(|| other(NotProven), other)
            }
        })
    }

    fn wrong(&self, error: &Error) -> Option<Wrong> {
        let Error::InvalidCertificate(error) = error else { return None };
        match error {
            CertificateError::BadSignature => Some(Wrong::Signature),
            CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                public_key_algorithm_id,
                ..
            } => self.knows(public_key_algorithm_id).then_some(Wrong::OtherKind),
            _ => None,
        }
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

/// The server signs the handshake as keys of another kind do.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the server signs the handshake with an algorithm that its key is not for")]
struct OtherKind;

/// The way in which a signature is wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// It is none of the key.
    Signature,
    /// Its algorithm is none of the key, whose kind is known.
    OtherKind,
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    CertificateError::Other(OtherError(Arc::new(error))).into()
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
            (Ok(_), _) => {}
            // The name is checked last: everything else is as it should be.
            (
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForName
                    | CertificateError::NotValidForNameContext { .. },
                )),
                Trust::AnyName(_),
            ) => {}
            (Err(error), _) => return Err(self.explained_chain(error, end_entity, intermediates)),
        }
        #[cfg(feature = "ocsp")]
        if let Some(revocation) = &self.revocation {
            revocation.check_staple(end_entity, intermediates, ocsp_response, now)?;
        }
        Ok(ServerCertVerified::assertion())
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
        self.explained_handshake(outcome, certificate)
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
        self.explained_handshake(outcome, certificate)
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
