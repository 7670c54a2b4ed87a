//! Secrets, which are found nowhere: not in logs, events, spans, metrics, views, errors or
//! recordings.

use std::convert::Infallible;
use std::fmt::{Debug, Display, Write};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam::core::auth::{
    AwsCredentials, AwsEndpoints, CredentialRequest, CredentialResponse, OidcToken,
};
use sdam::core::bson::{DateTime, RawDocumentBuf, rawdoc};
use sdam::core::config::{AllowedHosts, Options};
use sdam::core::logging::LogSettings;
use sdam::core::metrics::Exposition;
use sdam::core::spans::{SpanEnd, SpanSettings, SpanStart};
use sdam::core::topology::Topics;
use sdam::host::{CredentialSources, Recording, Span, Tracer};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, User};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::fake_server::FakeServer;
use crate::gssapi::{self, Planted};
use crate::http::{Http, credentials};
use crate::runtimes::Runtime;
use crate::server::AwsServer;
use crate::tokens;

crate::scenarios! {
    a_secret_is_found_in_nothing_that_a_client_shows,
}

/// The part that every secret here has.
const MARK: &str = "planted";

/// The beginnings and ends of spans.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<String>>);

impl Spans {
    fn keep(&self, told: &impl Debug) {
        writeln!(self.0.lock().unwrap(), "{told:?}").unwrap();
    }
}

impl Tracer for Spans {
    fn begin(&self, start: SpanStart) -> Arc<dyn Span> {
        self.keep(&start);
        Arc::new(self.clone())
    }
}

impl Span for Spans {
    fn begin(&self, start: SpanStart) -> Arc<dyn Span> {
        Tracer::begin(self, start)
    }

    fn end(&self, end: SpanEnd) {
        self.keep(&end);
    }
}

/// The lines of the log that the application collects, with their fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("mongodb::") || metadata.target().starts_with("sdam")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        writeln!(self.0.lock().unwrap(), "collected {event:?}").unwrap();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The parts of a client, and its commands.
#[derive(Clone)]
struct Case {
    uri: String,
    commands: Vec<RawDocumentBuf>,
    /// The number of seconds in which all that takes place.
    time: u64,
    /// The sources of tokens and credentials; without them a provider answers.
    sources: Option<CredentialSources>,
    /// True if every command has to succeed.
    succeeds: bool,
    /// True if a person obtains the token.
    is_human: bool,
}

impl Case {
    /// A client whose logins may fail.
    const fn new(uri: String, commands: Vec<RawDocumentBuf>, time: u64) -> Self {
        Self { uri, commands, time, sources: None, succeeds: false, is_human: false }
    }

    /// A login that succeeds, with a mechanism, its properties, and the sources of its secrets.
    fn login(server: &FakeServer, options: &str, sources: Option<CredentialSources>) -> Self {
        let uri = format!("mongodb://{}/?authMechanism={options}", server.address);
        let case = Self::new(uri, vec![rawdoc! { "ping": 1 }], 90);
        Self { sources, succeeds: true, ..case }
    }
}

/// Answers with secrets.
async fn answer(question: CredentialRequest) -> Result<CredentialResponse, Infallible> {
    Ok(match question {
        CredentialRequest::Oidc(question) => {
            let token = OidcToken::new("planted-oidc");
            let refresh = question.idp_info.map(|_| "planted-refresh".into());
            CredentialResponse::Oidc(token.with_refresh_token(refresh))
        }
        _ => {
            let credentials = AwsCredentials::new("AKIA", "planted-secret");
            let credentials = credentials.with_session_token(Some("planted-session".into()));
            CredentialResponse::Aws { credentials, now: DateTime::from_millis(0) }
        }
    })
}

/// All that a client lets be seen.
#[derive(Default)]
struct Seen(String);

