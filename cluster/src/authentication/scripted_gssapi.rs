//! GSSAPI without Kerberos: a script for both halves of a security context, for tests of logins.
//!
//! The tokens are plain texts, and protect nothing.

use sdam_core::auth::{
    GssapiContext, GssapiError, GssapiLogin, GssapiProvider, GssapiStep, GssapiToken,
};
use sdam_core::failure::GssapiProblem;

/// The beginning of the client's token, which its name and that of the service follow.
const CLIENT: &str = "client";

/// The token of the server.
pub(crate) const SERVER: &[u8] = b"server";

/// The beginning of a message.
const WRAPPED: &[u8] = b"wrapped ";

/// A provider of security contexts for tests, whose tokens members of the embedded deployment take,
/// and no other server: no Kerberos is needed.
///
/// Members take the logins of the users that
/// [`ClusterOptions::gssapi_users`](crate::ClusterOptions::gssapi_users) names.
///
/// The default one has a ticket for every user.
#[derive(Clone, Debug, Default)]
pub struct ScriptedGssapi {
    tickets: Option<Vec<String>>,
}

impl ScriptedGssapi {
    /// Makes one that has tickets for these users only; logins of others fail as with Kerberos.
    pub fn new(users: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { tickets: Some(users.into_iter().map(Into::into).collect()) }
    }
}

impl GssapiProvider for ScriptedGssapi {
    fn begin(&self, login: &GssapiLogin) -> Result<Box<dyn GssapiContext>, GssapiError> {
        let tickets = self.tickets.as_ref();
        if tickets.is_some_and(|tickets| !tickets.contains(&login.username)) {
            let detail = format!("the script has no ticket of {}", login.username);
            return Err(GssapiError::new(GssapiProblem::NoTicket, detail));
        }
        let first = format!("{CLIENT} {} {}", login.username, login.service);
        Ok(Box::new(ScriptedContext { first }))
    }
}

struct ScriptedContext {
    first: String,
}

impl GssapiContext for ScriptedContext {
    fn step(&mut self, token: Option<&[u8]>) -> Result<GssapiStep, GssapiError> {
        match token {
            None => Ok(GssapiStep::Continue(GssapiToken::new(self.first.as_bytes()))),
            Some(SERVER) => Ok(GssapiStep::Complete(None)),
            Some(_) => Err(unproven()),
        }
    }

    fn unwrap(&mut self, message: &[u8]) -> Result<GssapiToken, GssapiError> {
        unwrapped(message).map(GssapiToken::new).ok_or_else(unproven)
    }

    fn wrap(&mut self, content: &[u8]) -> Result<GssapiToken, GssapiError> {
        Ok(GssapiToken::new(wrapped(content)))
    }
}

fn unproven() -> GssapiError {
    GssapiError::new(GssapiProblem::ServerUnproven, "the server does not follow the script")
}

/// Returns the user whom a client's token names.
pub(crate) fn user_of(token: &[u8]) -> Option<&str> {
    let mut parts = std::str::from_utf8(token).ok()?.split(' ');
    let user = parts.next().filter(|first| *first == CLIENT).and_then(|_| parts.next())?;
    parts.next().filter(|service| service.starts_with("mongodb/")).map(|_| user)
}

pub(crate) fn wrapped(content: &[u8]) -> Vec<u8> {
    [WRAPPED, content].concat()
}

pub(crate) fn unwrapped(message: &[u8]) -> Option<&[u8]> {
    message.strip_prefix(WRAPPED)
}
