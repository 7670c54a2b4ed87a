//! Each message, with its fields and its text.

use std::num::{NonZeroI64, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocument, rawdoc};

use super::{Component, LogMessage, SelectionLog, Severity};
use crate::command::{CommandEvent, MonitoredCommand};
use crate::config::{PoolOptions, ServerAddress};
use crate::description::TopologyDescription;
use crate::failure::{Cause, Failure, Stage};
use crate::id::{ConnectionId, LinkId, ServerId, TopologyId};
use crate::operation::{CommandError, OperationError};
use crate::pool::{CheckOutError, CloseReason, PoolEvent};
use crate::selection::Criteria;
use crate::time::Instant;
use crate::topology::{Event, EventKind, MonitoringConnection};
use crate::wire::{CommandWriter, Flags, OpMsg, ReplyDocument};

const TOOK: Duration = Duration::from_micros(1500);

fn db() -> ServerAddress {
    "db:5".parse().unwrap()
}

fn message(kind: EventKind) -> LogMessage {
    let event = Event::new(TopologyId(10), Instant::ZERO, kind);
    LogMessage::of_event(&event, 1000).unwrap()
}

fn of_pool(event: PoolEvent) -> LogMessage {
    message(EventKind::Pool { server: ServerId(0), address: db(), event })
}

fn refused() -> Failure {
    Failure::new(Stage::Connect, Cause::Refused, "refused")
}

/// Compares a message with its object and its text.
#[track_caller]
fn is(message: &LogMessage, object: &str, text: &str) {
    assert_eq!(serde_json::to_string(message).unwrap(), object);
    assert_eq!(message.to_string(), text);
}

