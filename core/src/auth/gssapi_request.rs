//! The questions of a conversation by GSSAPI, and what answers them: a security context, which some
//! library of Kerberos has.

use std::fmt;

use zeroize::Zeroizing;

use crate::config::Secret;
use crate::failure::{Cause, Failure, GssapiProblem, Stage};

/// A question of a conversation by GSSAPI. All questions of one conversation but
/// [`CanonicalName`](Self::CanonicalName) are for one [`GssapiContext`], in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GssapiRequest {
    /// The canonical name of a host (Authentication, "Hostname Canonicalization").
    CanonicalName {
        /// The host, as the connection string or the server names it.
        host: String,
        /// The lookups to make.
        canonicalization: Canonicalization,
    },
    /// A new security context, and the first token for its peer.
    Begin(GssapiLogin),
    /// The next token, after the one that the server has sent.
    Continue(GssapiToken),
    /// The content of a message of the server's, whose integrity the context verifies.
    Unwrap(GssapiToken),
    /// The message with this content, without confidentiality.
    Wrap(GssapiToken),
}

impl GssapiRequest {
    /// Has the context of the conversation answer, which is none before the first question, and
    /// which `provider` begins. That may block, as the library asks servers of Kerberos.
    ///
    /// # Errors
    ///
    /// Fails as the provider and the context do; and if there is no context yet.
    pub fn answer(
        self,
        provider: &dyn GssapiProvider,
        context: &mut Option<Box<dyn GssapiContext>>,
    ) -> Result<GssapiResponse, GssapiError> {
        let begun = |context: &mut Option<Box<dyn GssapiContext>>| {
            let context = context.take();
            context.ok_or_else(|| GssapiError::new(GssapiProblem::Other, "no context has begun"))
        };
        let (answer, kept) = match self {
            Self::CanonicalName { host, canonicalization } => {
                let name = provider.canonical_name(&host, canonicalization);
                return Ok(GssapiResponse::CanonicalName(name));
            }
            Self::Begin(login) => {
                let mut begun = provider.begin(&login)?;
                (GssapiResponse::Step(begun.step(None)?), begun)
            }
            Self::Continue(token) => {
                let mut begun = begun(context)?;
                (GssapiResponse::Step(begun.step(Some(token.as_bytes()))?), begun)
            }
            Self::Unwrap(message) => {
                let mut begun = begun(context)?;
                (GssapiResponse::Unwrapped(begun.unwrap(message.as_bytes())?), begun)
            }
            Self::Wrap(message) => {
                let mut begun = begun(context)?;
                (GssapiResponse::Wrapped(begun.wrap(message.as_bytes())?), begun)
            }
        };
        *context = Some(kept);
        Ok(answer)
    }
}

/// The answer to a [`GssapiRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GssapiResponse {
    /// Answers [`GssapiRequest::CanonicalName`]: the name in lower case, or `None` if a lookup
    /// fails or finds nothing; the host stays as it is then.
    CanonicalName(Option<String>),
    /// Answers [`GssapiRequest::Begin`] and [`GssapiRequest::Continue`].
    Step(GssapiStep),
    /// Answers [`GssapiRequest::Unwrap`].
    Unwrapped(GssapiToken),
    /// Answers [`GssapiRequest::Wrap`].
    Wrapped(GssapiToken),
}

/// The lookups that find the canonical name of a host: the property `CANONICALIZE_HOST_NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Canonicalization {
    /// The addresses of the host, and the name that its aliases (CNAME) lead to.
    Forward,
    /// The first address of the host, and the name of that address.
    ForwardAndReverse,
}

/// The identity that logs in, and the service that it logs in to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GssapiLogin {
    /// The user's principal, as `user@REALM`, or without the realm if it is the default one.
    pub username: String,
    /// The password, with which a ticket is obtained; without it, one must be there already.
    pub password: Option<Secret>,
    /// The service.
    pub service: GssapiService,
}

impl GssapiLogin {
    /// Describes a login with a ticket that is there already.
    pub fn new(username: impl Into<String>, service: GssapiService) -> Self {
        Self { username: username.into(), password: None, service }
    }

    /// Replaces [`password`](Self::password).
    #[must_use]
    pub fn with_password(mut self, password: Option<Secret>) -> Self {
        self.password = password;
        self
    }
}

