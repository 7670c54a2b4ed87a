//! Responses of OCSP: who has signed them, what they say, and for how long (RFC 6960, section 3.2).

use std::time::Duration;

use der::asn1::{GeneralizedTime, ObjectIdentifier};
use der::{Decode, Encode};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use sha1::{Digest, Sha1};
use webpki::{EndEntityCert, KeyUsage};

use super::certificate::{Issuer, Subject};
use super::structures::{
    BasicOcspResponse, CertStatus, OcspResponse, Reason, ResponderId, ResponseData, ResponseStatus,
    RevokedInfo, SingleResponse,
};
use super::{Status, UselessAnswer};
use crate::http::HttpResponse;

/// `id-pkix-ocsp-basic`
pub(super) const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");

/// The contents of `id-kp-OCSPSigning` (RFC 6960, section 4.2.2.2).
const OCSP_SIGNING: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x09];

/// The number of certificates in a response that may be its signer's; a responder sends one.
const MAX_CERTIFICATES: usize = 8;

/// The time for which a response counts that does not say when there will be a newer one: it spares
/// the connections that are opened together from asking one by one.
const WITHOUT_NEXT_UPDATE: Duration = Duration::from_secs(10);

/// The greatest age of such a response, in seconds. "Newer revocation information is available all
/// the time" (RFC 6960, section 4.2.2.1), so that an older one is one that was kept.
const MAX_AGE: u64 = 300;

/// A valid response about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The status.
    pub status: Status,
    /// The time since when that is so: `thisUpdate`.
    pub since: UnixTime,
    /// The end of the time for which it may be used, which is not part of it.
    pub until: UnixTime,
}

/// The reason why a response says nothing about a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidResponse {
    /// It is no response of OCSP.
    #[error("it is no response of OCSP")]
    Malformed,
    /// The responder has refused the request.
    #[error("it says {0}")]
    Refused(&'static str),
    /// It is of another type than the one that clients have to know (RFC 6960, section 4.2.1).
    #[error("it is of the type {0}, not basic")]
    Type(String),
    /// It is about other certificates.
    #[error("it is about another certificate")]
    OtherCertificate,
    /// Neither the issuer nor one whom it has appointed has signed it.
    #[error("neither the issuer of the certificate nor a delegate of it has signed it")]
    Signature,
    /// The one who has signed it may not answer for the issuer.
    #[error("its signer is no delegate of the issuer: {0}")]
    Delegate(String),
    /// It is about a certificate whose issuer is not among those that were sent or are trusted.
    #[error("who has issued the certificate is not to be found out")]
    Issuer,
    /// It is about a time to come.
    #[error("it is valid only after {0}")]
    Early(String),
    /// There is a newer one.
    #[error("it has been out of date since {0}")]
    Late(String),
}

impl Subject {
    /// Judges a response about this certificate.
    ///
    /// It must be about it (RFC 6960, section 3.2, 1.), signed by its issuer or by one whom the
    /// issuer has given the right to (2. to 4.), and *thisUpdate ⩽ now < nextUpdate* (5. and 6.;
    /// OCSP Support, "Suggested OCSP Caching Behavior").
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn judge(&self, response: &[u8], now: UnixTime) -> Result<Verdict, InvalidResponse> {
        let malformed = |_: der::Error| InvalidResponse::Malformed;
        let response = OcspResponse::from_der(response).map_err(malformed)?;
        if let Some(refusal) = refusal(response.response_status) {
            return Err(InvalidResponse::Refused(refusal));
        }
        let bytes = response.response_bytes.ok_or(InvalidResponse::Malformed)?;
        if bytes.response_type != BASIC {
            return Err(InvalidResponse::Type(bytes.response_type.to_string()));
        }
        let basic = BasicOcspResponse::from_der(bytes.response.as_bytes()).map_err(malformed)?;
        let signed = basic.tbs_response_data.to_der().map_err(malformed)?;
        let data = ResponseData::from_der(&signed).map_err(malformed)?;
        let single = data.responses.iter().find(|it| self.is(&it.cert_id));
        let single = single.ok_or(InvalidResponse::OtherCertificate)?;
        self.check_signature(&basic, &data, &signed, now)?;
        verdict(single, now)
    }

