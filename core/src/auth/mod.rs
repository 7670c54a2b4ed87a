//! Proving who the client is, and that the server knows it: one file a mechanism.
//!
//! Implements the [Authentication specification]. A mechanism receives what the server replied and
//! what the outside world answered, and returns the next command; it does no I/O, and reads no
//! clock.
//!
//! [Authentication specification]: https://github.com/mongodb/specifications/blob/master/source/auth/auth.md

#[cfg(feature = "aws")]
mod aws;
mod command;
mod credential_cache;
mod credential_request;
mod error;
mod gssapi;
mod gssapi_request;
mod keys;
mod oidc;
mod plain;
mod sasl;
mod scram;
mod x509;

use bson::RawDocument;

#[cfg(feature = "aws")]
pub use aws::{
    Authorization, AwsEndpoints, AwsFetch, AwsSource, AwsSourceError, AwsStep, Container,
    WebIdentity,
};
pub(crate) use command::SecretDocument;
pub use credential_cache::CredentialCache;
pub use credential_request::{
    AwsCredentials, CredentialRequest, CredentialResponse, IdpInfo, OidcRequest, OidcToken,
};
pub(crate) use error::AuthError;
pub use gssapi_request::{
    Canonicalization, GssapiContext, GssapiError, GssapiLogin, GssapiProvider, GssapiRequest,
    GssapiResponse, GssapiService, GssapiStep, GssapiToken,
};
pub(crate) use keys::Keys;
pub use keys::{Derivation, Derived};
pub use oidc::PAUSE_AFTER_REFUSAL;
#[cfg(feature = "oidc-environments")]
pub use oidc::{OidcEndpoints, OidcEnvironment, OidcEnvironmentError};
pub use scram::MIN_ITERATIONS;

use crate::config::{AuthMechanism, Credential, Options, ServerAddress};
use crate::operation::CommandError;

/// The maximum length of a token, in bytes.
const MAX_TOKEN_LEN: usize = 1 << 20;

/// The next step of a conversation.
pub(crate) enum AuthStep {
    /// This command, without its `$db`.
    Send(SecretDocument),
    /// An answer from outside.
    Ask(CredentialRequest),
    /// Keys of the password, which take long to derive.
    Derive(Derivation),
    /// Nothing: the server accepts the client, and has proven itself where the mechanism asks it
    /// to.
    Done,
}

/// One attempt to authenticate one connection.
pub(crate) trait Conversation: Send {
    /// Begins.
    fn begin(&mut self, credential_cache: &CredentialCache) -> AuthStep;

    /// Takes a reply that says `ok: 1`.
    fn reply(
        &mut self,
        reply: &RawDocument,
        credential_cache: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError>;

    /// Takes the reply to the first command where that went with hello.
    fn speculative_reply(
        &mut self,
        reply: &RawDocument,
        credential_cache: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        self.reply(reply, credential_cache)
    }

    /// Takes the answer to what was asked.
    fn answer(
        &mut self,
        _answer: CredentialResponse,
        _remembered: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        Err(AuthError::WrongAnswer)
    }

    /// Takes the keys that were to be derived.
    fn derived(&mut self, _keys: Result<Keys, AuthError>) -> Result<AuthStep, AuthError> {
        Err(AuthError::WrongAnswer)
    }

    /// Takes the server's refusal, and returns how to go on if there is another way.
    fn refused(
        &mut self,
        _error: &CommandError,
        _remembered: &mut CredentialCache,
    ) -> Option<AuthStep> {
        None
    }
}

/// Refuses what cannot work with any server, before one is asked.
pub(crate) fn check(
    credential: &Credential,
    options: &Options,
    encrypted: bool,
    server: Option<&ServerAddress>,
) -> Result<(), AuthError> {
    match credential.mechanism {
        None | Some(AuthMechanism::ScramSha1 | AuthMechanism::ScramSha256)
            if credential.username.is_none() || credential.password.is_none() =>
        {
            Err(AuthError::NoPassword)
        }
        Some(AuthMechanism::Plain) if !encrypted && !options.plain_without_tls() => {
            Err(AuthError::PlainWithoutTls)
        }
        Some(AuthMechanism::Oidc) => match (options.oidc_human_callback(), server) {
            (None, _) => Ok(()),
            (Some(hosts), Some(server)) if hosts.allows(server) => Ok(()),
            (Some(_), server) => Err(AuthError::HostNotAllowed(server.cloned())),
        },
        Some(AuthMechanism::Gssapi) => gssapi::Gssapi::new(credential, server).map(drop),
        Some(AuthMechanism::Aws) if cfg!(not(feature = "aws")) => Err(AuthError::NoAws),
        _ => Ok(()),
    }
}

/// Prepares a conversation by one mechanism with `server`; `nonce` is from the operating system.
pub(crate) fn conversation(
    mechanism: AuthMechanism,
    options: &Options,
    credential: &Credential,
    server: Option<&ServerAddress>,
    nonce: [u8; 24],
) -> Result<Box<dyn Conversation>, AuthError> {
    Ok(match mechanism {
        AuthMechanism::ScramSha1 => {
            scram::Scram::sha1(credential, options.max_scram_iterations(), nonce)
        }
        AuthMechanism::ScramSha256 => {
            scram::Scram::sha256(credential, options.max_scram_iterations(), nonce)
        }
        AuthMechanism::X509 => Box::new(x509::X509::new(credential)),
        AuthMechanism::Plain => Box::new(plain::Plain::new(credential)),
        AuthMechanism::Oidc if options.oidc_human_callback().is_some() => {
            Box::new(oidc::OidcHuman::new(credential))
        }
        AuthMechanism::Oidc => Box::new(oidc::Oidc::new(credential, options.connect_timeout())),
        #[cfg(feature = "aws")]
        AuthMechanism::Aws => Box::new(aws::Aws::new(nonce)),
        #[cfg(not(feature = "aws"))]
        AuthMechanism::Aws => return Err(AuthError::NoAws),
        AuthMechanism::Gssapi => Box::new(gssapi::Gssapi::new(credential, server)?),
    })
}

/// Says whether the first command may already go with hello (Handshake, "Speculative
/// Authentication"); PLAIN may not, as it would show the password to a server that has not even
/// said hello, and MONGODB-AWS and GSSAPI may not, as servers do not take them.
pub(crate) fn is_speculative(mechanism: AuthMechanism, credential_cache: &CredentialCache) -> bool {
    match mechanism {
        AuthMechanism::ScramSha1 | AuthMechanism::ScramSha256 | AuthMechanism::X509 => true,
        // "Drivers MUST NOT attempt speculative authentication if the Client Cache does not have a
        // cached access token."
        AuthMechanism::Oidc => credential_cache.token().is_some(),
        AuthMechanism::Plain | AuthMechanism::Gssapi | AuthMechanism::Aws => false,
    }
}
