//! The facts that a server's certificate states about its revocation, and who has issued it.

use std::fmt;
use std::sync::Arc;

use der::asn1::{AnyRef, ObjectIdentifier, OctetString};
use der::{Decode, Encode, SliceReader};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use sha1::{Digest, Sha1};
use sha2::Sha256;
use webpki::{EndEntityCert, KeyUsage};
use x509_cert::certificate::CertificateInner;
use x509_cert::ext::pkix::AuthorityInfoAccessSyntax;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_cert::time::Time;

use super::raw::{Raw, key_of};
use super::responder::{InvalidAddress, is_address, parse};
use super::structures::{CertId, OcspRequest, Request, TbsRequest};
use crate::http::{HttpRequest, Method};

/// `id-ad-ocsp` (RFC 5280, section 4.2.2.1).
pub(super) const OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");
/// `id-pe-tlsfeature` (RFC 7633, section 6).
const TLS_FEATURE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.24");
/// `status_request`, the extension of TLS that asks for a staple (RFC 6066, section 8).
const STATUS_REQUEST: u16 = 5;
const SHA_1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const SHA_256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");

/// The number of responders of one certificate that are asked; the others are passed over.
const MAX_RESPONDERS: usize = 4;

/// A certificate's name among all (`CertID`, RFC 6960, section 4.1.1), by which its status is
/// cached and asked for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CertificateId(Arc<[u8]>);

impl CertificateId {
    /// Returns which of so many parts of a register it is in, by the end of the serial number.
    ///
    /// # Panics
    ///
    /// Panics if there is no part.
    pub fn part(&self, parts: usize) -> usize {
        let end = self.0.iter().rev().take(2).fold(0, |end, byte| end << 8 | usize::from(*byte));
        end % parts
    }
}

impl fmt::Debug for CertificateId {
    /// Writes the end, which has the serial number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateId(..")?;
        let end = self.0.len().saturating_sub(8);
        self.0[end..].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Returns when a certificate expires, in seconds since 1970.
pub(crate) fn expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    let mut reader = SliceReader::new(Raw::of(certificate)?.validity).ok()?;
    let (_not_before, not_after) =
        (Time::decode(&mut reader).ok()?, Time::decode(&mut reader).ok()?);
    Some(not_after.to_unix_duration().as_secs())
}

/// One who has issued a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Issuer {
    /// The contents of the name.
    pub(super) name: Vec<u8>,
    /// The contents of the key with its algorithm.
    pub(super) key_info: Vec<u8>,
}

impl Issuer {
    /// Returns the subject of a certificate as an issuer.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let Raw { subject, key_info, .. } = Raw::of(certificate)?;
        Some(Self { name: subject.to_vec(), key_info: key_info.to_vec() })
    }

    /// Returns an authority that is trusted as an issuer.
    fn trusted(anchor: &TrustAnchor<'_>) -> Self {
        let key_info = anchor.subject_public_key_info.to_vec();
        Self { name: anchor.subject.to_vec(), key_info }
    }

    /// Returns the bits of the key.
    pub(super) fn key(&self) -> Option<&[u8]> {
        key_of(&self.key_info).map(|(_, key)| key)
    }

    /// Returns whether its key has signed `message`; `algorithm` is what is in it.
    pub(super) fn has_signed(
        &self,
        message: &[u8],
        algorithm: &[u8],
        signature: &[u8],
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> bool {
        let Some((kind, key)) = key_of(&self.key_info) else { return false };
        let mut of_both = algorithms.all.iter().filter(|it| {
            it.signature_alg_id().as_ref() == algorithm && it.public_key_alg_id().as_ref() == kind
        });
        of_both.any(|it| it.verify_signature(key, message, signature).is_ok())
    }

    /// Returns it as an authority, which others that it has issued are judged by.
    pub(super) fn anchor(&self) -> TrustAnchor<'_> {
        TrustAnchor {
            subject: self.name.as_slice().into(),
            subject_public_key_info: self.key_info.as_slice().into(),
            name_constraints: None,
        }
    }
}

/// The contents of a server's certificate that are about revocation.
#[derive(Clone, Debug)]
pub(crate) struct Leaf<'a> {
    whole: &'a [u8],
    raw: Raw<'a>,
    /// The address of each responder that can be asked, in the certificate's order.
    responders: Vec<String>,
    /// True if the server is to staple (RFC 7633).
    pub(crate) must_staple: bool,
}

impl<'a> Leaf<'a> {
    /// Reads a certificate; `None` if it is none.
    pub(crate) fn of(whole: &'a [u8]) -> Option<Self> {
        let raw = Raw::of(whole)?;
        let certificate = CertificateInner::<x509_cert::certificate::Raw>::from_der(whole);
        let certificate = certificate.ok()?;
        let extensions = certificate.tbs_certificate().extensions();
        let must_staple = extensions.into_iter().flatten().any(|it| {
            it.extn_id == TLS_FEATURE
                && Vec::<u16>::from_der(it.extn_value.as_bytes())
                    .is_ok_and(|features| features.contains(&STATUS_REQUEST))
        });
        let access = certificate.tbs_certificate().get_extension::<AuthorityInfoAccessSyntax>();
        let access = access.ok().flatten().map(|(_, access)| access.0).unwrap_or_default();
        let responders = access.into_iter().filter(|it| it.access_method == OCSP);
        let responders = responders.filter_map(|it| match it.access_location {
            GeneralName::UniformResourceIdentifier(address) => Some(address.as_str().to_owned()),
            _ => None,
        });
        let responders = responders.filter(|it| is_address(it)).take(MAX_RESPONDERS).collect();
        Some(Self { whole, raw, responders, must_staple })
    }

