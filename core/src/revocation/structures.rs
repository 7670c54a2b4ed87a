//! The structures of OCSP in ASN.1 (RFC 6960, sections 4.1.1 and 4.2.1).

#![expect(clippy::unnested_or_patterns, reason = "the derive of Choice writes them")]

use der::asn1::{
    AnyRef, BitStringRef, GeneralizedTime, Null, ObjectIdentifier, OctetString, OctetStringRef,
};
use der::{Choice, Enumerated, Sequence};
use x509_cert::certificate::Raw;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierOwned;

/// `CertID`: a certificate, by its issuer and its number.
#[derive(Clone, Debug, PartialEq, Eq, Sequence)]
pub(super) struct CertId {
    pub(super) hash_algorithm: AlgorithmIdentifierOwned,
    pub(super) issuer_name_hash: OctetString,
    pub(super) issuer_key_hash: OctetString,
    pub(super) serial_number: SerialNumber<Raw>,
}

/// `OCSPRequest`, without a signature.
#[derive(Clone, Debug, Sequence)]
pub(super) struct OcspRequest {
    pub(super) tbs_request: TbsRequest,
}

/// `TBSRequest`, of the first version, without a name and without extensions.
#[derive(Clone, Debug, Sequence)]
pub(super) struct TbsRequest {
    pub(super) request_list: Vec<Request>,
}

/// `Request`, without extensions.
#[derive(Clone, Debug, Sequence)]
pub(super) struct Request {
    pub(super) req_cert: CertId,
}

/// `OCSPResponse`.
#[derive(Clone, Debug, Sequence)]
pub(super) struct OcspResponse<'a> {
    pub(super) response_status: ResponseStatus,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    pub(super) response_bytes: Option<ResponseBytes<'a>>,
}

/// `OCSPResponseStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumerated)]
#[asn1(type = "ENUMERATED")]
#[repr(u32)]
pub(super) enum ResponseStatus {
    Successful = 0,
    MalformedRequest = 1,
    InternalError = 2,
    TryLater = 3,
    SigRequired = 5,
    Unauthorized = 6,
}

/// `ResponseBytes`.
#[derive(Clone, Debug, Sequence)]
pub(super) struct ResponseBytes<'a> {
    pub(super) response_type: ObjectIdentifier,
    pub(super) response: &'a OctetStringRef,
}

/// `BasicOCSPResponse`, with the part that is signed as it came.
#[derive(Clone, Debug, Sequence)]
pub(super) struct BasicOcspResponse<'a> {
    pub(super) tbs_response_data: AnyRef<'a>,
    pub(super) signature_algorithm: AnyRef<'a>,
    pub(super) signature: BitStringRef<'a>,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    pub(super) certs: Option<Vec<AnyRef<'a>>>,
}

/// `ResponseData`.
#[derive(Clone, Debug, Sequence)]
pub(super) struct ResponseData<'a> {
    #[asn1(context_specific = "0", default = "first_version", tag_mode = "EXPLICIT")]
    pub(super) version: u8,
    pub(super) responder_id: ResponderId<'a>,
    pub(super) produced_at: GeneralizedTime,
    pub(super) responses: Vec<SingleResponse<'a>>,
    #[asn1(context_specific = "1", optional = "true", tag_mode = "EXPLICIT")]
    pub(super) response_extensions: Option<AnyRef<'a>>,
}

/// The default of `Version`, `v1`.
const fn first_version() -> u8 {
    0
}

/// `ResponderID`.
#[derive(Clone, Debug, PartialEq, Eq, Choice)]
pub(super) enum ResponderId<'a> {
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true")]
    ByName(AnyRef<'a>),
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT", constructed = "true")]
    ByKey(&'a OctetStringRef),
}

/// `SingleResponse`.
#[derive(Clone, Debug, Sequence)]
pub(super) struct SingleResponse<'a> {
    pub(super) cert_id: CertId,
    pub(super) cert_status: CertStatus,
    pub(super) this_update: GeneralizedTime,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    pub(super) next_update: Option<GeneralizedTime>,
    #[asn1(context_specific = "1", optional = "true", tag_mode = "EXPLICIT")]
    pub(super) single_extensions: Option<AnyRef<'a>>,
}

/// `CertStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choice)]
pub(super) enum CertStatus {
    #[asn1(context_specific = "0", tag_mode = "IMPLICIT")]
    Good(Null),
    #[asn1(context_specific = "1", tag_mode = "IMPLICIT", constructed = "true")]
    Revoked(RevokedInfo),
    #[asn1(context_specific = "2", tag_mode = "IMPLICIT")]
    Unknown(Null),
}

/// `RevokedInfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Sequence)]
pub(super) struct RevokedInfo {
    pub(super) revocation_time: GeneralizedTime,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    pub(super) revocation_reason: Option<Reason>,
}

/// `CRLReason` (RFC 5280, section 5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumerated)]
#[asn1(type = "ENUMERATED")]
#[repr(u32)]
pub(super) enum Reason {
    Unspecified = 0,
    KeyCompromise = 1,
    CaCompromise = 2,
    AffiliationChanged = 3,
    Superseded = 4,
    CessationOfOperation = 5,
    CertificateHold = 6,
    RemoveFromCrl = 8,
    PrivilegeWithdrawn = 9,
    AaCompromise = 10,
}

impl Reason {
    /// Returns its name in the RFC.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::KeyCompromise => "keyCompromise",
            Self::CaCompromise => "cACompromise",
            Self::AffiliationChanged => "affiliationChanged",
            Self::Superseded => "superseded",
            Self::CessationOfOperation => "cessationOfOperation",
            Self::CertificateHold => "certificateHold",
            Self::RemoveFromCrl => "removeFromCRL",
            Self::PrivilegeWithdrawn => "privilegeWithdrawn",
            Self::AaCompromise => "aACompromise",
        }
    }
}
