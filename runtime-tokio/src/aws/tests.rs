//! MONGODB-AWS from end to end: endpoints of HTTP that hand credentials out, and a server that
//! checks the signature by computing it a second time.

#[path = "../../tests/support/fake_server.rs"]
mod fake_server;
mod server;

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam_conformance::certificates::Authority;
use sdam_core::auth::{Answer, AwsEndpoints, Endpoint, Question};
use sdam_core::bson::{DateTime, rawdoc};
use sdam_core::failure::{Cause, Failure};
use sdam_core::options::Options;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::AwsSources;
use crate::client::Client;
use crate::provider::BuiltIn;
use fake_server::soon;
use server::{ACCESS_KEY, AwsServer, SECRET_KEY, TOKEN};

/// The environment of a test.
type Variables = Arc<Mutex<HashMap<String, String>>>;

/// An endpoint on loopback, and the requests it has received.
struct Http {
    endpoint: Endpoint,
    requests: Arc<Mutex<Vec<String>>>,
}

/// What an endpoint does with the connection when it has read a request.
enum Reaction {
    /// Sends this, and closes.
    Send(Vec<u8>),
    /// Sends these one after another, with pauses.
    Slowly(Vec<Vec<u8>>),
    /// Keeps it open, and says nothing.
    Hang,
}

impl Http {
    async fn start(react: impl Fn(&str) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (known, react) = (Arc::clone(&requests), Arc::new(react));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (known, react) = (Arc::clone(&known), Arc::clone(&react));
                tokio::spawn(async move {
                    let request = read_request(&mut stream).await;
                    let reaction = react(&request);
                    known.lock().unwrap().push(request);
                    match reaction {
                        // Whoever does not want to hear it all has gone.
                        Reaction::Send(bytes) => drop(stream.write_all(&bytes).await),
                        Reaction::Slowly(parts) => {
                            for part in parts {
                                tokio::time::sleep(Duration::from_millis(5)).await;
                                drop(stream.write_all(&part).await);
                            }
                        }
                        Reaction::Hang => drop(stream.read(&mut [0]).await),
                    }
                });
            }
        });
        Self { endpoint: Endpoint { host: "127.0.0.1".into(), port, tls: false }, requests }
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

/// Reads a request to the end of its body.
async fn read_request(stream: &mut tokio::net::TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 1024]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                break;
            }
        }
    }
    text
}

fn json(token: &str, valid_for: Duration) -> String {
    let expires = DateTime::from_system_time(DateTime::now().to_system_time() + valid_for);
    let expires = expires.try_to_rfc3339_string().unwrap();
    format!(
        r#"{{"AccessKeyId": "{ACCESS_KEY}", "SecretAccessKey": "{SECRET_KEY}",
            "{token}": "{TOKEN}", "Expiration": "{expires}"}}"#
    )
}

fn ok(body: &str) -> Reaction {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    Reaction::Send((head + body).into_bytes())
}

/// Answers as ECS does, with credentials that are valid for an hour.
fn credentials(_: &str) -> Reaction {
    ok(&json("Token", Duration::from_secs(3600)))
}

/// Answers as the metadata of EC2 do.
fn metadata(request: &str) -> Reaction {
    let path = "/latest/meta-data/iam/security-credentials/";
    let has_token = request.contains("\r\nX-aws-ec2-metadata-token: session\r\n");
    match request.split(' ').collect::<Vec<_>>()[..2] {
        ["PUT", "/latest/api/token"] => ok("session"),
        ["GET", asked] if asked == path && has_token => ok("role"),
        ["GET", asked] if asked == format!("{path}role") && has_token => credentials(request),
        _ => Reaction::Send(b"HTTP/1.1 401 Unauthorized\r\n\r\n".to_vec()),
    }
}

/// Sources whose every service is at one endpoint, and the variables that they read.
fn sources(http: &Http, variables: &[(&str, &str)]) -> (AwsSources, Variables) {
    let owned = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let variables: Variables = Arc::new(Mutex::new(owned.collect()));
    let read = Arc::clone(&variables);
    let mut sources =
        AwsSources::new(Arc::new(move |name| read.lock().unwrap().get(name).cloned()));
    let endpoint = || http.endpoint.clone();
    sources.endpoints = AwsEndpoints { sts: endpoint(), ecs: endpoint(), ec2: endpoint() };
    (sources, variables)
}

const ECS: [(&str, &str); 1] = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/role")];

fn key() -> [(&'static str, &'static str); 3] {
    [
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ("AWS_SESSION_TOKEN", TOKEN),
    ]
}

