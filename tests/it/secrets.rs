//! Secrets, which are found nowhere: not in logs, events, spans, metrics, views, errors or
//! recordings.

use std::fmt::{Debug, Display, Write};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam::core::bson::{RawDocumentBuf, rawdoc};
use sdam::core::config::Options;
use sdam::core::logging::LogSettings;
use sdam::core::metrics::Exposition;
use sdam::core::spans::{SpanEnd, SpanSettings, SpanStart};
use sdam::core::topology::Topics;
use sdam::host::{Recording, Span, Tracer};
use sdam::tokio::Client;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, User};

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

/// All that a client lets be seen.
#[derive(Default)]
struct Seen(String);

impl Seen {
    fn show(&mut self, value: &impl Debug) {
        writeln!(self.0, "{value:?}\n{value:#?}").unwrap();
    }

    fn error(&mut self, error: &(impl Debug + Display)) {
        writeln!(self.0, "{error}").unwrap();
        self.show(error);
    }

    /// Runs commands with a client, and looks at everything.
    async fn run(&mut self, uri: &str, commands: &[RawDocumentBuf], time: u64, folder: &Path) {
        let file = folder.join("log");
        let (settings, _) = LogSettings::from_variables(|name| match name {
            "MONGODB_LOG_ALL" => Some("trace".to_owned()),
            "MONGODB_LOG_PATH" => file.to_str().map(str::to_owned),
            _ => None,
        });
        let options = match Options::parse(uri) {
            Ok(options) => options,
            Err(error) => return self.error(&error),
        };
        writeln!(self.0, "{options}").unwrap();
        self.show(&options);
        let (mut recording, spans) = (Recording::everything(), Spans::default());
        let with_text = SpanSettings::enabled().with_query_text_max_length(100_000);
        let builder = Client::builder(options).log(settings).metrics().record(&recording);
        let builder = builder.tracer(spans.clone()).spans(with_text);
        let (client, mut events) = match builder.topics(Topics::ALL).build_with_events() {
            Ok(both) => both,
            Err(error) => return self.error(&error),
        };
        let hurried = client.within(Duration::from_secs(time));
        for command in commands {
            match hurried.run_command("admin", command).await {
                Ok(reply) => self.show(&reply),
                Err(error) => self.error(&error),
            }
        }
        self.show(&client);
        self.show(&client.view());
        write!(self.0, "{}", Exposition::new(&client.metrics())).unwrap();
        client.close().await;
        while let Some(event) = events.try_next() {
            self.show(&event);
        }
        while let Some(line) = recording.try_next() {
            self.0.push_str(&line);
        }
        self.0.push_str(&spans.0.lock().unwrap());
        self.0.push_str(&fs::read_to_string(file).unwrap_or_default());
    }
}

/// Command Logging and Monitoring, "Security"; Logging, "Security": what is sensitive is left out.
#[tokio::test]
async fn a_secret_is_found_in_nothing_that_a_client_shows() {
    let mut described = EmbeddedOptions::default();
    described.users = vec![User::new("ann", "planted-password")];
    let cluster = EmbeddedCluster::start(described).await.unwrap();
    let uri = cluster.uri();
    let with = |login: &str, options: &str| {
        let separator = if uri.contains('?') { '&' } else { '?' };
        format!("{}{separator}{options}", uri.replacen("://", &format!("://{login}@"), 1))
    };
    let sensitive = [
        rawdoc! { "ping": 1 },
        rawdoc! { "authenticate": 1, "key": "planted-key" },
        rawdoc! { "saslStart": 1, "mechanism": "PLAIN", "payload": "planted-payload" },
        rawdoc! { "saslContinue": 1, "conversationId": 1, "payload": "planted-payload" },
        rawdoc! { "getnonce": 1, "comment": "planted-comment" },
        rawdoc! { "createUser": "bob", "pwd": "planted-new", "roles": [] },
        rawdoc! { "updateUser": "ann", "pwd": "planted-newer" },
        rawdoc! { "copydbgetnonce": 1, "fromhost": "planted-host" },
        rawdoc! { "copydbsaslstart": 1, "payload": "planted-payload" },
        rawdoc! { "copydb": 1, "key": "planted-key" },
        rawdoc! { "hello": 1, "speculativeAuthenticate": { "saslStart": 1, "payload": "planted" } },
        rawdoc! { "isMaster": 1, "speculativeAuthenticate": { "payload": "planted-speculation" } },
    ];
    let ping = [rawdoc! { "ping": 1 }];
    let mut seen = Seen::default();
    let folder = tempfile::tempdir().unwrap();
    seen.run(&with("ann:planted-password", "maxPoolSize=5"), &sensitive, 90, folder.path()).await;
    for name in ["ping", "saslStart", "createUser", "copydb"] {
        assert!(seen.0.contains(&format!("\"{name}\"")), "{name}: {}", seen.0);
    }
    for (login, options) in [
        ("ann:planted-mistake", "w=majority"),
        ("ann:planted-plain", "authMechanism=PLAIN&authSource=$external"),
        (
            "AKIA:planted-aws",
            "authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:planted-token",
        ),
        (
            "ann:planted-password",
            "proxyHost=127.0.0.1&proxyPort=1&proxyUsername=eve&proxyPassword=planted-proxy",
        ),
        (
            "ann:planted-password",
            "tls=true&tlsCertificateKeyFile=/nowhere.pem&\
             tlsCertificateKeyFilePassword=planted-key-password",
        ),
        // Options that nobody understands are told, and by the name only.
        ("ann:planted-password", "authMechanismProperties=planted-property&w=majority"),
        ("ann:planted-password", "authMechanism=planted-mechanism"),
    ] {
        // Whatever fails only when time is over, fails soon.
        seen.run(&with(login, options), &ping, 1, folder.path()).await;
    }
    for shown in [
        "Command started",
        "Server selection failed",
        "Connection pool created",
        "ConnectionCheckedOut",
        "db_client_connection",
        "db.query.text",
        "ReplicaSetWithPrimary",
    ] {
        assert!(seen.0.contains(shown), "{shown} is not among what is looked at");
    }
    let found: Vec<_> = seen.0.lines().filter(|line| line.contains(MARK)).collect();
    assert!(found.is_empty(), "{found:#?}");
}
