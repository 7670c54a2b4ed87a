//! Where tokens and temporary credentials come from.

use std::fmt;
use std::future::Future;

use bson::DateTime;

use super::Answering;
use crate::auth::{Answer, AwsCredentials, Question};
use crate::failure::{Cause, Failure, Stage};
use crate::options::Secret;

/// Finds what an authentication mechanism asks for: a token for MONGODB-OIDC, or credentials for
/// MONGODB-AWS.
///
/// A closure that takes a [`Question`] and returns a future of an [`Answer`] is a provider, too. It
/// is asked for what the client does not remember: a token is kept until the server refuses it, and
/// credentials of AWS until five minutes before they expire. One token is asked for at a time, and
/// given up after [`OidcQuestion::timeout`](crate::auth::OidcQuestion::timeout).
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
            answer
                .await
                .map_err(|error| failure(format!("the provider of credentials failed: {error}")))
        })
    }
}

/// Answers a question with what the environment's variables hold at `now`: the credentials of AWS,
/// both parts or neither (Authentication, "MONGODB-AWS"), and no tokens.
///
/// # Errors
///
/// Fails if there is no answer in the environment.
pub fn credentials_from_environment(
    question: &Question,
    variable: impl Fn(&str) -> Option<String>,
    now: DateTime,
) -> Result<Answer, Failure> {
    if !matches!(question, Question::Aws) {
        let detail = "MONGODB-OIDC needs a provider of tokens: ClientBuilder::credential_provider";
        return Err(failure(detail.to_owned()));
    }
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let key = set("AWS_ACCESS_KEY_ID").zip(set("AWS_SECRET_ACCESS_KEY"));
    let (access_key_id, secret) = key.ok_or_else(|| {
        let detail = "MONGODB-AWS needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
                      environment, or a provider: ClientBuilder::credential_provider";
        failure(detail.to_owned())
    })?;
    let credentials = AwsCredentials {
        access_key_id,
        secret_access_key: secret.into(),
        session_token: set("AWS_SESSION_TOKEN").map(Secret::from),
        expires: None,
    };
    Ok(Answer::Aws { credentials, now })
}

fn failure(detail: String) -> Failure {
    Failure::new(Stage::Authenticate, Cause::Configuration, detail)
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::credentials_from_environment;
    use crate::auth::{Answer, Question};
    use crate::failure::Failure;

    #[test]
    fn credentials_come_from_the_environment_whole_or_not_at_all() {
        let from = |variables: &[(&str, &str)]| -> Result<Answer, Failure> {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
            let variable = |name: &str| find(name).map(|(_, value)| (*value).to_owned());
            credentials_from_environment(&Question::Aws, variable, DateTime::MIN)
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
            let failure = from(incomplete).unwrap_err();
            assert!(failure.detail.contains("AWS_SECRET_ACCESS_KEY"), "{failure:?}");
        }
    }
}
