//! The reason why the client itself ends a conversation.

use super::MAX_TOKEN_LEN;
use super::scram::MIN_ITERATIONS;
use crate::config::ServerAddress;
use crate::failure::{Cause, Failure, Stage};
use crate::hello::ReplyError;

/// The reason why the client itself ends a conversation. None of them shows a secret.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("malformed reply: a reply to authentication in which {0}")]
    Reply(ReplyError),
    #[error("malformed reply: a message of {mechanism} {what}")]
    Message { mechanism: &'static str, what: &'static str },
    #[error("the server ends authentication before it has proven that it knows the password")]
    EndsEarly,
    #[error("the server goes on with authentication after its last step")]
    GoesOn,
    #[error("the server's nonce does not begin with the client's, so it answers someone else")]
    Nonce,
    #[error(
        "the server asks for {asked} iterations of SCRAM; from {MIN_ITERATIONS} to {most} \
         (maxScramIterations) are allowed"
    )]
    Iterations { asked: u64, most: u32 },
    #[error("the server does not prove that it knows the password: its signature is wrong")]
    Signature,
    #[error("the server ends SCRAM with the error {0:?}")]
    Scram(String),
    #[error("the server names the AWS host {0:?}, which is no host name of 1 to 255 bytes")]
    #[cfg(feature = "aws")]
    Host(String),
    #[error("the request to AWS cannot be signed: {0} cannot stand in a header")]
    #[cfg(feature = "aws")]
    Signing(&'static str),
    #[error(
        "the password cannot be used with SCRAM-SHA-256: SASLprep (RFC 4013) forbids a character \
         or a mixture of directions in it"
    )]
    Prohibited,
    #[error(
        "the password has characters beyond ASCII, which SCRAM-SHA-256 needs SASLprep for: the \
         feature `saslprep`, which this library was built without"
    )]
    #[cfg_attr(feature = "saslprep", allow(dead_code, reason = "the feature is there"))]
    NoSaslprep,
    #[error("SCRAM needs a user name and a password; give both, or set another authMechanism")]
    NoPassword,
    #[error(
        "PLAIN would show the password to anyone who reads the network; use TLS (tls=true), or \
         insist with OptionsBuilder::allow_plain_without_tls"
    )]
    PlainWithoutTls,
    #[error(
        "GSSAPI needs the host of the service, and {} has none; name it: \
         authMechanismProperties=SERVICE_HOST:db.example",
        .0.as_ref().map_or_else(|| "a server without a name".into(), ToString::to_string)
    )]
    NoServiceHost(Option<ServerAddress>),
    #[error(
        "the server demands a security layer of GSSAPI, by which each message would be signed or \
         encrypted, and drivers have none; let the server allow authentication alone (and use TLS)"
    )]
    SecurityLayer,
    #[error("MONGODB-AWS needs the feature `aws`, which this library was built without")]
    #[cfg_attr(feature = "aws", allow(dead_code, reason = "the feature is there"))]
    NoAws,
    #[error(
        "{} is not among the allowed hosts of MONGODB-OIDC with a person, so that it is shown no \
         token; name it in the AllowedHosts of OptionsBuilder::oidc_human_callback, if it may have \
         one", .0.as_ref().map_or_else(|| "a server without a name".into(), ToString::to_string)
    )]
    HostNotAllowed(Option<ServerAddress>),
    #[error("a token is longer than {MAX_TOKEN_LEN} bytes, which no server takes")]
    TokenLength,
    #[error("the provider of tokens gave an empty one")]
    EmptyToken,
    #[error("the provider of credentials answered with an unexpected type of answer")]
    WrongAnswer,
    #[error(
        "only MONGODB-OIDC authenticates a connection once more; this one was authenticated with \
         {}", .0.unwrap_or("nothing")
    )]
    OnceMore(Option<&'static str>),
}

impl From<ReplyError> for AuthError {
    fn from(error: ReplyError) -> Self {
        Self::Reply(error)
    }
}

impl AuthError {
    pub(crate) fn to_failure(&self) -> Failure {
        let cause = match self {
            Self::Reply(_) | Self::Message { .. } => Cause::Malformed,
            Self::EndsEarly | Self::GoesOn | Self::Nonce | Self::Iterations { .. } => {
                Cause::Authentication
            }
            Self::Signature | Self::Scram(_) | Self::SecurityLayer => Cause::Authentication,
            #[cfg(feature = "aws")]
            Self::Host(_) => Cause::Authentication,
            #[cfg(feature = "aws")]
            Self::Signing(_) => Cause::Configuration,
            Self::Prohibited
            | Self::NoSaslprep
            | Self::NoPassword
            | Self::PlainWithoutTls
            | Self::NoServiceHost(_)
            | Self::NoAws
            | Self::HostNotAllowed(_)
            | Self::TokenLength
            | Self::EmptyToken
            | Self::WrongAnswer
            | Self::OnceMore(_) => Cause::Configuration,
        };
        let stage = match self {
            Self::TokenLength | Self::EmptyToken | Self::WrongAnswer => Stage::Credentials,
            _ => Stage::Authenticate,
        };
        Failure::new(stage, cause, self.to_string())
    }
}
