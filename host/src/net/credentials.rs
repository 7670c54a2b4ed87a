//! Providers of tokens and of temporary credentials.

#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "oidc-environments")]
mod environments;
pub(crate) mod gssapi;
pub(crate) mod sources;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use sdam_core::auth::{CredentialRequest, CredentialResponse, PAUSE_AFTER_REFUSAL};
use sdam_core::failure::{Cause, Failure, Stage};

use crate::sync::before;

/// The time that connecting to a service may take: less than connectTimeoutMS of the client by
/// default, so that the application learns who does not answer.
#[cfg(any(feature = "aws", feature = "oidc-environments"))]
const CONNECT_TIME: Duration = Duration::from_secs(4);

/// The answer of a provider, once it has it.
pub type Answering = Pin<Box<dyn Future<Output = Result<CredentialResponse, Failure>> + Send>>;

/// Finds what an authentication mechanism asks for: a token for MONGODB-OIDC, or credentials for
/// MONGODB-AWS. GSSAPI asks a [`GssapiProvider`](sdam_core::auth::GssapiProvider) instead.
///
/// A closure that takes a [`CredentialRequest`] and returns a future of a [`CredentialResponse`] is
/// a provider, too. It is asked for what the client does not remember: a token is kept until the
/// server refuses it, and credentials of AWS until five minutes before they expire. One token is
/// asked for at a time, and given up after
/// [`OidcRequest::timeout`](sdam_core::auth::OidcRequest::timeout).
pub trait CredentialProvider: Send + Sync + 'static {
    /// Answers a question; the future is dropped when the answer is not needed any more.
    fn answer(&self, question: CredentialRequest) -> Answering;
}

impl fmt::Debug for dyn CredentialProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialProvider")
    }
}

impl<F, T, E> CredentialProvider for F
where
    F: Fn(CredentialRequest) -> T + Send + Sync + 'static,
    T: Future<Output = Result<CredentialResponse, E>> + Send + 'static,
    E: fmt::Display,
{
    fn answer(&self, question: CredentialRequest) -> Answering {
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
/// [`OidcRequest::timeout`](sdam_core::auth::OidcRequest::timeout). Credentials of AWS have the
/// time that establishing a connection has.
///
/// # Errors
///
/// Fails as the provider does, and if it gives no token in time.
pub async fn ask_provider<A, T>(
    question: CredentialRequest,
    ask: impl FnOnce(CredentialRequest) -> A,
    sleep: impl Fn(Duration) -> T,
) -> Result<CredentialResponse, Failure>
where
    A: Future<Output = Result<CredentialResponse, Failure>>,
    T: Future<Output = ()>,
{
    let CredentialRequest::Oidc(asked) = &question else { return ask(question).await };
    let limit = asked.timeout;
    if asked.refused.is_some() {
        sleep(PAUSE_AFTER_REFUSAL).await;
    }
    before(sleep(limit), ask(question)).await.unwrap_or_else(|| {
        let detail = format!("the provider of tokens gave none within {limit:?}");
        Err(Failure::new(Stage::Credentials, Cause::Timeout, detail))
    })
}

fn failure(detail: String) -> Failure {
    Failure::new(Stage::Credentials, Cause::Configuration, detail)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::ask_provider;
    use crate::sync::Mutex;
    use crate::sync::lock;
    use sdam_core::auth::{
        CredentialRequest, CredentialResponse, OidcRequest, OidcToken, PAUSE_AFTER_REFUSAL,
    };
    use sdam_core::failure::Cause;

    fn token_question(refused: bool) -> CredentialRequest {
        let mut question = OidcRequest::new(Duration::from_secs(7));
        question.refused = refused.then(|| "token".into());
        CredentialRequest::Oidc(question)
    }

    #[test]
    fn a_provider_that_hangs_is_given_up_after_the_time_that_it_was_told() {
        let provider = |_: CredentialRequest| pending();
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
            let token = || CredentialResponse::Oidc(OidcToken::new("another"));
            let provider = |_: CredentialRequest| ready(Ok(token()));
            let never = |_| pending();
            let mut asking = pin!(ask_provider(token_question(refused), provider, never));
            let answer = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let expected = if refused { Poll::Pending } else { Poll::Ready(Ok(token())) };
            assert_eq!(answer, expected);
        }
    }
}
