//! The user and the deployment that a transaction belongs to, as far as a token can name them.

use sha2::{Digest, Sha256};

use crate::config::Credential;

/// The user whose transaction it is, and the replica set that has it: sessions of two users are
/// never the same to servers, which answer another user as if there had never been such a
/// transaction.
///
/// It has hashes of the names, by which they are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitOrigin {
    /// `None` where the mechanism finds out the user's name: a certificate, or a token, says it.
    pub(super) user: Option<i64>,
    /// `None` behind mongos, and where the topology does not know it.
    pub(super) set: Option<i64>,
}

/// The part in which two origins differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OriginMismatch {
    /// The client logs in as another user.
    #[error(
        "the commit token is of a transaction of another user, whom servers do not answer this \
         one about: ask with a client that logs in as that user"
    )]
    User,
    /// The client's servers are those of another replica set.
    #[error(
        "the commit token is of a transaction of another replica set, of which these servers know \
         nothing: ask with a client of that set"
    )]
    Set,
}

impl CommitOrigin {
    /// Returns the origin of a client's transactions: its user and its replica set, as hashes.
    pub fn new(credential: Option<&Credential>, set: Option<&str>) -> Self {
        let user = match credential {
            None => Some(hash("")),
            Some(Credential { username: Some(name), source, .. }) => {
                Some(hash(&format!("{source}\0{name}")))
            }
            Some(Credential { username: None, .. }) => None,
        };
        Self { user, set: set.map(hash) }
    }

    /// Returns whether it names the user: servers that do not know a transaction may else have been
    /// asked by another one than its own.
    pub const fn names_user(self) -> bool {
        self.user.is_some()
    }

    /// Compares it with that of the client that asks.
    ///
    /// # Errors
    ///
    /// Fails if both are known and differ.
    pub fn check(self, asking: Self) -> Result<(), OriginMismatch> {
        let differ = |own: Option<i64>, asking| own.zip(asking).is_some_and(|(a, b)| a != b);
        if differ(self.user, asking.user) {
            return Err(OriginMismatch::User);
        }
        match differ(self.set, asking.set) {
            true => Err(OriginMismatch::Set),
            false => Ok(()),
        }
    }
}

fn hash(text: &str) -> i64 {
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(text.as_bytes())[..8]);
    i64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::{CommitOrigin, OriginMismatch};
    use crate::config::Options;

    fn origin(login: &str, set: Option<&str>) -> CommitOrigin {
        let options = Options::parse(&format!("mongodb://{login}")).unwrap();
        CommitOrigin::new(options.credential(), set)
    }

    /// Driver Sessions, "Abstract": servers name a session by its identifier and its user.
    #[test]
    fn another_user_and_another_set_are_refused_by_name() {
        let own = origin("ada:secret@a/?authSource=admin", Some("rs"));
        assert_eq!(own.check(origin("ada:changed@b/?authSource=admin", Some("rs"))), Ok(()));
        for other in ["eve:secret@a/?authSource=admin", "ada:secret@a/?authSource=other", "a"] {
            assert_eq!(own.check(origin(other, Some("rs"))), Err(OriginMismatch::User), "{other}");
        }
        let other = origin("ada:secret@a/?authSource=admin", Some("rs2"));
        assert_eq!(own.check(other), Err(OriginMismatch::Set));
        let unknown = origin("ada:secret@a/?authSource=admin", None);
        assert_eq!(own.check(unknown), Ok(()));
        assert_eq!(unknown.check(own), Ok(()));
        let certificate = origin("a/?authMechanism=MONGODB-X509&tls=true", None);
        assert!(own.names_user() && !certificate.names_user());
        assert_eq!(certificate.check(own), Ok(()), "it may be the same user");
    }
}
