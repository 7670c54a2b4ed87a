//! The facts that one connection of a client learns, and the next one can use.

use std::fmt;

use bson::DateTime;

use super::keys::{Hash, Keys};
use super::{AwsCredentials, IdpInfo, OidcRequest};
use crate::config::Secret;

/// The number of SCRAM keys that are kept; the members of a deployment share one or two.
const MAX_KEYS: usize = 16;

/// The time that credentials of AWS must still be valid, in milliseconds ("Caching Credentials").
const MIN_VALIDITY: i64 = 300_000;

/// The credential cache of one client's connections: keys derived from the password, a
/// token and what refreshes it, credentials of AWS.
///
/// It belongs to one client, as its options hold for all of it. No form of showing it shows
/// anything; it is wiped from memory when dropped. A client keeps one, gives each
/// [`Handshake`](crate::handshake::Handshake) a clone, and [learns](Self::merge) from what that
/// ends with, whether it succeeded or not.
///
/// ```
/// use sdam_core::auth::CredentialCache;
///
/// let (mut of_client, of_connection) = (CredentialCache::default(), CredentialCache::default());
/// of_client.merge(&of_connection);
/// assert_eq!(format!("{of_client:?}"), "CredentialCache(***)");
/// ```
#[derive(Clone, Default)]
pub struct CredentialCache {
    keys: Vec<KnownKeys>,
    token: Latest<Secret>,
    refresh: Latest<Refresh>,
    aws: Latest<AwsCredentials>,
}

#[derive(Clone)]
struct KnownKeys {
    hash: Hash,
    salt: Vec<u8>,
    iterations: u32,
    keys: Keys,
}

/// The means of obtaining the next token without the person.
#[derive(Clone, PartialEq)]
pub(super) struct Refresh {
    pub(super) token: Secret,
    /// The identity provider that gave it out.
    pub(super) idp_info: IdpInfo,
}

/// A value, or that there is none, and how often that has changed: of two words on it the one
/// that knows of more changes is the later.
#[derive(Clone)]
struct Latest<T> {
    value: Option<T>,
    changes: u64,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { value: None, changes: 0 }
    }
}

impl<T: Clone> Latest<T> {
    fn set(&mut self, value: Option<T>) {
        self.value = value;
        self.changes += 1;
    }

    fn merge(&mut self, from: &Self) {
        if from.changes > self.changes {
            *self = from.clone();
        }
    }
}

impl CredentialCache {
    /// Takes over what a connection has found out since it was given a clone of this.
    ///
    /// That a connection's token is of no use forgets that token, but not one that another
    /// connection has obtained meanwhile.
    pub fn merge(&mut self, of_connection: &Self) {
        for known in &of_connection.keys {
            if self.keys(known.hash, &known.salt, known.iterations).is_none() {
                self.push(known.clone());
            }
        }
        self.token.merge(&of_connection.token);
        self.refresh.merge(&of_connection.refresh);
        self.aws.merge(&of_connection.aws);
    }

    /// Returns credentials of AWS that are valid for five minutes more ("Caching Credentials").
    pub fn aws_credentials(&self, now: DateTime) -> Option<&AwsCredentials> {
        let at_least = now.timestamp_millis().saturating_add(MIN_VALIDITY);
        let is_valid = |credentials: &&AwsCredentials| {
            credentials.expires.is_some_and(|expires| expires.timestamp_millis() > at_least)
        };
        self.aws.value.as_ref().filter(is_valid)
    }

    /// Returns the token of OpenID Connect that was obtained last.
    pub fn token(&self) -> Option<&Secret> {
        self.token.value.as_ref()
    }

    /// Forgets a token that the server does not accept any more, if it is still the one.
    pub fn forget_token(&mut self, token: &Secret) {
        if self.token.value.as_ref() == Some(token) {
            self.token.set(None);
        }
    }

    pub(super) fn remember_token(&mut self, token: Secret) {
        if self.token.value.as_ref() != Some(&token) {
            self.token.set(Some(token));
        }
    }

    /// Returns how the next token is obtained without the person.
    pub(super) const fn refresh(&self) -> Option<&Refresh> {
        self.refresh.value.as_ref()
    }

