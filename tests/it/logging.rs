//! The log by the Logging specification: in the file that the environment names under each runtime,
//! and its documents, which are cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sdam::core::bson::{Document, RawArrayBuf, RawDocumentBuf, cstr, rawdoc};
use sdam::core::config::Options;
use sdam::core::logging::LogSettings;
use sdam::tokio::Topology;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::support::example_path;

/// The components that every command goes through, and the first and last message of each in
/// `version_*`, which asks one server for its version.
const COMPONENTS: [(&str, &str, &str); 4] = [
    ("command", "Command started", "Command succeeded"),
    ("connection", "Connection pool created", "Connection pool closed"),
    ("serverSelection", "Server selection started", "Server selection succeeded"),
    ("topology", "Starting topology monitoring", "Stopped topology monitoring"),
];

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Logging, "Configurable Log Destination": "If the value is ... a path, log to a file at the
/// specified path. If the file already exists, it MUST be appended to."
#[tokio::test]
async fn the_log_of_each_runtime_goes_where_the_environment_says() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    for example in ["version_tokio", "version_async_std", "version_smol", "version_blocking"] {
        let file = folder.path().join(example);
        fs::write(&file, "{}\n").unwrap();
        let mut command = Command::new(example_path(example));
        command.arg(cluster.uri()).env("MONGODB_LOG_ALL", "debug").env("MONGODB_LOG_PATH", &file);
        let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{example}: {output:?}");
        let lines = lines(&file);
        assert_eq!(lines[0], serde_json::json!({}));
        for (component, first, last) in COMPONENTS {
            let of_component = lines.iter().filter(|line| line["component"] == component);
            let messages: Vec<_> = of_component.map(|line| &line["message"]).collect();
            assert_eq!(messages.first().unwrap(), &first, "{example}: {messages:?}");
            assert_eq!(messages.last().unwrap(), &last, "{example}: {messages:?}");
        }
        let operation = |message: &str| {
            let line = lines.iter().find(|line| line["message"] == message);
            line.unwrap()["operationId"].as_i64().unwrap()
        };
        assert_eq!(operation("Server selection succeeded"), operation("Command started"));
    }
}

/// Logging, "Per-Component Configuration of Log Levels": one component alone, and to standard
/// error, as nothing says where to.
#[tokio::test]
async fn one_component_is_logged_alone_on_standard_error() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.unwrap();
    let mut command = Command::new(example_path("version_blocking"));
    command.arg(cluster.uri()).env("MONGODB_LOG_COMMAND", "debug");
    let output = spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let read = |line| serde_json::from_str::<Value>(line).unwrap();
    let lines: Vec<_> = errors.lines().map(read).collect();
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["Command started", "Command succeeded"]);
}

/// A client that logs its commands into a file.
struct Logged {
    client: Topology,
    file: PathBuf,
}

impl Logged {
    fn new(cluster: &EmbeddedCluster, folder: &Path, longest: Option<&str>) -> Self {
        let file = folder.join(format!("{longest:?}"));
        let (settings, invalid) = LogSettings::from_variables(|name| match name {
            "MONGODB_LOG_COMMAND" => Some("debug".to_owned()),
            "MONGODB_LOG_MAX_DOCUMENT_LENGTH" => longest.map(str::to_owned),
            "MONGODB_LOG_PATH" => file.to_str().map(str::to_owned),
            _ => None,
        });
        assert!(invalid.is_empty(), "{invalid:?}");
        let options = Options::parse(&cluster.uri()).unwrap();
        let client = Topology::builder(options).log(settings).build().unwrap();
        Self { client, file }
    }

    async fn run(&self, command: &RawDocumentBuf) -> Option<Document> {
        let reply = self.client.run_command("db", command).await.ok()?;
        Some(Document::try_from(&*reply).unwrap())
    }

    /// Returns the lengths of a field of the last message with that text.
    fn length(&self, message: &str, field: &str) -> usize {
        let lines = lines(&self.file);
        let line = lines.iter().rfind(|line| line["message"] == message);
        line.unwrap()[field].as_str().unwrap().chars().count()
    }
}

/// A deployment whose members keep what is inserted.
async fn with_data() -> EmbeddedCluster {
    let options = EmbeddedOptions::default().with_keeps_data(true);
    EmbeddedCluster::start(options).await.unwrap()
}

/// Command Logging and Monitoring, prose tests 1 (LOG-P1) and 2 (LOG-P2): "Default truncation
/// limit" and "Explicitly configured truncation limit".
#[tokio::test]
async fn documents_are_cut_after_a_thousand_characters_or_as_many_as_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = with_data().await;
    let logged = Logged::new(&cluster, folder.path(), None);
    let mut documents = RawArrayBuf::new();
    (0..100).for_each(|_| documents.push(rawdoc! { "x": "y" }));
    let mut insert = rawdoc! { "insert": "things" };
    insert.append(cstr!("documents"), documents);
    logged.run(&insert).await.unwrap();
    assert_eq!(logged.length("Command started", "command"), 1003);
    assert!(logged.length("Command succeeded", "reply") <= 1003);
    logged.run(&rawdoc! { "find": "things" }).await.unwrap();
    assert_eq!(logged.length("Command succeeded", "reply"), 1003);

    let logged = Logged::new(&cluster, folder.path(), Some("5"));
    logged.run(&rawdoc! { "hello": true }).await.unwrap();
    assert_eq!(logged.length("Command started", "command"), 8);
    assert_eq!(logged.length("Command succeeded", "reply"), 8);
    // Of the server's reply the error has the message, the code and the labels.
    assert_eq!(logged.run(&rawdoc! { "notARealCommand": true }).await, None);
    assert!(logged.length("Command failed", "failure") > 8);
}

/// Command Logging and Monitoring, prose test 3 (LOG-P3): "Truncation with multi-byte codepoints";
/// of commands and of replies, as no reply is within the text of an error.
#[tokio::test]
async fn no_character_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = with_data().await;
    let logged = Logged::new(&cluster, folder.path(), Some("17"));
    let mut insert = rawdoc! { "insert": "ÄÖÜ🦀🦀🦀🦀" };
    insert.append(cstr!("documents"), RawArrayBuf::from_iter([rawdoc! { "x": 1 }]));
    logged.run(&insert).await.unwrap();
    let lines = lines(&logged.file);
    let command = lines[0]["command"].as_str().unwrap();
    assert_eq!(command, "{\"insert\": \"ÄÖÜ🦀🦀...");

    let logged = Logged::new(&cluster, folder.path(), Some("200"));
    let documents = RawArrayBuf::from_iter([rawdoc! { "_id": "🦀".repeat(300) }]);
    let mut insert = rawdoc! { "insert": "things" };
    insert.append(cstr!("documents"), documents);
    logged.run(&insert).await.unwrap();
    logged.run(&rawdoc! { "find": "things" }).await.unwrap();
    let lines = self::lines(&logged.file);
    let reply = lines.last().unwrap()["reply"].as_str().unwrap();
    assert_eq!(reply.chars().count(), 203);
    assert!(reply.ends_with("🦀🦀..."), "{reply}");
}