/// Runs a case with a client of a runtime: what its `close` takes, and how its futures are waited
/// for, if it has any.
macro_rules! run {
    (
        $seen:ident, $case:ident, $folder:ident,
        $client:ty, $single:expr, ($($time:expr)?), [$($wait:tt)*]
    ) => {{
        let file = $folder.join("log");
        let (settings, _) = LogSettings::from_variables(|name| match name {
            "MONGODB_LOG_ALL" => Some("trace".to_owned()),
            "MONGODB_LOG_MAX_DOCUMENT_LENGTH" => Some("100000".to_owned()),
            "MONGODB_LOG_PATH" => file.to_str().map(str::to_owned),
            _ => None,
        });
        let has_callback = $case.uri.contains("MONGODB-OIDC") && $case.sources.is_none();
        let options = Options::builder().uri(&$case.uri);
        let options = options.and_then(|options| {
            let options = match $case.is_human {
                true => options.oidc_human_callback(AllowedHosts::default()),
                false => options.oidc_callback(has_callback),
            };
            options.single_threaded($single).build()
        });
        let options = match options {
            Ok(options) => options,
            Err(error) => return $seen.error(&error),
        };
        writeln!($seen.0, "{options}").unwrap();
        $seen.show(&options);
        let (mut recording, spans) = (Recording::everything(), Spans::default());
        let with_text = SpanSettings::enabled().with_query_text_max_length(100_000);
        let builder = <$client>::builder(options).log(settings).metrics().record(&recording);
        let builder = builder.tracer(spans.clone()).spans(with_text);
        let builder = builder.gssapi_provider(Planted::default());
        let builder = match $case.sources.clone() {
            Some(sources) => builder.credential_sources(sources),
            None => builder.credential_provider(answer),
        };
        let (client, mut events) = match builder.topics(Topics::ALL).build_with_events() {
            Ok(both) => both,
            Err(error) => return $seen.error(&error),
        };
        let hurried = client.with_timeout(Duration::from_secs($case.time));
        for command in &$case.commands {
            match hurried.run_command("admin", command)$($wait)* {
                Ok(reply) => $seen.show(&reply),
                Err(error) if $case.succeeds => panic!("{}: {error}", $case.uri),
                Err(error) => $seen.error(&error),
            }
        }
        $seen.show(&client);
        $seen.show(&client.view());
        write!($seen.0, "{}", Exposition::new(&client.metrics())).unwrap();
        client.close($($time)?)$($wait)*;
        while let Some(event) = events.try_next() {
            $seen.show(&event);
            writeln!($seen.0, "{}", serde_json::to_string(&event).unwrap()).unwrap();
        }
        while let Some(line) = recording.try_next() {
            $seen.0.push_str(&line);
        }
        $seen.0.push_str(&spans.0.lock().unwrap());
        $seen.0.push_str(&fs::read_to_string(file).unwrap_or_default());
    }};
}

impl Seen {
    fn show(&mut self, value: &impl Debug) {
        writeln!(self.0, "{value:?}\n{value:#?}").unwrap();
    }

    fn error(&mut self, error: &(impl Debug + Display)) {
        writeln!(self.0, "{error}").unwrap();
        self.show(error);
    }

    /// Looks at everything that comes of a case under a runtime.
    fn run(&mut self, runtime: Runtime, case: &Case, folder: &Path) {
        let lines = Lines::default();
        let collecting = tracing::subscriber::set_default(lines.clone());
        self.run_by(runtime, case, folder);
        drop(collecting);
        self.0.push_str(&lines.0.lock().unwrap());
    }

    fn run_by(&mut self, runtime: Runtime, case: &Case, folder: &Path) {
        let time = Duration::from_secs(9);
        match runtime {
            Runtime::Tokio => tokio::runtime::Handle::current().block_on(async {
                run!(self, case, folder, sdam::tokio::Topology, false, (), [.await]);
            }),
            Runtime::Smol => smol::block_on(async {
                run!(self, case, folder, sdam::smol::Topology, false, (), [.await]);
            }),
            Runtime::AsyncStd => async_std::task::block_on(async {
                run!(self, case, folder, sdam::async_std::Topology, false, (), [.await]);
            }),
            Runtime::Blocking => {
                run!(self, case, folder, sdam::blocking::Topology, false, (time), []);
            }
            Runtime::SingleThreaded => {
                run!(self, case, folder, sdam::blocking::Topology, true, (time), []);
            }
        }
    }
}

