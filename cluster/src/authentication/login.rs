//! The progress of a login on a connection.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::{RawDocument, RawDocumentBuf};
use sdam_core::bson;

use super::credentials::{Account, random_bytes};
use super::messages::{CONVERSATION_ID, Payload, conversation_id, mechanism, skips_empty_exchange};
use super::oidc;
use super::scram::{Challenge, ClientFirst, malformed, refused};
use super::user::ScramMechanism;
use crate::command_error::CommandError;
use crate::model::{Cluster, ConnectionId};
use crate::options::ServerVersion;

/// The number of random bytes that a server adds to the nonce of a client.
const NONCE_LEN: usize = 24;

/// The user that a connection belongs to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login {
    /// True for the deployment itself, which need not log in.
    pub(super) trusted: bool,
    /// A user who has logged in.
    pub(super) user: Option<UserName>,
    conversation: Option<Conversation>,
    /// The addition to the next reply to hello.
    pub(crate) greeting: Option<RawDocumentBuf>,
}

/// The key of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserName {
    database: String,
    name: String,
}

impl UserName {
    pub(super) fn new(database: &str, name: &str) -> Self {
        Self { database: database.to_owned(), name: name.to_owned() }
    }

    fn is_of(&self, account: &Account) -> bool {
        self.database == account.user.database && self.name == account.user.name
    }
}

/// A login that has begun.
#[derive(Clone, Debug)]
struct Conversation {
    user: UserName,
    /// The client leaves out the exchange in which nothing is said.
    is_short: bool,
    /// The challenge that the client has to answer, until it has.
    challenge: Option<Challenge>,
}

impl Login {
    /// Returns who is logged in: the database and the name.
    pub(crate) fn user(&self) -> Option<(&str, &str)> {
        self.user.as_ref().map(|user| (user.database.as_str(), user.name.as_str()))
    }

    /// Logs out a user who is none any more.
    pub(super) fn forget_all_but(&mut self, accounts: &[Account]) {
        let user = self.user.take();
        let is_known = |user: &UserName| accounts.iter().any(|account| user.is_of(account));
        self.user = user.filter(|user| user.database == "$external" || is_known(user));
    }

    /// Logs in, unless the connection belongs to another user already, of which 6.0 and newer want
    /// to hear no more; older servers forget the former.
    pub(super) fn log_in(
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

impl Cluster {
    pub(super) fn login_mut(&mut self, id: ConnectionId) -> Option<&mut Login> {
        Some(&mut self.connections.get_mut(&id)?.login)
    }

    /// Begins to log in, and forgets what had begun before.
    pub(super) fn sasl_start(
        &mut self,
        id: ConnectionId,
        command: &RawDocument,
        database: &str,
    ) -> Result<RawDocumentBuf, CommandError> {
        let version = self.options.version;
        let payload = Payload::parse(command, version)?;
        let is_short = skips_empty_exchange(command, version)?;
        let name = mechanism(command, version)?;
        if name == oidc::NAME && self.offers_oidc() {
            return self.show_token(id, &payload, database);
        }
        let mechanism = ScramMechanism::of_name(name).ok_or_else(|| unavailable(version))?;
        if let Some(login) = self.login_mut(id) {
            login.conversation = None;
        }
        let first = ClientFirst::parse(&payload.bytes)?;
        let account = self.account(id, database, &first.username);
        let credential = account.and_then(|account| account.credentials.get(&mechanism));
        let credential = Arc::clone(credential.ok_or_else(refused)?);
        let nonce = BASE64_STANDARD.encode(random_bytes(&mut self.rng, NONCE_LEN));
        let (challenge, message) = first.answer(mechanism, credential, &nonce);
        let user = UserName { database: database.to_owned(), name: first.username };
        if let Some(login) = self.login_mut(id) {
            let challenge = Some(challenge);
            login.conversation = Some(Conversation { user, is_short, challenge });
        }
        Ok(payload.answer(message.as_bytes(), false))
    }

    /// Goes on with a login; whatever is wrong ends it, but for a command that makes no sense.
    pub(super) fn sasl_continue(
        &mut self,
        id: ConnectionId,
        command: &RawDocument,
        database: &str,
    ) -> Result<RawDocumentBuf, CommandError> {
        let version = self.options.version;
        let number = conversation_id(command, version)?;
        let payload = Payload::parse(command, version)?;
        let begun = self.login_mut(id).and_then(|login| login.conversation.take());
        let mut conversation =
            begun.ok_or_else(|| CommandError::coded(17, "no login has begun; saslStart does"))?;
        if number != CONVERSATION_ID {
            let reason = format!("there is no conversation {number}, but {CONVERSATION_ID}");
            return Err(CommandError::coded(17, reason));
        }
        if database != conversation.user.database {
            return Err(malformed("a login goes on at the database that it has begun at"));
        }
        let (message, done) = match conversation.challenge.take() {
            Some(challenge) => (challenge.judge(&payload.bytes)?, conversation.is_short),
            // There is nothing to say, and some drivers repeat what the server has said.
            None => (String::new(), true),
        };
        if done && self.accounts.iter().any(|account| conversation.user.is_of(account)) {
            let login = self.login_mut(id).ok_or_else(refused)?;
            login.log_in(conversation.user, version)?;
        } else if done {
            return Err(refused());
        } else if let Some(login) = self.login_mut(id) {
            login.conversation = Some(conversation);
        }
        Ok(payload.answer(message.as_bytes(), done))
    }

    /// Logs out a user of this database.
    pub(super) fn log_out(&mut self, id: ConnectionId, database: &str) -> RawDocumentBuf {
        if let Some(login) = self.login_mut(id) {
            login.user = login.user.take().filter(|user| user.database != database);
        }
        RawDocumentBuf::new()
    }
}

/// The mechanism is none of those that users may log in by.
fn unavailable(version: ServerVersion) -> CommandError {
    let code = if version < ServerVersion::V5_0 { 2 } else { 334 };
    CommandError::coded(code, "the mechanism is SCRAM-SHA-1 or SCRAM-SHA-256")
}
