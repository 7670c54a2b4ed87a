//! Kinds of certificates that TLS here does not take: how each is recognised.

use rustls::CertificateError;
use rustls::pki_types::alg_id;
use webpki::Error;

use crate::failure::UnsupportedCertificate as Unsupported;

/// The lengths of RSA keys that *ring* checks signatures with, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// An RSA key of a length that signatures cannot be checked with.
///
/// The library says of it only that a signature is wrong, so that verifiers look at the key then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its RSA key has {bits} bits")]
pub(super) struct RsaLength {
    pub(super) bits: usize,
}

/// Says in words what the library says by the name of the error: what only the verifier of an
/// application finds out, as none here asks whether a certificate was revoked.
pub(super) fn of_application(error: &CertificateError) -> Option<&'static str> {
    Some(match error {
        CertificateError::Revoked => "it was revoked",
        CertificateError::UnknownRevocationStatus => "whether it was revoked is not known",
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            "the list of certificates that were revoked is out of date"
        }
        CertificateError::InvalidOcspResponse => {
            "the response of OCSP that came with it is not valid"
        }
        CertificateError::ApplicationVerificationFailure => "the application does not accept it",
        _ => return None,
    })
}

/// Recognises a kind that is not supported in an error of the library or of a verifier here.
pub(super) fn of(error: &CertificateError) -> Option<Unsupported> {
    Some(match error {
        CertificateError::BadEncoding => Unsupported::Encoding,
        CertificateError::UnhandledCriticalExtension => Unsupported::CriticalExtension,
        #[expect(deprecated, reason = "an application's own verifier may still return it")]
        CertificateError::UnsupportedSignatureAlgorithm
        | CertificateError::UnsupportedSignatureAlgorithmContext { .. } => Unsupported::Signature,
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            Unsupported::PublicKey
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            Unsupported::Purpose
        }
        CertificateError::Other(other) if other.0.is::<RsaLength>() => Unsupported::RsaLength,
        CertificateError::Other(other) => of_library(other.0.downcast_ref()?)?,
        _ => return None,
    })
}

fn of_library(error: &Error) -> Option<Unsupported> {
    Some(match error {
        Error::UnsupportedCertVersion => Unsupported::Version,
        Error::UnsupportedCriticalExtension => Unsupported::CriticalExtension,
        Error::CaUsedAsEndEntity => Unsupported::Authority,
        Error::EndEntityUsedAsCa
        | Error::PathLenConstraintViolated
        | Error::NameConstraintViolation => Unsupported::Issuer,
        Error::MaximumPathDepthExceeded
        | Error::MaximumPathBuildCallsExceeded
        | Error::MaximumSignatureChecksExceeded => Unsupported::Chain,
        Error::MaximumNameConstraintComparisonsExceeded => Unsupported::Names,
        Error::EmptyEkuExtension => Unsupported::Purpose,
        Error::SignatureAlgorithmMismatch
        | Error::ExtensionValueInvalid
        | Error::InvalidSerialNumber
        | Error::MalformedDnsIdentifier
        | Error::MalformedExtensions
        | Error::MalformedNameConstraint
        | Error::InvalidNetworkMaskConstraint => Unsupported::Encoding,
        _ => return None,
    })
}

/// The parts of a certificate that are looked at without the library, which reads certificates of
/// version 3 only, and no critical extension that it does not know (RFC 5280, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// The contents of the issuer's name.
    pub(super) issuer: &'a [u8],
    /// The contents of the name of the one whose key it is.
    pub(super) subject: &'a [u8],
    /// The public key with its algorithm, whole.
    pub(super) key_info: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(super) fn of(certificate: &'a [u8]) -> Option<Self> {
        let (certificate, _) = contents(SEQUENCE, certificate)?;
        let (mut rest, _) = contents(SEQUENCE, certificate)?;
        if rest.first() == Some(&VERSION) {
            rest = contents(VERSION, rest)?.1;
        }
        for tag in [INTEGER, SEQUENCE] {
            rest = contents(tag, rest)?.1;
        }
        let (issuer, rest) = contents(SEQUENCE, rest)?;
        let (_validity, rest) = contents(SEQUENCE, rest)?;
        let (subject, key_info) = contents(SEQUENCE, rest)?;
        let (_, behind) = contents(SEQUENCE, key_info)?;
        let key_info = &key_info[..key_info.len() - behind.len()];
        Some(Self { issuer, subject, key_info })
    }

    /// Returns the algorithm of the public key, and the key itself.
    pub(super) fn key(&self) -> Option<(&'a [u8], &'a [u8])> {
        key_of(self.key_contents()?)
    }

    /// Returns the contents of the public key with its algorithm.
    pub(super) fn key_contents(&self) -> Option<&'a [u8]> {
        contents(SEQUENCE, self.key_info).map(|(contents, _)| contents)
    }

    /// Returns the length of the key if it is one of RSA with which no signature can be checked.
    pub(super) fn rsa_length(&self) -> Option<RsaLength> {
        rsa_length(self.key_contents()?)
    }
}

