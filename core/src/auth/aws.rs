//! MONGODB-AWS: a signed request to AWS, which the server sends on to learn who the client is.

mod signature;
mod sources;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::spec::BinarySubtype;
use bson::{RawBinaryRef, RawBsonRef, RawDocument, cstr, rawdoc};

pub use sources::{
    Authorization, AwsEndpoints, AwsFetch, AwsSource, AwsSourceError, AwsStep, Container,
    WebIdentity,
};

use self::signature::Signed;
use super::sasl::Sasl;
use super::{
    AuthError, AuthStep, Conversation, CredentialCache, CredentialRequest, CredentialResponse,
    MAX_TOKEN_LEN, SecretDocument,
};
use crate::config::{AuthMechanism, Secret};
use crate::hello::ReplyError;
use crate::text::beginning;

const CLIENT_NONCE_LEN: usize = 32;
const SERVER_NONCE_LEN: usize = 64;

/// The longest name in DNS (RFC 1035).
const MAX_HOST_LEN: usize = 255;

/// "I do not bind this to a channel", as a number.
const GS2_FLAG: i32 = 'n' as i32;

pub(super) struct Aws {
    sasl: Sasl,
    nonce: String,
    state: AwsState,
}

enum AwsState {
    /// The client has sent its nonce.
    First,
    /// The server has sent its own, and said where the request goes.
    Challenged { nonce: Vec<u8>, host: String },
    /// The signed request is sent.
    Signed,
}

impl Aws {
    /// base64 makes of 24 random bytes the 32 that are asked for, no easier to guess.
    pub(super) fn new(nonce: [u8; 24]) -> Self {
        let sasl = Sasl::new(AuthMechanism::Aws.name());
        Self { sasl, nonce: BASE64_STANDARD.encode(nonce), state: AwsState::First }
    }

    fn challenged(&self, payload: &[u8]) -> Result<AwsState, AuthError> {
        let document = RawDocument::from_bytes(payload).map_err(|_| malformed("is not BSON"))?;
        let (mut nonce, mut host) = (None, None);
        for element in document.iter_elements() {
            let element = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
            let Ok(value) = element.value() else { continue };
            match (element.key().as_str(), value) {
                ("s", RawBsonRef::Binary(binary)) => nonce = Some(binary.bytes),
                ("h", RawBsonRef::String(text)) => host = Some(text),
                _ => {}
            }
        }
        let nonce = nonce.ok_or_else(|| malformed("has no nonce"))?;
        let host = host.ok_or_else(|| malformed("has no host"))?;
        // "the server nonce is exactly 64 bytes and the first 32 bytes are the same"
        debug_assert_eq!(self.nonce.len(), CLIENT_NONCE_LEN);
        if nonce.len() != SERVER_NONCE_LEN || !nonce.starts_with(self.nonce.as_bytes()) {
            return Err(AuthError::Nonce);
        }
        check_host(host)?;
        Ok(AwsState::Challenged { nonce: nonce.to_owned(), host: host.to_owned() })
    }
}

impl Conversation for Aws {
    fn begin(&mut self, _remembered: &CredentialCache) -> AuthStep {
        let (subtype, bytes) = (BinarySubtype::Generic, self.nonce.as_bytes());
        let mut payload = rawdoc! {};
        payload.append(cstr!("r"), RawBinaryRef { subtype, bytes });
        payload.append(cstr!("p"), GS2_FLAG);
        AuthStep::Send(self.sasl.start(payload.as_bytes()))
    }

    fn reply(
        &mut self,
        reply: &RawDocument,
        _remembered: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        if matches!(self.state, AwsState::Signed) {
            return self.sasl.end(reply);
        }
        let reply = self.sasl.read(reply)?;
        if reply.done {
            return Err(malformed("ends the conversation too early"));
        }
        self.state = self.challenged(reply.payload)?;
        Ok(AuthStep::Ask(CredentialRequest::Aws))
    }

    fn answer(
        &mut self,
        answer: CredentialResponse,
        credential_cache: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        let AwsState::Challenged { nonce, host } = &self.state else {
            return Err(AuthError::WrongAnswer);
        };
        let CredentialResponse::Aws { credentials, now } = answer else {
            return Err(AuthError::WrongAnswer);
        };
        let token = credentials.session_token.as_ref().map(Secret::expose);
        if token.is_some_and(|token| token.len() > MAX_TOKEN_LEN) {
            return Err(AuthError::TokenLength);
        }
        let signed = Signed::new(nonce, host, &credentials, now)?;
        let room = signed.authorization.len() + token.map_or(0, str::len);
        let mut payload = SecretDocument::with_room(room);
        payload.append(cstr!("a"), signed.authorization);
        payload.append(cstr!("d"), signed.date);
        if let Some(token) = token {
            payload.append(cstr!("t"), token);
        }
        let step = self.sasl.proceed(payload.as_bytes())?;
        self.state = AwsState::Signed;
        credential_cache.remember_aws(credentials);
        Ok(step)
    }
}

const fn malformed(what: &'static str) -> AuthError {
    AuthError::Message { mechanism: "MONGODB-AWS", what }
}

/// Refuses what is no host name, as a part of it becomes the region.
fn check_host(host: &str) -> Result<(), AuthError> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    match host.len() <= MAX_HOST_LEN && host.split('.').all(is_label) {
        true => Ok(()),
        false => {
            let shown = beginning(host, MAX_HOST_LEN);
            Err(AuthError::Host(shown.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check_host;
    use crate::auth::AuthError;

    #[test]
    fn what_is_no_host_name_is_refused() {
        let long = "a".repeat(256);
        for host in
            ["sts..com", ".amazonaws.com", "sts.amazonaws.", "", &long, "a.b/c", "a b", "a:1"]
        {
            assert!(matches!(check_host(host), Err(AuthError::Host(_))), "{host}");
        }
    }
}
