//! Prose tests of discovery, of checks and of the choice of a server: SDAM, SEL for Server
//! Selection, and STALE for Max Staleness.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use libtest_mimic::Trial;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_conformance::mongod::{ReplicaSet, Server, Version};
use sdam_core::bson::{DateTime, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::command::CommandEvent;
use sdam_core::config::{Options, ReadMode, ReadPreference, ServerAddress};
use sdam_core::description::{ServerDescription, ServerType};
use sdam_core::selection::Criteria;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::Events;
use sdam_tokio::Topology;

use super::observer::{tell, until};
use super::real::{OnAStandalone, V4_4, options};
use super::{Outcome, runtime, trial};
use crate::support::{is_whole, soon, view};

const V4_2: Version = Version { major: 4, minor: 2, patch: 0 };

pub(crate) const ON_A_STANDALONE: [OnAStandalone; 2] = [
    ("sdam_p13_and_stale_p2_checks_follow_heartbeat_frequency_ms", V4_2, checks),
    ("sdam_p14_round_trip_times_follow_the_server", V4_4, round_trip_times),
];

/// A test on a set of three that others use, too.
type OnASet = (&'static str, fn(&ReplicaSet) -> Outcome);

pub(crate) const ON_A_SET: [OnASet; 2] = [
    ("sdam_p7_to_p9_a_secondary_alone_leads_to_the_primary_unless_it_is_meant", one_secondary),
    ("stale_p3_the_date_of_the_last_write_follows_writes", last_write_date),
];

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("sdam_p15_the_event_of_a_check_comes_before_its_connection", || {
            runtime()?.block_on(event_before_socket())
        }),
        trial("embedded::sel_p5_a_slow_server_gets_fewer_operations", || {
            runtime()?.block_on(slow_server())
        }),
        trial("embedded::sel_p6_a_selector_of_the_application_is_called", || {
            runtime()?.block_on(custom_selector())
        }),
        trial("embedded::stale_p4_mongos_is_told_max_staleness_seconds", || {
            runtime()?.block_on(max_staleness_for_mongos())
        }),
    ]
}

fn nearest() -> Criteria {
    Criteria::read(ReadPreference::new(ReadMode::Nearest))
}

/// SDAM, "Connect with directConnection set to false", "to true" and "without directConnection
/// specified": without it, this client discovers the others.
fn one_secondary(set: &ReplicaSet) -> Outcome {
    let primary = set.primary()?;
    let secondary = set.members().iter().enumerate().find(|(index, _)| *index != primary);
    let (_, secondary) = secondary.ok_or("a set has secondaries")?;
    let write = rawdoc! { "insert": "sdam-p7", "documents": [{}] };
    runtime()?.block_on(async {
        let client = |option: &str| {
            let uri = format!("mongodb://{}/?{option}", secondary.address());
            Ok::<_, Box<dyn std::error::Error>>(Topology::new(Options::parse(&uri)?)?)
        };
        for option in ["directConnection=false", ""] {
            client(option)?.run_command("test", &write).await?;
        }
        let error = client("directConnection=true")?.run_command("test", &write).await;
        let error = error.expect_err("a secondary takes no writes");
        assert_eq!(error.code(), Some(10107), "NotWritablePrimary: {error}");
        Ok(())
    })
}

/// SDAM, "Heartbeat Tests", and Max Staleness, "Parse URI": at the frequency by default, this would
/// take longer than it may. That checks are half a second apart is proved in virtual time.
fn checks(server: &Server) -> Outcome {
    runtime()?.block_on(async {
        let options = options(server, "heartbeatFrequencyMS=500")?;
        let (_client, mut events) = Topology::with_events(options)?;
        for _ in 0..6 {
            let is_reply =
                |event: &EventKind| matches!(event, EventKind::ServerHeartbeatSucceeded { .. });
            until(&mut events, is_reply).await;
        }
        Ok(())
    })
}