/// A proxy that wants a password, and refuses whichever it is given.
async fn refusing_proxy() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut offer = [0; 64];
                let _ = stream.read(&mut offer).await;
                let _ = stream.write_all(&[5, 2]).await;
                let _ = stream.read(&mut offer).await;
                let _ = stream.write_all(&[1, 1]).await;
            });
        }
    });
    port
}

/// The commands that are sensitive, with secrets in them.
fn sensitive() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "ping": 1 },
        rawdoc! { "authenticate": 1, "key": "planted-key" },
        rawdoc! { "saslStart": 1, "mechanism": "PLAIN", "payload": "planted-payload" },
        rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": "planted-payload" },
        rawdoc! { "getnonce": 1, "comment": "planted-comment" },
        rawdoc! { "createUser": "bob", "pwd": "planted-new", "roles": [] },
        rawdoc! { "updateUser": "eve", "pwd": "planted-newer" },
        rawdoc! { "copydbgetnonce": 1, "fromhost": "planted-host" },
        rawdoc! { "copydbsaslstart": 1, "payload": "planted-payload" },
        rawdoc! { "copydb": 1, "key": "planted-key" },
        rawdoc! { "hello": 1, "speculativeAuthenticate": { "saslStart": 1, "payload": "planted" } },
        rawdoc! { "isMaster": 1, "speculativeAuthenticate": { "payload": "planted-speculation" } },
    ]
}

/// Returns cases with a secret in every place that may have one.
fn cases(uri: &str, proxy: u16, key_file: &str) -> Vec<Case> {
    let with = |login: &str, options: &str| {
        let separator = if uri.contains('?') { '&' } else { '?' };
        format!("{}{separator}{options}", uri.replacen("://", &format!("://{login}"), 1))
    };
    let proxied = format!("proxyHost=127.0.0.1&proxyPort={proxy}&proxyUsername=eve");
    let proxied = format!("{proxied}&proxyPassword=planted-proxy");
    let files = format!("tls=true&tlsCertificateKeyFile={key_file}");
    let unread = "tls=true&tlsCertificateKeyFile=/nowhere.pem";
    let key_password = "&tlsCertificateKeyFilePassword=planted-key-password";
    let token = "authMechanismProperties=AWS_SESSION_TOKEN:planted-token";
    let failing = [
        ("ann:planted-mistake@", "w=majority".to_owned()),
        ("ann:planted-plain@", "authMechanism=PLAIN&authSource=$external".to_owned()),
        ("ann:planted-sha@", "authMechanism=SCRAM-SHA-1".to_owned()),
        ("AKIA:planted-aws@", format!("authMechanism=MONGODB-AWS&{token}")),
        ("", "authMechanism=MONGODB-AWS".to_owned()),
        ("", "authMechanism=MONGODB-OIDC".to_owned()),
        ("ann:planted-password@", proxied),
        ("ann:planted-password@", format!("{files}{key_password}")),
        ("ann:planted-password@", format!("{unread}{key_password}")),
        // Errors name the options that are not understood, and no values.
        ("ann:planted-password@", "authMechanismProperties=planted-property&w=1".to_owned()),
        ("ann:planted-password@", "authMechanism=planted-mechanism".to_owned()),
    ];
    let (logged_in, ping) = (with("ann:planted-password@", "maxPoolSize=5"), rawdoc! { "ping": 1 });
    let succeeding = Case::new(logged_in, sensitive(), 90);
    // Whatever fails only when time is over, fails soon.
    let failing = failing
        .iter()
        .map(|(login, options)| Case::new(with(login, options), vec![ping.clone()], 1));
    [succeeding].into_iter().chain(failing).collect()
}

