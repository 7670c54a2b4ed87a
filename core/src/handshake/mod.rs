//! The opening conversation of an application's connection: hello, compression, authentication.
//!
//! Implements "Connection handshake" of the MongoDB Handshake specification, the negotiation of
//! Wire Compression, "Authentication Handshake" of Authentication, and "Connection establishment"
//! of Load Balancer Support. Bytes go in and come out; monitors say hello by themselves, and never
//! authenticate.

mod command;
mod connection_description;
mod exchange;
mod external_answers;

use std::fmt;
use std::sync::Arc;

use bson::RawDocumentBuf;
use bson::oid::ObjectId;

pub use connection_description::ConnectionDescription;

use crate::auth::{
    self, AuthError, AuthStep, Conversation, CredentialCache, CredentialRequest, Derivation,
};
use crate::config::{AuthMechanism, Credential, Options, ServerAddress};
use crate::description::ServerType;
use crate::failure::{Cause, Failure, Stage};
use crate::operation::OperationError;
use crate::session::ClusterTime;
use crate::wire::ReplyDocument;
use command::Speculation;
use connection_description::OpeningReply;
use exchange::Exchange;

/// The fault of a server that speaks out of turn.
const UNASKED: &str = "a message that nothing asked for";

/// The inputs of a handshake besides the options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandshakeOptions {
    /// The client's metadata: [`ClientMetadata::document`].
    ///
    /// [`ClientMetadata::document`]: crate::config::metadata::ClientMetadata::document
    pub client: RawDocumentBuf,
    /// Bytes from the operating system's source of randomness, new for every connection.
    pub nonce: [u8; 24],
    /// The cache that earlier connections of the client have filled.
    pub credential_cache: CredentialCache,
    /// True if the stream is encrypted, as with TLS.
    pub encrypted: bool,
    /// The server, by the address that it advertises; needed where a person obtains the token of
    /// MONGODB-OIDC, as only [`AllowedHosts`](crate::config::AllowedHosts) may be shown it, and
    /// with GSSAPI, as its host names the service.
    pub server: Option<ServerAddress>,
}

impl HandshakeOptions {
    /// Begins with an empty cache, on a stream that others may read along, with a server that has
    /// no name.
    pub fn new(client: RawDocumentBuf, nonce: [u8; 24]) -> Self {
        let credential_cache = CredentialCache::default();
        Self { client, nonce, credential_cache, encrypted: false, server: None }
    }

    /// Replaces [`credential_cache`](Self::credential_cache).
    #[must_use]
    pub fn with_credential_cache(mut self, credential_cache: CredentialCache) -> Self {
        self.credential_cache = credential_cache;
        self
    }

    /// Replaces [`encrypted`](Self::encrypted).
    #[must_use]
    pub fn with_encrypted(mut self, encrypted: bool) -> Self {
        self.encrypted = encrypted;
        self
    }

    /// Replaces [`server`](Self::server).
    #[must_use]
    pub fn with_server(mut self, server: Option<ServerAddress>) -> Self {
        self.server = server;
        self
    }
}

/// The state of a handshake.
#[derive(Debug)]
pub enum HandshakeProgress {
    /// More bytes of the server are needed.
    Reading,
    /// An answer is needed: [`Handshake::supply`].
    Asking(CredentialRequest),
    /// The connection is ready for use.
    Done(Box<ConnectionDescription>),
}

/// The opening conversation of one connection.
///
/// ```
/// use std::sync::Arc;
/// use sdam_core::bson::rawdoc;
/// use sdam_core::handshake::{Handshake, HandshakeOptions, HandshakeProgress};
/// use sdam_core::config::Options;
/// use sdam_core::wire::{Flags, write_op_msg};
///
/// let options = Arc::new(Options::parse("mongodb://db.example")?);
/// let client = options.metadata().document();
/// let opening = HandshakeOptions::new(client, [7; 24]);
/// let mut for_server = Vec::new();
/// let mut handshake = Handshake::start(&options, opening, &mut for_server)?;
/// assert!(!for_server.is_empty(), "it says hello");
///
/// let mut from_server = Vec::new();
/// let hello = rawdoc! { "isWritablePrimary": true, "maxWireVersion": 17, "ok": 1 };
/// write_op_msg(&mut from_server, 1, 1, Flags::NONE, &hello);
/// let HandshakeProgress::Done(agreed) = handshake.receive(&from_server, &mut Vec::new())? else {
///     panic!("there is nothing else to say");
/// };
/// assert_eq!(agreed.max_wire_version, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Handshake {
    options: Arc<Options>,
    exchange: Exchange,
    credential_cache: CredentialCache,
    nonce: [u8; 24],
    server: Option<ServerAddress>,
    state: HandshakeState,
    /// The keys that are to be derived before anything else.
    derivation: Option<Derivation>,
    connection_description: Option<ConnectionDescription>,
    /// The latest cluster time of the replies.
    cluster_time: Option<ClusterTime>,
}

