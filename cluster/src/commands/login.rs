//! Logging in by SCRAM, by tokens and by GSSAPI, as real servers let their users do, and what they
//! refuse to all others.
//!
//! A deployment without any of their users demands no login. The users may do everything, and there
//! are as many of them as a test needs to distinguish; roles and X.509 are left to real servers.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use crate::authentication::{
    Account, CONVERSATION_ID, ClientFirst, Conversation, EXTERNAL, GSSAPI, Login, OIDC, Payload,
    UserName, certificate_refusal, conversation_id, malformed, mechanism, random_bytes, refused,
    skips_empty_exchange,
};
use crate::model::{Cluster, ConnectionId, Role};
use crate::options::{MemberId, ScramMechanism, ServerVersion, User, UserError, validate_users};
use crate::wire::{CommandError, Request};

/// The number of random bytes that a server adds to the nonce of a client.
const NONCE_LEN: usize = 24;

impl Cluster {
    /// Says whether these may be the users.
    ///
    /// # Errors
    ///
    /// Says what is wrong and what is allowed.
    pub fn check_users(&self, users: &[User]) -> Result<(), UserError> {
        validate_users(users)
    }

    /// Replaces the users; connections whose user is still among them stay logged in, even with
    /// another password.
    pub(crate) fn change_users(&mut self, users: &[User]) {
        if self.check_users(users).is_err() {
            return;
        }
        let before = std::mem::take(&mut self.accounts);
        for user in users {
            let same = before.iter().find(|it| it.user == *user).cloned();
            self.accounts.push(same.unwrap_or_else(|| Account::new(user.clone(), &mut self.rng)));
        }
        for connection in self.connections.values_mut() {
            connection.login.forget_all_but(&self.accounts);
        }
    }

    /// Returns the names of the mechanisms that the members offer.
    pub(super) fn mechanisms(&self) -> Vec<&'static str> {
        let scram = [ScramMechanism::Sha1, ScramMechanism::Sha256].map(ScramMechanism::name);
        let oidc = self.offers_oidc().then_some(OIDC);
        let gssapi = self.offers_gssapi().then_some(GSSAPI);
        scram.into_iter().chain(oidc).chain(gssapi).collect()
    }

    /// Has a connection belong to the deployment itself.
    pub(crate) fn trust(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.login.trusted = true;
        }
    }

    /// Returns whether a connection may run a command: one that is not known, anybody may try.
    pub(super) fn may_run(&self, id: ConnectionId, command: &str) -> bool {
        let login = self.connections.get(&id).map(|connection| &connection.login);
        (self.accounts.is_empty() && !self.offers_oidc() && !self.offers_gssapi())
            || !needs_login(command)
            || login.is_some_and(|login| login.trusted || login.user.is_some())
    }

    /// Returns what the next reply to hello says of logging in: by which mechanisms a user may,
    /// and the answer to a first step that came along.
    pub(super) fn hello_login(
        &mut self,
        id: ConnectionId,
        hello: &RawDocument,
    ) -> Result<RawDocumentBuf, CommandError> {
        let mut fields = RawDocumentBuf::new();
        if let Some(asked) = hello.get("saslSupportedMechs").ok().flatten()
            && let Some((database, name)) = user_asked_for(asked, self.options.version)?
            && let Some(account) = self.account(id, database, name)
        {
            // Real servers list them in no particular order.
            let names: bson::RawArrayBuf =
                account.credentials.keys().map(|mechanism| mechanism.name()).collect();
            fields.append(cstr!("saslSupportedMechs"), names);
        }
        let speculation = hello.get("speculativeAuthenticate").ok().flatten();
        if let Some(start) = speculation.filter(|_| self.options.version > ServerVersion::V4_2) {
            let start = speculative(start)?;
            // One that fails does no harm: the client tries again by itself.
            if let Some(start) = start
                && let Ok(database) = start.get_str("db")
                && let Ok(reply) = self.sasl_start(id, start, database)
            {
                fields.append(cstr!("speculativeAuthenticate"), reply);
            }
        }
        Ok(fields)
    }

    /// Runs a command that is about logging in or out, if it is one.
    pub(super) fn authenticate(
        &mut self,
        id: ConnectionId,
        request: &Request<'_>,
    ) -> Option<Result<RawDocumentBuf, CommandError>> {
        let (body, database) = (request.body, request.database.unwrap_or_default());
        let reply = match request.command_name() {
            "saslStart" => self.sasl_start(id, body, database),
            "saslContinue" => self.sasl_continue(id, body, database),
            "logout" => Ok(self.log_out(id, database)),
            "authenticate" => Err(certificate_refusal(body, self.options.version)),
            // Of no use any more: it was for a mechanism that is gone.
            "getnonce" => Ok(rawdoc! { "nonce": format!("{:x}", self.rng.next_u64()) }),
            _ => return None,
        };
        Some(reply.map(|mut reply| {
            reply.append(cstr!("ok"), 1.0);
            reply
        }))
    }

    /// Returns a user, if the member that a connection leads to has the data that says who is one.
    fn account(&self, id: ConnectionId, database: &str, name: &str) -> Option<&Account> {
        let MemberId(member) = self.connections.get(&id)?.member;
        let member = self.members.get(member)?;
        let is_arbiter = member.process.as_ref().is_some_and(|it| it.role == Role::Arbiter);
        let mut accounts = self.accounts.iter().filter(|_| member.has_data && !is_arbiter);
        accounts.find(|it| it.user.name == name && it.user.database == database)
    }

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
        if name == OIDC && self.offers_oidc() {
            return self.show_token(id, &payload, database);
        }
        if name == GSSAPI && self.offers_gssapi() {
            return self.begin_gssapi(id, &payload, database);
        }
        let mechanism = ScramMechanism::of_name(name).ok_or_else(|| unavailable(name, version))?;
        if let Some(login) = self.login_mut(id) {
            (login.conversation, login.gssapi) = (None, None);
        }
        let first = ClientFirst::parse(&payload.bytes)?;
        let account = self.account(id, database, &first.username);
        let credential = account.and_then(|account| account.credentials.get(&mechanism));
        let credential = Arc::clone(credential.ok_or_else(refused)?);
        let nonce = BASE64_STANDARD.encode(random_bytes(&mut self.rng, NONCE_LEN));
        let (challenge, message) = first.answer(mechanism, credential, &nonce);
        let user = UserName::new(database, &first.username);
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
        let begun =
            self.login_mut(id).map(|login| (login.gssapi.take(), login.conversation.take()));
        let (gssapi, conversation) = begun.unwrap_or_default();
        if gssapi.is_none() && conversation.is_none() {
            return Err(CommandError::coded(17, "no login has begun; saslStart does"));
        }
        if number != CONVERSATION_ID {
            let reason = format!("there is no conversation {number}, but {CONVERSATION_ID}");
            return Err(CommandError::coded(17, reason));
        }
        let began_at = conversation.as_ref().map_or(EXTERNAL, |it| &*it.user.database);
        if database != began_at {
            return Err(malformed("a login goes on at the database that it has begun at"));
        }
        if let Some(begun) = gssapi {
            return self.proceed_gssapi(id, begun, &payload);
        }
        let mut conversation = conversation.ok_or_else(refused)?;
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

