//! MONGODB-OIDC with the token that a file holds, or that the metadata of a cloud hand out.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam::bson::{RawDocument, rawdoc};
use sdam::core::auth::{CredentialRequest, CredentialResponse, IdpInfo, OidcEndpoints, OidcToken};
use sdam::core::config::{AllowedHosts, AuthMechanism, OptionsBuilder};
use sdam::core::failure::{Cause, Failure, Stage};
use sdam::host::CredentialSources;

use crate::fake_server::{FakeServer, error, first_key, payload, sasl};
use crate::http::{Http, Reaction, ok};
use crate::runtimes::{Asked, Runtime, failed, is_configuration, ping};

crate::scenarios! {
    a_pods_token_is_read_for_each_login,
    a_cloud_hands_a_token_out_that_logs_in,
    azure_is_asked_for_the_user_and_may_refuse,
    a_token_of_a_cloud_is_asked_for_once_until_it_is_refused,
    metadata_that_misbehave_are_an_error_that_says_which_and_why,
    metadata_that_do_not_answer_are_given_up,
    a_person_may_take_longer_than_connecting,
}

/// A server that notes the tokens it is shown.
pub(crate) async fn server(shown: &Arc<Mutex<Vec<String>>>) -> FakeServer {
    let shown = Arc::clone(shown);
    FakeServer::start(Arc::new(move |_, command: &RawDocument| {
        if first_key(command) != "saslStart" {
            return Some(rawdoc! { "ok": 1 });
        }
        let token = RawDocument::from_bytes(payload(command)).unwrap();
        shown.lock().unwrap().push(token.get_str("jwt").unwrap().to_owned());
        Some(sasl(true, b""))
    }))
    .await
}

fn environment(name: &'static str) -> impl Fn(OptionsBuilder) -> OptionsBuilder {
    move |options| {
        options.auth_mechanism(AuthMechanism::Oidc).auth_mechanism_property("ENVIRONMENT", name)
    }
}

async fn a_pods_token_is_read_for_each_login(runtime: Runtime) {
    let shown = Arc::default();
    let server = server(&shown).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"first-token\n").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let sources = CredentialSources::default()
        .variables(move |name| (name == "AWS_WEB_IDENTITY_TOKEN_FILE").then(|| path.clone()));
    let other = runtime.client(&server, environment("k8s"), sources.clone());
    ping(&*runtime.client(&server, environment("k8s"), sources)).await.unwrap();
    std::fs::write(file.path(), "second-token").unwrap();
    ping(&*other).await.unwrap();
    assert_eq!(*shown.lock().unwrap(), ["first-token", "second-token"]);
    file.close().unwrap();
}

/// The metadata of both clouds at one endpoint.
pub(crate) fn metadata(http: &Http) -> CredentialSources {
    let endpoint = || http.endpoint.clone();
    CredentialSources::default().oidc_endpoints(OidcEndpoints::new(endpoint(), endpoint()))
}

/// Options that have tokens come from a cloud.
fn cloud(name: &'static str) -> impl Fn(OptionsBuilder) -> OptionsBuilder {
    move |options| {
        let options = environment(name)(options);
        options.auth_mechanism_property("TOKEN_RESOURCE", "api://a b,c")
    }
}

pub(crate) const CLOUDS: [&str; 2] = ["azure", "gcp"];

/// The response of a cloud with a token in it.
pub(crate) fn token(cloud: &str, token: &str) -> Reaction {
    match cloud {
        "azure" => ok(&format!(r#"{{"access_token": "{token}", "expires_in": "3599"}}"#)),
        _ => ok(token),
    }
}

/// OIDC-M1.1 with `ENVIRONMENT:azure` and `gcp`, OIDC-M5.1; "Azure", "GCP".
async fn a_cloud_hands_a_token_out_that_logs_in(runtime: Runtime) {
    for (name, wanted) in [
        ("azure", "GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource="),
        ("gcp", "GET /computeMetadata/v1/instance/service-accounts/default/identity?audience="),
    ] {
        let shown = Arc::default();
        let server = server(&shown).await;
        let http = Http::start(move |_| token(name, "planted.jwt")).await;
        ping(&*runtime.client(&server, cloud(name), metadata(&http))).await.unwrap();
        assert_eq!(*shown.lock().unwrap(), ["planted.jwt"]);
        let requests = http.requests.lock().unwrap().clone();
        let [request] = &requests[..] else { panic!("{requests:?}") };
        let target = format!("{wanted}api%3A%2F%2Fa%20b%2Cc HTTP/1.1\r\n");
        assert!(request.starts_with(&target), "{request}");
        let header = if name == "azure" { "Metadata: true" } else { "Metadata-Flavor: Google" };
        assert!(request.contains(&format!("\r\n{header}\r\n")), "{request}");
    }
}

/// OIDC-M5.2: "a username of "bad"", which Azure answers with a refusal.
async fn azure_is_asked_for_the_user_and_may_refuse(runtime: Runtime) {
    let server = server(&Arc::default()).await;
    let http = Http::start(|request| {
        assert!(request.contains("&client_id=bad HTTP/1.1\r\n"), "{request}");
        let body = "{\r\n\"error\":\"Identity not found\"}";
        let head = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n", body.len());
        Reaction::Send((head + body).into_bytes())
    })
    .await;
    let bad = |options| cloud("azure")(options).username("bad");
    let failure = failed(&*runtime.client(&server, bad, metadata(&http))).await;
    assert!(is_configuration(&failure), "{failure}");
    for wanted in ["ENVIRONMENT:azure", "http://127.0.0.1:", "status 400", "Identity not found"] {
        assert!(failure.detail.contains(wanted), "{failure}");
    }
}

/// "The callback itself MUST not perform any caching, and the driver MUST cache its tokens": the
/// one that is refused is replaced (OIDC-M3.1), and no other is asked for.
async fn a_token_of_a_cloud_is_asked_for_once_until_it_is_refused(runtime: Runtime) {
    for name in CLOUDS {
        let count = AtomicUsize::new(0);
        let http = Http::start(move |_| {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            token(name, &format!("token-{number}"))
        })
        .await;
        let (shown, closes) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicUsize::new(2)));
        let (noted, closing) = (Arc::clone(&shown), Arc::clone(&closes));
        let server = FakeServer::start(Arc::new(move |_, command: &RawDocument| {
            if first_key(command) != "saslStart" {
                let left = closing
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                return left.is_err().then(|| rawdoc! { "ok": 1 });
            }
            let token = RawDocument::from_bytes(payload(command)).unwrap();
            let token = token.get_str("jwt").unwrap().to_owned();
            let mut shown = noted.lock().unwrap();
            // The first is good for two connections.
            let is_good = token != "token-1" || shown.len() < 2;
            shown.push(token);
            Some(if is_good { sasl(true, b"") } else { error(18) })
        }))
        .await;
        let client = runtime.client(&server, cloud(name), metadata(&http));
        for _ in 0..2 {
            ping(&*client).await.unwrap_err();
        }
        assert_eq!(http.count(), 1);
        ping(&*client).await.unwrap();
        assert_eq!(http.count(), 2);
        let shown = shown.lock().unwrap();
        assert_eq!(
            (shown.first(), shown.last()),
            (Some(&"token-1".into()), Some(&"token-2".into()))
        );
    }
}

