//! Prose tests on the embedded deployment.

use std::time::Duration;

use libtest_mimic::Trial;
use sdam_cluster::certificates::Authority;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, ServerVersion, TlsIdentity};
use sdam_core::bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::failure::Cause;
use sdam_core::operation::{RETRYABLE, SYSTEM_OVERLOADED};
use sdam_core::pool::{CheckOutError, PoolEvent};
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_tokio::Topology;

use super::observer::{count, is_cleared, tell, until};
use super::{Outcome, runtime, trial};
use crate::support::{is_whole, soon, view};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("embedded::cmap_p1_to_p4_options_of_the_uri_hold_for_every_pool", || {
            runtime()?.block_on(options_of_the_uri())
        }),
        trial("embedded::cmap_u_idle_connections_are_closed_while_nothing_else_is_due", || {
            runtime()?.block_on(idle_connections())
        }),
        trial("embedded::cmap_p5_a_failure_to_connect_fails_the_check_out", || {
            runtime()?.block_on(failure_to_connect())
        }),
        trial("embedded::sdam_p2_a_network_error_of_a_write", || {
            runtime()?.block_on(network_error())
        }),
        trial("embedded::sdam_p3_a_read_at_the_supposed_primary", || {
            runtime()?.block_on(not_primary())
        }),
        trial("embedded::sdam_p4_a_read_at_a_supposed_secondary", || {
            runtime()?.block_on(recovering())
        }),
        trial("embedded::sdam_p5_a_write_concern_error_of_a_shutdown", || {
            runtime()?.block_on(write_concern_error())
        }),
        trial("embedded::sdam_p12_a_storm_of_connections_clears_no_pool", || {
            runtime()?.block_on(storm_of_connections(false))
        }),
        trial("embedded::sdam_p12_a_storm_of_connections_with_tls_clears_no_pool", || {
            runtime()?.block_on(storm_of_connections(true))
        }),
    ]
}

