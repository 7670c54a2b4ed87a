//! MONGODB-OIDC against a server that takes and refuses tokens as the test says: the prose tests of
//! Authentication, "MONGODB-OIDC".

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fake_server::{FakeServer, error, first_key, payload, sasl, soon};
use sdam_core::auth::{
    AwsCredentials, CredentialRequest, CredentialResponse, OidcRequest, OidcToken,
};
use sdam_core::bson::{DateTime, RawDocument, rawdoc};
use sdam_core::config::{AuthMechanism, Options, OptionsBuilder};
use sdam_host::{ClientError, Error};
use sdam_tokio::Topology;

/// A server that is shown tokens, and how it behaves.
#[derive(Default)]
struct Gate {
    /// The tokens that it does not take.
    refused: Mutex<Vec<String>>,
    /// The tokens that it was shown, in order.
    shown: Mutex<Vec<String>>,
    /// Codes with which it answers the next commands of a name.
    failing: Mutex<Vec<(&'static str, i32)>>,
    /// True if it closes the connection at the next ping.
    closes: AtomicU32,
}

impl Gate {
    async fn serve(self: &Arc<Self>) -> FakeServer {
        let gate = Arc::clone(self);
        FakeServer::start(Arc::new(move |_, command: &RawDocument| {
            let name = first_key(command);
            {
                let mut failing = gate.failing.lock().unwrap();
                if let Some(index) = failing.iter().position(|(known, _)| *known == name) {
                    return Some(error(failing.remove(index).1));
                }
            }
            if name != "saslStart" {
                let closes = gate.closes.swap(0, Ordering::Relaxed) > 0;
                return (!closes).then(|| rawdoc! { "ok": 1 });
            }
            let token = RawDocument::from_bytes(payload(command)).unwrap();
            let token = token.get_str("jwt").unwrap().to_owned();
            let taken = !gate.refused.lock().unwrap().contains(&token);
            gate.shown.lock().unwrap().push(token);
            Some(if taken { sasl(true, b"") } else { error(18) })
        }))
        .await
    }

    fn refuse(&self, token: &str) {
        self.refused.lock().unwrap().push(token.into());
    }

    fn shown(&self) -> Vec<String> {
        std::mem::take(&mut *self.shown.lock().unwrap())
    }

    /// Has the next commands of a name fail.
    fn fail(&self, name: &'static str, code: i32) {
        self.failing.lock().unwrap().push((name, code));
    }
}

fn options(server: &FakeServer) -> OptionsBuilder {
    Options::builder()
        .uri(&format!("mongodb://{}/", server.address))
        .unwrap()
        .auth_mechanism(AuthMechanism::Oidc)
}

/// A client whose callback gives "token-1", "token-2" and so on, and what counts its calls.
fn client(server: &FakeServer) -> (Topology, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let client = with_provider(server, move |_| {
        let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            // As long as it takes for others to be waiting.
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(CredentialResponse::Oidc(OidcToken::new(format!("token-{number}"))))
        }
    });
    (client, calls)
}

fn with_provider<T>(
    server: &FakeServer,
    provider: impl Fn(CredentialRequest) -> T + Send + Sync + 'static,
) -> Topology
where
    T: Future<Output = Result<CredentialResponse, String>> + Send + 'static,
{
    let options = options(server).oidc_callback(true).build().unwrap();
    Topology::builder(options).credential_provider(provider).build().unwrap()
}

async fn ping(client: &Topology) -> Result<(), Error> {
    soon(client.run_command("admin", &rawdoc! { "ping": 1 })).await.map(drop)
}

fn calls(calls: &AtomicU32) -> u32 {
    calls.load(Ordering::Relaxed)
}

#[tokio::test]
async fn the_callback_is_called_once_for_many_connections() {
    // OIDC-M1.1, OIDC-M1.2: "only one call … can happen at a time"
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let (client, asked) = client(&server);
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    ping(&client).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((calls(&asked), server.count("ping")), (1, 1000));
    assert!(gate.shown().len() > 1, "more connections than one have logged in");
}

#[tokio::test]
async fn the_callback_is_told_its_version_and_its_time() {
    // OIDC-M2.1
    let server = Arc::<Gate>::default().serve().await;
    let seen = Arc::new(Mutex::new(None::<OidcRequest>));
    let tell = Arc::clone(&seen);
    let client = with_provider(&server, move |question| {
        let CredentialRequest::Oidc(question) = question else { panic!("no question for a token") };
        *tell.lock().unwrap() = Some(question);
        async { Ok(CredentialResponse::Oidc(OidcToken::new("token"))) }
    });
    ping(&client).await.unwrap();
    let seen = seen.lock().unwrap().take().unwrap();
    assert_eq!((seen.version, seen.username, seen.refused), (1, None, None));
    assert_eq!(seen.timeout, Duration::from_secs(10), "connectTimeoutMS by default");
}