enum HandshakeState {
    /// Hello is to be answered, and with it perhaps the first step of authentication.
    Hello { speculation: Option<Speculation> },
    /// A step of authentication is to be answered.
    Authenticating(Box<dyn Conversation>),
    /// The outside world is to answer.
    Asking(Box<dyn Conversation>),
    /// Keys are to be derived.
    Deriving(Box<dyn Conversation>),
    /// The handshake has succeeded or failed.
    Over,
}

impl Handshake {
    /// Begins, and appends the first bytes for the server to `out`.
    ///
    /// What is appended here and later may contain a password or a token; it is for the caller to
    /// wipe `out` when it was sent.
    ///
    /// # Errors
    ///
    /// The client is to authenticate in a way that works with no server.
    pub fn start(
        options: &Arc<Options>,
        opening: HandshakeOptions,
        out: &mut Vec<u8>,
    ) -> Result<Self, OperationError> {
        let HandshakeOptions { client, nonce, credential_cache, encrypted, server } = opening;
        let credential = options.credential();
        if let Some(credential) = credential {
            auth::check(credential, options, encrypted, server.as_ref()).map_err(stream)?;
        }
        let speculation = match credential {
            Some(credential) => {
                let server = server.as_ref();
                Speculation::new(options, credential, nonce, server, &credential_cache)
                    .map_err(stream)?
            }
            None => None,
        };
        let mut exchange = Exchange::default();
        let hello = command::hello(options, &client, speculation.as_ref());
        exchange.send_hello(options, hello, out);
        let (options, state) = (Arc::clone(options), HandshakeState::Hello { speculation });
        let (derivation, connection_description, cluster_time) = (None, None, None);
        Ok(Self {
            options,
            exchange,
            credential_cache,
            nonce,
            server,
            state,
            derivation,
            connection_description,
            cluster_time,
        })
    }

    /// Authenticates an established connection once more, without hello, after the server has
    /// answered a command with the error ReauthenticationRequired (391).
    ///
    /// The token that the connection was authenticated with is forgotten. The opening's client
    /// document is not sent, and its nonce is of no use.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start); and the connection was not authenticated with MONGODB-OIDC,
    /// the one mechanism for which servers ask that (Authentication, "Reauthentication").
    pub fn reauthenticate(
        options: &Arc<Options>,
        opening: HandshakeOptions,
        connection_description: ConnectionDescription,
        out: &mut Vec<u8>,
    ) -> Result<(Self, HandshakeProgress), OperationError> {
        let mechanism = connection_description.mechanism;
        let (Some(credential), Some(AuthMechanism::Oidc)) = (options.credential(), mechanism)
        else {
            return Err(stream(AuthError::OnceMore(mechanism.map(AuthMechanism::name))));
        };
        let HandshakeOptions { nonce, mut credential_cache, encrypted, server, .. } = opening;
        auth::check(credential, options, encrypted, server.as_ref()).map_err(stream)?;
        if let Some(token) = &connection_description.token {
            credential_cache.forget_token(token);
        }
        let mut handshake = Self {
            options: Arc::clone(options),
            exchange: Exchange::default(),
            credential_cache,
            nonce,
            server,
            state: HandshakeState::Over,
            derivation: None,
            connection_description: Some(connection_description),
            cluster_time: None,
        };
        let progress = handshake.authenticate(AuthMechanism::Oidc, credential, out)?;
        Ok((handshake, progress))
    }

