//! Load balancers, from end to end: a forwarder in front of mongos, and a client in front of it.
//!
//! The scenarios are those of the Load Balancer Support specification and its tests.

mod errors;
mod fixture;
mod scripted;

use sdam_cluster::{EmbeddedOptions, MemberId};
use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::pool::Purpose;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_tokio::Topology;

use self::fixture::{Fixture, get_more, insert, open_cursor, service, soon};
use self::scripted::Then;

/// "Monitoring": "drivers MUST NOT start a monitoring connection"; "the server type is
/// LoadBalancer", from the start.
#[tokio::test]
async fn a_load_balancer_is_known_from_the_start_and_never_monitored() {
    let fixture = Fixture::new(2, "").await;
    for _ in 0..3 {
        fixture.run(insert()).await.unwrap();
    }
    let view = fixture.client.view();
    assert_eq!(view.topology_type, TopologyType::LoadBalanced);
    assert_eq!(view.servers()[0].server_type, ServerType::LoadBalancer);
    assert_eq!(fixture.balancer.counters().accepted, 1, "there is the pool's connection alone");
    let name = |kind: &EventKind| {
        let text = match kind {
            EventKind::Pool { event, .. } => format!("{event:?}"),
            kind => format!("{kind:?}"),
        };
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    };
    let names: Vec<String> = fixture.end().await.iter().map(name).collect();
    let before_the_pool: Vec<&str> =
        names.iter().map(String::as_str).take_while(|name| *name != "ConnectionCreated").collect();
    let expected = [
        "TopologyOpening",
        "TopologyDescriptionChanged",
        "ServerOpening",
        "ServerDescriptionChanged",
        "TopologyDescriptionChanged",
    ];
    let of_the_topology: Vec<&str> = before_the_pool
        .into_iter()
        .filter(|name| name.starts_with("Topology") || name.starts_with("Server"))
        .collect();
    assert_eq!(of_the_topology, expected);
    assert!(!names.iter().any(|name| name.contains("Heartbeat")), "{names:?}");
}

/// "Connection establishment": without a `serviceId` the driver "MUST raise an error".
#[tokio::test]
async fn servers_that_know_of_no_load_balancer_are_refused_in_the_words_of_the_specification() {
    for deployment in [EmbeddedOptions::sharded(2), EmbeddedOptions::default()] {
        let mut fixture = Fixture::before(deployment, "").await;
        let error = fixture.run(insert()).await.unwrap_err();
        let text = "Driver attempted to initialize in load balancing mode, but the server does \
                    not support this mode.";
        assert!(error.to_string().contains(text), "{error}");
        assert!(error.as_check_out().is_some(), "{error:?}");
        assert_eq!(fixture.cleared(), []);
    }
}

#[tokio::test]
async fn the_connections_to_all_services_are_in_one_pool() {
    let fixture = Fixture::new(2, "").await;
    let in_use = [fixture.check_out().await, fixture.check_out().await, fixture.check_out().await];
    let services = in_use.each_ref().map(service);
    assert_eq!(services[0], services[2]);
    assert_ne!(services[0], services[1]);
    let numbers = in_use.each_ref().map(|checked_out| checked_out.connection_id().number());
    assert_eq!(numbers, [1, 2, 3], "one pool has counted them");
    drop(in_use);
    let counts = fixture.client.members()[0].counts();
    assert_eq!((counts.available, counts.in_use), (3, 0));
}

/// "Connection Pinning", "Behaviour With Cursors".
#[tokio::test]
async fn a_cursor_goes_on_where_it_was_opened_and_nowhere_else() {
    let fixture = Fixture::new(2, "").await;
    let mut checked_out = fixture.check_out().await;
    let cursor = open_cursor(&mut checked_out).await.unwrap();
    checked_out.pin(Purpose::Cursor);
    let mut other = fixture.check_out().await;
    let refused = soon(other.command("test", &get_more(cursor))).await.unwrap_err();
    assert!(refused.to_string().contains("not found"), "{refused}");
    let mut batches = 1;
    loop {
        let reply = soon(checked_out.command("test", &get_more(cursor + 2 * (batches - 1)))).await;
        batches += 1;
        let id = reply.unwrap().get_document("cursor").unwrap().get_i64("id").unwrap();
        if id == 0 {
            break;
        }
    }
    assert_eq!(batches, 4, "eight documents, two at a time");
}