/// Returns whether servers with users refuse a command without a login.
fn needs_login(command: &str) -> bool {
    matches!(
        command,
        "aggregate"
            | "configureFailPoint"
            | "count"
            | "create"
            | "createIndexes"
            | "createSearchIndexes"
            | "delete"
            | "distinct"
            | "drop"
            | "dropSearchIndex"
            | "endSessions"
            | "find"
            | "findAndModify"
            | "getCmdLineOpts"
            | "getDefaultRWConcern"
            | "getLog"
            | "getMore"
            | "getParameter"
            | "hostInfo"
            | "insert"
            | "killAllSessions"
            | "killCursors"
            | "listCollections"
            | "listDatabases"
            | "logout"
            | "replSetGetConfig"
            | "replSetGetStatus"
            | "replSetStepDown"
            | "serverStatus"
            | "setParameter"
            | "update"
            | "updateSearchIndex"
    )
}

/// Reads `saslSupportedMechs`: the database and the name of a user.
fn user_asked_for(
    value: RawBsonRef<'_>,
    version: ServerVersion,
) -> Result<Option<(&str, &str)>, CommandError> {
    match value {
        RawBsonRef::String(text) => text.split_once('.').map(Some).ok_or_else(|| {
            CommandError::coded(2, "saslSupportedMechs is \"<database>.<name of the user>\"")
        }),
        _ if version < ServerVersion::V5_0 => Ok(None),
        RawBsonRef::Document(document) => {
            match (document.get_str("db"), document.get_str("user")) {
                (Ok(database), Ok(user)) => Ok(Some((database, user))),
                _ => Err(CommandError::coded(2, "saslSupportedMechs has the texts db and user")),
            }
        }
        _ => Err(CommandError::coded(14, "saslSupportedMechs is a text or a document")),
    }
}

/// Reads `speculativeAuthenticate`: a first step, or nothing if it is one of X.509.
fn speculative(value: RawBsonRef<'_>) -> Result<Option<&RawDocument>, CommandError> {
    let Some(document) = value.as_document() else {
        return Err(CommandError::coded(14, "speculativeAuthenticate is a document"));
    };
    match document.iter().next() {
        Some(Ok((name, _))) if name == "saslStart" => Ok(Some(document)),
        Some(Ok((name, _))) if name == "authenticate" => Ok(None),
        Some(Ok(_)) => Err(CommandError::numbered(
            51769,
            "speculativeAuthenticate is a saslStart or authenticate command",
        )),
        _ => Err(CommandError::coded(2, "speculativeAuthenticate is not an empty document")),
    }
}

/// The mechanism is none of those that users may log in by.
fn unavailable(name: &str, version: ServerVersion) -> CommandError {
    let code = if version < ServerVersion::V5_0 { 2 } else { 334 };
    let reason = format!("the mechanism {name:?} is unknown or not enabled; SCRAM-SHA-256 is");
    CommandError::coded(code, reason)
}
