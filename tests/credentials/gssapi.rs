//! GSSAPI with security contexts of the application's own, whose tokens are secret.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam::bson::{RawDocument, rawdoc};
use sdam::core::auth::{
    Canonicalization, GssapiContext, GssapiError, GssapiLogin, GssapiProvider, GssapiStep,
    GssapiToken,
};
use sdam::core::config::{AuthMechanism, OptionsBuilder, Secret};
use sdam::core::failure::{Cause, GssapiProblem, Stage};

use crate::fake_server::{FakeServer, first_key, payload, sasl};
use crate::runtimes::{Asked, Runtime, failed, ping};

crate::scenarios! {
    a_context_of_the_application_logs_in,
    what_a_context_cannot_do_is_said_with_what_to_do,
    a_context_that_hangs_is_given_up,
}

/// A provider whose tokens are all secret; it notes what it is asked.
#[derive(Clone, Default)]
pub(crate) struct Planted {
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    /// Blocks until the other end is dropped, at its first token.
    blocks: Option<Arc<Mutex<Receiver<()>>>>,
}

impl GssapiProvider for Planted {
    fn canonical_name(&self, host: &str, canonicalization: Canonicalization) -> Option<String> {
        self.asked.lock().unwrap().push(format!("{host} {canonicalization:?}"));
        Some("real.example".into())
    }

    fn begin(&self, login: &GssapiLogin) -> Result<Box<dyn GssapiContext>, GssapiError> {
        assert_eq!(login.password.as_ref().map(Secret::expose), Some("planted-password"));
        self.asked.lock().unwrap().push(format!("{} {}", login.username, login.service));
        match &*login.username {
            "ann@HERE" => Ok(Box::new(self.clone())),
            other => {
                let detail = format!("the password of {other} is wrong");
                Err(GssapiError::new(GssapiProblem::PasswordRefused, detail))
            }
        }
    }
}

impl GssapiContext for Planted {
    fn step(&mut self, token: Option<&[u8]>) -> Result<GssapiStep, GssapiError> {
        if let Some(blocks) = &self.blocks {
            let _ = blocks.lock().unwrap().recv();
        }
        match token {
            None => Ok(GssapiStep::Continue(GssapiToken::new("planted-first"))),
            Some(token) => {
                assert_eq!(token, b"planted-second");
                Ok(GssapiStep::Complete(Some(GssapiToken::new("planted-third"))))
            }
        }
    }

    fn unwrap(&mut self, message: &[u8]) -> Result<GssapiToken, GssapiError> {
        assert_eq!(message, b"planted-offer");
        Ok(GssapiToken::new([1, 0, 0, 0]))
    }

    fn wrap(&mut self, content: &[u8]) -> Result<GssapiToken, GssapiError> {
        assert_eq!(content, b"\x01\0\0\0ann@HERE");
        Ok(GssapiToken::new("planted-answer"))
    }
}

/// A server that such contexts log in at.
pub(crate) async fn server() -> FakeServer {
    FakeServer::start(Arc::new(|_, command: &RawDocument| {
        if !["saslStart", "saslContinue"].contains(&&*first_key(command)) {
            return Some(rawdoc! { "ok": 1 });
        }
        Some(match payload(command) {
            b"planted-first" => sasl(false, b"planted-second"),
            b"planted-third" => sasl(false, b"planted-offer"),
            b"planted-answer" => sasl(true, b""),
            other => panic!("{other:?}"),
        })
    }))
    .await
}

fn kerberos(user: &'static str) -> impl Fn(OptionsBuilder) -> OptionsBuilder {
    move |options| {
        let options = options.auth_mechanism(AuthMechanism::Gssapi);
        let options = options.auth_mechanism_property("CANONICALIZE_HOST_NAME", "forward");
        options.username(user).password("planted-password")
    }
}

async fn a_context_of_the_application_logs_in(runtime: Runtime) {
    let (server, planted) = (server().await, Planted::default());
    let client = runtime.client(&server, kerberos("ann@HERE"), Asked::contexts(planted.clone()));
    for _ in 0..2 {
        ping(&*client).await.unwrap();
    }
    assert_eq!((server.count("saslStart"), server.count("saslContinue")), (1, 2));
    let asked = planted.asked.lock().unwrap().clone();
    assert_eq!(asked, ["127.0.0.1 Forward", "ann@HERE mongodb/real.example@HERE"]);
}

async fn what_a_context_cannot_do_is_said_with_what_to_do(runtime: Runtime) {
    let server = server().await;
    let planted = Planted::default();
    let client = runtime.client(&server, kerberos("bob@HERE"), Asked::contexts(planted));
    let failure = failed(&*client).await;
    let cause = Cause::GssapiFailed { problem: GssapiProblem::PasswordRefused };
    assert_eq!((failure.stage, &failure.cause), (Stage::Credentials, &cause), "{failure}");
    let error = ping(&*client).await.unwrap_err();
    for wanted in ["the password of bob@HERE is wrong", "check the password"] {
        assert!(error.contains(wanted), "{error}");
    }
    assert_eq!(server.count("saslStart"), 0);
}

/// A server of Kerberos that does not answer holds up no more than the connection that asks it.
async fn a_context_that_hangs_is_given_up(runtime: Runtime) {
    if matches!(runtime, Runtime::SingleThreaded) {
        // The caller does what blocks, as it has no threads.
        return;
    }
    let server = server().await;
    let (end, ended) = channel();
    let blocks = Some(Arc::new(Mutex::new(ended)));
    let planted = Planted { blocks, ..Planted::default() };
    let hurried = |options: OptionsBuilder| {
        kerberos("ann@HERE")(options).connect_timeout(Duration::from_secs(1))
    };
    let client = runtime.client(&server, hurried, Asked::contexts(planted));
    let failure = failed(&*client).await;
    assert_eq!((failure.stage, failure.cause), (Stage::Credentials, Cause::Timeout));
    let error = ping(&*client).await.unwrap_err();
    for wanted in ["credentials of the login", "connectTimeoutMS", "a server of that realm"] {
        assert!(error.contains(wanted), "{error}");
    }
    drop(end);
    ping(&*client).await.unwrap();
}
