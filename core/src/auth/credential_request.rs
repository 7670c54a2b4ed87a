//! The facts that only the outside world knows: credentials of AWS, tokens of OpenID Connect, and
//! what a security context of GSSAPI says.

use std::time::Duration;

use bson::DateTime;

use super::{GssapiRequest, GssapiResponse};
use crate::config::Secret;

/// The version of an OIDC callback's interface.
const CALLBACK_VERSION: u32 = 1;

/// A question of a conversation, which waits for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialRequest {
    /// Credentials of AWS and the time of day.
    ///
    /// Code that drives a [`Handshake`](crate::handshake::Handshake) looks into
    /// [`CredentialCache::aws_credentials`](super::CredentialCache::aws_credentials) first.
    Aws,
    /// A token.
    Oidc(OidcRequest),
    /// The name of a host, or a step of a security context.
    Gssapi(GssapiRequest),
}

impl CredentialRequest {
    /// Returns whether a person may have to answer it: neither connectTimeoutMS nor timeoutMS is a
    /// limit then (Authentication, "OIDC Human Callback").
    pub const fn is_for_person(&self) -> bool {
        matches!(self, Self::Oidc(OidcRequest { idp_info: Some(_), .. }))
    }
}

/// The question for a provider of tokens: the inputs of an OIDC callback.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OidcRequest {
    /// The version of the callback's interface.
    pub version: u32,
    /// The user's name, if one was given.
    pub username: Option<String>,
    /// The time that the answer may take: what is left of the operation's time, connectTimeoutMS or
    /// a minute, whichever is shortest; five minutes if a person is asked.
    pub timeout: Duration,
    /// The identity provider at which a person logs in, if
    /// [`oidc_human_callback`](crate::config::OptionsBuilder::oidc_human_callback) is set.
    pub idp_info: Option<IdpInfo>,
    /// The refresh token that came with an earlier token of that provider, which may do instead of
    /// the person. If the identity provider does not take it any more, ask the person instead of
    /// failing: it comes with each question until there is another token. If the identity provider
    /// gives no new one, return this one with the token.
    pub refresh_token: Option<Secret>,
    /// The remembered token that the server has just refused.
    ///
    /// Wait [`PAUSE_AFTER_REFUSAL`](super::PAUSE_AFTER_REFUSAL) then; and if the client remembers
    /// another token by now, because another connection has obtained it, answer with that one.
    pub refused: Option<Secret>,
}

impl OidcRequest {
    /// Asks for any token, in the time given.
    pub const fn new(timeout: Duration) -> Self {
        Self {
            version: CALLBACK_VERSION,
            username: None,
            timeout,
            idp_info: None,
            refresh_token: None,
            refused: None,
        }
    }
}

/// An identity provider, as the server describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdpInfo {
    /// The URL of the provider, from which its metadata can be discovered (RFC 8414).
    pub issuer: String,
    /// The id that the provider knows the application by, if it needs one.
    pub client_id: Option<String>,
    /// The scopes to request beside those of every login.
    pub request_scopes: Vec<String>,
}

impl IdpInfo {
    /// Describes a provider that needs no id, and no further scopes.
    pub fn new(issuer: impl Into<String>) -> Self {
        Self { issuer: issuer.into(), client_id: None, request_scopes: Vec::new() }
    }

    /// Replaces [`client_id`](Self::client_id).
    #[must_use]
    pub fn with_client_id(mut self, client_id: Option<String>) -> Self {
        self.client_id = client_id;
        self
    }

    /// Replaces [`request_scopes`](Self::request_scopes).
    #[must_use]
    pub fn with_request_scopes(mut self, request_scopes: Vec<String>) -> Self {
        self.request_scopes = request_scopes;
        self
    }
}

/// The answer to a [`CredentialRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialResponse {
    /// Answers [`CredentialRequest::Aws`].
    Aws {
        /// The credentials.
        credentials: AwsCredentials,
        /// The time of day, which is part of what is signed.
        now: DateTime,
    },
    /// Answers [`CredentialRequest::Oidc`].
    Oidc(OidcToken),
    /// Answers [`CredentialRequest::Gssapi`].
    Gssapi(GssapiResponse),
}

/// Credentials of Amazon Web Services.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AwsCredentials {
    /// The id of the access key; no secret.
    pub access_key_id: String,
    /// The key that signs.
    pub secret_access_key: Secret,
    /// The token that temporary credentials come with.
    pub session_token: Option<Secret>,
    /// The time when temporary credentials that a service gave out expire.
    ///
    /// Only credentials with this are remembered; leave it out for those from environment
    /// variables, which must not be.
    pub expires: Option<DateTime>,
}

impl AwsCredentials {
    /// Holds credentials that do not expire, as far as is known, and need no token.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<Secret>) -> Self {
        Self {
            access_key_id: access_key_id.into(),
            secret_access_key: secret_access_key.into(),
            session_token: None,
            expires: None,
        }
    }

    /// Replaces [`session_token`](Self::session_token).
    #[must_use]
    pub fn with_session_token(mut self, session_token: Option<Secret>) -> Self {
        self.session_token = session_token;
        self
    }

    /// Replaces [`expires`](Self::expires).
    #[must_use]
    pub fn with_expires(mut self, expires: Option<DateTime>) -> Self {
        self.expires = expires;
        self
    }
}

/// A token of OpenID Connect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OidcToken {
    /// The access token; it is not looked into.
    pub access_token: Secret,
    /// The time that it is valid, `None` or zero for ever. Nothing depends on it yet.
    pub expires_in: Option<Duration>,
    /// The refresh token with which the next one can be obtained; only the answer of a person has
    /// one.
    pub refresh_token: Option<Secret>,
}

impl OidcToken {
    /// Holds a token that is valid for ever, as far as is known.
    pub fn new(access_token: impl Into<Secret>) -> Self {
        Self { access_token: access_token.into(), expires_in: None, refresh_token: None }
    }

    /// Replaces [`refresh_token`](Self::refresh_token).
    #[must_use]
    pub fn with_refresh_token(mut self, refresh_token: Option<Secret>) -> Self {
        self.refresh_token = refresh_token;
        self
    }

    /// Says how long it is valid.
    #[must_use]
    pub const fn expires_in(mut self, duration: Duration) -> Self {
        self.expires_in = Some(duration);
        self
    }
}
