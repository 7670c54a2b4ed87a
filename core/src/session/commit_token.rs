//! Commits whose outcome is not known: the name by which another client can ask for it again, and
//! what the answer means.
//!
//! Builds on Driver Transactions, "UnknownTransactionCommitResult" and "recoveryToken field".

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bson::spec::BinarySubtype;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, Timestamp, rawdoc};
use serde::{Deserialize, Serialize};

use super::commit_origin::CommitOrigin;
use crate::codes::{NO_SUCH_TRANSACTION, TRANSACTION_TOO_OLD};
use crate::wire::crc_32c;

/// The form that [`CommitToken`] is written in, which its text begins with.
const FORM: &str = "c1.";

/// The longest text that is read: a `recoveryToken` has some fifty bytes.
const LONGEST: usize = 16 * 1024;

/// The length of the checksum that its bytes end with.
const CHECKSUM_LEN: usize = 4;

/// The time that servers keep the outcome of a transaction for, where the topology does not say it
/// (`localLogicalSessionTimeoutMinutes`).
const KEPT_FOR: Duration = Duration::from_secs(30 * 60);

/// The part of that time in which an answer is not relied on.
const MARGIN: Duration = Duration::from_secs(60);

/// The longest recovery token that a token has within: one of a mongos has some fifty bytes.
pub(super) const LONGEST_RECOVERY: usize = 8 * 1024;

/// The outcome of a commit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CommitOutcome {
    /// The transaction was committed, as its write concern or the majority asks for.
    Committed,
    /// The transaction was aborted: nothing of it is there, and it may be run again.
    Aborted,
    /// It is one of both, and no server has said which: ask again, by the token.
    Unknown(CommitToken),
    /// It was one of both, and no server can say any more which: it was asked too late, or the
    /// session has been used for something else.
    Forgotten,
}

/// The name of a transaction whose commit has an unknown outcome, by which a client asks for that
/// again: the same one or another, in this process or another, of the same user and deployment.
///
/// It is written as a text of letters, digits, `.`, `-` and `_`, also by serde, and read from it.
/// It gives no access to anything: a client that has it and may log in commits a transaction that
/// its application has already committed, as far as it knows.
///
/// ```
/// use sdam_core::session::CommitToken;
///
/// let text = "c1.PwAAAAVpZAAQAAAABAABAgMEBQYHCAkKCwwNDg8SbgADAAAAAAAAABJ1AOOwxEKY_BwUEnMAVxs\
///     ONVUBNlgAvHDqAw";
/// let token: CommitToken = text.parse()?;
/// assert_eq!(token.transaction_number(), 3);
/// assert_eq!(token.to_string(), text);
/// assert!(text.replace('A', "B").parse::<CommitToken>().is_err());
/// # Ok::<(), sdam_core::session::CommitTokenError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommitToken {
    pub(super) session: RawDocumentBuf,
    pub(super) number: i64,
    pub(super) recovery_token: Option<RawDocumentBuf>,
    /// `j` of its write concern, which the commit that asks again has, too.
    pub(super) journal: Option<bool>,
    pub(super) origin: CommitOrigin,
    /// The time of the servers when the commit was called first.
    pub(super) since: Option<Timestamp>,
}

/// The reason why a text is no [`CommitToken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommitTokenError {
    /// It begins otherwise, is longer than any, is cut, or was changed.
    #[error(
        "this is no token of a commit, or not as it was written: that begins with \"c1.\" and is \
         one line"
    )]
    Text,
    /// A field of it is missing, or has a value that no token has.
    #[error("the token of a commit has no usable {0}: pass it on as it was written")]
    Field(&'static str),
}

/// An error of a commit, as far as it matters to what became of the transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitFault {
    /// The code that a server has replied with.
    pub code: Option<i32>,
    /// True if it has the label `TransientTransactionError`.
    pub is_transient: bool,
    /// True if it has the label `UnknownTransactionCommitResult`.
    pub is_unknown: bool,
    /// The time since the commit was called first, by the clocks of the servers.
    pub elapsed: Option<Duration>,
}

impl CommitFault {
    /// Returns what the error means for a transaction, whose token is given if there is one; `None`
    /// if it says nothing of that. `kept_for` is `logicalSessionTimeoutMinutes`, if it is known.
    ///
    /// A server that does not know the transaction has aborted it, or has forgotten it: it keeps
    /// outcomes for as long as sessions.
    pub fn outcome(
        &self,
        token: Option<&CommitToken>,
        kept_for: Option<Duration>,
    ) -> Option<CommitOutcome> {
        if self.is_unknown {
            return token.cloned().map(CommitOutcome::Unknown);
        }
        if self.code == Some(TRANSACTION_TOO_OLD) {
            return Some(CommitOutcome::Forgotten);
        }
        self.ends_doubt().then(|| {
            let kept_for = kept_for.unwrap_or(KEPT_FOR);
            let relied_on = kept_for - MARGIN.min(kept_for / 2);
            match self.elapsed.is_some_and(|elapsed| elapsed >= relied_on) {
                true => CommitOutcome::Forgotten,
                false => CommitOutcome::Aborted,
            }
        })
    }
}

