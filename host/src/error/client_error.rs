//! The reason why a client could not be created.

use std::sync::Arc;

use sdam_core::config::{Options, OptionsError};
use sdam_core::dns::srv::SrvError;
use sdam_core::transport::LoginError;

/// The reason why a client could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection string is malformed, or its options do not go together.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The thread is in no runtime that tasks could be started on.
    #[error("a client must be created inside a runtime: {0}")]
    NoRuntime(Box<dyn std::error::Error + Send + Sync>),
    /// The operating system gave no thread, or nothing that waits for sockets.
    #[error("the operating system gave no thread for the monitors: {0}")]
    NoThread(Box<dyn std::error::Error + Send + Sync>),
    /// The operating system gave no randomness.
    #[error("the operating system gave no random seed: {0}")]
    NoSeed(Box<dyn std::error::Error + Send + Sync>),
    /// The options ask for TLS, but this build cannot do it.
    #[error("the options ask for TLS, which needs the feature tls")]
    TlsUnsupported,
    /// There is a configuration of TLS, but the options do not ask for TLS.
    #[error("there is a TLS configuration, but the options ask for no TLS; write tls=true")]
    TlsNotAskedFor,
    /// There is a configuration of TLS, and options that say more than `tls=true`.
    #[error(
        "there is a TLS configuration, so the options may say tls=true but name no files and \
         allow no exceptions"
    )]
    TlsConfiguredTwice,
    /// There is a provider of the client's certificate, and a file of it.
    #[error(
        "there is a provider of the client's certificate, so the options may name no \
         tlsCertificateKeyFile"
    )]
    CertificateKeyTwice,
    /// The user name or the password for the proxy cannot be sent.
    #[error(transparent)]
    ProxyLogin(#[from] LoginError),
    /// There are two sources of tokens for MONGODB-OIDC.
    #[error("there is a provider of tokens, so the options may not name an ENVIRONMENT for them")]
    ProviderAndEnvironment,
    /// The options want tokens from an environment that this build does not know.
    #[error(
        "ENVIRONMENT:{0} of MONGODB-OIDC needs the feature oidc-environments; build with it, or \
         leave ENVIRONMENT out and give a provider of tokens: OptionsBuilder::oidc_callback(true) \
         and ClientBuilder::credential_provider"
    )]
    EnvironmentUnsupported(Arc<str>),
    /// The options name no environment that tokens come from, and there is no provider.
    #[error(
        "MONGODB-OIDC without an ENVIRONMENT needs a provider of tokens: \
         ClientBuilder::credential_provider"
    )]
    NoTokenProvider,
    /// The options ask for MONGODB-AWS, but this build cannot do it.
    #[error("the options ask for MONGODB-AWS, which needs the feature aws")]
    AwsUnsupported,
    /// The options ask for GSSAPI, but this build cannot do it, and there is no provider.
    #[error(
        "the options ask for GSSAPI (Kerberos), which needs the feature gssapi, or a provider of \
         security contexts: ClientBuilder::gssapi_provider"
    )]
    GssapiUnsupported,
    /// The servers are named in DNS, and were not looked up.
    #[error("the servers of {0} have not been looked up in DNS; create the client with connect")]
    Unresolved(Arc<str>),
    /// The servers are named in DNS, and cannot be had from there.
    #[error(transparent)]
    Srv(#[from] SrvError),
}

impl ClientError {
    /// Refuses options whose servers are still to be looked up in DNS.
    ///
    /// # Errors
    ///
    /// Fails with [`Unresolved`](Self::Unresolved).
    pub fn unless_resolved(options: &Options) -> Result<(), Self> {
        match options.srv().filter(|_| options.seeds().is_empty()) {
            Some(srv) => Err(Self::Unresolved(srv.hostname.clone())),
            None => Ok(()),
        }
    }
}
