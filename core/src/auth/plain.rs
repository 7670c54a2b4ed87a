//! PLAIN (RFC 4616): the password itself, for servers that ask LDAP.

use bson::RawDocument;
use zeroize::Zeroizing;

use super::sasl::Sasl;
use super::{AuthError, AuthStep, Conversation, CredentialCache};
use crate::config::{AuthMechanism, Credential, Secret};

pub(super) struct Plain {
    sasl: Sasl,
    credential: Credential,
}

fn parts(credential: &Credential) -> (&str, &str) {
    let username = credential.username.as_deref().unwrap_or_default();
    (username, credential.password.as_ref().map(Secret::expose).unwrap_or_default())
}

impl Plain {
    pub(super) fn new(credential: &Credential) -> Self {
        Self { sasl: Sasl::new(AuthMechanism::Plain.name()), credential: credential.clone() }
    }
}

impl Conversation for Plain {
    fn begin(&mut self, _remembered: &CredentialCache) -> AuthStep {
        let (username, password) = parts(&self.credential);
        let payload =
            Zeroizing::new([b"\0", username.as_bytes(), b"\0", password.as_bytes()].concat());
        AuthStep::Send(self.sasl.start(&payload))
    }

    fn reply(
        &mut self,
        reply: &RawDocument,
        _remembered: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        self.sasl.end(reply)
    }
}
