//! MONGODB-OIDC with a person, who obtains the token at an identity provider that the server names:
//! the "human" flow.

use std::time::Duration;

use bson::{RawBsonRef, RawDocument, cstr};

use super::{AUTHENTICATION_FAILED, check, jwt};
use crate::auth::credential_cache::Refresh;
use crate::auth::sasl::Sasl;
use crate::auth::{
    AuthError, AuthStep, Conversation, CredentialCache, CredentialRequest, CredentialResponse,
    IdpInfo, OidcRequest, SecretDocument,
};
use crate::config::{AuthMechanism, Credential, Secret};
use crate::operation::CommandError;

/// The time that a person has ("OIDC Human Callback": "The timeout duration MUST be 5 minutes").
const PERSONS_TIME: Duration = Duration::from_secs(300);

pub(in crate::auth) struct OidcHuman {
    sasl: Sasl,
    username: Option<String>,
    state: State,
    /// The remembered token that the server has refused.
    refused: Option<Secret>,
}

/// The step of "Authentication", for drivers that support this flow.
enum State {
    /// Nothing is said yet.
    Start,
    /// The server is shown a remembered token.
    Remembered(Secret),
    /// A token is asked for by a refresh token.
    Refreshing(Refresh),
    /// The server is shown the token that came of it, with another refresh token or without.
    Refreshed { access: Secret, refresh: Option<Secret> },
    /// The server is asked for the identity provider.
    Principal,
    /// The person is asked.
    Asking(IdpInfo),
    /// The server is shown the person's token.
    Shown,
}

impl OidcHuman {
    pub(in crate::auth) fn new(credential: &Credential) -> Self {
        let sasl = Sasl::new(AuthMechanism::Oidc.name());
        Self { sasl, username: credential.username.clone(), state: State::Start, refused: None }
    }

    /// "Two-Step": the principal's name, if it is known, says which provider it is.
    fn ask_for_provider(&mut self) -> AuthStep {
        let mut payload = SecretDocument::with_room(0);
        if let Some(name) = &self.username {
            payload.append(cstr!("n"), name.as_str());
        }
        self.state = State::Principal;
        AuthStep::Send(self.sasl.start(payload.as_bytes()))
    }

    fn ask(&self, idp_info: IdpInfo, refresh_token: Option<Secret>) -> AuthStep {
        let mut question = OidcRequest::new(PERSONS_TIME);
        question.username.clone_from(&self.username);
        question.idp_info = Some(idp_info);
        question.refresh_token = refresh_token;
        question.refused.clone_from(&self.refused);
        AuthStep::Ask(CredentialRequest::Oidc(question))
    }

    /// Goes on without a remembered token.
    fn refresh_or_ask(&mut self, credential_cache: &CredentialCache) -> AuthStep {
        match credential_cache.refresh().cloned() {
            Some(refresh) => {
                let question = self.ask(refresh.idp_info.clone(), Some(refresh.token.clone()));
                self.state = State::Refreshing(refresh);
                question
            }
            None => self.ask_for_provider(),
        }
    }
}

impl Conversation for OidcHuman {
    fn begin(&mut self, credential_cache: &CredentialCache) -> AuthStep {
        match credential_cache.token().cloned() {
            Some(token) => {
                let step = AuthStep::Send(self.sasl.start(jwt(&token).as_bytes()));
                self.state = State::Remembered(token);
                step
            }
            None => self.refresh_or_ask(credential_cache),
        }
    }

    fn reply(
        &mut self,
        reply: &RawDocument,
        _remembered: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        if !matches!(self.state, State::Principal) {
            return self.sasl.end(reply);
        }
        let reply = self.sasl.read(reply)?;
        if reply.done {
            return Err(malformed("ends the conversation before the client has shown a token"));
        }
        let idp_info = read_idp_info(reply.payload)?;
        let question = self.ask(idp_info.clone(), None);
        self.state = State::Asking(idp_info);
        Ok(question)
    }

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
        token.refresh_token.as_ref().map_or(Ok(()), check)?;
        let (jwt, access) = (jwt(&token.access_token), token.access_token.clone());
        let idp_info = match std::mem::replace(&mut self.state, State::Start) {
            State::Asking(idp_info) => idp_info,
            State::Refreshing(Refresh { idp_info, .. }) => {
                let refresh = token.refresh_token.clone();
                self.state = State::Refreshed { access: access.clone(), refresh };
                idp_info
            }
            _ => return Err(AuthError::WrongAnswer),
        };
        // Another connection has obtained it, and remembered what came with it: "Drivers MUST use a
        // one-step conversation when using a cached access token".
        if credential_cache.token() == Some(&access) {
            self.state = State::Remembered(access);
            return Ok(AuthStep::Send(self.sasl.start(jwt.as_bytes())));
        }
        let refresh = token.refresh_token.map(|token| Refresh { token, idp_info });
        credential_cache.remember_refresh(refresh);
        credential_cache.remember_token(access);
        match self.state {
            State::Refreshed { .. } => Ok(AuthStep::Send(self.sasl.start(jwt.as_bytes()))),
            _ => {
                self.state = State::Shown;
                self.sasl.proceed(jwt.as_bytes())
            }
        }
    }

    /// "If the server returns an Authentication error (18), invalidate the access token .. and
    /// restart the authentication flow": each way is gone once.
    fn refused(
        &mut self,
        error: &CommandError,
        credential_cache: &mut CredentialCache,
    ) -> Option<AuthStep> {
        if error.code != Some(AUTHENTICATION_FAILED) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Start) {
            State::Remembered(token) if self.refused.is_none() => {
                credential_cache.forget_token(&token);
                self.refused = Some(token);
                Some(self.refresh_or_ask(credential_cache))
            }
            State::Refreshed { access, refresh } => {
                credential_cache.forget_token(&access);
                if let Some(refresh) = refresh {
                    credential_cache.forget_refresh(&refresh);
                }
                self.refused = Some(access);
                Some(self.ask_for_provider())
            }
            _ => None,
        }
    }
}

/// Reads what the server says of the identity provider ("IdpInfo"); what is null counts as absent.
fn read_idp_info(payload: &[u8]) -> Result<IdpInfo, AuthError> {
    let document = RawDocument::from_bytes(payload).map_err(|_| malformed("is not BSON"))?;
    let (mut issuer, mut client_id, mut request_scopes) = (None, None, Vec::new());
    for element in document.iter() {
        let (name, value) = element.map_err(|_| malformed("is not BSON"))?;
        match (name.as_str(), value) {
            (_, RawBsonRef::Null) => {}
            ("issuer", RawBsonRef::String(text)) => issuer = Some(text.to_owned()),
            ("clientId", RawBsonRef::String(text)) => client_id = Some(text.to_owned()),
            ("requestScopes", RawBsonRef::Array(scopes)) => {
                for scope in scopes {
                    let scope = scope.map_err(|_| malformed("is not BSON"))?;
                    let scope =
                        scope.as_str().ok_or_else(|| malformed("has a scope of no text"))?;
                    request_scopes.push(scope.to_owned());
                }
            }
            ("issuer" | "clientId" | "requestScopes", _) => {
                return Err(malformed("describes an identity provider by values of wrong types"));
            }
            _ => {}
        }
    }
    let issuer = issuer.ok_or_else(|| malformed("names no issuer of tokens"))?;
    Ok(IdpInfo { issuer, client_id, request_scopes })
}

const fn malformed(what: &'static str) -> AuthError {
    AuthError::Message { mechanism: "MONGODB-OIDC", what }
}
