//! The keys of SCRAM: hashes of a password that are costly to compute.

use std::borrow::Cow;

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::AuthError;
use crate::config::{Credential, Secret};

/// Bytes that are wiped from memory when dropped.
pub(super) type SecretBytes = Zeroizing<Vec<u8>>;

/// The hash that a SCRAM is named after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha1,
    Sha256,
}

impl Hash {
    pub(super) fn digest(self, data: &[u8]) -> SecretBytes {
        Zeroizing::new(match self {
            Self::Sha1 => Sha1::digest(data).to_vec(),
            Self::Sha256 => Sha256::digest(data).to_vec(),
        })
    }

    pub(super) fn hmac(self, key: &[u8], data: &[u8]) -> SecretBytes {
        match self {
            Self::Sha1 => hmac::<Hmac<Sha1>>(key, data),
            Self::Sha256 => hmac::<Hmac<Sha256>>(key, data),
        }
    }

    /// RFC 5802, "Hi()".
    pub(super) fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> SecretBytes {
        match self {
            Self::Sha1 => {
                let mut salted = Zeroizing::new(vec![0; 20]);
                pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut salted);
                salted
            }
            Self::Sha256 => {
                let mut salted = Zeroizing::new(vec![0; 32]);
                pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut salted);
                salted
            }
        }
    }

    /// Returns the text that stands for the password: with SHA-1 a digest that MongoDB uses, and
    /// neither part of it may be prepared; with SHA-256 the password, which must be.
    fn prepared(self, username: &str, password: &str) -> Result<Zeroizing<String>, AuthError> {
        match self {
            Self::Sha1 => {
                let mut md5 = Md5::new();
                md5.update(username);
                md5.update(":mongo:");
                md5.update(password);
                let digest = Zeroizing::new(<[u8; 16]>::from(md5.finalize()));
                let hex = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
                let digits = digest.iter().flat_map(|byte| [hex(byte >> 4), hex(byte & 15)]);
                Ok(Zeroizing::new(digits.collect()))
            }
            // An unprepared password must never be used instead: it would be another one.
            Self::Sha256 => prepare(password).map(|prepared| Zeroizing::new(prepared.into_owned())),
        }
    }
}

/// Prepares a password with SASLprep (RFC 4013).
pub(super) fn prepare(password: &str) -> Result<Cow<'_, str>, AuthError> {
    // Of ASCII, it forbids control characters, and leaves the others as they are.
    let is_prepared = |byte: u8| matches!(byte, b' '..=b'~');
    match password.bytes().all(is_prepared) {
        true => Ok(Cow::Borrowed(password)),
        false if password.is_ascii() => Err(AuthError::Prohibited),
        #[cfg(feature = "saslprep")]
        false => stringprep::saslprep(password).map_err(|_| AuthError::Prohibited),
        #[cfg(not(feature = "saslprep"))]
        false => Err(AuthError::NoSaslprep),
    }
}

fn hmac<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> SecretBytes {
    let mut mac = M::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(data);
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

/// RFC 5802, "ClientKey" and "ServerKey"; with them the password is not needed.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(super) client: SecretBytes,
    pub(super) server: SecretBytes,
}

/// The material of keys to be derived, so that the caller of a login chooses the thread.
pub struct Derivation {
    pub(super) hash: Hash,
    pub(super) credential: Credential,
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
}

/// The keys that were derived, or the reason why there are none; the login takes either.
pub struct Derived(pub(crate) Result<Keys, AuthError>);

impl Derivation {
    /// Derives them, which takes milliseconds, or as long as the server wants it to and
    /// `maxScramIterations` allows.
    pub fn run(self) -> Derived {
        let Self { hash, credential, salt, iterations } = self;
        let username = credential.username.as_deref().unwrap_or_default();
        let password = credential.password.as_ref().map(Secret::expose).unwrap_or_default();
        Derived(Keys::derive(hash, username, password, &salt, iterations))
    }
}

impl Keys {
    /// Derives them, which takes some milliseconds.
    pub(super) fn derive(
        hash: Hash,
        username: &str,
        password: &str,
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, AuthError> {
        let prepared = hash.prepared(username, password)?;
        let salted = hash.salted(prepared.as_bytes(), salt, iterations);
        Ok(Self {
            client: hash.hmac(&salted, b"Client Key"),
            server: hash.hmac(&salted, b"Server Key"),
        })
    }
}
