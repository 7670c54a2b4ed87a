//! Responses of OCSP for tests, as a responder signs them with ECDSA.

use std::time::Duration;

use der::asn1::{
    AnyRef, BitStringRef, GeneralizedTime, Ia5String, Null, ObjectIdentifier, OctetStringRef,
};
use der::{Decode, Encode};
use rustls::pki_types::{CertificateDer, UnixTime};
use sha1::{Digest as _, Sha1};
use webpki::anchor_from_trusted_cert;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{AccessDescription, AuthorityInfoAccessSyntax};
use x509_cert::spki::AlgorithmIdentifierOwned;

use super::certificate::{Issuer, OCSP};
use super::response::BASIC;
use super::structures::{
    BasicOcspResponse, CertStatus, OcspResponse, Reason, ResponderId, ResponseBytes, ResponseData,
    ResponseStatus, RevokedInfo, SingleResponse,
};
use super::{Leaf, Status, Subject};

const ECDSA_WITH_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");

/// Returns a certificate as one to be asked about; `None` if this authority has not issued it.
pub fn subject(
    certificate: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
) -> Option<Subject> {
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let anchor = anchor_from_trusted_cert(authority).ok()?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    Leaf::of(certificate)?.issued_by(&[], &[anchor], &algorithms, now, |_| true)
}

/// Returns the contents of the extension authorityInfoAccess of a certificate that names these
/// responders.
///
/// # Panics
///
/// Panics if an address is not in ASCII.
pub fn access(responders: &[String]) -> Vec<u8> {
    let described = responders.iter().map(|address| AccessDescription {
        access_method: OCSP,
        access_location: GeneralName::UniformResourceIdentifier(
            Ia5String::new(address).expect("an address in ASCII"),
        ),
    });
    AuthorityInfoAccessSyntax(described.collect()).to_der().expect("an extension")
}

/// A response that is to be signed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer<'a> {
    /// The certificate that it is about.
    pub subject: &'a Subject,
    /// The status; a reason for a revocation is `keyCompromise`.
    pub status: Status,
    /// The time since when that is so.
    pub this_update: UnixTime,
    /// The time at which there will be a newer one.
    pub next_update: Option<UnixTime>,
    /// The certificate of the delegate that signs it, if the authority itself does not.
    pub delegate: Option<&'a CertificateDer<'a>>,
    /// True if it names its signer by its key, and not by its name.
    pub names_key: bool,
    /// True if it names the certificate by hashes of SHA-256, and not of SHA-1.
    pub names_by_sha_256: bool,
}

impl<'a> Answer<'a> {
    /// Describes one that the authority signs.
    pub const fn new(
        subject: &'a Subject,
        status: Status,
        this_update: UnixTime,
        next_update: Option<UnixTime>,
    ) -> Self {
        let (delegate, names_key, names_by_sha_256) = (None, false, false);
        Self { subject, status, this_update, next_update, delegate, names_key, names_by_sha_256 }
    }

    /// Has it name its signer by its key.
    #[must_use]
    pub const fn with_key(mut self) -> Self {
        self.names_key = true;
        self
    }

    /// Has it name the certificate by hashes of SHA-256.
    #[must_use]
    pub const fn with_sha_256(mut self) -> Self {
        self.names_by_sha_256 = true;
        self
    }

    /// Has a delegate sign it, if there is one.
    #[must_use]
    pub const fn with_delegate(mut self, delegate: Option<&'a CertificateDer<'a>>) -> Self {
        self.delegate = delegate;
        self
    }

    /// Writes it, signed by `sign` with ECDSA over P-256 and SHA-256.
    ///
    /// # Panics
    ///
    /// Panics if a time cannot be written.
    pub fn write(&self, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let time = |time: UnixTime| {
            let time = Duration::from_secs(time.as_secs());
            GeneralizedTime::from_unix_duration(time).expect("a time that can be written")
        };
        let signer = match self.delegate {
            None => self.subject.issuer.clone(),
            Some(delegate) => Issuer::of(delegate).expect("a certificate"),
        };
        let name = AnyRef::new(der::Tag::Sequence, &signer.name).expect("a name");
        let hash = Sha1::digest(signer.key().expect("a key"));
        let key = OctetStringRef::new(&hash).expect("a hash");
        let data = ResponseData {
            version: 0,
            responder_id: match self.names_key {
                true => ResponderId::ByKey(key),
                false => ResponderId::ByName(name),
            },
            produced_at: time(self.this_update),
            responses: vec![SingleResponse {
                cert_id: self.subject.cert_id(self.names_by_sha_256).expect("a name"),
                cert_status: match self.status {
                    Status::Good => CertStatus::Good(Null),
                    Status::Unknown => CertStatus::Unknown(Null),
                    Status::Revoked { .. } => CertStatus::Revoked(RevokedInfo {
                        revocation_time: time(self.this_update),
                        revocation_reason: Some(Reason::KeyCompromise),
                    }),
                },
                this_update: time(self.this_update),
                next_update: self.next_update.map(time),
                single_extensions: None,
            }],
            response_extensions: None,
        };
        let signed = data.to_der().expect("a response");
        let signature = sign(&signed);
        let algorithm = AlgorithmIdentifierOwned { oid: ECDSA_WITH_SHA256, parameters: None };
        let algorithm = algorithm.to_der().expect("DER");
        let certificates = self.delegate.map(|it| vec![AnyRef::from_der(it).expect("DER")]);
        let basic = BasicOcspResponse {
            tbs_response_data: AnyRef::from_der(&signed).expect("DER"),
            signature_algorithm: AnyRef::from_der(&algorithm).expect("DER"),
            signature: BitStringRef::from_bytes(&signature).expect("a signature"),
            certs: certificates,
        };
        let basic = basic.to_der().expect("a response");
        let response = OctetStringRef::new(&basic).expect("a response");
        let response = OcspResponse {
            response_status: ResponseStatus::Successful,
            response_bytes: Some(ResponseBytes { response_type: BASIC, response }),
        };
        response.to_der().expect("a response")
    }
}
