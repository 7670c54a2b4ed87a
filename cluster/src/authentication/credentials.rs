//! The stored form of users: nothing by which somebody else could log in.
//!
//! It is a second implementation of what `sdam_core::auth` does for clients, from the same RFCs:
//! with shared code a mistake would agree with itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use sdam_core::rng::Rng;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::options::{ScramMechanism, User};

impl ScramMechanism {
    /// H() of RFC 5802.
    pub(crate) fn digest(self, data: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => Sha1::digest(data).to_vec(),
            Self::Sha256 => Sha256::digest(data).to_vec(),
        }
    }

    /// HMAC() of RFC 5802.
    pub(crate) fn hmac(self, key: &[u8], data: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => keyed::<Hmac<Sha1>>(key, data),
            Self::Sha256 => keyed::<Hmac<Sha256>>(key, data),
        }
    }

    /// The length of a digest, in bytes.
    pub(crate) const fn digest_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Hi() of RFC 5802, over what stands for the password.
    fn salted_password(self, user: &User, salt: &[u8], iterations: u32) -> Vec<u8> {
        let (password, mut salted) = (user.password.expose(), vec![0; self.digest_len()]);
        match self {
            Self::Sha1 => {
                let text = format!("{}:mongo:{password}", user.name);
                let digest = Md5::digest(text.as_bytes());
                let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                pbkdf2::pbkdf2_hmac::<Sha1>(hex.as_bytes(), salt, iterations, &mut salted);
            }
            Self::Sha256 => {
                let prepared = stringprep::saslprep(password).expect("validate_users() has tried");
                pbkdf2::pbkdf2_hmac::<Sha256>(prepared.as_bytes(), salt, iterations, &mut salted);
            }
        }
        salted
    }

    /// The length of salts, in bytes, as on real servers: with the four that Hi() appends, as long
    /// as a digest.
    const fn salt_len(self) -> usize {
        self.digest_len() - 4
    }
}

fn keyed<M: Mac + KeyInit>(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = M::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}

/// The stored credential of a mechanism (RFC 5802, section 3).
#[derive(Debug)]
pub(crate) struct Credential {
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
    pub(crate) stored_key: Vec<u8>,
    pub(crate) server_key: Vec<u8>,
}

impl Credential {
    pub(crate) fn new(
        mechanism: ScramMechanism,
        user: &User,
        salt: Vec<u8>,
        iterations: u32,
    ) -> Self {
        let salted = mechanism.salted_password(user, &salt, iterations);
        let stored_key = mechanism.digest(&mechanism.hmac(&salted, b"Client Key"));
        let server_key = mechanism.hmac(&salted, b"Server Key");
        Self { salt, iterations, stored_key, server_key }
    }
}

/// A user as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) user: User,
    /// The credentials that were last set; a login goes on with those of the moment when it began.
    pub(crate) credentials: BTreeMap<ScramMechanism, Arc<Credential>>,
}

impl Account {
    /// Hashes the password, which takes some milliseconds.
    pub(crate) fn new(user: User, rng: &mut Rng) -> Self {
        let hash = |(&mechanism, &iterations): (&ScramMechanism, &u32)| {
            let salt = random_bytes(rng, mechanism.salt_len());
            (mechanism, Arc::new(Credential::new(mechanism, &user, salt, iterations)))
        };
        let credentials = user.mechanisms.iter().map(hash).collect();
        Self { user, credentials }
    }
}

pub(crate) fn random_bytes(rng: &mut Rng, count: usize) -> Vec<u8> {
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    words.flatten().take(count).collect()
}
