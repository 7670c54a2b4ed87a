//! MONGODB-AWS from end to end: endpoints of HTTP that hand credentials out, and a server that
//! checks the signature by computing it a second time.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam::bson::DateTime;
use sdam::core::auth::{AwsCredentials, AwsEndpoints, CredentialRequest, CredentialResponse};
use sdam::core::config::{AuthMechanism, OptionsBuilder};
use sdam::core::failure::{Cause, Failure};
use sdam::core::http::Endpoint;
use sdam::host::CredentialSources;
use sdam_cluster::certificates::Authority;

use crate::http::{Http, Reaction, credentials, json, metadata, ok};
use crate::runtimes::{Asked, Client, Runtime, ping};
use crate::server::{self, ACCESS_KEY, AwsServer, SECRET_KEY, TOKEN};

crate::scenarios! {
    each_source_logs_in,
    keys_of_the_environment_need_no_token,
    a_custom_provider_hands_out_credentials_of_every_kind,
    eks_pod_identity_logs_in_and_its_token_is_read_each_time,
    a_container_shows_the_token_of_its_variable,
    a_container_is_asked_over_tls_wherever_its_uri_says_so,
    the_environment_and_a_custom_provider_come_first,
    credentials_are_asked_for_once_until_a_login_fails,
    a_login_whose_connection_breaks_forgets_them_too,
    credentials_that_expire_within_five_minutes_are_not_used_again,
    variables_are_read_each_time_and_never_remembered,
    answers_in_pieces_and_in_chunks_are_read,
    a_service_that_misbehaves_is_an_error_that_says_which_and_why,
    a_service_that_does_not_answer_is_given_up,
    what_is_wrong_with_the_environment_is_told_before_anything_is_sent,
    a_wrong_signature_is_refused_and_nothing_secret_is_told,
    the_token_service_must_prove_who_it_is_before_it_is_shown_the_token,
}

/// The environment of a test.
type Variables = Arc<Mutex<HashMap<String, String>>>;

/// Sources whose every service is at one endpoint, and the variables that they read.
fn sources(http: &Http, variables: &[(&str, &str)]) -> (CredentialSources, Variables) {
    let owned = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let variables: Variables = Arc::new(Mutex::new(owned.collect()));
    let read = Arc::clone(&variables);
    let sources =
        CredentialSources::default().variables(move |name| read.lock().unwrap().get(name).cloned());
    let endpoint = || http.endpoint.clone();
    let all = AwsEndpoints::new(endpoint(), endpoint(), endpoint());
    (sources.aws_endpoints(all), variables)
}

const ECS: [(&str, &str); 1] = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/role")];

fn key() -> [(&'static str, &'static str); 3] {
    [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("AWS_SESSION_TOKEN", TOKEN),
    ]
}

fn aws(options: OptionsBuilder) -> OptionsBuilder {
    options.auth_mechanism(AuthMechanism::Aws)
}

/// A client that takes its credentials from these sources.
fn client(runtime: Runtime, server: &AwsServer, sources: CredentialSources) -> Box<dyn Client> {
    runtime.client(&server.fake, aws, sources)
}

/// Has a client log in with what these sources hand out, which the server checks.
async fn logs_in(runtime: Runtime, sources: CredentialSources) {
    let server = AwsServer::start().await;
    ping(&*client(runtime, &server, sources)).await.unwrap();
    assert_eq!(server.fake.count("saslContinue"), 1);
}

async fn failed(runtime: Runtime, sources: CredentialSources) -> Failure {
    let server = AwsServer::start().await;
    crate::runtimes::failed(&*client(runtime, &server, sources)).await
}