    /// Reads the answer of a responder.
    ///
    /// # Errors
    ///
    /// Fails if it holds no valid response about this certificate.
    pub fn read(&self, answer: &HttpResponse, now: UnixTime) -> Result<Verdict, UselessAnswer> {
        match answer.status {
            200 => Ok(self.judge(&answer.body, now)?),
            status => Err(UselessAnswer::Status(status)),
        }
    }

    /// Checks who has signed a response: the issuer, or a delegate "issued directly by the CA that
    /// is identified in the request" (RFC 6960, section 4.2.2.2).
    fn check_signature(
        &self,
        basic: &BasicOcspResponse<'_>,
        data: &ResponseData<'_>,
        signed: &[u8],
        now: UnixTime,
    ) -> Result<(), InvalidResponse> {
        let signature = basic.signature.as_bytes().ok_or(InvalidResponse::Malformed)?;
        let algorithm = basic.signature_algorithm.value();
        let has_signed = |it: &Issuer| {
            is_named(&data.responder_id, it)
                && it.has_signed(signed, algorithm, signature, &self.algorithms)
        };
        if has_signed(&self.issuer) {
            return Ok(());
        }
        for sent in basic.certs.iter().flatten().take(MAX_CERTIFICATES) {
            let Ok(der) = sent.to_der() else { continue };
            if Issuer::of(&der).is_some_and(|it| has_signed(&it)) {
                return check_delegate(&der, &self.issuer, now, &self.algorithms);
            }
        }
        Err(InvalidResponse::Signature)
    }
}

const fn refusal(status: ResponseStatus) -> Option<&'static str> {
    match status {
        ResponseStatus::Successful => None,
        ResponseStatus::MalformedRequest => Some("malformedRequest"),
        ResponseStatus::InternalError => Some("internalError"),
        ResponseStatus::TryLater => Some("tryLater"),
        ResponseStatus::SigRequired => Some("sigRequired"),
        ResponseStatus::Unauthorized => Some("unauthorized"),
    }
}

/// Returns whether the response says that this is its signer.
fn is_named(responder: &ResponderId<'_>, signer: &Issuer) -> bool {
    match responder {
        ResponderId::ByName(name) => name.value() == signer.name,
        ResponderId::ByKey(hash) => {
            signer.key().is_some_and(|key| Sha1::digest(key).as_slice() == hash.as_bytes())
        }
    }
}

fn check_delegate(
    certificate: &[u8],
    issuer: &Issuer,
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), InvalidResponse> {
    let refused = |error: webpki::Error| InvalidResponse::Delegate(error.to_string());
    let certificate = CertificateDer::from(certificate);
    let delegate = EndEntityCert::try_from(&certificate).map_err(refused)?;
    let usage = KeyUsage::required(OCSP_SIGNING);
    let anchors = [issuer.anchor()];
    let path = delegate.verify_for_usage(algorithms.all, &anchors, &[], now, usage, None, None);
    path.map(drop).map_err(refused)
}

fn verdict(single: &SingleResponse<'_>, now: UnixTime) -> Result<Verdict, InvalidResponse> {
    let since = unix(single.this_update);
    if now < since {
        return Err(InvalidResponse::Early(single.this_update.to_date_time().to_string()));
    }
    let until = match single.next_update {
        None if now.as_secs() - since.as_secs() > MAX_AGE => {
            return Err(InvalidResponse::Late(single.this_update.to_date_time().to_string()));
        }
        None => UnixTime::since_unix_epoch(
            Duration::from_secs(now.as_secs()).saturating_add(WITHOUT_NEXT_UPDATE),
        ),
        Some(next) if now >= unix(next) => {
            return Err(InvalidResponse::Late(next.to_date_time().to_string()));
        }
        Some(next) => unix(next),
    };
    let status = match single.cert_status {
        CertStatus::Good(_) => Status::Good,
        CertStatus::Unknown(_) => Status::Unknown,
        CertStatus::Revoked(RevokedInfo { revocation_time, revocation_reason }) => {
            let at = revocation_time.to_date_time().to_string();
            Status::Revoked { at, reason: revocation_reason.map(Reason::name) }
        }
    };
    Ok(Verdict { status, since, until })
}

fn unix(time: GeneralizedTime) -> UnixTime {
    UnixTime::since_unix_epoch(time.to_unix_duration())
}
