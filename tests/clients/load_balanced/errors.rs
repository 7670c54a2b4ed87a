//! The effect of errors on the pool behind a load balancer: they clear the service they came from.

use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::description::ServerType;
use sdam_core::pool::{PoolEvent, Purpose};
use sdam_core::topology::EventKind;
use sdam_host::ErrorKind;
use sdam_tokio::Topology;

use super::fixture::{Fixture, fail_point, get_more, insert, open_cursor, service, soon};
use super::scripted::{self, SERVICE, Then};

/// sdam-error-handling.json: "only connections for a specific serviceId are closed when pools are
/// cleared".
#[tokio::test]
async fn a_shutdown_error_closes_the_connections_to_its_own_service_alone() {
    for code in [11600, 91] {
        let mut fixture = Fixture::new(2, "").await;
        let (mut first, mut second) = (fixture.check_out().await, fixture.check_out().await);
        open_cursor(&mut first).await.unwrap();
        open_cursor(&mut second).await.unwrap();
        drop(first);
        drop(second);
        // The connection that was returned last is the next: the same service hears of both.
        let data = rawdoc! { "failCommands": ["insert"], "errorCode": code };
        let configure = fail_point(1, data);
        soon(fixture.client.run_command("admin", &configure)).await.unwrap();
        let error = fixture.run(insert()).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Command, Some(code)), "{error:?}");
        fixture.run(insert()).await.unwrap();
        let told = fixture.told();
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
        assert_eq!(fixture.client.view().servers()[0].server_type, ServerType::LoadBalancer);
    }
}

/// SDAM, "not writable primary and node is recovering": the pool is cleared only if the server is
/// shutting down.
#[tokio::test]
async fn an_error_of_a_server_that_stays_clears_nothing() {
    let mut fixture = Fixture::new(1, "").await;
    for code in [10107, 189, 1] {
        fixture.fail(0, 1, rawdoc! { "failCommands": ["insert"], "errorCode": code }).await;
        fixture.run(insert()).await.unwrap_err();
        fixture.run(insert()).await.unwrap();
    }
    assert_eq!(fixture.cleared(), []);
    assert_eq!(fixture.balancer.counters().accepted, 1);
}

/// sdam-error-handling.json: "errors during the initial connection hello are ignored".
#[tokio::test]
async fn errors_before_hello_is_answered_clear_nothing() {
    for data in [
        rawdoc! { "failCommands": ["isMaster", "hello"], "errorCode": 11600 },
        rawdoc! { "failCommands": ["isMaster", "hello"], "closeConnection": true },
    ] {
        let mut fixture =
            Fixture::new(2, "&appname=lbSDAMErrorTestClient&maxAdaptiveRetries=0").await;
        fixture.run(insert()).await.unwrap();
        let checked_out = fixture.check_out().await;
        fixture.told();
        fixture.fail(1, 1, data).await;
        fixture.run(insert()).await.unwrap_err();
        let failed = ["c2 created", "c2 closed: Error", "check-out failed: connectionError"];
        assert_eq!(fixture.told(), failed);
        drop(checked_out);
        fixture.run(insert()).await.unwrap();
        assert_eq!(fixture.told(), ["c1 checked in", "c1 checked out", "c1 checked in"]);
    }
}