/// The signature of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signed<'a> {
    /// The part that is signed.
    pub(super) message: &'a [u8],
    /// The contents of the algorithm.
    pub(super) algorithm: &'a [u8],
    pub(super) signature: &'a [u8],
}

impl<'a> Signed<'a> {
    pub(super) fn of(certificate: &'a [u8]) -> Option<Self> {
        let (certificate, _) = contents(SEQUENCE, certificate)?;
        let (_, rest) = contents(SEQUENCE, certificate)?;
        let message = &certificate[..certificate.len() - rest.len()];
        let (algorithm, rest) = contents(SEQUENCE, rest)?;
        let (bits, _) = contents(BIT_STRING, rest)?;
        Some(Self { message, algorithm, signature: bits.strip_prefix(&[0])? })
    }
}

/// As [`Parts::rsa_length`], of the contents of a public key with its algorithm.
pub(super) fn rsa_length(key_info: &[u8]) -> Option<RsaLength> {
    let (algorithm, key) = key_of(key_info)?;
    if algorithm != alg_id::RSA_ENCRYPTION.as_ref() {
        return None;
    }
    let (modulus, _) = contents(INTEGER, contents(SEQUENCE, key)?.0)?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let digits = &modulus[zeros..];
    let bits = digits.len() * 8 - digits.first()?.leading_zeros() as usize;
    (!RSA_BITS.contains(&bits)).then_some(RsaLength { bits })
}

/// Returns the algorithm and the key, of the contents of both.
pub(super) fn key_of(key_info: &[u8]) -> Option<(&[u8], &[u8])> {
    let (algorithm, rest) = contents(SEQUENCE, key_info)?;
    let (bits, _) = contents(BIT_STRING, rest)?;
    // The first byte says how many bits of the last one do not count: none.
    Some((algorithm, bits.strip_prefix(&[0])?))
}

// Tags of DER.
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;
/// The version of a certificate, which is left out of the first.
const VERSION: u8 = 0xa0;

/// Takes one element with this tag off the beginning; returns its contents, and what follows.
fn contents(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let [found, length, rest @ ..] = bytes else { return None };
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    (*found == tag).then_some((contents, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use rustls::CertificateError;
    use webpki::Error;

    use super::{Parts, RsaLength, Signed, contents, of_application, of_library, rsa_length};

    /// Errors that the library writes as their names, and that rustls passes on.
    #[test]
    fn no_error_of_the_library_is_shown_by_its_name() {
        for error in [
            Error::CaUsedAsEndEntity,
            Error::EmptyEkuExtension,
            Error::EndEntityUsedAsCa,
            Error::ExtensionValueInvalid,
            Error::InvalidNetworkMaskConstraint,
            Error::InvalidSerialNumber,
            Error::MalformedDnsIdentifier,
            Error::MalformedExtensions,
            Error::MalformedNameConstraint,
            Error::MaximumNameConstraintComparisonsExceeded,
            Error::MaximumPathBuildCallsExceeded,
            Error::MaximumPathDepthExceeded,
            Error::MaximumSignatureChecksExceeded,
            Error::NameConstraintViolation,
            Error::PathLenConstraintViolated,
            Error::SignatureAlgorithmMismatch,
            Error::UnsupportedCertVersion,
            Error::UnsupportedCriticalExtension,
        ] {
            assert!(of_library(&error).is_some(), "{error}");
        }
        for error in [
            CertificateError::Revoked,
            CertificateError::UnknownRevocationStatus,
            CertificateError::ExpiredRevocationList,
            CertificateError::InvalidOcspResponse,
            CertificateError::ApplicationVerificationFailure,
        ] {
            assert!(of_application(&error).is_some(), "{error}");
        }
    }

    #[test]
    fn lengths_are_read_in_every_form_and_never_beyond_the_end() {
        let long = [&[0x30, 0x81, 0x80][..], &[1; 0x80], &[9]].concat();
        assert_eq!(contents(0x30, &long), Some((&[1; 0x80][..], &[9][..])));
        assert_eq!(contents(0x30, &[0x30, 1, 5]), Some((&[5][..], &[][..])));
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 2, 5],
            &[0x02, 0],
            &[0x30, 0x80],
            &[0x30, 0x84, 0, 0, 0, 0],
            &[0x30, 0x83, 0xff, 0xff],
            &[0x30, 0x83, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(contents(0x30, bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_key_of_another_kind_has_no_length_of_rsa() {
        assert_eq!(rsa_length(&[0x30, 1, 5, 0x03, 1, 0]), None);
        assert_eq!(RsaLength { bits: 1024 }.to_string(), "its RSA key has 1024 bits");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_certificate_or_none(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Some(parts) = Parts::of(&bytes) {
                parts.key();
                parts.rsa_length();
            }
            Signed::of(&bytes);
        }
    }
}
