//! Load balancers, from end to end: a forwarder in front of mongos, and a client in front of it.
//!
//! The scenarios are those of the Load Balancer Support specification and its tests.

mod scripted;
mod stage;

use sdam_conformance::cluster::{EmbeddedOptions, MemberId};
use sdam_core::bson::rawdoc;
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::event::EventKind;
use sdam_core::failure::Cause;
use sdam_core::host::RunCommandCause;
use sdam_core::operation::OperationError;
use sdam_core::options::Options;
use sdam_core::pool::Purpose;
use sdam_core::selection::{Criteria, ReadMode, ReadPreference};
use sdam_tokio::Client;

use scripted::{SERVICE, Then};
use stage::{Stage, fail_point, get_more, insert, open_cursor, service, soon};

/// "Monitoring": "drivers MUST NOT start a monitoring connection"; "the server type is
/// LoadBalancer", from the start.
#[tokio::test]
async fn a_load_balancer_is_known_from_the_start_and_never_monitored() {
    let stage = Stage::new(2, "").await;
    for _ in 0..3 {
        stage.run(insert()).await.unwrap();
    }
    let view = stage.client.view();
    assert_eq!(view.topology_type, TopologyType::LoadBalanced);
    assert_eq!(view.servers()[0].server_type, ServerType::LoadBalancer);
    assert_eq!(stage.balancer.counters().accepted, 1, "there is the pool's connection alone");
    let name = |kind: &EventKind| {
        let text = format!("{kind:?}");
        text.split([' ', '{']).next().unwrap_or_default().to_owned()
    };
    let names: Vec<String> = stage.end().await.iter().map(name).collect();
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
        let mut stage = Stage::before(deployment, "").await;
        let error = stage.run(insert()).await.unwrap_err();
        let text = "Driver attempted to initialize in load balancing mode, but the server does \
                    not support this mode.";
        assert!(error.to_string().contains(text), "{error}");
        assert!(matches!(error.cause, RunCommandCause::CheckOut(_)), "{error:?}");
        assert_eq!(stage.cleared(), []);
    }
}

#[tokio::test]
async fn the_connections_to_all_services_are_in_one_pool() {
    let stage = Stage::new(2, "").await;
    let loans = [stage.check_out().await, stage.check_out().await, stage.check_out().await];
    let services = loans.each_ref().map(service);
    assert_eq!(services[0], services[2]);
    assert_ne!(services[0], services[1]);
    let pool = std::sync::Arc::clone(loans[0].server());
    assert!(loans.iter().all(|loan| std::sync::Arc::ptr_eq(loan.server(), &pool)));
    drop(loans);
    let counts = pool.counts();
    assert_eq!((counts.available, counts.in_use), (3, 0));
}

/// "Connection Pinning", "Behaviour With Cursors".
#[tokio::test]
async fn a_cursor_goes_on_where_it_was_opened_and_nowhere_else() {
    let stage = Stage::new(2, "").await;
    let mut loan = stage.check_out().await;
    let cursor = open_cursor(&mut loan).await.unwrap();
    loan.pin(Purpose::Cursor);
    let mut other = stage.check_out().await;
    let refused = soon(other.command("test", &get_more(cursor))).await.unwrap_err();
    assert!(refused.to_string().contains("not found"), "{refused}");
    let mut batches = 1;
    loop {
        let reply = soon(loan.command("test", &get_more(cursor + 2 * (batches - 1)))).await;
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
    let mut stage = Stage::new(2, "&maxPoolSize=2").await;
    let mut transaction = stage.check_out().await;
    transaction.pin(Purpose::Transaction);
    stage.told();
    for step in 1..=3_i32 {
        let write = rawdoc! {
            "insert": "things", "documents": [{ "x": step }], "txnNumber": 1_i64,
            "autocommit": false, "startTransaction": step == 1,
        };
        soon(transaction.command("test", &write)).await.unwrap();
        stage.run(insert()).await.unwrap();
    }
    drop(transaction);
    let mut expected = vec!["c2 created", "c2 ready"];
    expected.extend(["c2 checked out", "c2 checked in"].repeat(3));
    expected.push("c1 checked in");
    assert_eq!(stage.told(), expected);
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
        let mut stage = Stage::new(2, &options).await;
        let mut loans = Vec::new();
        for purpose in purposes {
            let mut loan = stage.check_out().await;
            open_cursor(&mut loan).await.unwrap();
            loan.pin(*purpose);
            loans.push(loan);
        }
        let count = |wanted| purposes.iter().filter(|purpose| **purpose == wanted).count();
        stage.told();
        let error = stage.run(insert()).await.unwrap_err().to_string();
        let expected = format!(
            "maxPoolSize: {size}, connections in use by cursors: {}, connections in use by \
             transactions: {}, connections in use by other operations: {}",
            count(Purpose::Cursor),
            count(Purpose::Transaction),
            count(Purpose::Operation)
        );
        assert!(error.contains(&expected), "{error}");
        assert_eq!(stage.told(), ["check-out failed: timeout"]);
        loans.pop();
        stage.run(insert()).await.unwrap();
    }
}

