//! MONGODB-X509: the certificate of the TLS connection says who the client is.

use bson::{RawDocument, cstr, rawdoc};

use super::{AuthError, AuthStep, Conversation, CredentialCache};
use crate::config::{AuthMechanism, Credential};

pub(super) struct X509 {
    username: Option<String>,
}

impl X509 {
    pub(super) fn new(credential: &Credential) -> Self {
        Self { username: credential.username.clone() }
    }
}

impl Conversation for X509 {
    fn begin(&mut self, _remembered: &CredentialCache) -> AuthStep {
        let mut command = rawdoc! { "authenticate": 1, "mechanism": AuthMechanism::X509.name() };
        // "If the application does not provide a username you MUST NOT send a username"
        if let Some(username) = &self.username {
            command.append(cstr!("user"), username.as_str());
        }
        AuthStep::Send(command.into())
    }

    fn reply(
        &mut self,
        _reply: &RawDocument,
        _remembered: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        Ok(AuthStep::Done)
    }
}