#[tokio::test]
async fn a_callback_without_a_token_fails_the_command() {
    // OIDC-M2.2, OIDC-M2.3
    let server = Arc::<Gate>::default().serve().await;
    let client = with_provider(&server, |_| async { Err("no identity".to_owned()) });
    let error = ping(&client).await.unwrap_err().to_string();
    assert!(error.contains("no identity"), "{error}");
    let client =
        with_provider(&server, |_| async { Ok(CredentialResponse::Oidc(OidcToken::new(""))) });
    let error = ping(&client).await.unwrap_err().to_string();
    assert!(error.contains("empty"), "{error}");
    let client = with_provider(&server, |_| async {
        let credentials = AwsCredentials::new("AKID", "planted");
        Ok(CredentialResponse::Aws { credentials, now: DateTime::now() })
    });
    let error = ping(&client).await.unwrap_err().to_string();
    assert!(error.contains("unexpected type") && !error.contains("planted"), "{error}");
    assert_eq!(server.count("saslStart"), 0);
}

#[tokio::test]
async fn a_callback_that_takes_too_long_is_given_up() {
    let server = Arc::<Gate>::default().serve().await;
    let uri = format!("mongodb://{}/?connectTimeoutMS=2000", server.address);
    let options = Options::builder()
        .uri(&uri)
        .unwrap()
        .auth_mechanism(AuthMechanism::Oidc)
        .oidc_callback(true)
        .build()
        .unwrap();
    let client = Topology::builder(options)
        .credential_provider(|_: CredentialRequest| {
            std::future::pending::<Result<CredentialResponse, String>>()
        })
        .build()
        .unwrap();
    let error = ping(&client).await.unwrap_err();
    assert!(error.to_string().contains("connectTimeoutMS"), "{error}");
}

#[tokio::test]
async fn a_callback_besides_an_environment_is_refused() {
    // OIDC-M2.4
    let server = Arc::<Gate>::default().serve().await;
    let test = || options(&server).auth_mechanism_property("ENVIRONMENT", "test");
    assert!(test().oidc_callback(true).build().is_err());
    let builder = Topology::builder(test().build().unwrap());
    let built = builder
        .credential_provider(|_: CredentialRequest| async {
            Err::<CredentialResponse, _>("unused")
        })
        .build();
    let error = built.unwrap_err();
    assert!(matches!(error.as_client(), Some(ClientError::ProviderAndEnvironment)), "{error:?}");
}

#[tokio::test]
async fn hosts_that_are_allowed_go_with_no_environment() {
    // OIDC-M2.5: "Assert it returns a client configuration error upon client creation".
    let server = Arc::<Gate>::default().serve().await;
    for (name, resource) in [("azure", Some("api")), ("gcp", Some("api")), ("k8s", None)] {
        let environment = || {
            let options = options(&server).auth_mechanism_property("ENVIRONMENT", name);
            match resource {
                Some(resource) => options.auth_mechanism_property("TOKEN_RESOURCE", resource),
                None => options,
            }
        };
        assert!(environment().build().is_ok(), "{name}");
        let allowed = environment().auth_mechanism_property("ALLOWED_HOSTS", "");
        let error = allowed.build().unwrap_err().to_string();
        assert!(error.contains("does not allow other properties"), "{name}: {error}");
    }
}

#[tokio::test]
async fn without_a_callback_no_client_is_made_and_the_error_says_what_is_missing() {
    let server = Arc::<Gate>::default().serve().await;
    let callback = options(&server).oidc_callback(true).build().unwrap();
    let error = Topology::new(callback).unwrap_err();
    assert!(matches!(error.as_client(), Some(ClientError::NoTokenProvider)), "{error:?}");
    assert!(error.to_string().contains("credential_provider"), "{error}");
}

#[tokio::test]
async fn a_remembered_token_that_is_refused_is_replaced() {
    // OIDC-M3.1: the token is no longer accepted where the original poisons the cache.
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let (client, asked) = client(&server);
    ping(&client).await.unwrap();
    gate.refuse("token-1");
    gate.shown();
    gate.closes.store(1, Ordering::Relaxed);
    ping(&client).await.unwrap_err();
    ping(&client).await.unwrap();
    // With hello, the usual way, and then another one.
    assert_eq!(gate.shown(), ["token-1", "token-1", "token-2"]);
    assert_eq!(calls(&asked), 2);
}

