//! The server's side of a SCRAM conversation (RFC 5802, RFC 7677).

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::credentials::Credential;
use crate::options::ScramMechanism;
use crate::wire::CommandError;

/// The first message of a client, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientFirst<'a> {
    /// The header before the bare message, which is confirmed in the final one.
    gs2_header: &'a str,
    bare: &'a str,
    /// The name of the user that the client wants to be.
    pub(crate) username: String,
    nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// Reads "client-first-message" of RFC 5802, section 7.
    ///
    /// As real servers do, it refuses channel binding, mandatory extensions, and an authorization
    /// identity; the error says what is wrong, which real servers do not.
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, CommandError> {
        let message = text(payload)?;
        let mut header = message.splitn(3, ',');
        let (Some("n" | "y"), Some(identity), Some(bare)) =
            (header.next(), header.next(), header.next())
        else {
            return Err(malformed("the first message begins with \"n,,\" or \"y,,\""));
        };
        let mut attributes = bare.split(',');
        let name = attributes.next().and_then(|it| it.strip_prefix("n="));
        let nonce = attributes.next().and_then(|it| it.strip_prefix("r="));
        let (Some(name), Some(nonce)) = (name, nonce.filter(|it| !it.is_empty())) else {
            return Err(malformed("the first message has \"n=<user>,r=<nonce>\" and no \"m=\""));
        };
        let username = unescaped(name).filter(|it| !it.is_empty()).ok_or_else(|| {
            malformed("a user's name is not empty, and writes ',' as =2C and '=' as =3D")
        })?;
        if !identity.is_empty() && identity.strip_prefix("a=") != Some(name) {
            return Err(malformed("a user may not act for another one"));
        }
        let gs2_header = &message[..message.len() - bare.len()];
        Ok(Self { gs2_header, bare, username, nonce })
    }

    /// Answers with "server-first-message", of which the nonce ends with `own`.
    pub(crate) fn answer(
        &self,
        mechanism: ScramMechanism,
        credential: Arc<Credential>,
        own: &str,
    ) -> (Challenge, String) {
        let nonce = format!("{}{own}", self.nonce);
        let salt = BASE64_STANDARD.encode(&credential.salt);
        let message = format!("r={nonce},s={salt},i={}", credential.iterations);
        let challenge = Challenge {
            mechanism,
            credential,
            channel_binding: BASE64_STANDARD.encode(self.gs2_header),
            messages: format!("{},{message}", self.bare),
            nonce,
        };
        (challenge, message)
    }
}

/// A challenge for a client.
#[derive(Clone, Debug)]
pub(crate) struct Challenge {
    mechanism: ScramMechanism,
    credential: Arc<Credential>,
    /// The client's channel binding, in base64.
    channel_binding: String,
    /// The bare first messages of both, which begin the "AuthMessage".
    messages: String,
    nonce: String,
}

impl Challenge {
    /// Judges "client-final-message", and answers with "server-final-message".
    ///
    /// Real servers do not look at the channel binding, which RFC 5802 has them compare; this one
    /// does, so that no client goes wrong unnoticed.
    pub(crate) fn judge(&self, payload: &[u8]) -> Result<String, CommandError> {
        let message = text(payload)?;
        let begin = format!("c={},r={},p=", self.channel_binding, self.nonce);
        let Some(proof) = message.strip_prefix(&begin) else {
            let shape = "the final message is \"c=<channel binding>,r=<nonce>,p=<proof>\", with \
                         the first message's binding and the server's nonce";
            return Err(malformed(shape));
        };
        let invalid = |_| CommandError::numbered(10270, "the proof is not in base64");
        let proof = BASE64_STANDARD.decode(proof).map_err(invalid)?;
        let (mechanism, length) = (self.mechanism, self.mechanism.digest_len());
        if proof.len() != length {
            let reason = format!("a proof of {} bytes; it has {length}", proof.len());
            return Err(CommandError::coded(16, reason));
        }
        let without_proof = &message[..begin.len() - ",p=".len()];
        let auth_message = format!("{},{without_proof}", self.messages);
        let signature = mechanism.hmac(&self.credential.stored_key, auth_message.as_bytes());
        let client_key: Vec<u8> = proof.iter().zip(signature).map(|(it, key)| it ^ key).collect();
        if mechanism.digest(&client_key) != self.credential.stored_key {
            return Err(refused());
        }
        let signature = mechanism.hmac(&self.credential.server_key, auth_message.as_bytes());
        Ok(format!("v={}", BASE64_STANDARD.encode(signature)))
    }
}

/// Returns the error of every failed proof: it gives no other detail.
pub(crate) fn refused() -> CommandError {
    CommandError::coded(18, "Authentication failed.")
}

/// Returns the error for a message that RFC 5802 does not allow, or that servers refuse.
pub(crate) fn malformed(rule: &str) -> CommandError {
    CommandError::coded(18, format!("Authentication failed: {rule}"))
}

fn text(payload: &[u8]) -> Result<&str, CommandError> {
    std::str::from_utf8(payload).map_err(|_| malformed("a message of SCRAM is UTF-8"))
}

/// Reads a "saslname"; each '=' in it begins one of two escapes.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut unescaped = parts.next()?.to_owned();
    for part in parts {
        let (with, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return None,
        };
        unescaped.push(with);
        unescaped.push_str(rest);
    }
    Some(unescaped)
}

#[cfg(test)]
mod tests;