async fn metadata_that_misbehave_are_an_error_that_says_which_and_why(runtime: Runtime) {
    let cases: [(&[u8], &str); 5] = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nplanted two", "token"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nplanted", "before it is complete"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nplanted", "longer than"),
        (b"SSH-2.0-planted\r\n", "not an HTTP/1.1 response"),
        (b"HTTP/1.1 503 planted\r\n\r\n", "status 503, not 200, and says: nothing"),
    ];
    for name in CLOUDS {
        for (response, wanted) in cases {
            let server = server(&Arc::default()).await;
            let http = Http::start(|_| Reaction::Send(response.to_vec())).await;
            let failure = failed(&*runtime.client(&server, cloud(name), metadata(&http))).await;
            assert!(failure.detail.contains(wanted), "{failure}");
            assert!(failure.detail.contains(&format!("ENVIRONMENT:{name} from")), "{failure}");
            assert!(!failure.detail.contains("planted"), "{failure}");
            assert_eq!(server.count("saslStart"), 0);
        }
    }
}

/// "The timeout should equal the `callbackTimeoutMS` parameter given to the callback", which is
/// that of establishing the connection here.
async fn metadata_that_do_not_answer_are_given_up(runtime: Runtime) {
    let server = server(&Arc::default()).await;
    let http = Http::start(|_| Reaction::Hang).await;
    for name in CLOUDS {
        let hurried =
            |options: OptionsBuilder| cloud(name)(options).connect_timeout(Duration::from_secs(1));
        let failure = failed(&*runtime.client(&server, hurried, metadata(&http))).await;
        assert_eq!((failure.stage, failure.cause), (Stage::Credentials, Cause::Timeout));
    }
}

/// A server that describes an identity provider, and takes every token; it says so many times that
/// one has expired.
pub(crate) async fn provider(shown: &Arc<Mutex<Vec<String>>>, expires: usize) -> FakeServer {
    let (shown, expires) = (Arc::clone(shown), AtomicUsize::new(expires));
    FakeServer::start(Arc::new(move |_, command: &RawDocument| {
        if !["saslStart", "saslContinue"].contains(&&*first_key(command)) {
            let left = expires.load(Ordering::Relaxed);
            expires.store(left.saturating_sub(1), Ordering::Relaxed);
            return Some(if left > 0 {
                error(391)
            } else {
                rawdoc! { "ok": 1 }
            });
        }
        let message = RawDocument::from_bytes(payload(command)).unwrap();
        Some(match message.get_str("jwt") {
            Ok(token) => {
                shown.lock().unwrap().push(token.to_owned());
                sasl(true, b"")
            }
            Err(_) => sasl(false, rawdoc! { "issuer": "https://idp" }.as_bytes()),
        })
    }))
    .await
}

/// "OIDC Human Callback": "The timeout duration MUST be 5 minutes", whatever connectTimeoutMS is.
async fn a_person_may_take_longer_than_connecting(runtime: Runtime) {
    let shown = Arc::default();
    let server = provider(&shown, 0).await;
    let human = |options: OptionsBuilder| {
        let options = options.auth_mechanism(AuthMechanism::Oidc);
        let options = options.connect_timeout(Duration::from_secs(2));
        options.oidc_human_callback(AllowedHosts::default())
    };
    let slow = |question| {
        let CredentialRequest::Oidc(question) = question else { panic!("another question") };
        assert_eq!(question.idp_info, Some(IdpInfo::new("https://idp")));
        async {
            // Longer than connectTimeoutMS, which would be over.
            smol::Timer::after(Duration::from_millis(2500)).await;
            Ok::<_, Failure>(CredentialResponse::Oidc(OidcToken::new("token")))
        }
    };
    ping(&*runtime.client(&server, human, Asked::Provider(slow))).await.unwrap();
    assert_eq!(*shown.lock().unwrap(), ["token"]);
}
