//! Finds out why a signature in a chain of certificates is wrong.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, alg_id};

use super::unsupported::{Parts, RsaLength, Signed, key_of, rsa_length};

/// The maximum number of signatures that are checked: as many as the library checks.
const MAX_SIGNATURES: usize = 100;

/// One who issues certificates, as a trusted authority or with the leave of one.
#[derive(Clone, Copy)]
struct Issuer<'a> {
    /// The contents of the name.
    name: &'a [u8],
    /// The contents of the key with its algorithm.
    key_info: &'a [u8],
}

/// A certificate that was sent.
#[derive(Clone, Copy)]
struct Link<'a> {
    parts: Parts<'a>,
    signed: Signed<'a>,
}

impl<'a> Link<'a> {
    fn of(certificate: &'a CertificateDer<'_>) -> Option<Self> {
        Some(Self { parts: Parts::of(certificate)?, signed: Signed::of(certificate)? })
    }

    /// Returns the algorithms that it may be signed with.
    fn algorithms(
        &self,
        all: &WebPkiSupportedAlgorithms,
    ) -> impl Iterator<Item = &'static dyn SignatureVerificationAlgorithm> {
        let algorithm = self.signed.algorithm;
        all.all.iter().copied().filter(move |it| it.signature_alg_id().as_ref() == algorithm)
    }

    fn is_signed_by(&self, issuer: &Issuer<'_>, all: &WebPkiSupportedAlgorithms) -> bool {
        let Some((kind, key)) = key_of(issuer.key_info) else { return false };
        let Signed { message, signature, .. } = self.signed;
        self.algorithms(all)
            .filter(|it| it.public_key_alg_id().as_ref() == kind)
            .any(|it| it.verify_signature(key, message, signature).is_ok())
    }

    /// Returns whether its signature is of the length that those of an RSA key of that length have
    /// (RFC 8017, section 8.2.1).
    fn may_be_signed_by(&self, length: RsaLength, all: &WebPkiSupportedAlgorithms) -> bool {
        let mut algorithms = self.algorithms(all);
        algorithms.any(|it| it.public_key_alg_id() == alg_id::RSA_ENCRYPTION)
            && self.signed.signature.len() == length.bits.div_ceil(8)
    }
}

/// Returns the length of the RSA key that keeps a signature on the way from a trusted authority to
/// the server's certificate from being checked. What somebody else has signed does not count.
pub(super) fn odd_issuer(
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    anchors: &[TrustAnchor<'_>],
    algorithms: &WebPkiSupportedAlgorithms,
) -> Option<RsaLength> {
    let mut unproven = way(Link::of(end_entity)?, intermediates);
    let mut issuers: Vec<Issuer<'_>> = anchors
        .iter()
        .map(|it| Issuer { name: &it.subject, key_info: &it.subject_public_key_info })
        .filter(|issuer| unproven.iter().any(|link| link.parts.issuer == issuer.name))
        .collect();
    let (mut next, mut checks) = (0, 0);
    while let Some(issuer) = issuers.get(next).copied() {
        next += 1;
        unproven.retain(|link| {
            if link.parts.issuer != issuer.name || checks == MAX_SIGNATURES {
                return true;
            }
            checks += 1;
            let is_proven = link.is_signed_by(&issuer, algorithms);
            if let (true, Some(key_info)) = (is_proven, link.parts.key_contents()) {
                issuers.push(Issuer { name: link.parts.subject, key_info });
            }
            !is_proven
        });
    }
    issuers.iter().find_map(|issuer| {
        let length = rsa_length(issuer.key_info)?;
        let mut issued = unproven.iter().filter(|link| link.parts.issuer == issuer.name);
        issued.any(|link| link.may_be_signed_by(length, algorithms)).then_some(length)
    })
}

/// Returns the certificates that lead upwards from the server's, by their names.
fn way<'a>(end_entity: Link<'a>, intermediates: &'a [CertificateDer<'_>]) -> Vec<Link<'a>> {
    let mut others: Vec<Link<'_>> = intermediates.iter().filter_map(Link::of).collect();
    let mut way = vec![end_entity];
    let mut next = 0;
    while let Some(link) = way.get(next).copied() {
        next += 1;
        let is_issuer = |other: &Link<'_>| other.parts.subject == link.parts.issuer;
        way.extend(others.extract_if(.., |other| is_issuer(other)));
    }
    way
}