/// sdam-error-handling.json: "only connections for a specific serviceId are closed when pools are
/// cleared".
#[tokio::test]
async fn a_shutdown_error_closes_the_connections_to_its_own_service_alone() {
    for code in [11600, 91] {
        let mut stage = Stage::new(2, "").await;
        let (mut first, mut second) = (stage.check_out().await, stage.check_out().await);
        open_cursor(&mut first).await.unwrap();
        open_cursor(&mut second).await.unwrap();
        drop(first);
        drop(second);
        // The connection that was returned last is the next: the same service hears of both.
        let data = rawdoc! { "failCommands": ["insert"], "errorCode": code };
        let configure = fail_point(1, data);
        soon(stage.client.run_command("admin", &configure)).await.unwrap();
        let error = stage.run(insert()).await.unwrap_err();
        let RunCommandCause::Operation(OperationError::Reply { error, .. }) = &error.cause else {
            panic!("{error:?}");
        };
        assert_eq!(error.code, Some(code));
        stage.run(insert()).await.unwrap();
        let told = stage.told();
        let expected = [
            "pool ready",
            "c1 created",
            "c1 ready",
            "c1 checked out",
            "c2 created",
            "c2 ready",
            "c2 checked out",
            "c1 checked in",
            "c2 checked in",
            "c2 checked out",
            "c2 checked in",
            "c2 checked out",
            "pool cleared",
            "c2 checked in",
            "c2 closed: Stale",
            "c1 checked out",
            "c1 checked in",
        ];
        assert_eq!(told, expected);
        assert_eq!(stage.client.view().servers()[0].server_type, ServerType::LoadBalancer);
    }
}

/// SDAM, "not writable primary and node is recovering": the pool is cleared only if the server is
/// shutting down.
#[tokio::test]
async fn an_error_of_a_server_that_stays_clears_nothing() {
    let mut stage = Stage::new(1, "").await;
    for code in [10107, 189, 1] {
        stage.fail(0, 1, rawdoc! { "failCommands": ["insert"], "errorCode": code }).await;
        stage.run(insert()).await.unwrap_err();
        stage.run(insert()).await.unwrap();
    }
    assert_eq!(stage.cleared(), []);
    assert_eq!(stage.balancer.counters().accepted, 1);
}

/// sdam-error-handling.json: "errors during the initial connection hello are ignored".
#[tokio::test]
async fn errors_before_hello_is_answered_clear_nothing() {
    for data in [
        rawdoc! { "failCommands": ["isMaster", "hello"], "errorCode": 11600 },
        rawdoc! { "failCommands": ["isMaster", "hello"], "closeConnection": true },
    ] {
        let mut stage = Stage::new(2, "&appname=lbSDAMErrorTestClient").await;
        stage.run(insert()).await.unwrap();
        let loan = stage.check_out().await;
        stage.told();
        stage.fail(1, 1, data).await;
        stage.run(insert()).await.unwrap_err();
        let failed = ["c2 created", "c2 closed: Error", "check-out failed: connectionError"];
        assert_eq!(stage.told(), failed);
        drop(loan);
        stage.run(insert()).await.unwrap();
        assert_eq!(stage.told(), ["c1 checked in", "c1 checked out", "c1 checked in"]);
    }
}

