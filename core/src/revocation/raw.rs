//! The parts of a certificate as they came: what is hashed must not be written once more.

use der::asn1::{AnyRef, BitStringRef};
use der::{Decode, Reader, SliceReader, Tag, TagNumber};

/// The parts of a certificate (RFC 5280, section 4.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    /// The serial number, whole.
    pub(super) serial: &'a [u8],
    /// The contents of the issuer's name.
    pub(super) issuer: &'a [u8],
    /// The contents of the times from which and up to which it is valid.
    pub(super) validity: &'a [u8],
    /// The contents of the subject's name.
    pub(super) subject: &'a [u8],
    /// The contents of the subject's key with its algorithm.
    pub(super) key_info: &'a [u8],
}

impl<'a> Raw<'a> {
    /// Takes a certificate apart; `None` if it is none.
    pub(super) fn of(certificate: &'a [u8]) -> Option<Self> {
        let mut reader = SliceReader::new(contents(certificate)?).ok()?;
        let mut reader = SliceReader::new(contents(reader.tlv_bytes().ok()?)?).ok()?;
        let version = Tag::ContextSpecific { constructed: true, number: TagNumber(0) };
        if Tag::peek(&reader).ok()? == version {
            reader.tlv_bytes().ok()?;
        }
        let serial = reader.tlv_bytes().ok()?;
        let mut next = || AnyRef::decode(&mut reader).ok().map(AnyRef::value);
        let (_algorithm, issuer) = (next()?, next()?);
        let (validity, subject, key_info) = (next()?, next()?, next()?);
        Some(Self { serial, issuer, validity, subject, key_info })
    }
}

/// Returns the contents of one element.
pub(super) fn contents(element: &[u8]) -> Option<&[u8]> {
    AnyRef::from_der(element).ok().map(AnyRef::value)
}

/// Returns the contents of the algorithm and the bits of the key, of the contents of both.
pub(super) fn key_of(key_info: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = SliceReader::new(key_info).ok()?;
    let algorithm = AnyRef::decode(&mut reader).ok()?;
    let key = BitStringRef::decode(&mut reader).ok()?;
    reader.is_finished().then_some((algorithm.value(), key.as_bytes()?))
}