/// "Connection Pinning", "Behaviour With Transactions"; transactions.json: "pinned connection is
/// returned when the transaction ends".
#[tokio::test]
async fn a_transaction_keeps_its_connection_while_others_work_beside_it() {
    let mut fixture = Fixture::new(2, "&maxPoolSize=2").await;
    let mut transaction = fixture.check_out().await;
    transaction.pin(Purpose::Transaction);
    fixture.told();
    for step in 1..=3_i32 {
        let write = rawdoc! {
            "insert": "things", "documents": [{ "x": step }], "txnNumber": 1_i64,
            "autocommit": false, "startTransaction": step == 1,
        };
        soon(transaction.command("test", &write)).await.unwrap();
        fixture.run(insert()).await.unwrap();
    }
    drop(transaction);
    let mut expected = vec!["c2 created", "c2 ready"];
    expected.extend(["c2 checked out", "c2 checked in"].repeat(3));
    expected.push("c1 checked in");
    assert_eq!(fixture.told(), expected);
}

/// wait-queue-timeouts.json: "wait queue timeout errors include cursor statistics", and
/// "transaction statistics".
#[tokio::test]
async fn a_time_out_of_the_wait_queue_says_what_connections_are_used_for() {
    for purposes in [
        [Purpose::Cursor].as_slice(),
        &[Purpose::Transaction],
        &[Purpose::Operation],
        &[Purpose::Cursor, Purpose::Transaction],
        &[Purpose::Cursor, Purpose::Operation],
    ] {
        let size = purposes.len();
        let options = format!("&maxPoolSize={size}&waitQueueTimeoutMS=50");
        let mut fixture = Fixture::new(2, &options).await;
        let mut in_use = Vec::new();
        for purpose in purposes {
            let mut checked_out = fixture.check_out().await;
            open_cursor(&mut checked_out).await.unwrap();
            checked_out.pin(*purpose);
            in_use.push(checked_out);
        }
        let count = |wanted| purposes.iter().filter(|purpose| **purpose == wanted).count();
        fixture.told();
        let error = fixture.run(insert()).await.unwrap_err().to_string();
        let expected = format!(
            "maxPoolSize: {size}, connections in use by cursors: {}, connections in use by \
             transactions: {}, connections in use by other operations: {}",
            count(Purpose::Cursor),
            count(Purpose::Transaction),
            count(Purpose::Operation)
        );
        assert!(error.contains(&expected), "{error}");
        assert_eq!(fixture.told(), ["check-out failed: timeout"]);
        in_use.pop();
        soon(fixture.patient().run_command("test", &insert())).await.unwrap();
    }
}

/// A mongos that was started again is another service: what was known of the old one is no matter.
#[tokio::test]
async fn a_mongos_that_returns_is_another_service() {
    let mut fixture = Fixture::new(1, "").await;
    let mut checked_out = fixture.check_out().await;
    let old = service(&checked_out);
    fixture.mongos.kill(MemberId(0)).await.unwrap();
    soon(checked_out.command("test", &insert())).await.unwrap_err();
    assert_eq!(fixture.cleared(), [Some(old)]);
    drop(checked_out);
    fixture.run(insert()).await.unwrap_err();
    fixture.mongos.restart(MemberId(0)).await.unwrap();
    fixture.run(insert()).await.unwrap();
    assert_ne!(service(&fixture.check_out().await), old);
    assert_eq!(fixture.cleared(), [], "nothing could be learned of a service without hello");
}

/// Server Selection, "Passing read preference to mongos and load balancers".
#[tokio::test]
async fn the_read_preference_is_passed_on_unless_it_is_primary() {
    let (address, mut commands) = scripted::start(Then::Succeed).await;
    let uri = format!("mongodb://{address}/?loadBalanced=true");
    let client = Topology::new(Options::parse(&uri).unwrap()).unwrap();
    let ping = rawdoc! { "ping": 1 };
    for mode in [ReadMode::Primary, ReadMode::Secondary, ReadMode::Nearest] {
        let criteria = Criteria::read(ReadPreference::new(mode));
        soon(client.run_command_on(criteria.clone(), "admin", &ping)).await.unwrap();
        let mut checked_out =
            soon(soon(client.select(criteria)).await.unwrap().check_out()).await.unwrap();
        soon(checked_out.command("admin", &ping)).await.unwrap();
    }
    let mut passed = Vec::new();
    let hello = soon(commands.recv()).await.unwrap();
    assert!(hello.get("hello").unwrap().is_some(), "a load balancer implies hello: {hello:?}");
    for _ in 0..6 {
        let command = soon(commands.recv()).await.unwrap();
        let preference = command.get_document("$readPreference");
        passed.push(preference.ok().map(|it| it.get_str("mode").unwrap().to_owned()));
    }
    let expected = [None, Some("secondary".to_owned()), Some("nearest".to_owned())];
    assert_eq!(passed, expected.map(|mode| [mode.clone(), mode]).concat());
}
