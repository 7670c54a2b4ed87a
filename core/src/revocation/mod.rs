//! Revocation of certificates: what OCSP says of a server's certificate, as values and machines.
//!
//! Implements [OCSP Support] and what it takes from RFC 6960, without I/O: a response is judged,
//! the statuses that are known are kept, and an inquiry says what to ask which responder.
//!
//! [OCSP Support]: https://github.com/mongodb/specifications/blob/master/source/ocsp-support/ocsp-support.md

mod certificate;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
mod raw;
mod register;
mod responder;
mod response;
mod structures;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;

use rustls::pki_types::UnixTime;

pub use certificate::{CertificateId, Subject};
pub(crate) use certificate::{Leaf, expiry};
pub use register::{Outcome, Register, Turn};
pub use responder::{InvalidAddress, MAX_RESPONSE_LEN, UselessAnswer};
pub use response::{InvalidResponse, Verdict};

/// The status of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It was not revoked.
    Good,
    /// It was revoked.
    Revoked {
        /// The time, as the responder has written it.
        at: String,
        /// The reason, by its name in RFC 5280, if there is one.
        reason: Option<&'static str>,
    },
    /// The responder does not know it; that says nothing, and is not cached.
    Unknown,
}

/// A place where the statuses that are known are kept, which connections share: a [`Register`]
/// behind a lock.
pub trait StatusCache: fmt::Debug + Send + Sync {
    /// Returns the status of a certificate, if it is known: [`Register::status`].
    fn status(&self, id: &CertificateId, now: UnixTime) -> Option<Status>;

    /// Keeps what a staple says: [`Register::learn`].
    fn learn(&self, id: &CertificateId, verdict: Verdict, now: UnixTime);
}

impl Status {
    /// Returns whether it decides anything ("conclusive": good or revoked).
    pub const fn is_conclusive(&self) -> bool {
        !matches!(self, Self::Unknown)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good => f.write_str("good"),
            Self::Revoked { at, reason: Some(reason) } => write!(f, "revoked at {at} ({reason})"),
            Self::Revoked { at, reason: None } => write!(f, "revoked at {at}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}
