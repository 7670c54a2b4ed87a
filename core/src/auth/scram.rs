//! SCRAM-SHA-1 and SCRAM-SHA-256 (RFC 5802, RFC 7677): both sides prove that they know the
//! password, and neither shows it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::{RawDocument, cstr, rawdoc};
use ctutils::CtEq as _;

use super::keys::{Derivation, Hash, Keys, SecretBytes};
use super::sasl::Sasl;
use super::{AuthError, AuthStep, Conversation, CredentialCache};
use crate::config::{AuthMechanism, Credential};
use crate::text::beginning;

/// The fewest iterations a server may ask for; with fewer, an impostor of the server could try out
/// passwords.
pub const MIN_ITERATIONS: u32 = 4096;

/// The maximum length of a server's error message that is kept, in bytes.
const MAX_ERROR_LEN: usize = 256;

/// base64 of "n,,": no channel binding, no other identity.
const GS2_HEADER: &str = "biws";

pub(super) struct Scram {
    hash: Hash,
    sasl: Sasl,
    credential: Credential,
    /// The most iterations that the server may ask for: `maxScramIterations`.
    most: u32,
    nonce: String,
    state: ScramState,
}

enum ScramState {
    /// The client has said, or will say, who it is.
    First,
    /// The server has sent the parameters of the keys.
    Deriving(ServerFirst),
    /// The client has proven itself; the server is to do so too.
    Proven(Proof),
    /// Both have proven themselves.
    Verified,
}

/// The server's first message.
struct ServerFirst {
    text: String,
    /// The client's, and what the server has added.
    nonce: String,
    salt: Vec<u8>,
    iterations: u32,
}

/// The client's side of the proof is sent, the server's is due.
struct Proof {
    salt: Vec<u8>,
    iterations: u32,
    keys: Keys,
    server_signature: SecretBytes,
}

impl Scram {
    pub(super) fn sha1(
        credential: &Credential,
        most: u32,
        nonce: [u8; 24],
    ) -> Box<dyn Conversation> {
        Self::boxed(Hash::Sha1, AuthMechanism::ScramSha1, (credential, most), nonce)
    }

    pub(super) fn sha256(
        credential: &Credential,
        most: u32,
        nonce: [u8; 24],
    ) -> Box<dyn Conversation> {
        Self::boxed(Hash::Sha256, AuthMechanism::ScramSha256, (credential, most), nonce)
    }

    fn boxed(
        hash: Hash,
        mechanism: AuthMechanism,
        (credential, most): (&Credential, u32),
        nonce: [u8; 24],
    ) -> Box<dyn Conversation> {
        let (nonce, credential) = (BASE64_STANDARD.encode(nonce), credential.clone());
        let sasl = Sasl::new(mechanism.name());
        Box::new(Self { hash, sasl, credential, most, nonce, state: ScramState::First })
    }

    /// "client-first-message-bare"; the user's name must not be prepared with SASLprep.
    fn first_bare(&self) -> String {
        let username = self.credential.username.as_deref().unwrap_or_default();
        let username = username.replace('=', "=3D").replace(',', "=2C");
        format!("n={username},r={}", self.nonce)
    }