/// SDAM, "RTT Tests".
fn round_trip_times(server: &Server) -> Outcome {
    let address = server.address().to_string();
    runtime()?.block_on(async {
        let name = "heartbeatFrequencyMS=500&appName=streamingRttTest";
        let (client, mut events) = Topology::with_events(options(server, name)?)?;
        client.run_command("test", &rawdoc! { "find": "c" }).await?;
        for _ in 0..4 {
            let seen = until(&mut events, |event| {
                matches!(event, EventKind::ServerHeartbeatSucceeded { .. })
            });
            for event in seen.await {
                if let EventKind::ServerDescriptionChanged { new, .. } = event {
                    assert!(new.round_trip_time.is_some_and(|time| !time.is_zero()), "{new:?}");
                }
            }
        }
        let slow = rawdoc! {
            "configureFailPoint": "failCommand",
            "mode": { "times": 1000 },
            "data": {
                "failCommands": ["hello", "isMaster"],
                "blockConnection": true,
                "blockTimeMS": 500,
                "appName": "streamingRttTest",
            },
        };
        tell(&address, &slow).await?;
        let time = || client.view().servers()[0].round_trip_time;
        eventually(|| time().is_some_and(|time| time > Duration::from_millis(250))).await;
        Ok(())
    })
}

/// Waits for what is seen in the snapshot alone: equal descriptions are no news.
async fn eventually(is_so: impl Fn() -> bool) {
    soon(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Max Staleness, "Parse lastWriteDate".
fn last_write_date(set: &ReplicaSet) -> Outcome {
    let hosts: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let uri = format!("mongodb://{}/?heartbeatFrequencyMS=500", hosts.join(","));
    runtime()?.block_on(async {
        let client = Topology::new(Options::parse(&uri)?)?;
        let insert = rawdoc! { "insert": "stale-p3", "documents": [{}] };
        let date = || client.view().primary().and_then(|primary| primary.last_write_date);
        let mut before: Option<DateTime> = None;
        for _ in 0..2 {
            client.run_command("test", &insert).await?;
            eventually(|| date() > before).await;
            before = date();
        }
        Ok(())
    })
}

/// SDAM, "Heartbeat Tests" of Logging and Monitoring: "the order of the events" with those of a
/// server, which finds the first one published when it is connected to.
async fn event_before_socket() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let uri = format!("mongodb://{}/?serverSelectionTimeoutMS=500", listener.local_addr()?);
    let (client, events) = Topology::with_events(Options::parse(&uri)?)?;
    let server = thread::spawn(move || {
        let (mut events, mut list) = (events, Vec::new());
        let (mut stream, _) = listener.accept()?;
        heartbeats(&mut events, &mut list);
        list.push("client connected");
        stream.read_exact(&mut [0])?;
        heartbeats(&mut events, &mut list);
        list.push("client hello received");
        drop((stream, listener));
        Ok::<_, std::io::Error>((events, list))
    });
    client.select(nearest()).await.expect_err("there is no server");
    let (mut events, mut list) = soon(tokio::task::spawn_blocking(|| server.join()))
        .await?
        .map_err(|_| "the server has panicked")??;
    while list.len() < 4 {
        let event = soon(events.next()).await.ok_or("the client is open")?;
        list.extend(heartbeat(&event.kind));
    }
    let wanted = ["started", "client connected", "client hello received", "failed"];
    assert_eq!(list[..4], wanted);
    Ok(())
}

/// Adds the events of checks that are there.
fn heartbeats(events: &mut Events, list: &mut Vec<&'static str>) {
    while let Some(event) = events.try_next() {
        list.extend(heartbeat(&event.kind));
    }
}

const fn heartbeat(event: &EventKind) -> Option<&'static str> {
    match event {
        EventKind::ServerHeartbeatStarted { .. } => Some("started"),
        EventKind::ServerHeartbeatSucceeded { .. } => Some("succeeded"),
        EventKind::ServerHeartbeatFailed { .. } => Some("failed"),
        _ => None,
    }
}

