//! Where tokens and temporary credentials come from.

use std::fmt;
use std::future::Future;

use sdam_core::auth::{Answer, AwsCredentials, Question};
use sdam_core::bson::DateTime;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::host::Answering;
use sdam_core::options::Secret;

/// Finds what an authentication mechanism asks for: a token for MONGODB-OIDC, or credentials for
/// MONGODB-AWS.
///
/// A closure that takes a [`Question`] and returns a future of an [`Answer`] is a provider, too. It
/// is asked once for each connection that cannot use what an earlier one was given.
pub trait CredentialProvider: Send + Sync + 'static {
    /// Answers a question; the future is dropped when the answer is not needed any more.
    fn answer(&self, question: Question) -> Answering;
}

impl fmt::Debug for dyn CredentialProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialProvider")
    }
}

impl<F, T, E> CredentialProvider for F
where
    F: Fn(Question) -> T + Send + Sync + 'static,
    T: Future<Output = Result<Answer, E>> + Send + 'static,
    E: fmt::Display,
{
    fn answer(&self, question: Question) -> Answering {
        let answer = self(question);
        Box::pin(async move {
            answer.await.map_err(|error| {
                let detail = format!("the provider of credentials failed: {error}");
                Failure::new(Stage::Authenticate, Cause::Configuration, detail)
            })
        })
    }
}

/// Takes the credentials of AWS from the environment variables; has no tokens.
pub(crate) struct Environment;

impl CredentialProvider for Environment {
    fn answer(&self, question: Question) -> Answering {
        let answer = match question {
            Question::Aws => from_environment(|name| std::env::var(name).ok()),
            _ => Err("MONGODB-OIDC needs a provider of tokens: ClientBuilder::credential_provider"),
        };
        Box::pin(async move {
            answer.map_err(|detail| {
                Failure::new(Stage::Authenticate, Cause::Configuration, detail.to_owned())
            })
        })
    }
}

/// Authentication, "MONGODB-AWS": what the variables hold, both or neither.
fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Answer, &'static str> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let key = set("AWS_ACCESS_KEY_ID").zip(set("AWS_SECRET_ACCESS_KEY"));
    let (access_key_id, secret) = key.ok_or(
        "MONGODB-AWS needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or a \
         provider of credentials: ClientBuilder::credential_provider",
    )?;
    let credentials = AwsCredentials {
        access_key_id,
        secret_access_key: secret.into(),
        session_token: set("AWS_SESSION_TOKEN").map(Secret::from),
        expires: None,
    };
    Ok(Answer::Aws { credentials, now: DateTime::now() })
}

#[cfg(test)]
mod tests {
    use sdam_core::auth::Answer;

    use super::from_environment;

    #[test]
    fn credentials_come_from_the_environment_whole_or_not_at_all() {
        let from = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
            from_environment(|name| find(name).map(|(_, value)| (*value).to_owned()))
        };
        let key = ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE");
        let secret = ("AWS_SECRET_ACCESS_KEY", "s3cret");
        let Ok(Answer::Aws { credentials, .. }) = from(&[key, secret]) else { panic!("none") };
        assert_eq!(credentials.access_key_id, "AKIDEXAMPLE");
        assert_eq!(credentials.session_token, None);
        let token = ("AWS_SESSION_TOKEN", "t0ken");
        let Ok(Answer::Aws { credentials, .. }) = from(&[key, secret, token]) else {
            panic!("none")
        };
        assert_eq!(credentials.session_token.unwrap().expose(), "t0ken");
        for incomplete in [&[][..], &[key], &[secret, token], &[key, ("AWS_SECRET_ACCESS_KEY", "")]]
        {
            assert!(from(incomplete).unwrap_err().contains("AWS_SECRET_ACCESS_KEY"));
        }
    }
}