    /// Takes bytes of the server, however they are split, and appends what is to be answered.
    ///
    /// # Errors
    ///
    /// The server refused hello or authentication, or sent what is no valid reply, or does not
    /// prove that it knows the password. The connection is of no more use then.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        let mut progress = self.receive_until_keys(bytes, out)?;
        while let Some(derivation) = self.take_derivation() {
            progress = self.derived(derivation.run(), out)?;
        }
        Ok(progress)
    }

    /// Returns how far the conversation has come: [`Stage::Hello`], [`Stage::Credentials`] while an
    /// answer is needed of others than the server, or [`Stage::Authenticate`].
    pub const fn stage(&self) -> Stage {
        match (&self.state, &self.connection_description) {
            (HandshakeState::Asking(_), Some(_)) => Stage::Credentials,
            _ => self.stage_of_server(),
        }
    }

    /// Returns how far it has come with the server, whomever else it asks.
    const fn stage_of_server(&self) -> Stage {
        match self.connection_description {
            None => Stage::Hello,
            Some(_) => Stage::Authenticate,
        }
    }

    /// Returns, behind a load balancer, the service that the connection leads to, once hello was
    /// answered.
    pub fn service(&self) -> Option<ObjectId> {
        self.connection_description
            .as_ref()
            .and_then(|connection_description| connection_description.service)
    }

    /// Returns the server's maxWireVersion, 0 before hello was answered.
    pub fn max_wire_version(&self) -> i32 {
        self.connection_description
            .as_ref()
            .map_or(0, |connection_description| connection_description.max_wire_version)
    }

    /// Returns the latest `$clusterTime` of the replies. It is for use once the handshake has
    /// succeeded: before that, the server may be another one than it claims to be.
    ///
    /// "Drivers MUST examine all non-SDAM responses from the server commands" (Driver Sessions,
    /// "Receiving the current cluster time"), so that the first command carries one already.
    pub const fn cluster_time(&self) -> Option<&ClusterTime> {
        self.cluster_time.as_ref()
    }

    /// Returns what later connections can use; look at it however the handshake ends.
    pub const fn credential_cache(&self) -> &CredentialCache {
        &self.credential_cache
    }

    /// Takes over what other connections of the client have found out meanwhile; to be called
    /// before [`supply`](Self::supply) where that may be.
    pub fn refresh(&mut self, of_client: &CredentialCache) {
        self.credential_cache.merge(of_client);
    }

    /// Ends the handshake: the connection has failed, or time is up.
    ///
    /// If that was during a login with MONGODB-AWS, its credentials are forgotten; see
    /// [`credential_cache`](Self::credential_cache).
    pub fn give_up(&mut self) {
        (self.state, self.derivation) = (HandshakeState::Over, None);
        let mechanism = self
            .connection_description
            .as_ref()
            .and_then(|connection_description| connection_description.mechanism);
        if mechanism == Some(AuthMechanism::Aws) {
            self.credential_cache.forget_aws_credentials();
        }
    }

    /// Reads all that has come.
    fn read(&mut self, out: &mut Vec<u8>) -> Result<HandshakeProgress, OperationError> {
        loop {
            let reply = self.exchange.next_reply();
            let reply = reply.map_err(|error| malformed(self.stage_of_server(), &error))?;
            let Some(reply) = reply else { return Ok(HandshakeProgress::Reading) };
            self.advance_cluster_time(&reply);
            let progress = match std::mem::replace(&mut self.state, HandshakeState::Over) {
                HandshakeState::Hello { speculation } => {
                    self.receive_hello(&reply, speculation, out)?
                }
                HandshakeState::Authenticating(conversation) => {
                    self.receive_reply(&reply, conversation, out)?
                }
                HandshakeState::Asking(_) | HandshakeState::Deriving(_) | HandshakeState::Over => {
                    return Err(malformed(self.stage_of_server(), &UNASKED));
                }
            };
            // Nothing would read what came behind the last reply, or in front of the answer.
            match progress {
                HandshakeProgress::Reading => {}
                _ if !self.exchange.is_empty() => {
                    return Err(malformed(self.stage_of_server(), &UNASKED));
                }
                progress => return Ok(progress),
            }
        }
    }

    /// Keeps the cluster time of a reply, if it has a later one.
    fn advance_cluster_time(&mut self, reply: &ReplyDocument) {
        let known = self.cluster_time.as_ref().map(ClusterTime::timestamp);
        if let Ok(time) = reply.get_document("$clusterTime")
            && ClusterTime::timestamp_of(time) > known
        {
            self.cluster_time = ClusterTime::of_reply(time);
        }
    }

    /// The server has answered hello.
    fn receive_hello(
        &mut self,
        reply: &ReplyDocument,
        speculation: Option<Speculation>,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        let OpeningReply { connection_description, negotiated, speculative } =
            OpeningReply::read(reply, &self.options)?;
        let is_arbiter = connection_description.server_type == ServerType::RsArbiter;
        let connection_description = self.connection_description.insert(connection_description);
        let options = Arc::clone(&self.options);
        // "If the server is of type RSArbiter, no authentication is possible"
        let Some(credential) = options.credential().filter(|_| !is_arbiter) else {
            return Ok(self.done());
        };
        let mechanism = credential.mechanism.unwrap_or(negotiated);
        connection_description.mechanism = Some(mechanism);
        match (speculation, speculative) {
            (Some(speculation), Some(reply)) if speculation.mechanism == mechanism => {
                let mut conversation = speculation.conversation;
                let step = conversation.speculative_reply(&reply, &mut self.credential_cache);
                self.take(step.map_err(stream)?, conversation, out)
            }
            _ => self.authenticate(mechanism, credential, out),
        }
    }

    /// Authenticates from the beginning. That the nonce may have been sent already does no harm:
    /// no conversation with it has ended, so that there is none to be replayed.
    fn authenticate(
        &mut self,
        mechanism: AuthMechanism,
        credential: &Credential,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        let (options, server) = (&self.options, self.server.as_ref());
        let conversation = auth::conversation(mechanism, options, credential, server, self.nonce);
        let mut conversation = conversation.map_err(stream)?;
        let step = conversation.begin(&self.credential_cache);
        self.take(step, conversation, out)
    }

    /// The server has answered a step of authentication.
    fn receive_reply(
        &mut self,
        reply: &ReplyDocument,
        mut conversation: Box<dyn Conversation>,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        match connection_description::refusal(reply) {
            Ok(None) => {
                let step = conversation.reply(reply, &mut self.credential_cache).map_err(stream)?;
                self.take(step, conversation, out)
            }
            Ok(Some(error)) => match conversation.refused(&error, &mut self.credential_cache) {
                Some(step) => self.take(step, conversation, out),
                None => Err(OperationError::Reply { stage: Stage::Authenticate, error }),
            },
            Err(error) => Err(stream(error.into())),
        }
    }

    /// Does what comes next.
    fn take(
        &mut self,
        step: AuthStep,
        conversation: Box<dyn Conversation>,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        match step {
            AuthStep::Send(command) => {
                let source =
                    self.options.credential().map_or("admin", |credential| &credential.source);
                self.exchange.send(&self.options, command, source, out);
                self.state = HandshakeState::Authenticating(conversation);
                Ok(HandshakeProgress::Reading)
            }
            AuthStep::Ask(question) => {
                self.state = HandshakeState::Asking(conversation);
                Ok(HandshakeProgress::Asking(question))
            }
            AuthStep::Derive(derivation) => {
                self.derivation = Some(derivation);
                self.state = HandshakeState::Deriving(conversation);
                Ok(HandshakeProgress::Reading)
            }
            AuthStep::Done => Ok(self.done()),
        }
    }

    fn done(&self) -> HandshakeProgress {
        let mut connection_description =
            self.connection_description.clone().expect("hello was answered");
        if connection_description.mechanism == Some(AuthMechanism::Oidc) {
            connection_description.token = self.credential_cache.token().cloned();
        }
        HandshakeProgress::Done(Box::new(connection_description))
    }

    /// After an error nothing is expected any more.
    fn settle(
        &mut self,
        progress: Result<HandshakeProgress, OperationError>,
    ) -> Result<HandshakeProgress, OperationError> {
        if progress.is_err() {
            self.give_up();
        }
        progress
    }
}

/// Shows how far it has come, and nothing of what was said.
impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("stage", &self.stage()).finish_non_exhaustive()
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn stream(error: AuthError) -> OperationError {
    OperationError::Stream(error.to_failure())
}

fn malformed(stage: Stage, what: &dyn fmt::Display) -> OperationError {
    let detail = format!("malformed reply: {what}");
    OperationError::Stream(Failure::new(stage, Cause::Malformed, detail))
}
