//! Checks a server's certificate, as strictly as the options demand.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// The facts that a certificate must prove.
#[derive(Debug)]
pub(super) enum Trust {
    /// That a trusted authority issued it: `tlsAllowInvalidHostnames`.
    AnyName(Arc<WebPkiServerVerifier>),
    /// Nothing: `tlsAllowInvalidCertificates`.
    Anything,
}

/// A verifier that is laxer than the usual one.
///
/// Whatever the certificate, the server must prove that it has its key.
#[derive(Debug)]
pub(super) struct LaxVerifier {
    pub(super) trust: Trust,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for LaxVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::AnyName(strict) = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let verdict =
            strict.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            // The name is checked last: everything else is as it should be.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