/// sdam-error-handling.json: "errors during authentication are processed"; and so is a time-out
/// then, SDAM: "Network error or timeout before the handshake completes".
#[tokio::test]
async fn errors_while_authenticating_clear_the_service_that_hello_has_named() {
    for then in [Then::Close, Then::KeepSilent] {
        let (address, _commands) = scripted::start(then).await;
        let uri = format!("mongodb://me:secret@{address}/?loadBalanced=true&connectTimeoutMS=500");
        let (client, mut events) = Client::with_events(Options::parse(&uri).unwrap()).unwrap();
        soon(client.run_command("test", &insert())).await.unwrap_err();
        soon(client.close()).await;
        let mut told = Vec::new();
        while let Some(event) = soon(events.next()).await {
            match event.kind {
                EventKind::ConnectionCreated { .. } => told.push("created"),
                EventKind::PoolCleared { service, .. } => {
                    assert_eq!(service, Some(SERVICE));
                    told.push("cleared");
                }
                EventKind::ConnectionClosed { .. } => told.push("closed"),
                EventKind::ConnectionCheckOutFailed { .. } => told.push("check-out failed"),
                _ => {}
            }
        }
        assert_eq!(told, ["created", "cleared", "closed", "check-out failed"], "{then:?}");
    }
}

/// "Connection Pooling": a connection has its generation before it authenticates, so that of two
/// that fail then, the later one has nothing new to say.
#[tokio::test]
async fn connections_that_authenticate_at_the_same_time_clear_their_service_once() {
    let (address, mut commands) = scripted::start(Then::KeepSilent).await;
    let uri = format!("mongodb://me:secret@{address}/?loadBalanced=true&connectTimeoutMS=1000");
    let (client, mut events) = Client::with_events(Options::parse(&uri).unwrap()).unwrap();
    let command = insert();
    let (first, second) = soon(async {
        tokio::join!(client.run_command("test", &command), client.run_command("test", &command))
    })
    .await;
    first.unwrap_err();
    second.unwrap_err();
    let mut received = Vec::new();
    while let Ok(command) = commands.try_recv() {
        received.push(command.iter().next().unwrap().unwrap().0.to_string());
    }
    assert_eq!(received.iter().filter(|name| *name == "saslStart").count(), 2, "{received:?}");
    let events = std::iter::from_fn(|| events.try_next());
    let clears = events.filter(|event| matches!(event.kind, EventKind::PoolCleared { .. }));
    assert_eq!(clears.count(), 1);
}

/// event-monitoring.json: "poolClearedEvent events include serviceId"; and only what belongs to it
/// is gone.
#[tokio::test]
async fn a_network_error_clears_one_service_and_says_which() {
    let mut stage = Stage::new(2, "").await;
    let (first, second) = (stage.check_out().await, stage.check_out().await);
    let third = stage.check_out().await;
    let (struck, spared) = (service(&first), service(&second));
    assert_eq!(struck, service(&third), "connections go to both in turn");
    drop((third, second));
    stage.told();
    stage.fail(0, 1, rawdoc! { "failCommands": ["find"], "closeConnection": true }).await;
    let mut first = first;
    open_cursor(&mut first).await.unwrap_err();
    assert_eq!(stage.cleared(), [Some(struck)]);
    drop(first);
    let counts = stage.client.members()[0].server().counts();
    assert_eq!((counts.available, counts.in_use), (1, 0), "the third went with the first");
    assert_eq!(service(&stage.check_out().await), spared);
    assert_eq!(stage.cleared(), []);
}