/// Server Selection, "`operationCount`-based Selection Within Latency Window": "fewer than 25%"
/// for a slow one of two mongos, and 40 to 60 % without the fail point.
async fn slow_server() -> Outcome {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::sharded(2)).await?;
    let addresses: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let uri = format!(
        "mongodb://{}/?localThresholdMS=30000&appName=loadBalancingTest&minPoolSize=10\
         &maxPoolSize=10",
        addresses.join(",")
    );
    let client = Topology::new(Options::parse(&uri)?)?;
    view(&client, |view| {
        let of_mongos = |server: &Arc<ServerDescription>| server.server_type == ServerType::Mongos;
        view.servers().iter().filter(|server| of_mongos(server)).count() == 2
    })
    .await;
    let slow = |mode: RawDocumentBuf| {
        rawdoc! {
            "configureFailPoint": "failCommand",
            "mode": mode,
            "data": {
                "failCommands": ["find"],
                "blockConnection": true,
                "blockTimeMS": 500,
                "appName": "loadBalancingTest",
            },
        }
    };
    tell(&addresses[0], &slow(rawdoc! { "times": 10_000 })).await?;
    let share = share_of(&client, &addresses[0], 10).await;
    assert!(share < 0.25, "{share}");
    tell(&addresses[0], &rawdoc! { "configureFailPoint": "failCommand", "mode": "off" }).await?;
    let share = share_of(&client, &addresses[0], 100).await;
    assert!((0.4..=0.6).contains(&share), "{share}");
    Ok(())
}

/// Has ten tasks find so many times each; returns the share of a server.
async fn share_of(client: &Topology, address: &str, finds: usize) -> f64 {
    let mut tasks = tokio::task::JoinSet::new();
    let address: ServerAddress = address.parse().expect("an address");
    for _ in 0..10 {
        let (client, address) = (client.clone(), address.clone());
        tasks.spawn(async move {
            let mut there = 0_u32;
            for _ in 0..finds {
                let find = rawdoc! { "find": "c" };
                let reply = client.run_command_on(nearest(), "test", &find).await;
                there += u32::from(*reply.expect("a reply").server() == address);
            }
            there
        });
    }
    let there: u32 = soon(tasks.join_all()).await.into_iter().sum();
    let all = u32::try_from(10 * finds).expect("not that many");
    f64::from(there) / f64::from(all)
}

/// Server Selection, "Application-Provided Server Selector".
async fn custom_selector() -> Outcome {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await?;
    cluster.elected().await?;
    let addresses: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let highest = cluster.addresses().iter().map(SocketAddr::port).max();
    let uri = format!("mongodb://{}", addresses.join(","));
    let client = Topology::new(Options::parse(&uri)?)?;
    view(&client, is_whole).await;
    let calls = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let calls = Arc::clone(&calls);
        let criteria = nearest().with_predicate(move |server| {
            calls.fetch_add(1, Ordering::Relaxed);
            server.address.port() == highest
        });
        let find = rawdoc! { "find": "c" };
        let reply = client.run_command_on(criteria, "test", &find).await?;
        assert_eq!(reply.server().port(), highest);
    }
    assert!(calls.load(Ordering::Relaxed) >= 10);
    Ok(())
}

/// Max Staleness, "Send maxStalenessSeconds to mongos".
async fn max_staleness_for_mongos() -> Outcome {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::sharded(1)).await?;
    let uri = format!("mongodb://{}", cluster.addresses()[0]);
    let client = Topology::new(Options::parse(&uri)?)?;
    for staleness in [Some(120_u64), None] {
        let mut events = client.subscribe_to(Topics::COMMANDS);
        let mut preference = ReadPreference::new(ReadMode::Secondary);
        if let Some(seconds) = staleness {
            preference = preference.with_max_staleness(Duration::from_secs(seconds))?;
        }
        let find = rawdoc! { "find": "c" };
        client.run_command_on(Criteria::read(preference), "test", &find).await?;
        let sent = until(&mut events, |event| started(event).is_some()).await;
        let command = sent.iter().find_map(started).ok_or("a command has begun")?;
        let preference = command.get_document("$readPreference")?;
        assert_eq!(preference.get_str("mode")?, "secondary");
        let sent = preference.get("maxStalenessSeconds")?;
        let sent = sent.and_then(|seconds| seconds.as_i64().or(seconds.as_i32().map(i64::from)));
        assert_eq!(sent, staleness.map(u64::cast_signed));
    }
    Ok(())
}

/// Returns the command of the event that it has begun.
fn started(event: &EventKind) -> Option<&RawDocument> {
    match event {
        EventKind::Command { event: CommandEvent::CommandStarted { command }, .. } => Some(command),
        _ => None,
    }
}
