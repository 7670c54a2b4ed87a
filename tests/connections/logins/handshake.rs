//! The metadata of clients, as it goes over the wire and as servers have understood it.

use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use sdam_conformance::mongod::{Binary, Server};
use sdam_core::bson::{Bson, Document, RawDocument, doc};
use sdam_core::config::Options;
use sdam_core::config::metadata::DriverInfo;
use sdam_tokio::Topology;

use super::fixture::{open_server, ping, play, run, uri};
use super::recorder::Recorder;
use super::{Outcome, Scenario, V4_2};

pub(crate) const SCENARIOS: [Scenario; 4] = [
    ("what_is_appended_goes_with_new_connections", V4_2, appended),
    ("what_was_appended_before_changes_nothing", V4_2, repeated),
    ("every_connection_says_who_it_is", V4_2, everywhere),
    ("hs_p1_the_environment_of_the_process_is_told", V4_2, environments),
];

/// A wrapping library: its name, version and platform.
type Info = (&'static str, Option<&'static str>, Option<&'static str>);

const LIBRARY: Info = ("library", Some("1.2"), Some("Library Platform"));
const FRAMEWORK: Info = ("framework", Some("2.0"), Some("Framework Platform"));

fn info((name, version, platform): Info) -> Outcome<DriverInfo> {
    Ok(DriverInfo::new(name, version, platform)?)
}

/// The metadata before `last` is appended.
enum Before {
    /// Given when the client is created.
    Created(&'static [Info]),
    /// Appended to a client.
    Appended(&'static [Info]),
}

/// Returns what connections say before and after `last` is appended to a client.
async fn append(server: &Server, before: Before, last: Info) -> Outcome<[Document; 2]> {
    let recorder = Recorder::default();
    let (created, appended) = match before {
        // What comes behind the first is appended.
        Before::Created(infos) => infos.split_at(1),
        Before::Appended(infos) => (&[][..], infos),
    };
    let mut options = Options::builder().uri(&uri(server, "", "maxIdleTimeMS=1"))?;
    for created in created {
        options = options.driver_info(info(*created)?);
    }
    let client = Topology::builder(options.build()?).dialer(recorder.clone()).build()?;
    for appended in appended {
        client.append_metadata(info(*appended)?);
    }
    ping_and_idle(&client).await?;
    client.append_metadata(info(last)?);
    ping_and_idle(&client).await?;
    client.close().await;
    match &recorder.handshakes("ping")?[..] {
        [before, after] => Ok([said(before)?, said(after)?]),
        other => Err(format!("{} connections were used", other.len()).into()),
    }
}

fn said(hello: &Document) -> Outcome<Document> {
    Ok(hello.get_document("client")?.clone())
}

/// "ping, idle": longer than a connection may be idle, so that the next ping opens another.
async fn ping_and_idle(client: &Topology) -> Outcome {
    ping(client).await?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(())
}

/// Returns the same document with an info behind each of its parts.
fn with(said: &Document, (name, version, platform): Info) -> Outcome<Document> {
    let mut said = said.clone();
    let driver = said.get_document_mut("driver")?;
    add(driver, "name", Some(name))?;
    add(driver, "version", version)?;
    add(&mut said, "platform", platform)?;
    Ok(said)
}

fn add(document: &mut Document, field: &str, part: Option<&str>) -> Outcome {
    if let Some(part) = part {
        let joined = format!("{}|{part}", document.get_str(field)?);
        document.insert(field, joined);
    }
    Ok(())
}

/// HS-P3, HS-P4 and those of HS-P5 that append something new.
fn appended(binary: &Binary) -> Outcome {
    let server = open_server(binary)?;
    let cases = [
        FRAMEWORK,
        ("framework", Some("2.0"), None),
        ("framework", None, Some("Framework Platform")),
        ("framework", None, None),
        // HS-P5, (2) to (7): a part that is there already is appended nevertheless.
        ("framework", Some("1.2"), Some("Library Platform")),
        ("library", Some("2.0"), Some("Library Platform")),
        ("library", Some("1.2"), Some("Framework Platform")),
        ("framework", Some("2.0"), Some("Library Platform")),
        ("framework", Some("1.2"), Some("Framework Platform")),
        ("library", Some("2.0"), Some("Framework Platform")),
    ];
    play(async {
        for last in cases {
            for before in [Before::Created(&[LIBRARY]), Before::Appended(&[LIBRARY])] {
                let [before, after] = append(&server, before, last).await?;
                let name = before.get_document("driver")?.get_str("name")?;
                assert_eq!(name, "sdam|library");
                assert_eq!(after, with(&before, last)?, "{last:?}");
            }
        }
        Ok(())
    })
}

/// HS-P5 (1), and HS-P6 to HS-P10.
fn repeated(binary: &Binary) -> Outcome {
    const OTHER: Info = ("framework", Some("1.2"), Some("Framework Platform"));
    const NO_VERSION: Info = ("library", None, Some("Library Platform"));
    const EMPTY_VERSION: Info = ("library", Some(""), Some("Library Platform"));
    const NO_PLATFORM: Info = ("library", Some("1.2"), None);
    const EMPTY_PLATFORM: Info = ("library", Some("1.2"), Some(""));
    let server = open_server(binary)?;
    let cases = [
        (Before::Appended(&[LIBRARY]), LIBRARY),
        (Before::Appended(&[LIBRARY, FRAMEWORK]), LIBRARY),
        (Before::Created(&[LIBRARY]), LIBRARY),
        (Before::Created(&[LIBRARY, OTHER]), LIBRARY),
        (Before::Appended(&[NO_VERSION]), EMPTY_VERSION),
        (Before::Appended(&[NO_PLATFORM]), EMPTY_PLATFORM),
        (Before::Created(&[NO_VERSION]), EMPTY_VERSION),
        (Before::Created(&[NO_PLATFORM]), EMPTY_PLATFORM),
    ];
    play(async {
        for (before, last) in cases {
            let [before, after] = append(&server, before, last).await?;
            assert_eq!(before, after, "{last:?}");
        }
        Ok(())
    })
}

/// HS-P11, and that servers understand what the connections of the pool and of monitors send.
fn everywhere(binary: &Binary) -> Outcome {
    let server = open_server(binary)?;
    play(async {
        let recorder = Recorder::default();
        let options = "appName=everywhere&heartbeatFrequencyMS=500";
        let options =
            Options::builder().uri(&uri(&server, "", options))?.driver_info(info(LIBRARY)?);
        let client = Topology::builder(options.build()?).dialer(recorder.clone()).build()?;
        ping(&client).await?;
        let observer = super::fixture::client(&uri(&server, "", ""))?;
        // The pool's, the monitor's, and where replies are streamed that of round trips.
        let streams = client.view().servers()[0].topology_version.is_some();
        let expected = if streams { 3 } else { 2 };
        let known = loop {
            let known = known_as(&observer, "everywhere").await?;
            if known.len() >= expected {
                break known;
            }
            client.request_check();
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let handshakes = recorder.handshakes("ping")?;
        for metadata in known {
            assert_eq!(metadata, said(&handshakes[0])?);
        }
        let connections = recorder.connections();
        assert!(connections.len() >= expected);
        for connection in connections {
            let hello = Document::try_from(connection[0].op_msg()?.body)?;
            assert_eq!(hello.get("backpressure"), Some(&Bson::from("2")), "{hello}");
            assert_eq!(said(&hello)?, said(&handshakes[0])?);
        }
        Ok(())
    })
}

/// Returns what a server knows of the connections of an application.
async fn known_as(observer: &Topology, application: &str) -> Outcome<Vec<Document>> {
    let operations = run(observer, doc! { "currentOp": 1, "$all": true }).await?;
    let mut known = Vec::new();
    for operation in operations.get_array("inprog")? {
        let operation = operation.as_document().ok_or("an operation is no document")?;
        if operation.get_str("appName").is_ok_and(|name| name == application) {
            known.push(operation.get_document("clientMetadata")?.clone());
        }
    }
    Ok(known)
}

/// The variable with the URI of a server that a process is to greet, and not to test.
pub(crate) const GREETING: &str = "SDAM_TEST_GREETING";

/// Greets a server, and writes what was said of the client, as BSON.
pub(crate) fn greet(uri: &str) -> ExitCode {
    let recorder = Recorder::default();
    let greeted = play(async {
        let client = Topology::builder(Options::parse(uri)?).dialer(recorder.clone()).build()?;
        ping(&client).await?;
        client.close().await;
        let handshakes = recorder.handshakes("ping")?;
        let [hello] = &handshakes[..] else { return Err("one connection".into()) };
        std::io::stdout().write_all(&said(hello)?.to_vec()?)?;
        Ok(())
    });
    match greeted {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// HS-P1, "Test that environment metadata is properly captured": real processes with these
/// variables, and real connections.
fn environments(binary: &Binary) -> Outcome {
    let server = open_server(binary)?;
    let long = "a".repeat(512);
    let lambda = [
        ("AWS_EXECUTION_ENV", "AWS_Lambda_java8"),
        ("AWS_REGION", "us-east-2"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024"),
    ];
    let azure = ("FUNCTIONS_WORKER_RUNTIME", "node");
    let google = [
        ("K_SERVICE", "servicename"),
        ("FUNCTION_MEMORY_MB", "1024"),
        ("FUNCTION_TIMEOUT_SEC", "60"),
        ("FUNCTION_REGION", "us-central1"),
    ];
    let kubernetes = ("KUBERNETES_SERVICE_HOST", "1");
    let aws = doc! { "name": "aws.lambda", "region": "us-east-2", "memory_mb": 1024 };
    let mut in_kubernetes = aws.clone();
    in_kubernetes.insert("container", doc! { "orchestrator": "kubernetes" });
    let cases = [
        (lambda.to_vec(), aws),
        (vec![azure], doc! { "name": "azure.func" }),
        (
            google.to_vec(),
            doc! {
                "name": "gcp.func", "memory_mb": 1024, "timeout_sec": 60, "region": "us-central1",
            },
        ),
        (
            vec![("VERCEL", "1"), ("VERCEL_REGION", "cdg1")],
            doc! { "name": "vercel", "region": "cdg1" },
        ),
        (vec![lambda[0], azure], doc! {}),
        (vec![lambda[0], ("AWS_REGION", &long), lambda[2]], doc! { "name": "aws.lambda" }),
        (
            vec![lambda[0], ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "big")],
            doc! { "name": "aws.lambda" },
        ),
        (vec![("AWS_EXECUTION_ENV", "EC2")], doc! {}),
        ([&lambda[..], &[kubernetes]].concat(), in_kubernetes),
    ];
    for (variables, expected) in cases {
        let said = said_in(&uri(&server, "", ""), &variables)?;
        let mut found = said.get_document("env").cloned().unwrap_or_default();
        // This process may be in a container itself.
        if let Ok(container) = found.get_document_mut("container") {
            container.remove("runtime");
            if container.is_empty() {
                found.remove("container");
            }
        }
        assert!(said.to_vec()?.len() <= 512, "{said}");
        assert_eq!(found, expected, "{variables:?}");
    }
    Ok(())
}

/// Returns what a process with these variables, and no others, says of itself.
fn said_in(uri: &str, variables: &[(&str, &str)]) -> Outcome<Document> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command
        .env_clear()
        .envs(variables.iter().copied())
        .env(GREETING, uri)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("hello fails with {variables:?}").into());
    }
    Ok(Document::try_from(RawDocument::from_bytes(&output.stdout)?)?)
}