/// SDAM Logging and Monitoring, "Log Messages".
#[test]
fn the_messages_of_a_topology_are_as_specified() {
    let id = "000000000000000a";
    let opening = message(EventKind::TopologyOpening);
    assert_eq!((opening.component(), opening.severity()), (Component::Topology, Severity::Debug));
    is(
        &opening,
        &format!(r#"{{"message":"Starting topology monitoring","topologyId":"{id}"}}"#),
        &format!("Starting monitoring for topology with ID {id}"),
    );
    is(
        &message(EventKind::TopologyClosed),
        &format!(r#"{{"message":"Stopped topology monitoring","topologyId":"{id}"}}"#),
        &format!("Stopped monitoring for topology with ID {id}"),
    );
    let server = format!(r#""serverHost":"db","serverPort":5,"topologyId":"{id}"}}"#);
    is(
        &message(EventKind::ServerOpening { server: ServerId(0), address: db() }),
        &format!(r#"{{"message":"Starting server monitoring",{server}"#),
        &format!("Starting monitoring for server db:5 in topology with ID {id}"),
    );
    is(
        &message(EventKind::ServerClosed { server: ServerId(0), address: db() }),
        &format!(r#"{{"message":"Stopped server monitoring",{server}"#),
        &format!("Stopped monitoring for server db:5 in topology with ID {id}"),
    );
    let description = Arc::new(TopologyDescription::default());
    let changed = message(EventKind::TopologyDescriptionChanged {
        previous: Arc::clone(&description),
        new: description,
    });
    assert_eq!(changed.message(), "Topology description changed");
    for field in ["previousDescription", "newDescription"] {
        let text = changed.get(field).unwrap().to_string();
        assert!(text.contains(r#""type":"Unknown""#), "{text}");
    }
}

/// SDAM Logging and Monitoring, "Server Heartbeat Succeeded Log Message" and its neighbours; what
/// has no value is left out (Logging, "Omitting Null Values from Log Messages").
#[test]
fn the_messages_of_heartbeats_are_as_specified() {
    let link = LinkId { server: ServerId(0), number: 1 };
    let (server, address, awaited) = (ServerId(0), db(), true);
    let started = EventKind::ServerHeartbeatStarted {
        server,
        address: address.clone(),
        awaited,
        connection: MonitoringConnection::new(link, None),
    };
    is(
        &message(started),
        concat!(
            r#"{"message":"Server heartbeat started","serverHost":"db","serverPort":5,"#,
            r#""awaited":true,"driverConnectionId":2,"topologyId":"000000000000000a"}"#
        ),
        "Heartbeat started for db:5 on connection with driver-generated ID 2 in topology with ID \
         000000000000000a. Awaited: true",
    );
    let connection = MonitoringConnection::new(link, NonZeroI64::new(77));
    let succeeded = message(EventKind::ServerHeartbeatSucceeded {
        server,
        address: address.clone(),
        awaited,
        connection,
        duration: TOOK,
        reply: rawdoc! { "ok": 1 }.into(),
    });
    assert_eq!(
        succeeded.to_string(),
        "Heartbeat succeeded in 1.5 ms for db:5 on connection with driver-generated ID 2 and \
         server-generated ID 77 in topology with ID 000000000000000a. Awaited: true. Reply: \
         {\"ok\": 1}"
    );
    let failure = refused();
    let failed = message(EventKind::ServerHeartbeatFailed {
        server,
        address,
        awaited,
        connection,
        duration: TOOK,
        failure: failure.clone(),
    });
    assert_eq!(failed.get("failure").unwrap().to_string(), failure.to_string());
    assert!(failed.to_string().ends_with(&format!("Awaited: true. Failure: {failure}")));
}

/// Connection Monitoring and Pooling, "Connection Pool Logging".
#[test]
fn the_messages_of_a_pool_are_as_specified() {
    let mut options = PoolOptions::default();
    (options.max_pool_size, options.max_idle_time) = (5, Duration::from_secs(10));
    options.wait_queue_timeout = Some(Duration::from_secs(2));
    let created = of_pool(PoolEvent::PoolCreated { options });
    assert_eq!(created.component(), Component::Connection);
    is(
        &created,
        concat!(
            r#"{"message":"Connection pool created","serverHost":"db","serverPort":5,"#,
            r#""maxIdleTimeMS":10000,"minPoolSize":0,"maxPoolSize":5,"maxConnecting":2,"#,
            r#""waitQueueTimeoutMS":2000}"#
        ),
        "Connection pool created for db:5 using options maxIdleTimeMS=10000, minPoolSize=0, \
         maxPoolSize=5, maxConnecting=2, waitQueueTimeoutMS=2000",
    );
    let service = Some(ObjectId::from_bytes([1; 12]));
    let cleared = of_pool(PoolEvent::PoolCleared {
        service,
        interrupt_in_use_connections: false,
        cause: refused(),
    });
    let expected = "Connection pool for db:5 cleared for serviceId 010101010101010101010101";
    assert!(cleared.to_string().starts_with(expected), "{cleared}");
    let connection = ConnectionId(3);
    let stages = Arc::from([]);
    for (event, text) in [
        (PoolEvent::PoolReady, "Connection pool ready for db:5"),
        (PoolEvent::PoolClosed, "Connection pool closed for db:5"),
        (
            PoolEvent::ConnectionCreated { connection },
            "Connection created: address=db:5, driver-generated ID=3",
        ),
        (
            PoolEvent::ConnectionReady { connection, duration: TOOK, stages },
            "Connection ready: address=db:5, driver-generated ID=3, established in=1.5 ms",
        ),
        (PoolEvent::ConnectionCheckOutStarted, "Checkout started for connection to db:5"),
        (
            PoolEvent::ConnectionCheckedOut { connection, duration: TOOK },
            "Connection checked out: address=db:5, driver-generated ID=3, duration=1.5 ms",
        ),
        (
            PoolEvent::ConnectionCheckedIn { connection },
            "Connection checked in: address=db:5, driver-generated ID=3",
        ),
    ] {
        assert_eq!(of_pool(event).to_string(), text);
    }
}

/// Connection Monitoring and Pooling, "Connection Closed Message", "Connection Checkout Failed
/// Message": "The following strings MUST be used".
#[test]
fn the_reasons_of_a_pool_are_in_the_words_of_the_specification() {
    let closed = |reason, error| {
        let connection = ConnectionId(3);
        of_pool(PoolEvent::ConnectionClosed { connection, reason, error }).to_string()
    };
    let address = "Connection closed: address=db:5, driver-generated ID=3. Reason:";
    for (reason, words) in [
        (CloseReason::Stale, "Connection became stale because the pool was cleared"),
        (
            CloseReason::Idle,
            "Connection has been available but unused for longer than the configured max idle time",
        ),
        (CloseReason::PoolClosed, "Connection pool was closed"),
    ] {
        assert_eq!(closed(reason, None), format!("{address} {words}"));
    }
    let error = OperationError::Stream(refused());
    let text = closed(CloseReason::Error, Some(Box::new(error.clone())));
    let words = "An error occurred while using the connection";
    assert_eq!(text, format!("{address} {words}. Error: {error}"));

    let failed = |error: CheckOutError| {
        let error = Box::new(error);
        of_pool(PoolEvent::ConnectionCheckOutFailed { error, duration: TOOK })
    };
    let establishing =
        failed(CheckOutError::Establishing { address: db(), error, stages: Arc::from([]) });
    let words = "An error occurred while trying to establish a new connection";
    assert_eq!(establishing.get("reason").unwrap().to_string(), words);
    assert!(establishing.get("error").is_some(), "{establishing}");
    let abandoned = failed(CheckOutError::Abandoned { address: db(), waited: TOOK });
    let words = "Wait queue timeout elapsed without a connection becoming available";
    assert_eq!(abandoned.get("reason").unwrap().to_string(), words);
    assert!(abandoned.get("error").unwrap().to_string().contains("stopped to wait"));
    let closed = failed(CheckOutError::PoolClosed { address: db() });
    let text = "Checkout failed for connection to db:5. Reason: Connection pool was closed. \
                Duration: 1.5 ms";
    assert_eq!(closed.to_string(), text);
}

fn monitored(
    command: &RawDocument,
    tell: impl FnOnce(&MonitoredCommand, &OpMsg<'_>) -> CommandEvent,
) -> LogMessage {
    let mut bytes = Vec::new();
    let mut writer = CommandWriter::begin(&mut bytes, 7, Flags::NONE, command);
    writer.string("$db", "app");
    writer.finish(&[]);
    let sent = OpMsg::read(&bytes).unwrap();
    let command = MonitoredCommand::new(&sent, 7, 3, ConnectionId(2)).with_server(Some(9), None);
    let event = tell(&command, &sent);
    let command = Arc::new(command);
    message(EventKind::Command { server: ServerId(0), address: db(), command, event })
}

/// Command Logging and Monitoring, "Log Messages".
#[test]
fn the_messages_of_commands_are_as_specified() {
    let ping = rawdoc! { "ping": 1 };
    let started = monitored(&ping, MonitoredCommand::started);
    assert_eq!((started.component(), started.severity()), (Component::Command, Severity::Debug));
    is(
        &started,
        concat!(
            r#"{"message":"Command started","commandName":"ping","databaseName":"app","#,
            r#""requestId":7,"operationId":3,"driverConnectionId":2,"serverHost":"db","#,
            r#""serverPort":5,"serverConnectionId":9,"command":"{\"ping\": 1, \"$db\": \"app\"}"}"#
        ),
        "Command \"ping\" started on database \"app\" using a connection with driver-generated ID \
         2 and server-generated ID 9 to db:5. The requestID is 7 and the operation ID is 3. \
         Command: {\"ping\": 1, \"$db\": \"app\"}",
    );
    let reply = ReplyDocument::from(rawdoc! { "ok": 1 });
    let succeeded = monitored(&ping, |command, _| command.succeeded(TOOK, &reply)).to_string();
    assert!(
        succeeded.starts_with("Command \"ping\" succeeded on database \"app\" in 1.5 ms using")
    );
    assert!(succeeded.ends_with("operation ID is 3. Command reply: {\"ok\": 1}"), "{succeeded}");
}

/// Command Logging and Monitoring, "Security": a sensitive command, its reply and its failure are
/// not logged.
#[test]
fn nothing_of_sensitive_commands_is_logged() {
    let command = rawdoc! { "saslStart": 1, "payload": "hunter2" };
    let started = monitored(&command, MonitoredCommand::started);
    assert_eq!(started.get("command").unwrap().to_string(), "{}");
    let reply = ReplyDocument::from(rawdoc! { "payload": "hunter2" });
    let succeeded = monitored(&command, |command, _| command.succeeded(TOOK, &reply));
    assert_eq!(succeeded.get("reply").unwrap().to_string(), "{}");
    let reply = rawdoc! { "ok": 0, "code": 18, "errmsg": "hunter2" };
    let error = CommandError::in_reply(&reply).unwrap();
    let error = OperationError::Reply { stage: Stage::Operate, error };
    let failed = monitored(&command, |command, _| command.failed(TOOK, error));
    for message in [started, succeeded, failed] {
        assert!(!serde_json::to_string(&message).unwrap().contains("hunter2"), "{message}");
    }
}

/// Server Selection, "Logging".
#[test]
fn the_messages_of_a_selection_are_as_specified() {
    let (criteria, topology) = (Criteria::write(), TopologyDescription::default());
    let log = SelectionLog::new("insert", Some(4), &criteria);
    let started = log.started(&topology);
    let expected = (Component::ServerSelection, Severity::Debug);
    assert_eq!((started.component(), started.severity()), expected);
    let text = started.to_string();
    let beginning = "Server selection started for operation insert with ID 4. Selector: a write, \
                     topology description: {";
    assert!(text.starts_with(beginning), "{text}");
    let waiting = log.waiting(&topology, Some(Duration::from_secs(30)));
    assert_eq!(waiting.severity(), Severity::Informational);
    assert_eq!(waiting.get("remainingTimeMS").unwrap().to_string(), "30000");
    let succeeded = log.succeeded(&topology, &db()).to_string();
    assert!(succeeded.contains(". Selected server: db:5. Selector: a write"), "{succeeded}");
}

/// SDAM Logging and Monitoring, "Common Fields": "not present for Unix domain sockets".
#[test]
fn a_unix_domain_socket_has_no_port() {
    let address: ServerAddress = "/tmp/mongodb.sock".parse().unwrap();
    let message = message(EventKind::ServerOpening { server: ServerId(0), address });
    let text = "Starting monitoring for server /tmp/mongodb.sock in topology with ID \
                000000000000000a";
    assert_eq!(message.to_string(), text);
    assert_eq!(message.get("serverPort"), None);
}

#[test]
fn lost_messages_are_counted_in_a_warning() {
    for component in Component::ALL {
        let lost = LogMessage::lost(component, NonZeroU64::new(7).unwrap());
        assert_eq!((lost.component(), lost.severity()), (component, Severity::Warning));
        is(
            &lost,
            r#"{"message":"Log messages were lost","lost":7}"#,
            "7 messages were lost, as they came faster than they could be written",
        );
    }
}

/// A command may run for hours.
#[test]
fn long_durations_are_whole_and_short_ones_have_no_digits_that_nobody_has_measured() {
    for (duration, millis) in [
        (Duration::from_micros(1), "0.001"),
        (Duration::from_nanos(1_999), "0.001"),
        (Duration::from_micros(2_004_113), "2004.113"),
        (Duration::from_secs(5 * 3600) + Duration::from_micros(1_501), "18000001.501"),
        (Duration::from_secs(40 * 365 * 86_400), "1261440000000"),
    ] {
        let connection = ConnectionId(3);
        let ready = PoolEvent::ConnectionCheckedOut { connection, duration };
        assert_eq!(of_pool(ready).get("durationMS").unwrap().to_string(), millis);
    }
}
