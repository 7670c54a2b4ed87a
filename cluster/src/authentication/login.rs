//! The progress of a login on a connection.

use bson::RawDocumentBuf;
use sdam_core::bson;

use super::credentials::Account;
use super::scram::Challenge;
use crate::options::ServerVersion;
use crate::wire::CommandError;

/// The user that a connection belongs to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    /// True for the deployment itself, which need not log in.
    pub(crate) trusted: bool,
    /// A user who has logged in.
    pub(crate) user: Option<UserName>,
    pub(crate) conversation: Option<Conversation>,
    /// A login by GSSAPI that has begun.
    pub(crate) gssapi: Option<GssapiConversation>,
    /// The addition to the next reply to hello.
    pub(crate) hello_fields: Option<RawDocumentBuf>,
}

/// The key of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserName {
    pub(crate) database: String,
    name: String,
}

impl UserName {
    pub(crate) fn new(database: &str, name: &str) -> Self {
        Self { database: database.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn is_of(&self, account: &Account) -> bool {
        self.database == account.user.database && self.name == account.user.name
    }
}

/// A login that has begun.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    pub(crate) user: UserName,
    /// The client leaves out the exchange in which nothing is said.
    pub(crate) is_short: bool,
    /// The challenge that the client has to answer, until it has.
    pub(crate) challenge: Option<Challenge>,
}

/// A login by GSSAPI that has begun.
#[derive(Clone, Debug)]
pub(crate) struct GssapiConversation {
    pub(crate) user: String,
    pub(crate) state: GssapiState,
}

/// The step that a login by GSSAPI has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GssapiState {
    /// The security context is established, and the client is to ask for the offer.
    Established,
    /// The client is to answer the offer.
    Offered,
}

impl Login {
    /// Returns who is logged in: the database and the name.
    pub(crate) fn user(&self) -> Option<(&str, &str)> {
        self.user.as_ref().map(|user| (user.database.as_str(), user.name.as_str()))
    }

    /// Logs out a user who is none any more.
    pub(crate) fn forget_all_but(&mut self, accounts: &[Account]) {
        let user = self.user.take();
        let is_known = |user: &UserName| accounts.iter().any(|account| user.is_of(account));
        self.user = user.filter(|user| user.database == "$external" || is_known(user));
    }

    /// Logs in, unless the connection belongs to another user already, of which 6.0 and newer want
    /// to hear no more; older servers forget the former.
    pub(crate) fn log_in(
        &mut self,
        user: UserName,
        version: ServerVersion,
    ) -> Result<(), CommandError> {
        match &self.user {
            Some(former) if *former != user && version >= ServerVersion::V6_0 => {
                let reason = format!(
                    "a connection belongs to one user, and this one to {}@{}",
                    former.name, former.database
                );
                Err(CommandError::numbered(5_626_702, reason))
            }
            _ => {
                self.user = Some(user);
                Ok(())
            }
        }
    }
}
