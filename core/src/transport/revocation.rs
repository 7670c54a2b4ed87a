//! Revocation of a server's certificate: what its staple says, and what is left to be asked.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, OtherError, RootCertStore};

use crate::failure::{Cause, Failure, Stage};
use crate::revocation::{InvalidResponse, Leaf, Status, StatusCache, Subject};

/// The means to find out whether a certificate was revoked.
#[derive(Debug)]
pub(super) struct Revocation {
    pub(super) statuses: Arc<dyn StatusCache>,
    /// False if no responder is to be asked: `tlsDisableOCSPEndpointCheck`.
    pub(super) ask_responders: bool,
    /// Accepts certificates of servers that a list of revoked certificates covers, and that are not
    /// on it.
    pub(super) lists: Option<Arc<WebPkiServerVerifier>>,
    pub(super) anchors: Arc<RootCertStore>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

/// The reason why a staple, or its absence, ends the handshake.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it was {0}")]
    Revoked(Status),
    #[error("it demands a staple of OCSP (must-staple), and the server has sent none")]
    NotStapled,
    #[error("the staple of OCSP that the server has sent for it is not valid: {0}")]
    InvalidStaple(InvalidResponse),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        CertificateError::Other(OtherError(Arc::new(refusal))).into()
    }
}

impl Refusal {
    /// Recognises one in an error of a verifier.
    pub(super) fn of(error: &CertificateError) -> Option<(Cause, String)> {
        let CertificateError::Other(other) = error else { return None };
        Some(other.0.downcast_ref::<Self>()?.explained())
    }

    fn explained(&self) -> (Cause, String) {
        match self {
            Self::Revoked(status) => {
                let detail = format!("the server's certificate was {status}, as OCSP says");
                (Cause::CertificateRevoked, detail)
            }
            refused => {
                let detail = format!("the server's certificate is not acceptable: {refused}");
                (Cause::InvalidStaple, detail)
            }
        }
    }
}

impl Revocation {
    /// Judges the staple that came with a certificate of which everything else is as it should be
    /// (OCSP Support, "Suggested OCSP Behavior", 1. to 3.).
    pub(super) fn check_staple(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        staple: &[u8],
        now: UnixTime,
    ) -> Result<(), Error> {
        let leaf = Leaf::of(end_entity);
        if staple.is_empty() {
            return match leaf.is_some_and(|leaf| leaf.must_staple) {
                true => Err(Refusal::NotStapled.into()),
                false => Ok(()),
            };
        }
        let subject = leaf.and_then(|leaf| {
            leaf.issued_by(intermediates, &self.anchors.roots, &self.algorithms, now, |_| true)
        });
        let judged = subject.ok_or(InvalidResponse::Issuer).and_then(|subject| {
            let verdict = subject.judge(staple, now)?;
            Ok((subject.id(), verdict))
        });
        let (id, verdict) = judged.map_err(Refusal::InvalidStaple)?;
        let status = verdict.status.clone();
        self.statuses.learn(&id, verdict, now);
        match status {
            Status::Revoked { .. } => Err(Refusal::Revoked(status).into()),
            Status::Good | Status::Unknown => Ok(()),
        }
    }

    /// Returns the certificate that is left to be asked about, after the cache and the lists of the
    /// user ("Suggested OCSP Behavior", 4., 5. and 7.): that of the server alone (8. and 9.).
    pub(super) fn unchecked(
        &self,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<Option<Subject>, Failure> {
        let Some((end_entity, intermediates)) = chain.split_first() else { return Ok(None) };
        let Some(leaf) = Leaf::of(end_entity) else { return Ok(None) };
        // What a staple has said counts without a responder, too; there is nothing to be checked of
        // those of whom nothing is known and nothing can be asked.
        let is_wanted =
            |it: &Subject| leaf.names_responders() || self.statuses.status(&it.id(), now).is_some();
        let anchors = &self.anchors.roots;
        let subject = leaf.issued_by(intermediates, anchors, &self.algorithms, now, is_wanted);
        let Some(subject) = subject else { return Ok(None) };
        match self.statuses.status(&subject.id(), now) {
            Some(status @ Status::Revoked { .. }) => return Err(revoked(status)),
            Some(Status::Good) => return Ok(None),
            Some(Status::Unknown) | None => {}
        }
        let is_covered = self.lists.as_ref().is_some_and(|lists| {
            matches!(
                lists.verify_server_cert(end_entity, intermediates, name, &[], now),
                Ok(_)
                    | Err(Error::InvalidCertificate(
                        CertificateError::NotValidForName
                            | CertificateError::NotValidForNameContext { .. }
                    ))
            )
        });
        Ok(Some(subject).filter(|_| self.ask_responders && !is_covered))
    }
}

/// Returns the failure of a connection whose server has a certificate that was revoked.
pub(super) fn revoked(status: Status) -> Failure {
    let (cause, detail) = Refusal::Revoked(status).explained();
    Failure::new(Stage::Tls, cause, detail)
}
