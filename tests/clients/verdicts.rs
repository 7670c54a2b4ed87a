//! Likely causes where an application meets them: in errors of commands, in events, and in what
//! they say to do.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::diagnosis::Verdict;
use sdam_core::dns::srv::SrvRecord;
use sdam_core::dns::{DnsRecords, Question, RecordType};
use sdam_core::topology::{Event, EventKind};
use sdam_host::{Events, LookupFuture, Resolver};
use sdam_tokio::Topology;
use tokio::net::TcpStream;

use super::fake_server::{FakeServer, error, soon};

fn options(uri: &str) -> Options {
    Options::parse(uri).unwrap()
}

fn verdict(event: Event) -> Option<Verdict> {
    match event.kind {
        EventKind::Diagnosed { verdict } => Some(verdict),
        _ => None,
    }
}

/// Returns the verdicts among the events so far.
fn told(events: &mut Events) -> Vec<Verdict> {
    std::iter::from_fn(|| events.try_next()).filter_map(verdict).collect()
}

#[tokio::test]
async fn a_primary_that_refuses_every_write_is_told_from_the_third_on() {
    let script = Arc::new(|_: u32, _: &_| Some(error(10107)));
    let role = rawdoc! { "setName": "rs", "hosts": ["a:1"] };
    let address = FakeServer::start_as(role, script).await.address;
    let uri = format!("mongodb://{address}/?directConnection=true&heartbeatFrequencyMS=500");
    let (client, mut events) =
        Topology::builder(options(&uri)).connect_with_events().await.unwrap();
    let insert = rawdoc! { "insert": "things", "documents": [{}] };
    let mut kinds = Vec::new();
    for _ in 0..4 {
        let error = soon(client.run_command("db", &insert)).await.unwrap_err();
        kinds.push(error.verdict().map(Verdict::name));
        let says_so = error.to_string().contains("the server contradicts itself");
        assert_eq!(says_so, error.verdict().is_some(), "{error}");
    }
    let refuses = Some("primaryRefusesWrites");
    assert_eq!(kinds, [None, None, refuses, refuses]);
    let told = told(&mut events);
    assert!(matches!(told[..], [Verdict::PrimaryRefusesWrites { refusals: 3, .. }]), "{told:?}");
}

#[tokio::test]
async fn a_server_that_sheds_load_is_told_with_its_labels() {
    let script = Arc::new(|_: u32, _: &_| {
        Some(rawdoc! {
            "ok": 0, "code": 462, "errmsg": "later",
            "errorLabels": ["SystemOverloadedError", "RetryableError"],
        })
    });
    let server = FakeServer::start(script).await;
    let client = Topology::new(options(&format!("mongodb://{}", server.address))).unwrap();
    let error = soon(client.run_command("db", &rawdoc! { "ping": 1 })).await.unwrap_err();
    assert_eq!(error.verdict().map(Verdict::name), Some("overloaded"));
    let text = error.to_string();
    assert!(text.contains("[SystemOverloadedError, RetryableError]"), "{text}");
    assert!(text.contains("; send less"), "{text}");
}

#[tokio::test]
async fn a_refused_login_says_who_and_where_and_how() {
    let server = FakeServer::start(Arc::new(|_, _: &_| Some(error(18)))).await;
    let login = "app:wrong-secret";
    let uri = format!("mongodb://{login}@{}/?authMechanism=SCRAM-SHA-256", server.address);
    let client = Topology::new(options(&uri)).unwrap();
    let error = soon(client.run_command("db", &rawdoc! { "ping": 1 })).await.unwrap_err();
    let Some(verdict @ Verdict::LoginRefused { user, auth_source, .. }) = error.verdict() else {
        panic!("{error}")
    };
    assert_eq!((user.as_deref(), auth_source.as_deref()), (Some("app"), Some("admin")));
    assert!(verdict.to_string().contains("SCRAM-SHA-256"), "{verdict}");
    assert!(error.to_string().contains("; check the password, authSource"), "{error}");
    assert!(!format!("{error:?} {verdict}").contains("wrong-secret"));
}

#[tokio::test]
async fn the_tenth_client_for_the_same_hosts_is_one_too_many_once() {
    let client = || Topology::with_events(options("mongodb://127.0.0.1:1,127.0.0.2:1/?appName=x"));
    let mut clients = Vec::new();
    let mut warnings = Vec::new();
    for number in 1..=12 {
        let (client, mut events) = client().unwrap();
        let first = soon(events.next()).await.expect("it opens");
        assert!(matches!(first.kind, EventKind::TopologyOpening));
        let told = soon(async {
            loop {
                match events.next().await.expect("it is open").kind {
                    EventKind::Diagnosed { verdict } => return Some(verdict),
                    EventKind::ServerHeartbeatStarted { .. } => return None,
                    _ => {}
                }
            }
        });
        warnings.extend(told.await.map(|verdict| (number, verdict)));
        clients.push(client);
    }
    let [(10, Verdict::ManyClients { clients: 10, connections, hosts })] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!(hosts.len(), 2);
    assert!(*connections <= 40, "{connections}");
}

/// Answers after 3 s.
#[derive(Debug)]
struct Slow;

impl Resolver for Slow {
    fn lookup(&self, question: Question) -> LookupFuture<'_> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let record = SrvRecord::new("db.example.com", 1, Duration::from_secs(60));
            Ok(match question.record_type {
                RecordType::Srv => DnsRecords::Srv(vec![record]),
                _ => DnsRecords::Txt(Vec::new()),
            })
        })
    }
}

/// The dialer leads nowhere.
fn nowhere(_: ServerAddress) -> std::future::Pending<io::Result<TcpStream>> {
    pending()
}

#[tokio::test(start_paused = true)]
async fn a_slow_lookup_of_the_deployment_is_told_by_the_first_events() {
    let builder = Topology::builder(options("mongodb+srv://cluster.example.com")).dialer(nowhere);
    let (client, mut events) = builder.resolver(Slow).connect_with_events().await.unwrap();
    let told = async {
        loop {
            if let Some(verdict) = verdict(events.next().await.expect("it is open")) {
                return verdict;
            }
        }
    };
    let Verdict::LookupSlow { name, took, silent } = told.await else { panic!("another one") };
    assert_eq!((&*name, took.as_secs(), silent), ("cluster.example.com", 6, Vec::new()));
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_out_that_was_waited_for_is_named_and_the_one_that_was_set() {
    let builder = Topology::builder(options("mongodb://a/?connectTimeoutMS=1000")).dialer(nowhere);
    let client = builder.build().unwrap();
    let error = client.run_command("db", &rawdoc! { "ping": 1 }).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(" within 30.0 s (serverSelectionTimeoutMS): "), "{text}");
    let other = "connectTimeoutMS (1.0 s) limits only each attempt to connect";
    assert!(text.contains(other), "{text}");
    let selection = error.as_selection().unwrap();
    assert_eq!(selection.limited_by, Some("serverSelectionTimeoutMS"));
    let within = client.with_timeout(Duration::from_secs(2));
    let error = within.run_command("db", &rawdoc! { "ping": 1 }).await.unwrap_err();
    assert_eq!(error.as_selection().unwrap().limited_by, None, "{error}");
}