/// A service of Kerberos, whose principal is `name/host@REALM`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GssapiService {
    /// The name of the service: the property `SERVICE_NAME`.
    pub name: String,
    /// The host: the property `SERVICE_HOST`, or that of the server, perhaps its canonical name.
    pub host: String,
    /// The realm: the property `SERVICE_REALM`, or that of the user; the library's default realm if
    /// neither is there.
    pub realm: Option<String>,
}

impl GssapiService {
    /// Names a service of the default realm.
    pub fn new(name: impl Into<String>, host: impl Into<String>) -> Self {
        Self { name: name.into(), host: host.into(), realm: None }
    }

    /// Replaces [`realm`](Self::realm).
    #[must_use]
    pub fn with_realm(mut self, realm: Option<String>) -> Self {
        self.realm = realm;
        self
    }
}

/// Shows the principal.
impl fmt::Display for GssapiService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.host)?;
        self.realm.as_ref().map_or(Ok(()), |realm| write!(f, "@{realm}"))
    }
}

/// A token or a message of GSSAPI: shown as `***`, and wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct GssapiToken(Zeroizing<Vec<u8>>);

impl GssapiToken {
    /// Holds these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// Returns the bytes. The caller that copies them takes care of the copy.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for GssapiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Secret::REDACTED)
    }
}

/// The progress of a security context.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GssapiStep {
    /// The server is to be sent this token, and answers with another one.
    Continue(GssapiToken),
    /// The context is established, and the server is to be sent this last token, if there is one.
    Complete(Option<GssapiToken>),
}

/// The source of security contexts, as a library of Kerberos is.
///
/// Its methods and those of its contexts may block: they are called where a runtime has what blocks
/// done. What they return is not remembered, as such libraries keep their tickets themselves.
pub trait GssapiProvider: Send + Sync + 'static {
    /// Returns the canonical name of a host in lower case, or `None` if a lookup fails or finds
    /// nothing, as it does by default (Authentication, "Hostname Canonicalization").
    fn canonical_name(&self, host: &str, canonicalization: Canonicalization) -> Option<String> {
        let _ = (host, canonicalization);
        None
    }

    /// Prepares a security context by which the user is authenticated to the service and the
    /// service to the user.
    ///
    /// # Errors
    ///
    /// Fails if there is no ticket for that user, or if none can be had with the password.
    fn begin(&self, login: &GssapiLogin) -> Result<Box<dyn GssapiContext>, GssapiError>;
}

impl fmt::Debug for dyn GssapiProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GssapiProvider")
    }
}

/// The client's half of a security context (RFC 2743, section 2.2).
pub trait GssapiContext: Send + 'static {
    /// Returns the next token, after that of the server; there is none of the server's at first.
    ///
    /// # Errors
    ///
    /// Fails if the service is not known or cannot be authenticated, or its token is not valid.
    fn step(&mut self, token: Option<&[u8]>) -> Result<GssapiStep, GssapiError>;

    /// Returns the content of a message of the server's, whose integrity it verifies.
    ///
    /// # Errors
    ///
    /// Fails if the message is not of this context, or was altered.
    fn unwrap(&mut self, message: &[u8]) -> Result<GssapiToken, GssapiError>;

    /// Returns the message that has this content, without confidentiality.
    ///
    /// # Errors
    ///
    /// Fails if the context is not established, or has expired.
    fn wrap(&mut self, content: &[u8]) -> Result<GssapiToken, GssapiError>;
}

/// The reason why there is no security context, or why it has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
#[non_exhaustive]
pub struct GssapiError {
    /// The kind, which the advice depends on.
    pub problem: GssapiProblem,
    /// The particulars, in a clause without a secret.
    pub detail: String,
}

impl GssapiError {
    /// Says what has happened, in words of the caller's choice.
    pub fn new(problem: GssapiProblem, detail: impl Into<String>) -> Self {
        Self { problem, detail: detail.into() }
    }

    /// Returns it as the failure of a login: of the server's if it does not prove what it is, or
    /// else of what the client has asked Kerberos for.
    pub fn to_failure(&self) -> Failure {
        let cause = Cause::GssapiFailed { problem: self.problem };
        let stage = match self.problem {
            GssapiProblem::ServerUnproven => Stage::Authenticate,
            _ => Stage::Credentials,
        };
        Failure::new(stage, cause, self.detail.as_str())
    }
}