#[tokio::test]
async fn a_new_token_that_is_refused_is_an_error() {
    // OIDC-M3.2
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    gate.refuse("token-1");
    let (client, asked) = client(&server);
    let error = ping(&client).await.unwrap_err().to_string();
    assert!(!error.contains("token-1"), "{error}");
    assert_eq!(calls(&asked), 1);
}

#[tokio::test]
async fn another_error_does_not_forget_the_token() {
    // OIDC-M3.3
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    gate.fail("saslStart", 20);
    let (client, asked) = client(&server);
    ping(&client).await.unwrap_err();
    assert_eq!(calls(&asked), 1);
    ping(&client).await.unwrap();
    assert_eq!(calls(&asked), 1);
}

#[tokio::test]
async fn a_command_that_needs_a_new_login_is_run_again_after_it() {
    // OIDC-M4.1, OIDC-M4.3: over the same connection, and without hello
    for name in ["find", "insert"] {
        let gate = Arc::<Gate>::default();
        let server = gate.serve().await;
        let (client, asked) = client(&server);
        ping(&client).await.unwrap();
        gate.fail(name, 391);
        let command = match name {
            "find" => rawdoc! { "find": "things" },
            _ => rawdoc! { "insert": "things" },
        };
        soon(client.run_command("test", &command)).await.unwrap();
        assert_eq!(calls(&asked), 2);
        assert_eq!(gate.shown(), ["token-1", "token-2"]);
        let commands = server.commands.lock().unwrap().clone();
        assert_eq!(commands, ["saslStart", "ping", name, "saslStart", name]);
        // The new token is the client's from now on.
        ping(&client).await.unwrap();
        assert_eq!(calls(&asked), 2);
    }
}

#[tokio::test]
async fn a_new_login_that_fails_is_the_error_of_the_command() {
    // OIDC-M4.2
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let (client, asked) = client(&server);
    ping(&client).await.unwrap();
    gate.refuse("token-2");
    gate.fail("ping", 391);
    let error = ping(&client).await.unwrap_err().to_string();
    assert!(error.contains("18") && !error.contains("token-2"), "{error}");
    assert_eq!((calls(&asked), server.count("ping")), (2, 2));
    // The connection is gone, and the client goes on with a third token.
    ping(&client).await.unwrap();
    assert_eq!(calls(&asked), 3);
}

#[tokio::test]
async fn a_token_that_another_connection_has_obtained_is_used() {
    // OIDC-M4.4: the cache has another token than the connection, so that the callback is not
    // called.
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let (client, asked) = client(&server);
    let criteria = sdam_core::selection::Criteria::write();
    let selected = soon(client.select(criteria)).await.unwrap();
    let mut in_use = Vec::new();
    for _ in 0..2 {
        in_use.push(soon(selected.check_out()).await.unwrap());
    }
    let ping = rawdoc! { "ping": 1 };
    for (checked_out, expected) in [(0, 2), (1, 2), (1, 3)] {
        gate.fail("ping", 391);
        soon(in_use[checked_out].command("admin", &ping)).await.unwrap();
        assert_eq!(calls(&asked), expected);
    }
}

#[tokio::test]
async fn a_command_is_run_again_once_only() {
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let (client, asked) = client(&server);
    gate.fail("ping", 391);
    gate.fail("ping", 391);
    let error = ping(&client).await.unwrap_err().to_string();
    assert!(error.contains("391"), "{error}");
    assert_eq!((calls(&asked), server.count("ping")), (2, 2));
}

#[tokio::test]
async fn a_new_login_ends_at_the_deadline_of_the_command() {
    let gate = Arc::<Gate>::default();
    let server = gate.serve().await;
    let asked = AtomicU32::new(0);
    let client = with_provider(&server, move |_| {
        let first = asked.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            match first {
                true => Ok(CredentialResponse::Oidc(OidcToken::new("token"))),
                false => std::future::pending().await,
            }
        }
    });
    ping(&client).await.unwrap();
    gate.fail("ping", 391);
    let limited = client.with_timeout(Duration::from_millis(300));
    let error = soon(ping(&limited)).await.unwrap_err().to_string();
    assert!(!error.contains("connectTimeoutMS"), "it is not what ends the callback: {error}");
}