fn options(server: &AwsServer) -> Options {
    let uri = format!("mongodb://{}/?authMechanism=MONGODB-AWS", server.fake.address);
    Options::parse(&uri).unwrap()
}

/// A client that takes its credentials from these sources.
fn client(server: &AwsServer, sources: AwsSources) -> Client {
    let options = options(server);
    let mut provider = BuiltIn::new(&options);
    provider.aws = Arc::new(sources);
    Client::builder(options).credential_provider(provider).build().unwrap()
}

async fn ping(client: &Client) -> Result<(), String> {
    let reply = soon(client.run_command("admin", &rawdoc! { "ping": 1 })).await;
    reply.map(drop).map_err(|error| error.to_string())
}

async fn failed(sources: &AwsSources) -> Failure {
    let failure = soon(sources.credentials()).await.unwrap_err();
    assert!(!format!("{failure} {failure:?}").contains("planted"), "{failure}");
    failure
}

#[tokio::test]
async fn each_source_logs_in() {
    // AWS-P1 to AWS-P6
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
        ping(&client(&server, sources(&http, &variables).0)).await.unwrap();
        assert_eq!(http.count(), count, "{wanted}");
        assert_eq!(server.fake.count("saslContinue"), 1);
        let first = http.requests.lock().unwrap().first().cloned().unwrap_or_default();
        assert!(first.contains(wanted), "{first}");
        assert_eq!(first.contains("WebIdentityToken=planted%2Ejwt"), wanted.starts_with("Role"));
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn the_environment_and_a_custom_provider_come_first() {
    // AWS-P10, and "the order in which Drivers MUST search for credentials"
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let all = [&key()[..], &ECS].concat();
    ping(&client(&server, sources(&http, &all).0)).await.unwrap();
    assert_eq!(http.count(), 0, "the variables come before ECS");
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let (custom, _) = sources(&http, &ECS);
    let custom = Arc::new(custom);
    let client = Client::builder(options(&server)).credential_provider(move |question| {
        assert_eq!(question, Question::Aws);
        *count.lock().unwrap() += 1;
        let custom = Arc::clone(&custom);
        async move {
            let credentials = custom.credentials().await?;
            Ok::<_, Failure>(Answer::Aws { credentials, now: DateTime::now() })
        }
    });
    ping(&client.build().unwrap()).await.unwrap();
    assert_eq!(*asked.lock().unwrap(), 1);
}

#[tokio::test]
async fn credentials_are_asked_for_once_until_a_login_fails() {
    // AWS-P7: "Credentials fetched by the driver using AWS endpoints MUST be cached"
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let client = client(&server, sources(&http, &ECS).0);
    for _ in 0..3 {
        ping(&client).await.unwrap();
        server.close_next_ping();
        ping(&client).await.unwrap_err();
    }
    assert_eq!(http.count(), 1, "three connections, one request");
    // "If AWS authentication fails for any reason, the cache MUST be cleared."
    server.refuse_next();
    ping(&client).await.unwrap_err();
    assert_eq!(http.count(), 1);
    ping(&client).await.unwrap();
    assert_eq!(http.count(), 2);
}

#[tokio::test]
async fn a_login_whose_connection_breaks_forgets_them_too() {
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let client = client(&server, sources(&http, &ECS).0);
    ping(&client).await.unwrap();
    server.close_next_ping();
    ping(&client).await.unwrap_err();
    server.close_next_login();
    ping(&client).await.unwrap_err();
    assert_eq!(http.count(), 1);
    ping(&client).await.unwrap();
    assert_eq!(http.count(), 2);
}

#[tokio::test]
async fn credentials_that_expire_within_five_minutes_are_not_used_again() {
    // AWS-P7, "Caching Credentials"
    let soon_over = |_: &str| ok(&json("Token", Duration::from_secs(240)));
    let (http, server) = (Http::start(soon_over).await, AwsServer::start().await);
    let client = client(&server, sources(&http, &ECS).0);
    ping(&client).await.unwrap();
    server.close_next_ping();
    ping(&client).await.unwrap_err();
    ping(&client).await.unwrap();
    assert_eq!(http.count(), 2);
}

#[tokio::test]
async fn variables_are_read_each_time_and_never_remembered() {
    // AWS-P8
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let (from_variables, variables) = sources(&http, &key());
    let client = client(&server, from_variables);
    ping(&client).await.unwrap();
    let invalid = ("AWS_SECRET_ACCESS_KEY".to_owned(), "wrong".to_owned());
    variables.lock().unwrap().extend([invalid.clone()]);
    server.close_next_ping();
    ping(&client).await.unwrap_err();
    let error = ping(&client).await.unwrap_err();
    assert!(error.contains("18"), "{error}");
    let ecs = ECS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    *variables.lock().unwrap() = ecs.into();
    ping(&client).await.unwrap();
    // "Even if the environment variables are present in subsequent authorization attempts, the
    // driver MUST use the cached credentials"
    variables.lock().unwrap().extend([("AWS_ACCESS_KEY_ID".into(), "AKID".into()), invalid]);
    server.close_next_ping();
    ping(&client).await.unwrap_err();
    ping(&client).await.unwrap();
    assert_eq!(http.count(), 1);
}

#[tokio::test]
async fn answers_in_pieces_and_in_chunks_are_read() {
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
        let found = soon(sources(&http, &ECS).0.credentials()).await.unwrap();
        assert_eq!(found.secret_access_key.expose(), SECRET_KEY);
    }
}