    /// Reads "server-first-message".
    fn server_first(&self, payload: &[u8]) -> Result<ServerFirst, AuthError> {
        let text = self.text(payload)?;
        let mut attributes = text.split(',');
        let mut attribute = |name: &str, what| {
            let value = attributes.next().and_then(|text| text.strip_prefix(name));
            value.ok_or_else(|| self.malformed(what))
        };
        let nonce = attribute("r=", "does not begin with a nonce")?;
        let salt = attribute("s=", "has no salt")?;
        let iterations = attribute("i=", "has no iteration count")?;
        // One that adds nothing of its own would let an old conversation be replayed.
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(AuthError::Nonce);
        }
        let salt =
            BASE64_STANDARD.decode(salt).map_err(|_| self.malformed("has a salt not in base64"))?;
        let iterations = iterations
            .parse::<u64>()
            .map_err(|_| self.malformed("has an iteration count that is no number"))?;
        let iterations = u32::try_from(iterations)
            .ok()
            .filter(|count| (MIN_ITERATIONS..=self.most).contains(count))
            .ok_or(AuthError::Iterations { asked: iterations, most: self.most })?;
        Ok(ServerFirst { text: text.to_owned(), nonce: nonce.to_owned(), salt, iterations })
    }

    /// Answers "server-first-message" with "client-final-message".
    fn prove(&mut self, first: ServerFirst, keys: Keys) -> Result<AuthStep, AuthError> {
        let ServerFirst { text, nonce, salt, iterations } = first;
        let without_proof = format!("c={GS2_HEADER},r={nonce}");
        let auth_message = format!("{},{text},{without_proof}", self.first_bare());
        let stored_key = self.hash.digest(&keys.client);
        let mut proof = self.hash.hmac(&stored_key, auth_message.as_bytes());
        proof.iter_mut().zip(keys.client.iter()).for_each(|(byte, key)| *byte ^= key);
        let server_signature = self.hash.hmac(&keys.server, auth_message.as_bytes());
        self.state = ScramState::Proven(Proof { salt, iterations, keys, server_signature });
        let last = format!("{without_proof},p={}", BASE64_STANDARD.encode(&*proof));
        self.sasl.proceed(last.as_bytes())
    }

    /// Checks "server-final-message".
    fn verify(&self, proof: &Proof, payload: &[u8]) -> Result<(), AuthError> {
        let last = self.text(payload)?;
        let first = last.split(',').next().unwrap_or_default();
        if let Some(error) = first.strip_prefix("e=") {
            return Err(AuthError::Scram(beginning(error, MAX_ERROR_LEN).into()));
        }
        let signature =
            first.strip_prefix("v=").ok_or_else(|| self.malformed("has no signature"))?;
        let signature = BASE64_STANDARD
            .decode(signature)
            .map_err(|_| self.malformed("has a signature not in base64"))?;
        match signature.ct_eq(&proof.server_signature).to_bool() {
            true => Ok(()),
            false => Err(AuthError::Signature),
        }
    }

    fn text<'a>(&self, payload: &'a [u8]) -> Result<&'a str, AuthError> {
        std::str::from_utf8(payload).map_err(|_| self.malformed("is not UTF-8"))
    }

    const fn malformed(&self, what: &'static str) -> AuthError {
        AuthError::Message { mechanism: "SCRAM", what }
    }
}

impl Conversation for Scram {
    fn begin(&mut self, _remembered: &CredentialCache) -> AuthStep {
        self.state = ScramState::First;
        let mut command = self.sasl.start(format!("n,,{}", self.first_bare()).as_bytes());
        command.append(cstr!("options"), rawdoc! { "skipEmptyExchange": true });
        AuthStep::Send(command)
    }

    fn reply(
        &mut self,
        reply: &RawDocument,
        credential_cache: &mut CredentialCache,
    ) -> Result<AuthStep, AuthError> {
        let reply = self.sasl.read(reply)?;
        match &self.state {
            ScramState::First if reply.done => Err(AuthError::EndsEarly),
            ScramState::First => {
                let first = self.server_first(reply.payload)?;
                let known = credential_cache.keys(self.hash, &first.salt, first.iterations);
                if let Some(keys) = known.cloned() {
                    return self.prove(first, keys);
                }
                let derivation = Derivation {
                    hash: self.hash,
                    credential: self.credential.clone(),
                    salt: first.salt.clone(),
                    iterations: first.iterations,
                };
                self.state = ScramState::Deriving(first);
                Ok(AuthStep::Derive(derivation))
            }
            ScramState::Deriving(_) => Err(AuthError::WrongAnswer),
            ScramState::Proven(proof) => {
                self.verify(proof, reply.payload)?;
                credential_cache.remember_keys(
                    self.hash,
                    &proof.salt,
                    proof.iterations,
                    &proof.keys,
                );
                self.state = ScramState::Verified;
                match reply.done {
                    true => Ok(AuthStep::Done),
                    // Older servers want one more exchange, in which nothing is said.
                    false => self.sasl.proceed(&[]),
                }
            }
            ScramState::Verified if reply.done => Ok(AuthStep::Done),
            ScramState::Verified => Err(AuthError::GoesOn),
        }
    }

    fn derived(&mut self, keys: Result<Keys, AuthError>) -> Result<AuthStep, AuthError> {
        match std::mem::replace(&mut self.state, ScramState::First) {
            ScramState::Deriving(first) => self.prove(first, keys?),
            ScramState::First | ScramState::Proven(_) | ScramState::Verified => {
                Err(AuthError::WrongAnswer)
            }
        }
    }
}

#[cfg(test)]
mod tests;