async fn each_source_logs_in(runtime: Runtime) {
    // AWS-P2 to AWS-P5, and AWS-P6 with a token
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(b"planted.jwt\n").unwrap();
    let token_file = ("AWS_WEB_IDENTITY_TOKEN_FILE", token.path().to_str().unwrap());
    let role = ("AWS_ROLE_ARN", "arn:aws:iam::1:role/db");
    let web = |_: &str| ok(&format!(r#"{{"Credentials": {}}}"#, json("SessionToken", HOUR)));
    let name = ("AWS_ROLE_SESSION_NAME", "app1");
    let cases = [
        (key().to_vec(), Http::start(credentials).await, "", 0),
        (vec![], Http::start(metadata).await, "PUT /latest/api/token ", 3),
        (ECS.to_vec(), Http::start(credentials).await, "GET /v2/role ", 1),
        (vec![token_file, role], Http::start(web).await, "RoleSessionName=sdam%2D", 1),
        (vec![token_file, role, name], Http::start(web).await, "RoleSessionName=app1&", 1),
    ];
    for (variables, http, wanted, count) in cases {
        let server = AwsServer::start().await;
        ping(&*client(runtime, &server, sources(&http, &variables).0)).await.unwrap();
        assert_eq!(http.count(), count, "{wanted}");
        assert_eq!(server.fake.count("saslContinue"), 1);
        let first = http.requests.lock().unwrap().first().cloned().unwrap_or_default();
        assert!(first.contains(wanted), "{first}");
        assert_eq!(first.contains("WebIdentityToken=planted%2Ejwt"), wanted.starts_with("Role"));
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// AWS-P1: keys from the environment; AWS-P6: those of a Lambda without a session token.
async fn keys_of_the_environment_need_no_token(runtime: Runtime) {
    let lambda = [("AWS_EXECUTION_ENV", "AWS_Lambda_java8"), ("AWS_REGION", "us-east-2")];
    for more in [&[][..], &lambda] {
        let (http, server) =
            (Http::start(credentials).await, AwsServer::of_permanent_credentials().await);
        let variables = [&key()[..2], more].concat();
        ping(&*client(runtime, &server, sources(&http, &variables).0)).await.unwrap();
        assert_eq!((http.count(), server.fake.count("saslContinue")), (0, 1));
    }
}

/// AWS-P9: credentials of every kind through a custom provider, which is called.
async fn a_custom_provider_hands_out_credentials_of_every_kind(runtime: Runtime) {
    for token in [None, Some(TOKEN.to_owned())] {
        let server = match token {
            None => AwsServer::of_permanent_credentials().await,
            Some(_) => AwsServer::start().await,
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let custom = move |question| {
            assert_eq!(question, CredentialRequest::Aws);
            count.fetch_add(1, Ordering::Relaxed);
            let token = token.clone().map(Into::into);
            let credentials = AwsCredentials::new(ACCESS_KEY, SECRET_KEY).with_session_token(token);
            async {
                Ok::<_, Failure>(CredentialResponse::Aws { credentials, now: DateTime::now() })
            }
        };
        ping(&*runtime.client(&server.fake, aws, Asked::Provider(custom))).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(server.fake.count("saslContinue"), 1);
    }
}

async fn eks_pod_identity_logs_in_and_its_token_is_read_each_time(runtime: Runtime) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"planted-first\n").unwrap();
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let uri = format!("http://127.0.0.1:{}/v1/credentials", http.endpoint.port);
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*uri),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.path().to_str().unwrap()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "the file comes first"),
    ];
    // Another place, so that only the URI leads to the agent.
    let nobody = Http::start(|_| Reaction::Hang).await;
    let (sources, _) = sources(&nobody, &variables);
    let client = client(runtime, &server, sources);
    ping(&*client).await.unwrap();
    std::fs::write(file.path(), "planted-second").unwrap();
    server.close_next_ping();
    ping(&*client).await.unwrap_err();
    server.refuse_next();
    ping(&*client).await.unwrap_err();
    ping(&*client).await.unwrap();
    assert_eq!(nobody.count(), 0);
    let requests = http.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 2, "the first were remembered until a login failed");
    for (request, token) in requests.iter().zip(["planted-first", "planted-second"]) {
        assert!(request.starts_with("GET /v1/credentials HTTP/1.1\r\n"), "{request}");
        let host = format!("\r\nHost: 127.0.0.1:{}\r\n", http.endpoint.port);
        assert!(request.contains(&host), "{request}");
        assert!(request.contains(&format!("\r\nAuthorization: {token}\r\n")), "{request}");
    }
}

async fn a_container_shows_the_token_of_its_variable(runtime: Runtime) {
    let http = Http::start(credentials).await;
    let uri = format!("http://localhost:{}/role", http.endpoint.port);
    let full = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*uri);
    for place in [ECS[0], full] {
        let token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer planted");
        logs_in(runtime, sources(&http, &[place, token]).0).await;
        let last = http.requests.lock().unwrap().last().cloned().unwrap();
        assert!(last.contains("\r\nAuthorization: Bearer planted\r\n"), "{last}");
    }
}

async fn a_container_is_asked_over_tls_wherever_its_uri_says_so(runtime: Runtime) {
    let (ours, others) = (Authority::new("ours").unwrap(), Authority::new("others").unwrap());
    let Reaction::Send(response) = ok(&json("Token", HOUR)) else { panic!("a response") };
    for (trusted, heard) in [(&ours, true), (&others, false)] {
        let (port, service) = server::tls(&ours.issue("agent", &["127.0.0.1"]).unwrap(), &response);
        let plain = Http::start(credentials).await;
        let uri = format!("https://127.0.0.1:{port}/role");
        let full = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*uri);
        let token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "planted");
        let sources = sources(&plain, &[full, token]).0.aws_authorities(trusted.file());
        if heard {
            logs_in(runtime, sources).await;
        } else {
            let failure = failed(runtime, sources).await;
            assert!(failure.detail.contains("AWS_CONTAINER_CREDENTIALS_FULL_URI"), "{failure}");
            assert_eq!(failure.cause, Cause::UnknownIssuer);
        }
        let request = tokio::task::spawn_blocking(|| service.join().unwrap()).await.unwrap();
        assert_eq!(request.contains("Authorization: planted"), heard, "{request}");
    }
}