/// Command Logging and Monitoring, "Security"; Logging, "Security"; OpenTelemetry, "Security
/// Implication": what is sensitive is left out.
async fn a_secret_is_found_in_nothing_that_a_client_shows(runtime: Runtime) {
    let mut described = EmbeddedOptions::default();
    described.users = vec![User::new("ann", "planted-password")];
    let cluster = EmbeddedCluster::start(described).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key.pem");
    let kind = "ENCRYPTED PRIVATE KEY";
    fs::write(&key_file, format!("-----BEGIN {kind}-----\nplanted+key\n-----END {kind}-----\n"))
        .unwrap();
    let mut cases = cases(&cluster.uri(), refusing_proxy().await, key_file.to_str().unwrap());

    // Secrets that services hand out, over HTTP, and that a server takes.
    let (agent, aws) = (Http::start(credentials).await, AwsServer::start().await);
    let endpoint = || agent.endpoint.clone();
    let of_agent = CredentialSources::default()
        .variables(|name| (name == "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").then(|| "/".into()))
        .aws_endpoints(AwsEndpoints::new(endpoint(), endpoint(), endpoint()));
    cases.push(Case::login(&aws.fake, "MONGODB-AWS", Some(of_agent)));
    let shown = Arc::default();
    let takes_tokens = tokens::server(&shown).await;
    let clouds =
        tokens::CLOUDS.map(|name| Http::start(move |_| tokens::token(name, "planted.jwt")));
    for (name, http) in tokens::CLOUDS.into_iter().zip(clouds) {
        let properties = format!("ENVIRONMENT:{name},TOKEN_RESOURCE:api");
        let options = format!("MONGODB-OIDC&authMechanismProperties={properties}");
        cases.push(Case::login(&takes_tokens, &options, Some(tokens::metadata(&http.await))));
    }
    cases.push(Case::login(&takes_tokens, "MONGODB-OIDC", None));
    let kerberos = gssapi::server().await;
    for (user, succeeds) in [("ann", true), ("bob", false)] {
        let case = Case::login(&kerberos, "GSSAPI", None);
        let login = format!("://{user}%40HERE:planted-password@");
        let uri = case.uri.replacen("://", &login, 1);
        cases.push(Case { uri, succeeds, ..case });
    }
    // The second token comes by the refresh token of the first.
    let shown_by_person = Arc::default();
    let of_person = tokens::provider(&shown_by_person, 1).await;
    cases.push(Case { is_human: true, ..Case::login(&of_person, "MONGODB-OIDC", None) });

    let seen = spawn_blocking(move || {
        let mut seen = Seen::default();
        cases.iter().for_each(|case| seen.run(runtime, case, folder.path()));
        seen
    });
    shows_all_but_secrets(runtime, &seen.await.unwrap().0);
    assert_eq!((agent.count(), aws.fake.count("saslContinue")), (1, 1));
    assert_eq!(*shown.lock().unwrap(), ["planted.jwt", "planted.jwt", "planted-oidc"]);
    assert_eq!(*shown_by_person.lock().unwrap(), ["planted-oidc"; 2]);
    assert_eq!(of_person.count("saslContinue"), 1);
    assert_eq!(kerberos.count("saslContinue"), 2);
}

/// Looks for secrets, and for what proves that each kind of text is looked at.
fn shows_all_but_secrets(runtime: Runtime, seen: &str) {
    for shown in [
        "\"ping\"",
        "\"saslStart\"",
        "\"createUser\"",
        "\"copydb\"",
        "\"message\":\"Command started\"",
        "collected Event",
        "Server selection failed",
        "Connection pool created",
        "ConnectionCheckedOut",
        "\"event\":\"serverHeartbeatSucceeded\"",
        "db_client_connection",
        "db.query.text",
        "ReplicaSetWithPrimary",
    ] {
        assert!(seen.contains(shown), "{runtime:?}: {shown} is not among what is looked at");
    }
    let found: Vec<_> = seen.lines().filter(|line| line.contains(MARK)).collect();
    assert!(found.is_empty(), "{runtime:?}: {found:#?}");
}