    /// Returns whether a responder is named.
    pub(crate) fn names_responders(&self) -> bool {
        !self.responders.is_empty()
    }

    /// Finds out who has issued it, by the way that leads from it to an authority that is trusted:
    /// others may have the same name. The way is looked for only if the answer is `wanted` of one
    /// who has that name.
    pub(crate) fn issued_by(
        &self,
        intermediates: &[CertificateDer<'_>],
        anchors: &[TrustAnchor<'_>],
        algorithms: &WebPkiSupportedAlgorithms,
        now: UnixTime,
        wanted: impl Fn(&Subject) -> bool,
    ) -> Option<Subject> {
        let of_name = |it: &Issuer| it.name == self.raw.issuer;
        let trusted = anchors.iter().map(Issuer::trusted).filter(of_name);
        let sent = intermediates.iter().filter_map(|it| Issuer::of(it)).filter(of_name);
        let mut subjects = trusted.chain(sent).filter_map(|issuer| self.with(issuer, algorithms));
        if !subjects.any(|it| wanted(&it)) {
            return None;
        }
        let certificate = CertificateDer::from(self.whole);
        let certificate = EndEntityCert::try_from(&certificate).ok()?;
        let usage = KeyUsage::server_auth();
        let way = certificate
            .verify_for_usage(algorithms.all, anchors, intermediates, now, usage, None, None)
            .ok()?;
        let issuer = match way.intermediate_certificates().next() {
            Some(issuer) => Issuer::of(&issuer.der())?,
            None => Issuer::trusted(way.anchor()),
        };
        self.with(issuer, algorithms)
    }

    fn with(&self, issuer: Issuer, algorithms: &WebPkiSupportedAlgorithms) -> Option<Subject> {
        let serial = SerialNumber::from_der(self.raw.serial).ok()?;
        let id = cert_id::<Sha1>(SHA_1, &issuer, serial)?;
        let algorithms = *algorithms;
        Some(Subject { id, issuer, responders: self.responders.clone(), algorithms })
    }
}

/// A certificate whose status can be asked for and judged.
#[derive(Clone, Debug)]
pub struct Subject {
    id: CertId,
    pub(super) issuer: Issuer,
    responders: Vec<String>,
    /// The algorithms that responses may be signed with.
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl Subject {
    /// Returns its name among all certificates.
    pub fn id(&self) -> CertificateId {
        CertificateId(self.id.to_der().unwrap_or_default().into())
    }

    /// Returns the structure that names it, by hashes of SHA-1 or SHA-256.
    #[cfg(any(test, feature = "harness"))]
    pub(super) fn cert_id(&self, by_sha_256: bool) -> Option<CertId> {
        match by_sha_256 {
            true => cert_id::<Sha256>(SHA_256, &self.issuer, self.id.serial_number.clone()),
            false => Some(self.id.clone()),
        }
    }

    /// Returns the addresses of the responders that it names.
    pub fn responders(&self) -> &[String] {
        &self.responders
    }

    /// Returns the request for its status (RFC 6960, section 4.1.1): without a nonce, so that
    /// responders can answer with what they have signed before.
    pub fn request(&self) -> Vec<u8> {
        let request_list = vec![Request { req_cert: self.id.clone() }];
        let request = OcspRequest { tbs_request: TbsRequest { request_list } };
        request.to_der().unwrap_or_default()
    }

    /// Returns the request to a responder (RFC 6960, appendix A.1).
    ///
    /// # Errors
    ///
    /// Fails if the address is not one of HTTP. A responder needs no TLS, as responses are signed.
    pub fn request_to(&self, responder: &str) -> Result<HttpRequest, InvalidAddress> {
        let (endpoint, path) = parse(responder).ok_or(InvalidAddress)?;
        let headers =
            [("Content-Type", "application/ocsp-request"), ("Accept", "application/ocsp-response")];
        Ok(endpoint.request(Method::Post, path, &headers, Some(&self.request())))
    }

    /// Returns whether a response is about this certificate, whichever of the two hashes it names
    /// it by.
    pub(super) fn is(&self, found: &CertId) -> bool {
        let serial = self.id.serial_number.clone();
        let own = match found.hash_algorithm.oid {
            SHA_1 => Some(self.id.clone()),
            SHA_256 => cert_id::<Sha256>(SHA_256, &self.issuer, serial),
            _ => None,
        };
        // The parameters of a hash are left out, or NULL.
        own.is_some_and(|own| {
            own.issuer_name_hash == found.issuer_name_hash
                && own.issuer_key_hash == found.issuer_key_hash
                && own.serial_number == found.serial_number
        })
    }
}

fn cert_id<D: Digest>(
    hash: ObjectIdentifier,
    issuer: &Issuer,
    serial_number: SerialNumber<x509_cert::certificate::Raw>,
) -> Option<CertId> {
    let name = AnyRef::new(der::Tag::Sequence, &issuer.name).ok()?.to_der().ok()?;
    let parameters = Some(der::asn1::Any::null());
    Some(CertId {
        hash_algorithm: AlgorithmIdentifierOwned { oid: hash, parameters },
        issuer_name_hash: OctetString::new(D::digest(name).to_vec()).ok()?,
        issuer_key_hash: OctetString::new(D::digest(issuer.key()?).to_vec()).ok()?,
        serial_number,
    })
}
