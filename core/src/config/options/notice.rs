//! The meaning of options where it is easily overlooked.

use std::fmt;

use super::TlsOptions;

/// The meaning of an option that is easily overlooked; for the application's log.
///
/// Other than a [`Warning`](super::Warning), it is about options that are understood and allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Servers need not prove who they are.
    AnyCertificate,
    /// Servers may show the certificate of another host.
    AnyHostname,
    /// Certificates that were revoked are accepted.
    Revoked,
    /// Revocation is not checked at all without the feature `ocsp`, so that nothing can be left out
    /// of it.
    NoRevocationCheck {
        /// The option that leaves something out.
        option: &'static str,
    },
}

impl Notice {
    /// Returns what these options of TLS mean.
    pub(super) fn of(tls: &TlsOptions) -> Vec<Self> {
        let no_check = |option| Self::NoRevocationCheck { option };
        let is_built_in = cfg!(feature = "ocsp");
        let notices = [
            (tls.allow_invalid_certificates, Self::AnyCertificate),
            // If any certificate will do, its name does not matter either.
            (tls.allow_invalid_hostnames && !tls.allow_invalid_certificates, Self::AnyHostname),
            (tls.disable_certificate_revocation_check && is_built_in, Self::Revoked),
            (
                tls.disable_certificate_revocation_check && !is_built_in,
                no_check("tlsDisableCertificateRevocationCheck"),
            ),
            (
                tls.disable_ocsp_endpoint_check && !is_built_in,
                no_check("tlsDisableOCSPEndpointCheck"),
            ),
        ];
        notices.into_iter().filter(|(applies, _)| *applies).map(|(_, notice)| notice).collect()
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnyCertificate => f.write_str(
                "any certificate of a server is accepted (tlsAllowInvalidCertificates or \
                 tlsInsecure), so anyone between client and server can read and change everything",
            ),
            Self::AnyHostname => f.write_str(
                "certificates of servers may be for other names (tlsAllowInvalidHostnames, as \
                 tlsInsecure), so anyone with a certificate of a trusted authority can impersonate \
                 a server",
            ),
            Self::Revoked => f.write_str(
                "certificates of servers that were revoked are accepted \
                 (tlsDisableCertificateRevocationCheck), so anyone who has stolen the key of one \
                 can impersonate that server",
            ),
            Self::NoRevocationCheck { option } => write!(
                f,
                "{option} has no effect, as without the feature ocsp nothing asks whether \
                 certificates were revoked (no OCSP)",
            ),
        }
    }
}