/// sdam-error-handling.json: "errors during authentication are processed"; and so is a time-out
/// then, SDAM: "Network error or timeout before the handshake completes".
#[tokio::test]
async fn errors_while_authenticating_clear_the_service_that_hello_has_named() {
    for then in [Then::Close, Then::KeepSilent] {
        let (address, _commands) = scripted::start(then).await;
        let uri = format!("mongodb://me:secret@{address}/?loadBalanced=true&connectTimeoutMS=5000");
        let (client, mut events) = Topology::with_events(Options::parse(&uri).unwrap()).unwrap();
        soon(client.run_command("test", &insert())).await.unwrap_err();
        soon(client.close()).await;
        let mut told = Vec::new();
        while let Some(event) = soon(events.next()).await {
            match event.kind {
                EventKind::Pool { event: PoolEvent::ConnectionCreated { .. }, .. } => {
                    told.push("created");
                }
                EventKind::Pool { event: PoolEvent::PoolCleared { service, .. }, .. } => {
                    assert_eq!(service, Some(SERVICE));
                    told.push("cleared");
                }
                EventKind::Pool { event: PoolEvent::ConnectionClosed { .. }, .. } => {
                    told.push("closed");
                }
                EventKind::Pool { event: PoolEvent::ConnectionCheckOutFailed { .. }, .. } => {
                    told.push("check-out failed");
                }
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
    let uri = format!("mongodb://me:secret@{address}/?loadBalanced=true&connectTimeoutMS=5000");
    let (client, mut events) = Topology::with_events(Options::parse(&uri).unwrap()).unwrap();
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
    let clears = events.filter(|event| {
        matches!(event.kind, EventKind::Pool { event: PoolEvent::PoolCleared { .. }, .. })
    });
    assert_eq!(clears.count(), 1);
}

/// event-monitoring.json: "poolClearedEvent events include serviceId"; and only what belongs to it
/// is gone.
#[tokio::test]
async fn a_network_error_clears_one_service_and_says_which() {
    let mut fixture = Fixture::new(2, "").await;
    let (first, second) = (fixture.check_out().await, fixture.check_out().await);
    let third = fixture.check_out().await;
    let (struck, spared) = (service(&first), service(&second));
    assert_eq!(struck, service(&third), "connections go to both in turn");
    drop((third, second));
    fixture.told();
    fixture.fail(0, 1, rawdoc! { "failCommands": ["find"], "closeConnection": true }).await;
    let mut first = first;
    open_cursor(&mut first).await.unwrap_err();
    assert_eq!(fixture.cleared(), [Some(struck)]);
    drop(first);
    let counts = fixture.client.members()[0].counts();
    assert_eq!((counts.available, counts.in_use), (1, 0), "the third went with the first");
    assert_eq!(service(&fixture.check_out().await), spared);
    assert_eq!(fixture.cleared(), []);
}

/// sdam-error-handling.json: "stale errors are ignored".
#[tokio::test]
async fn errors_of_connections_from_before_a_clear_clear_nothing_more() {
    let mut fixture = Fixture::new(1, "").await;
    let (mut first, mut second) = (fixture.check_out().await, fixture.check_out().await);
    fixture.fail(0, 2, rawdoc! { "failCommands": ["getMore"], "closeConnection": true }).await;
    for checked_out in [&mut first, &mut second] {
        let cursor = open_cursor(checked_out).await.unwrap();
        checked_out.pin(Purpose::Cursor);
        let error = soon(checked_out.command("test", &get_more(cursor))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Network, "{error:?}");
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
    assert_eq!(fixture.told(), expected);
}

/// "Connection Pooling": generations are counted by service, so that what happens to one says
/// nothing of connections to another, made before or after.
#[tokio::test]
async fn each_service_counts_its_own_generations() {
    let mut fixture = Fixture::new(2, "").await;
    let (mut first, mut second) = (fixture.check_out().await, fixture.check_out().await);
    let services = [service(&first), service(&second)];
    for member in 0..2 {
        let data = rawdoc! { "failCommands": ["find"], "closeConnection": true };
        fixture.fail(member, 1, data).await;
    }
    open_cursor(&mut first).await.unwrap_err();
    // A clear of the other service does not make this one's error a stale one.
    open_cursor(&mut second).await.unwrap_err();
    assert_eq!(fixture.cleared(), services.map(Some));
    drop((first, second));
    let (mut first, mut second) = (fixture.check_out().await, fixture.check_out().await);
    assert_eq!([service(&first), service(&second)], services);
    for checked_out in [&mut first, &mut second] {
        open_cursor(checked_out).await.unwrap();
    }
    drop((first, second));
    assert_eq!(fixture.client.members()[0].counts().available, 2, "they are of today");
}
