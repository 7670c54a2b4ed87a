//! Providers of tokens and of temporary credentials.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use bson::DateTime;
use sdam_core::auth::{Answer, AwsCredentials, PAUSE_AFTER_REFUSAL, Question};
use sdam_core::config::Secret;
use sdam_core::failure::{Cause, Failure, Stage};

use crate::runtime::Answering;
use crate::sync::before;

/// Finds what an authentication mechanism asks for: a token for MONGODB-OIDC, or credentials for
/// MONGODB-AWS.
///
/// A closure that takes a [`Question`] and returns a future of an [`Answer`] is a provider, too. It
/// is asked for what the client does not remember: a token is kept until the server refuses it, and
/// credentials of AWS until five minutes before they expire. One token is asked for at a time, and
/// given up after [`OidcQuestion::timeout`](sdam_core::auth::OidcQuestion::timeout).
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

/// Asks a provider, within the limits that tokens have: one is asked for a pause after the server
/// has refused another, and given up after
/// [`OidcQuestion::timeout`](sdam_core::auth::OidcQuestion::timeout). Credentials of AWS have the
/// time that establishing a connection has.
///
/// # Errors
///
/// Fails as the provider does, and if it gives no token in time.
pub async fn ask_provider<A, T>(
    question: Question,
    ask: impl FnOnce(Question) -> A,
    sleep: impl Fn(Duration) -> T,
) -> Result<Answer, Failure>
where
    A: Future<Output = Result<Answer, Failure>>,
    T: Future<Output = ()>,
{
    let Question::Oidc(asked) = &question else { return ask(question).await };
    let limit = asked.timeout;
    if asked.refused.is_some() {
        sleep(PAUSE_AFTER_REFUSAL).await;
    }
    before(sleep(limit), ask(question)).await.unwrap_or_else(|| {
        let detail = format!("the provider of tokens gave none within {limit:?}");
        Err(Failure::new(Stage::Authenticate, Cause::Timeout, detail))
    })
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
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use bson::DateTime;

    use super::{ask_provider, credentials_from_environment};
    use crate::sync::Mutex;
    use crate::sync::lock;
    use sdam_core::auth::{Answer, OidcQuestion, OidcToken, PAUSE_AFTER_REFUSAL, Question};
    use sdam_core::failure::{Cause, Failure};

    fn token_question(refused: bool) -> Question {
        let mut question = OidcQuestion::new(Duration::from_secs(7));
        question.refused = refused.then(|| "token".into());
        Question::Oidc(question)
    }

    #[test]
    fn a_provider_that_hangs_is_given_up_after_the_time_that_it_was_told() {
        let provider = |_: Question| pending();
        let slept = Mutex::new(Vec::new());
        let sleep = |time| {
            lock(&slept).push(time);
            ready(())
        };
        let mut asking = pin!(ask_provider(token_question(true), provider, sleep));
        let answer = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Err(failure)) = answer else { panic!("{answer:?}") };
        assert_eq!(failure.cause, Cause::Timeout, "{failure}");
        assert_eq!(*lock(&slept), [PAUSE_AFTER_REFUSAL, Duration::from_secs(7)]);
    }

    #[test]
    fn only_after_a_refusal_is_there_a_pause() {
        for refused in [false, true] {
            let token = || Answer::Oidc(OidcToken::new("another"));
            let provider = |_: Question| ready(Ok(token()));
            let never = |_| pending();
            let mut asking = pin!(ask_provider(token_question(refused), provider, never));
            let answer = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let expected = if refused { Poll::Pending } else { Poll::Ready(Ok(token())) };
            assert_eq!(answer, expected);
        }
    }

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