/// sdam-error-handling.json: "stale errors are ignored".
#[tokio::test]
async fn errors_of_connections_from_before_a_clear_clear_nothing_more() {
    let mut stage = Stage::new(1, "").await;
    let (mut first, mut second) = (stage.check_out().await, stage.check_out().await);
    stage.fail(0, 2, rawdoc! { "failCommands": ["getMore"], "closeConnection": true }).await;
    for loan in [&mut first, &mut second] {
        let cursor = open_cursor(loan).await.unwrap();
        loan.pin(Purpose::Cursor);
        let error = soon(loan.command("test", &get_more(cursor))).await.unwrap_err();
        let OperationError::Stream(failure) = error else { panic!("{error:?}") };
        assert!(matches!(failure.cause, Cause::Closed | Cause::Io), "{failure:?}");
    }
    drop(first);
    drop(second);
    let expected = [
        "pool ready",
        "c1 created",
        "c1 ready",
        "c1 checked out",
        "c2 created",
        "c2 ready",
        "c2 checked out",
        "pool cleared",
        "c1 checked in",
        "c1 closed: Error",
        "c2 checked in",
        "c2 closed: Error",
    ];
    assert_eq!(stage.told(), expected);
}

/// "Connection Pooling": generations are counted by service, so that what happens to one says
/// nothing of connections to another, made before or after.
#[tokio::test]
async fn each_service_counts_its_own_generations() {
    let mut stage = Stage::new(2, "").await;
    let (mut first, mut second) = (stage.check_out().await, stage.check_out().await);
    let services = [service(&first), service(&second)];
    for member in 0..2 {
        let data = rawdoc! { "failCommands": ["find"], "closeConnection": true };
        stage.fail(member, 1, data).await;
    }
    open_cursor(&mut first).await.unwrap_err();
    // A clear of the other service does not make this one's error a stale one.
    open_cursor(&mut second).await.unwrap_err();
    assert_eq!(stage.cleared(), services.map(Some));
    drop((first, second));
    let (mut first, mut second) = (stage.check_out().await, stage.check_out().await);
    assert_eq!([service(&first), service(&second)], services);
    for loan in [&mut first, &mut second] {
        open_cursor(loan).await.unwrap();
    }
    drop((first, second));
    assert_eq!(stage.client.members()[0].server().counts().available, 2, "they are of today");
}

/// A mongos that was started again is another service: what was known of the old one is no matter.
#[tokio::test]
async fn a_mongos_that_returns_is_another_service() {
    let mut stage = Stage::new(1, "").await;
    let mut loan = stage.check_out().await;
    let old = service(&loan);
    stage.mongos.kill(MemberId(0)).await.unwrap();
    soon(loan.command("test", &insert())).await.unwrap_err();
    assert_eq!(stage.cleared(), [Some(old)]);
    drop(loan);
    stage.run(insert()).await.unwrap_err();
    stage.mongos.restart(MemberId(0)).await.unwrap();
    stage.run(insert()).await.unwrap();
    assert_ne!(service(&stage.check_out().await), old);
    assert_eq!(stage.cleared(), [], "nothing could be learned of a service without hello");
}

/// Server Selection, "Passing read preference to mongos and load balancers".
#[tokio::test]
async fn the_read_preference_is_passed_on_unless_it_is_primary() {
    let (address, mut commands) = scripted::start(Then::Succeed).await;
    let uri = format!("mongodb://{address}/?loadBalanced=true");
    let client = Client::new(Options::parse(&uri).unwrap()).unwrap();
    let ping = rawdoc! { "ping": 1 };
    for mode in [ReadMode::Primary, ReadMode::Secondary, ReadMode::Nearest] {
        let criteria = Criteria::read(ReadPreference::new(mode));
        soon(client.run_command_on(criteria, "admin", &ping)).await.unwrap();
    }
    let mut passed = Vec::new();
    let hello = soon(commands.recv()).await.unwrap();
    assert!(hello.get("hello").unwrap().is_some(), "a load balancer implies hello: {hello:?}");
    for _ in 0..3 {
        let command = soon(commands.recv()).await.unwrap();
        let preference = command.get_document("$readPreference");
        passed.push(preference.ok().map(|it| it.get_str("mode").unwrap().to_owned()));
    }
    assert_eq!(passed, [None, Some("secondary".to_owned()), Some("nearest".to_owned())]);
}