#[tokio::test]
async fn a_service_that_misbehaves_is_an_error_that_says_which_and_why() {
    let cases: [(&[u8], &str); 7] = [
        (b"HTTP/1.1 403 planted\r\n\r\n", "status 403"),
        (b"HTTP/1.1 500 planted\r\nContent-Length: 7\r\n\r\nplanted", "status 500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nplanted", "JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nplanted", "before it is complete"),
        (b"HTTP/1.1 200", "before it is complete"),
        (b"SSH-2.0-planted\r\n", "no response of HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", "longer than"),
    ];
    for (response, wanted) in cases {
        let http = Http::start(|_| Reaction::Send(response.to_vec())).await;
        let failure = failed(&sources(&http, &ECS).0).await;
        assert!(failure.detail.contains(wanted), "{failure}");
        assert!(failure.detail.contains("Elastic Container Service"), "{failure}");
    }
    let endless = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[b'x'; 300_000]].concat();
    let http = Http::start(move |_| Reaction::Send(endless.clone())).await;
    assert!(failed(&sources(&http, &ECS).0).await.detail.contains("longer than"));
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_given_up() {
    let http = Http::start(|_| Reaction::Hang).await;
    let (mut sources, _) = sources(&http, &[]);
    sources.exchange_time = Duration::from_millis(50);
    let failure = failed(&sources).await;
    assert_eq!(failure.cause, Cause::Timeout);
    assert!(failure.detail.contains("EC2") && failure.detail.contains("50ms"), "{failure}");
}

#[tokio::test]
async fn what_is_wrong_with_the_environment_is_told_before_anything_is_sent() {
    let http = Http::start(credentials).await;
    let token_file = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such/file");
    let cases = [
        (vec![("AWS_ACCESS_KEY_ID", ACCESS_KEY)], "AWS_SECRET_ACCESS_KEY"),
        (vec![(ECS[0].0, "no slash")], "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
        (vec![token_file, ("AWS_ROLE_ARN", "arn:role")], "/no/such/file"),
    ];
    for (variables, wanted) in cases {
        let failure = failed(&sources(&http, &variables).0).await;
        assert_eq!(failure.cause, Cause::Configuration);
        assert!(failure.detail.contains(wanted), "{failure}");
    }
    assert_eq!(http.count(), 0);
}

#[tokio::test]
async fn a_wrong_signature_is_refused_and_nothing_secret_is_told() {
    let (http, server) = (Http::start(credentials).await, AwsServer::start().await);
    let mut wrong = key();
    wrong[1].1 = "planted-wrong";
    let error = ping(&client(&server, sources(&http, &wrong).0)).await.unwrap_err();
    assert!(error.contains("18") && !error.contains("planted"), "{error}");
}

#[tokio::test]
async fn the_token_service_must_prove_who_it_is_before_it_is_shown_the_token() {
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
        let (mut sources, _) = sources(&plain, &web);
        sources.authorities = server::trusting(trusted.file());
        sources.endpoints.sts = Endpoint { host: "127.0.0.1".into(), port, tls: true };
        if heard {
            let found = soon(sources.credentials()).await.unwrap();
            assert_eq!(found.session_token.unwrap().expose(), TOKEN);
        } else {
            let failure = failed(&sources).await;
            assert!(failure.detail.contains("Security Token Service"), "{failure}");
            assert_eq!(failure.cause, Cause::UnknownIssuer);
        }
        let request = tokio::task::spawn_blocking(|| service.join().unwrap()).await.unwrap();
        assert_eq!(request.contains("WebIdentityToken=planted%2Djwt"), heard, "{request}");
    }
}