impl CommitFault {
    /// Returns whether a server has said by it what became of the transaction, or that it does not
    /// know that any more.
    pub fn ends_doubt(&self) -> bool {
        let has_code = matches!(self.code, Some(NO_SUCH_TRANSACTION | TRANSACTION_TOO_OLD));
        !self.is_unknown && (self.is_transient || has_code)
    }
}

impl CommitToken {
    /// Returns the session's name, `{ id: <UUID> }`.
    pub fn session(&self) -> &RawDocument {
        &self.session
    }

    /// Returns the number of the transaction in its session, `txnNumber`.
    pub const fn transaction_number(&self) -> i64 {
        self.number
    }

    /// Returns the user and the deployment that it is of.
    pub const fn origin(&self) -> CommitOrigin {
        self.origin
    }

    fn document(&self) -> RawDocumentBuf {
        let mut document = self.session.clone();
        document.append(bson::raw::cstr!("n"), self.number);
        if let Some(token) = &self.recovery_token {
            document.append(bson::raw::cstr!("r"), token.clone());
        }
        if let Some(journal) = self.journal {
            document.append(bson::raw::cstr!("j"), journal);
        }
        if let Some(since) = self.since {
            document.append(bson::raw::cstr!("t"), since);
        }
        if let Some(user) = self.origin.user {
            document.append(bson::raw::cstr!("u"), user);
        }
        if let Some(set) = self.origin.set {
            document.append(bson::raw::cstr!("s"), set);
        }
        document
    }

    fn of_document(document: &RawDocument) -> Result<Self, CommitTokenError> {
        let id = document.get_binary("id").ok();
        let id = id.filter(|id| id.subtype == BinarySubtype::Uuid && id.bytes.len() == 16);
        let id = id.ok_or(CommitTokenError::Field("session"))?;
        let session = rawdoc! { "id": RawBsonRef::Binary(id) };
        let number = document.get_i64("n").ok().filter(|number| *number > 0);
        let number = number.ok_or(CommitTokenError::Field("transaction number"))?;
        let field = |key| document.get(key).map_err(|_| CommitTokenError::Text);
        let recovery_token = match field("r")? {
            None => None,
            Some(token) => {
                let token = token.as_document().ok_or(CommitTokenError::Field("recovery token"))?;
                Some(token.to_owned())
            }
        };
        let since = match field("t")? {
            None => None,
            Some(time) => Some(time.as_timestamp().ok_or(CommitTokenError::Field("time"))?),
        };
        let journal = match field("j")? {
            None => None,
            Some(journal) => Some(journal.as_bool().ok_or(CommitTokenError::Field("journal"))?),
        };
        let user = match field("u")? {
            None => None,
            Some(user) => Some(user.as_i64().ok_or(CommitTokenError::Field("user"))?),
        };
        let set = match field("s")? {
            None => None,
            Some(set) => Some(set.as_i64().ok_or(CommitTokenError::Field("replica set"))?),
        };
        let origin = CommitOrigin { user, set };
        Ok(Self { session, number, recovery_token, journal, origin, since })
    }
}

impl fmt::Display for CommitToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.document().into_bytes();
        bytes.extend(crc_32c(&bytes).to_le_bytes());
        write!(f, "{FORM}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for CommitToken {
    type Err = CommitTokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let encoded = text.strip_prefix(FORM).filter(|encoded| encoded.len() <= LONGEST);
        let bytes = URL_SAFE_NO_PAD.decode(encoded.ok_or(CommitTokenError::Text)?);
        let bytes = bytes.map_err(|_| CommitTokenError::Text)?;
        let (document, sum) =
            bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(CommitTokenError::Text)?;
        if *sum != crc_32c(document).to_le_bytes() {
            return Err(CommitTokenError::Text);
        }
        let document = RawDocument::from_bytes(document).map_err(|_| CommitTokenError::Text)?;
        Self::of_document(document)
    }
}