    /// Has a question that was made a while ago go with what is known now: a refresh token that
    /// another connection has used up meanwhile is not shown once more, and the one that has come
    /// of that only to the identity provider that gave it out. To be called before the question is
    /// asked.
    pub fn bring_up_to_date(&self, question: &mut OidcRequest) {
        if question.refresh_token.is_some() {
            let is_its = |known: &&Refresh| Some(&known.idp_info) == question.idp_info.as_ref();
            question.refresh_token = self.refresh().filter(is_its).map(|known| known.token.clone());
        }
    }

    /// Remembers it, or that there is no way.
    pub(super) fn remember_refresh(&mut self, refresh: Option<Refresh>) {
        if self.refresh.value != refresh {
            self.refresh.set(refresh);
        }
    }

    /// Forgets a refresh token that was of no use, if it is still the one.
    pub(super) fn forget_refresh(&mut self, token: &Secret) {
        if self.refresh().is_some_and(|refresh| refresh.token == *token) {
            self.refresh.set(None);
        }
    }

    #[cfg(feature = "aws")]
    pub(super) fn remember_aws(&mut self, credentials: AwsCredentials) {
        if credentials.expires.is_some() && self.aws.value.as_ref() != Some(&credentials) {
            self.aws.set(Some(credentials));
        }
    }

    /// Forgets the credentials of AWS: "if AWS authentication fails for any reason, the cache MUST
    /// be cleared".
    pub fn forget_aws_credentials(&mut self) {
        if self.aws.value.is_some() {
            self.aws.set(None);
        }
    }

    pub(super) fn keys(&self, hash: Hash, salt: &[u8], iterations: u32) -> Option<&Keys> {
        let is_it = |known: &&KnownKeys| {
            (known.hash, &*known.salt, known.iterations) == (hash, salt, iterations)
        };
        self.keys.iter().find(is_it).map(|known| &known.keys)
    }

    pub(super) fn remember_keys(&mut self, hash: Hash, salt: &[u8], iterations: u32, keys: &Keys) {
        if self.keys(hash, salt, iterations).is_none() {
            let (salt, keys) = (salt.to_owned(), keys.clone());
            self.push(KnownKeys { hash, salt, iterations, keys });
        }
    }

    fn push(&mut self, known: KnownKeys) {
        if self.keys.len() == MAX_KEYS {
            self.keys.remove(0);
        }
        self.keys.push(known);
    }
}

impl fmt::Debug for CredentialCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CredentialCache({})", Secret::REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CredentialCache, IdpInfo, OidcRequest, Refresh};

    fn refresh(token: &str) -> Refresh {
        let idp_info =
            IdpInfo { issuer: "https://idp".into(), client_id: None, request_scopes: Vec::new() };
        Refresh { token: token.into(), idp_info }
    }

    /// Authentication, "Credential Caching": a refresh token is good for one use with most identity
    /// providers.
    #[test]
    fn a_question_shows_the_refresh_token_that_is_known_when_it_is_asked() {
        let mut cache = CredentialCache::default();
        cache.remember_refresh(Some(refresh("first")));
        let mut question = OidcRequest::new(Duration::from_secs(300));
        question.idp_info = Some(refresh("first").idp_info);
        cache.bring_up_to_date(&mut question);
        assert_eq!(question.refresh_token, None, "it needs none");
        question.refresh_token = Some("first".into());
        cache.remember_refresh(Some(refresh("second")));
        cache.bring_up_to_date(&mut question);
        assert_eq!(question.refresh_token, Some("second".into()));
        let mut of_another = question.clone();
        of_another.idp_info.as_mut().unwrap().issuer = "https://other".into();
        cache.bring_up_to_date(&mut of_another);
        assert_eq!(of_another.refresh_token, None, "it is the other provider's");
        cache.remember_refresh(None);
        cache.bring_up_to_date(&mut question);
        assert_eq!(question.refresh_token, None);
    }

    /// The same: what one connection forgets while another one asks is not what that obtains.
    #[test]
    fn a_refresh_token_that_came_meanwhile_is_kept() {
        let mut of_client = CredentialCache::default();
        of_client.remember_refresh(Some(refresh("first")));
        let mut asking = of_client.clone();
        let mut refused = of_client.clone();
        refused.forget_refresh(&"first".into());
        of_client.merge(&refused);
        asking.merge(&of_client);
        asking.remember_refresh(Some(refresh("second")));
        of_client.merge(&asking);
        assert_eq!(of_client.refresh().map(|it| it.token.expose()), Some("second"));
    }
}