async fn the_environment_and_a_custom_provider_come_first(runtime: Runtime) {
    // AWS-P10, and "the order in which Drivers MUST search for credentials"
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let all = [&key()[..], &ECS].concat();
    ping(&*client(runtime, &server, sources(&http, &all).0)).await.unwrap();
    assert_eq!(http.count(), 0, "the variables come before ECS");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let custom = move |question| {
        assert_eq!(question, CredentialRequest::Aws);
        count.fetch_add(1, Ordering::Relaxed);
        let credentials =
            AwsCredentials::new(ACCESS_KEY, SECRET_KEY).with_session_token(Some(TOKEN.into()));
        async { Ok::<_, Failure>(CredentialResponse::Aws { credentials, now: DateTime::now() }) }
    };
    ping(&*runtime.client(&server.fake, aws, Asked::Provider(custom))).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

async fn credentials_are_asked_for_once_until_a_login_fails(runtime: Runtime) {
    // AWS-P7: "Credentials fetched by the driver using AWS endpoints MUST be cached"
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let client = client(runtime, &server, sources(&http, &ECS).0);
    for _ in 0..3 {
        ping(&*client).await.unwrap();
        server.close_next_ping();
        ping(&*client).await.unwrap_err();
    }
    assert_eq!(http.count(), 1, "three connections, one request");
    // "If AWS authentication fails for any reason, the cache MUST be cleared."
    server.refuse_next();
    ping(&*client).await.unwrap_err();
    assert_eq!(http.count(), 1);
    ping(&*client).await.unwrap();
    assert_eq!(http.count(), 2);
}

async fn a_login_whose_connection_breaks_forgets_them_too(runtime: Runtime) {
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let client = client(runtime, &server, sources(&http, &ECS).0);
    ping(&*client).await.unwrap();
    server.close_next_ping();
    ping(&*client).await.unwrap_err();
    server.close_next_login();
    ping(&*client).await.unwrap_err();
    assert_eq!(http.count(), 1);
    ping(&*client).await.unwrap();
    assert_eq!(http.count(), 2);
}

async fn credentials_that_expire_within_five_minutes_are_not_used_again(runtime: Runtime) {
    // AWS-P7, "Caching Credentials"
    let soon_over = |_: &str| ok(&json("Token", Duration::from_secs(240)));
    let (http, server) = (Http::start(soon_over).await, AwsServer::start().await);
    let client = client(runtime, &server, sources(&http, &ECS).0);
    ping(&*client).await.unwrap();
    server.close_next_ping();
    ping(&*client).await.unwrap_err();
    ping(&*client).await.unwrap();
    assert_eq!(http.count(), 2);
}

async fn variables_are_read_each_time_and_never_remembered(runtime: Runtime) {
    // AWS-P8
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let (from_variables, variables) = sources(&http, &key());
    let client = client(runtime, &server, from_variables);
    ping(&*client).await.unwrap();
    let invalid = ("AWS_SECRET_ACCESS_KEY".to_owned(), "wrong".to_owned());
    variables.lock().unwrap().extend([invalid.clone()]);
    server.close_next_ping();
    ping(&*client).await.unwrap_err();
    let error = ping(&*client).await.unwrap_err();
    assert!(error.contains("18"), "{error}");
    let ecs = ECS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    *variables.lock().unwrap() = ecs.into();
    ping(&*client).await.unwrap();
    // "Even if the environment variables are present in subsequent authorization attempts, the
    // driver MUST use the cached credentials"
    variables.lock().unwrap().extend([("AWS_ACCESS_KEY_ID".into(), "AKID".into()), invalid]);
    server.close_next_ping();
    ping(&*client).await.unwrap_err();
    ping(&*client).await.unwrap();
    assert_eq!(http.count(), 1);
}

async fn answers_in_pieces_and_in_chunks_are_read(runtime: Runtime) {
    let chunked = |_: &str| {
        let body = json("Token", HOUR);
        let (first, second) = body.split_at(50);
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len()).into_bytes();
        Reaction::Slowly(vec![head, chunk(first), chunk(second), b"0\r\n\r\n".to_vec()])
    };
    let until_close = |_: &str| {
        Reaction::Send(format!("HTTP/1.1 200 OK\r\n\r\n{}", json("Token", HOUR)).into_bytes())
    };
    for http in [Http::start(chunked).await, Http::start(until_close).await] {
        logs_in(runtime, sources(&http, &ECS).0).await;
    }
}