/// An embedded set, and a client that knows all of it, and does not ask again by itself.
async fn discovered(
    version: ServerVersion,
    more: &str,
) -> Result<(EmbeddedCluster, Topology), Box<dyn std::error::Error>> {
    let options = EmbeddedOptions::default().with_version(version);
    let cluster = EmbeddedCluster::start(options).await?;
    cluster.elected().await?;
    let options = format!("{}&heartbeatFrequencyMS=600000{more}", cluster.uri());
    let client = Topology::new(Options::parse(&options)?)?;
    soon(async {
        while !is_whole(&client.view()) {
            client.request_check();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    Ok((cluster, client))
}

fn primary(client: &Topology) -> String {
    client.view().primary().expect("there is a primary").address.to_string()
}

fn server_type(client: &Topology, address: &str) -> ServerType {
    let view = client.view();
    view.servers().iter().find(|server| server.address.to_string() == address).unwrap().server_type
}

fn fail_once(command: &str, data: &RawDocument) -> RawDocumentBuf {
    let mut all = rawdoc! { "failCommands": [command] };
    for (name, value) in data.iter().map(Result::unwrap) {
        all.append(name, sdam_core::bson::RawBson::from(value));
    }
    rawdoc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": all }
}

/// Waits until all members are known again, by a check that did not wait for its turn.
async fn checked_at_once(client: &Topology) {
    view(client, is_whole).await;
}

async fn options_of_the_uri() -> Outcome {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await?;
    let pool = "maxPoolSize=7&minPoolSize=3&maxIdleTimeMS=9000&maxConnecting=4";
    let uri = format!("{}&{pool}&waitQueueTimeoutMS=5000", cluster.uri());
    let options = Options::parse(&uri)?;
    let wanted = options.pool().clone();
    assert_eq!((wanted.max_pool_size, wanted.min_pool_size, wanted.max_connecting), (7, 3, 4));
    assert_eq!(wanted.max_idle_time, Duration::from_secs(9));
    assert_eq!(wanted.wait_queue_timeout, Some(Duration::from_secs(5)));
    let (client, mut events) = Topology::with_events(options)?;
    view(&client, is_whole).await;
    let created = count(&mut events, |event| match event {
        EventKind::Pool { event: PoolEvent::PoolCreated { options, .. }, .. } => {
            assert_eq!(options, &wanted);
            true
        }
        _ => false,
    });
    assert_eq!(created, 3);
    let full =
        |client: &Topology| client.members().iter().all(|member| member.counts().available == 3);
    soon(async {
        while !full(&client) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    Ok(())
}

/// Connection Monitoring and Pooling, "maxIdleTimeMS": also where nothing else is due for minutes,
/// and where events have no subscriber, so that connections are returned by the short way.
async fn idle_connections() -> Outcome {
    let options = EmbeddedOptions::default().with_members(1);
    let cluster = EmbeddedCluster::start(options).await?;
    cluster.elected().await?;
    let quiet = "serverMonitoringMode=poll&heartbeatFrequencyMS=600000&connectTimeoutMS=600000";
    let uri = format!("mongodb://{}/?directConnection=true&{quiet}", cluster.addresses()[0]);
    let client = Topology::new(Options::parse(&format!("{uri}&maxIdleTimeMS=100"))?)?;
    // The client has no members before its tasks have run.
    let member = soon(client.select(Criteria::write())).await?;
    for _ in 0..2 {
        client.run_command("admin", &rawdoc! { "ping": 1 }).await?;
        soon(async {
            while member.counts().total() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
    Ok(())
}

/// "Backpressure labels": a network error during hello may be overload, which says nothing against
/// the server.
async fn failure_to_connect() -> Outcome {
    let (_cluster, client) = discovered(ServerVersion::V6_0, "").await?;
    let (primary, mut events) = (primary(&client), client.subscribe());
    let hello = rawdoc! { "closeConnection": true };
    let ping = rawdoc! { "ping": 1 };
    let selected = client.select(Criteria::write()).await?;
    tell(&primary, &fail_once("isMaster", &hello)).await?;
    let error = selected.check_out().await.expect_err("it cannot connect");
    assert!(matches!(error.as_check_out(), Some(CheckOutError::Establishing { .. })), "{error}");
    assert_eq!(error.labels(), [SYSTEM_OVERLOADED, RETRYABLE]);
    let seen = until(&mut events, |event| {
        matches!(event, EventKind::Pool { event: PoolEvent::ConnectionCheckOutFailed { error, .. }, .. }
            if error.reason() == "connectionError")
    });
    assert!(!seen.await.iter().any(is_cleared));
    assert_eq!(server_type(&client, &primary), ServerType::RsPrimary);
    client.run_command("admin", &ping).await?;
    Ok(())
}

async fn network_error() -> Outcome {
    let (_cluster, client) = discovered(ServerVersion::V6_0, "").await?;
    let (primary, mut events) = (primary(&client), client.subscribe());
    tell(&primary, &fail_once("insert", &rawdoc! { "closeConnection": true })).await?;
    let insert = rawdoc! { "insert": "c", "documents": [{}] };
    let error = client.run_command("test", &insert).await.expect_err("the connection closes");
    assert!(error.as_operation().is_some(), "{error:?}");
    assert_eq!(error.failure().map(|failure| &failure.cause), Some(&Cause::Closed));
    assert_eq!(server_type(&client, &primary), ServerType::Unknown);
    assert_eq!(client.view().topology_type, TopologyType::ReplicaSetNoPrimary);
    assert_eq!(count(&mut events, is_cleared), 1);
    Ok(())
}

/// On 4.2, whose errors have no topologyVersion: that of a fail point is no newer than what is
/// known.
async fn not_primary() -> Outcome {
    let (_cluster, client) = discovered(ServerVersion::V4_2, "").await?;
    let (primary, mut events) = (primary(&client), client.subscribe());
    tell(&primary, &fail_once("find", &rawdoc! { "errorCode": 10107 })).await?;
    let find = rawdoc! { "find": "c" };
    let error = client.run_command("test", &find).await.expect_err("it is not primary");
    assert_eq!(error.code(), Some(10107));
    assert_eq!(server_type(&client, &primary), ServerType::Unknown);
    assert_eq!(client.view().topology_type, TopologyType::ReplicaSetNoPrimary);
    assert_eq!(count(&mut events, is_cleared), 0, "since 4.2 connections survive");
    checked_at_once(&client).await;
    Ok(())
}

async fn recovering() -> Outcome {
    let (_cluster, client) = discovered(ServerVersion::V4_2, "").await?;
    let view = client.view();
    let secondary =
        view.servers().iter().find(|server| server.server_type == ServerType::RsSecondary);
    let secondary = secondary.ok_or("a secondary")?.address.clone();
    tell(&secondary.to_string(), &fail_once("find", &rawdoc! { "errorCode": 13436 })).await?;
    let this = secondary.clone();
    let criteria = Criteria::read(ReadPreference::new(ReadMode::Secondary))
        .with_predicate(move |server| server.address == this);
    let find = rawdoc! { "find": "c" };
    let error = client.run_command_on(criteria, "test", &find).await.expect_err("it recovers");
    assert_eq!(error.code(), Some(13436));
    assert_eq!(server_type(&client, &secondary.to_string()), ServerType::Unknown);
    assert_eq!(client.view().topology_type, TopologyType::ReplicaSetWithPrimary);
    checked_at_once(&client).await;
    Ok(())
}

async fn write_concern_error() -> Outcome {
    let (_cluster, client) = discovered(ServerVersion::V4_2, "").await?;
    let (primary, mut events) = (primary(&client), client.subscribe());
    let error = rawdoc! { "code": 91, "errmsg": "Replication is being shut down" };
    tell(&primary, &fail_once("insert", &rawdoc! { "writeConcernError": error })).await?;
    let insert = rawdoc! { "insert": "c", "documents": [{}] };
    let reply = client.run_command("test", &insert).await?;
    assert_eq!(reply.write_concern_error().and_then(|error| error.code), Some(91));
    assert_eq!(server_type(&client, &primary), ServerType::Unknown);
    assert_eq!(client.view().topology_type, TopologyType::ReplicaSetNoPrimary);
    assert_eq!(count(&mut events, is_cleared), 1, "a server that shuts down closes connections");
    checked_at_once(&client).await;
    Ok(())
}

/// SDAM prose tests, "Connection Pool Backpressure"; a fail point makes each find last as long as
/// the test's `$where` does.
async fn storm_of_connections(with_tls: bool) -> Outcome {
    let authority = Authority::new("the authority")?;
    let (mut options, mut tls) = (EmbeddedOptions::default(), String::new());
    if with_tls {
        let member = authority.issue("member", &["127.0.0.1"])?;
        options = options.with_tls(Some(TlsIdentity::from_pem_file(member)?));
        tls = format!("&tls=true&tlsCAFile={}", authority.file());
    }
    let cluster = EmbeddedCluster::start(options).await?;
    cluster.elected().await?;
    let address = cluster.addresses()[0];
    let nearest = || Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let uri = format!("mongodb://{address}/?directConnection=true{tls}");
    let quiet = Topology::new(Options::parse(&uri)?)?;
    let limit = rawdoc! {
        "setParameter": 1,
        "ingressConnectionEstablishmentRateLimiterEnabled": true,
        "ingressConnectionEstablishmentRatePerSec": 20,
        "ingressConnectionEstablishmentBurstCapacitySecs": 1,
        "ingressConnectionEstablishmentMaxQueueDepth": 1,
    };
    soon(quiet.run_command_on(nearest(), "admin", &limit)).await?;
    quiet.close().await;
    let options = Options::parse(&format!("{uri}&maxConnecting=100"))?;
    let (client, mut events) = Topology::with_events(options)?;
    soon(client.select(nearest())).await?;
    // Set on a connection that was there before the storm.
    let slow = rawdoc! {
        "configureFailPoint": "failCommand",
        "mode": "alwaysOn",
        "data": { "failCommands": ["find"], "blockConnection": true, "blockTimeMS": 2000 },
    };
    client.run_command_on(nearest(), "admin", &slow).await?;
    let mut finds = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        finds.spawn(async move {
            let find = rawdoc! { "find": "c" };
            client.run_command_on(nearest(), "test", &find).await.is_ok()
        });
    }
    let succeeded = soon(finds.join_all()).await.into_iter().filter(|ok| *ok).count();
    let (mut failed, mut harm) = (0, 0);
    while let Some(event) = events.try_next() {
        match event.kind {
            EventKind::Pool { event: PoolEvent::ConnectionCheckOutFailed { .. }, .. } => {
                failed += 1;
            }
            EventKind::Pool { event: PoolEvent::PoolCleared { .. }, .. } => harm += 1,
            EventKind::ServerDescriptionChanged { new, .. }
                if new.server_type == ServerType::Unknown =>
            {
                harm += 1;
            }
            _ => {}
        }
    }
    assert!(failed >= 10, "{failed} check-outs failed, {succeeded} finds succeeded");
    assert_eq!(harm, 0, "no pool is cleared, and the server stays known");
    Ok(())
}
