//! MONGODB-OIDC: a token of OpenID Connect says who the client is, and a machine obtains it.

#[cfg(feature = "oidc-environments")]
mod environment;
mod human;

use std::time::Duration;

use bson::{RawDocument, cstr};

use super::sasl::Sasl;
use super::{
    AuthError, AuthStep, Conversation, CredentialCache, CredentialRequest, CredentialResponse,
    MAX_TOKEN_LEN, OidcRequest, SecretDocument,
};
use crate::config::{AuthMechanism, Credential, Secret};
use crate::operation::CommandError;

pub(super) use human::OidcHuman;

#[cfg(feature = "oidc-environments")]
pub use environment::{OidcEndpoints, OidcEnvironment, OidcEnvironmentError};

/// The time to wait before a token is obtained in place of one that the server has refused.
pub const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// The time that a callback may take at most ("OIDC Callback").
const MAX_CALLBACK_TIME: Duration = Duration::from_secs(60);

/// "AuthenticationFailed"
const AUTHENTICATION_FAILED: i32 = 18;

pub(super) struct Oidc {
    sasl: Sasl,
    username: Option<String>,
    timeout: Duration,
    /// The remembered token that the server is being shown; one that was obtained for this
    /// connection is not asked for again.
    shown: Option<Secret>,
    /// True if the server has refused a remembered token.
    refused: bool,
}

impl Oidc {
    pub(super) fn new(credential: &Credential, connect_timeout: Option<Duration>) -> Self {
        let sasl = Sasl::new(AuthMechanism::Oidc.name());
        let timeout = connect_timeout.unwrap_or(MAX_CALLBACK_TIME).min(MAX_CALLBACK_TIME);
        Self { sasl, username: credential.username.clone(), timeout, shown: None, refused: false }
    }

    /// "One-Step": the token is all there is to say.
    fn show(&mut self, token: &Secret) -> AuthStep {
        AuthStep::Send(self.sasl.start(jwt(token).as_bytes()))
    }

    fn ask(&self, refused: Option<Secret>) -> AuthStep {
        let mut question = OidcRequest::new(self.timeout);
        question.username.clone_from(&self.username);
        question.refused = refused;
        AuthStep::Ask(CredentialRequest::Oidc(question))
    }
}

/// The message that shows a token: "JwtStepRequest".
fn jwt(token: &Secret) -> SecretDocument {
    let token = token.expose();
    let mut payload = SecretDocument::with_room(token.len());
    payload.append(cstr!("jwt"), token);
    payload
}

/// Refuses a token that no server takes.
fn check(token: &Secret) -> Result<(), AuthError> {
    match token.expose().len() {
        0 => Err(AuthError::EmptyToken),
        1..=MAX_TOKEN_LEN => Ok(()),
        _ => Err(AuthError::TokenLength),
    }
}

impl Conversation for Oidc {
    fn begin(&mut self, credential_cache: &CredentialCache) -> AuthStep {
        self.shown = credential_cache.token().cloned();
        match self.shown.clone() {
            Some(token) => self.show(&token),
            None => self.ask(None),
        }
    }

    fn reply(
        &mut self,
        reply: &RawDocument,
        _remembered: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        self.sasl.end(reply)
    }

    /// "If … the speculative authentication document indicates authentication was not successful,
    /// … authenticate with the standard authentication handshake."
    fn speculative_reply(
        &mut self,
        reply: &RawDocument,
        credential_cache: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        match self.sasl.read(reply)?.done {
            true => Ok(AuthStep::Done),
            false => Ok(self.begin(credential_cache)),
        }
    }

    fn answer(
        &mut self,
        answer: CredentialResponse,
        credential_cache: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        let CredentialResponse::Oidc(token) = answer else { return Err(AuthError::WrongAnswer) };
        check(&token.access_token)?;
        // Another connection has obtained it, so that it may have expired since.
        if credential_cache.token() == Some(&token.access_token) && !self.refused {
            self.shown = Some(token.access_token.clone());
        }
        credential_cache.remember_token(token.access_token.clone());
        Ok(self.show(&token.access_token))
    }

    /// The token may have expired since it was obtained; then another one may do ("Credential
    /// Caching").
    fn refused(
        &mut self,
        error: &CommandError,
        credential_cache: &mut CredentialCache,
    ) -> Option<AuthStep> {
        if error.code != Some(AUTHENTICATION_FAILED) {
            return None;
        }
        let refused = self.shown.take()?;
        self.refused = true;
        credential_cache.forget_token(&refused);
        Some(self.ask(Some(refused)))
    }
}