async fn a_service_that_misbehaves_is_an_error_that_says_which_and_why(runtime: Runtime) {
    let cases: [(&[u8], &str); 7] = [
        (b"HTTP/1.1 403 planted\r\n\r\n", "status 403"),
        (b"HTTP/1.1 500 planted\r\nContent-Length: 7\r\n\r\nplanted", "status 500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nplanted", "JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nplanted", "before it is complete"),
        (b"HTTP/1.1 200", "before it is complete"),
        (b"SSH-2.0-planted\r\n", "not an HTTP/1.1 response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "longer than"),
    ];
    for (response, wanted) in cases {
        let http = Http::start(|_| Reaction::Send(response.to_vec())).await;
        let failure = failed(runtime, sources(&http, &ECS).0).await;
        assert!(failure.detail.contains(wanted), "{failure}");
        assert!(failure.detail.contains("Elastic Container Service"), "{failure}");
    }
    let endless = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[b'x'; 300_000]].concat();
    let http = Http::start(move |_| Reaction::Send(endless.clone())).await;
    assert!(failed(runtime, sources(&http, &ECS).0).await.detail.contains("longer than"));
}

async fn a_service_that_does_not_answer_is_given_up(runtime: Runtime) {
    let http = Http::start(|_| Reaction::Hang).await;
    let sources = sources(&http, &[]).0.aws_timeout(Duration::from_millis(50));
    let failure = failed(runtime, sources).await;
    assert_eq!(failure.cause, Cause::Timeout);
    assert!(failure.detail.contains("EC2") && failure.detail.contains("50ms"), "{failure}");
}

async fn what_is_wrong_with_the_environment_is_told_before_anything_is_sent(runtime: Runtime) {
    let http = Http::start(credentials).await;
    let token_file = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such/file");
    let full = |uri: &'static str| ("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri);
    let agents_file = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/no/such/file");
    let cases = [
        (vec![full("http://agent.example/")], "AWS_CONTAINER_CREDENTIALS_FULL_URI must begin with"),
        (vec![full("http://127.0.0.1:1/"), agents_file], "AUTHORIZATION_TOKEN_FILE: cannot read"),
        (vec![("AWS_ACCESS_KEY_ID", ACCESS_KEY)], "AWS_SECRET_ACCESS_KEY"),
        (vec![(ECS[0].0, "no slash")], "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
        (vec![token_file, ("AWS_ROLE_ARN", "arn:role")], "/no/such/file"),
    ];
    for (variables, wanted) in cases {
        let failure = failed(runtime, sources(&http, &variables).0).await;
        assert_eq!(failure.cause, Cause::Configuration);
        assert!(failure.detail.contains(wanted), "{failure}");
    }
    assert_eq!(http.count(), 0);
}

async fn a_wrong_signature_is_refused_and_nothing_secret_is_told(runtime: Runtime) {
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let mut wrong = key();
    wrong[1].1 = "planted-wrong";
    let error = ping(&*client(runtime, &server, sources(&http, &wrong).0)).await.unwrap_err();
    assert!(error.contains("18") && !error.contains("planted"), "{error}");
}

async fn the_token_service_must_prove_who_it_is_before_it_is_shown_the_token(runtime: Runtime) {
    let (ours, others) = (Authority::new("ours").unwrap(), Authority::new("others").unwrap());
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(b"planted-jwt").unwrap();
    let web = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.path().to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:role"),
    ];
    let body = format!(r#"{{"Credentials": {}}}"#, json("SessionToken", HOUR));
    let Reaction::Send(response) = ok(&body) else { panic!("a response") };
    for (trusted, heard) in [(&ours, true), (&others, false)] {
        let (port, service) = server::tls(&ours.issue("sts", &["127.0.0.1"]).unwrap(), &response);
        let plain = Http::start(credentials).await;
        let sts = Endpoint::new("127.0.0.1", port, true);
        let others = plain.endpoint.clone();
        let sources = sources(&plain, &web)
            .0
            .aws_authorities(trusted.file())
            .aws_endpoints(AwsEndpoints::new(sts, others.clone(), others));
        if heard {
            logs_in(runtime, sources).await;
        } else {
            let failure = failed(runtime, sources).await;
            assert!(failure.detail.contains("Security Token Service"), "{failure}");
            assert_eq!(failure.cause, Cause::UnknownIssuer);
        }
        let request = tokio::task::spawn_blocking(|| service.join().unwrap()).await.unwrap();
        assert_eq!(request.contains("WebIdentityToken=planted%2Djwt"), heard, "{request}");
    }
}