impl TryFrom<String> for CommitToken {
    type Error = CommitTokenError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CommitToken> for String {
    fn from(token: CommitToken) -> Self {
        token.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::spec::BinarySubtype;
    use bson::{Binary, Timestamp, rawdoc};

    use super::{CommitFault, CommitOrigin, CommitOutcome, CommitToken, CommitTokenError};

    fn token() -> CommitToken {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
        CommitToken {
            session: rawdoc! { "id": id },
            number: 3,
            recovery_token: Some(rawdoc! { "recoveryShardId": "a" }),
            journal: Some(true),
            origin: CommitOrigin { user: Some(5), set: Some(6) },
            since: Some(Timestamp { time: 1000, increment: 1 }),
        }
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let bare = CommitToken {
            recovery_token: None,
            since: None,
            journal: None,
            origin: CommitOrigin { user: None, set: None },
            ..token()
        };
        for token in [token(), bare] {
            let text = token.to_string();
            assert_eq!(text.parse(), Ok(token.clone()));
            let is_plain = |it: char| it.is_ascii_alphanumeric() || ".-_".contains(it);
            assert!(text.chars().all(is_plain), "{text}");
            let json = serde_json::to_string(&token).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<CommitToken>(&json).unwrap(), token);
        }
    }

    /// A text that is cut, changed or something else is never read as another token.
    #[test]
    fn what_is_no_token_is_refused() {
        let text = token().to_string();
        for end in 0..text.len() {
            assert!(text[..end].parse::<CommitToken>().is_err(), "{}", &text[..end]);
            let (other, rest) = (&text[..end], &text[end + 1..]);
            for changed in ["A", "b", "7", "_"].iter().filter(|it| **it != &text[end..=end]) {
                let changed = format!("{other}{changed}{rest}");
                assert!(changed.parse::<CommitToken>().is_err(), "{changed}");
            }
        }
        for text in ["", "c1.", "c2.AAAA", "c1.ä", "c1.BQAAAAA", &"c1.A".repeat(20_000)] {
            assert!(text.parse::<CommitToken>().is_err(), "{text}");
        }
        let of = |document: bson::RawDocumentBuf| CommitToken::of_document(&document);
        let short = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 15] };
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] };
        assert_eq!(of(rawdoc! { "id": short }), Err(CommitTokenError::Field("session")));
        let number = Err(CommitTokenError::Field("transaction number"));
        assert_eq!(of(rawdoc! { "id": id.clone(), "n": 0_i64 }), number);
        let recovery = Err(CommitTokenError::Field("recovery token"));
        assert_eq!(of(rawdoc! { "id": id.clone(), "n": 1_i64, "r": 1 }), recovery);
        let time = Err(CommitTokenError::Field("time"));
        assert_eq!(of(rawdoc! { "id": id.clone(), "n": 1_i64, "t": 1 }), time);
        let user = Err(CommitTokenError::Field("user"));
        assert_eq!(of(rawdoc! { "id": id.clone(), "n": 1_i64, "u": "x" }), user);
        let journal = Err(CommitTokenError::Field("journal"));
        assert_eq!(of(rawdoc! { "id": id.clone(), "n": 1_i64, "j": "x" }), journal);
        let set = Err(CommitTokenError::Field("replica set"));
        assert_eq!(of(rawdoc! { "id": id, "n": 1_i64, "u": 1_i64, "s": "x" }), set);
    }

    /// "UnknownTransactionCommitResult", and what servers keep.
    #[test]
    fn the_table_of_what_an_error_means() {
        let (token, half_an_hour) = (token(), Some(Duration::from_secs(30 * 60)));
        let outcome = |fault: CommitFault| fault.outcome(Some(&token), half_an_hour);
        let fault = |code, seconds| {
            let elapsed = Some(Duration::from_secs(seconds));
            CommitFault { code: Some(code), elapsed, ..CommitFault::default() }
        };
        assert_eq!(outcome(fault(251, 1)), Some(CommitOutcome::Aborted));
        assert_eq!(outcome(fault(251, 1739)), Some(CommitOutcome::Aborted));
        assert_eq!(outcome(fault(251, 1740)), Some(CommitOutcome::Forgotten));
        assert_eq!(fault(251, 1740).outcome(None, None), Some(CommitOutcome::Forgotten));
        let shortest = |elapsed| fault(251, elapsed).outcome(None, Some(Duration::from_secs(60)));
        assert_eq!(shortest(29), Some(CommitOutcome::Aborted), "half of a minute is relied on");
        assert_eq!(shortest(30), Some(CommitOutcome::Forgotten));
        let timeless = CommitFault { elapsed: None, ..fault(251, 1) };
        assert_eq!(outcome(timeless), Some(CommitOutcome::Aborted), "servers have no times");
        assert_eq!(outcome(fault(225, 1)), Some(CommitOutcome::Forgotten));
        let transient = CommitFault { is_transient: true, ..fault(112, 1) };
        assert_eq!(outcome(transient), Some(CommitOutcome::Aborted));
        let unknown = CommitFault { is_unknown: true, ..fault(91, 1) };
        assert_eq!(outcome(unknown), Some(CommitOutcome::Unknown(token.clone())));
        assert_eq!(unknown.outcome(None, half_an_hour), None);
        assert_eq!(outcome(fault(13, 1)), None, "it says nothing of the transaction");
        assert_eq!(outcome(CommitFault::default()), None);
    }
}
