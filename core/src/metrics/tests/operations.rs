//! Commands: how long they took, by name and outcome, and how many names are distinguished.

use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};

use super::{address, event, failure, lines, without_buckets};
use crate::command::MonitoredCommand;
use crate::failure::{Cause, Stage};
use crate::id::{ConnectionId, ServerId};
use crate::metrics::{MAX_ERRORS, MAX_OPERATIONS, Metrics, Traffic};
use crate::operation::{CommandError, InvalidCommand, OperationError};
use crate::topology::EventKind;
use crate::wire::{CommandWriter, Flags, OpMsg, ReplyDocument};

const FAMILY: &str = "sdam_command_duration_seconds";

/// A command, and how it has ended after 20 ms.
fn note(metrics: &mut Metrics, command: &RawDocument, error: Option<OperationError>) {
    let mut message = Vec::new();
    let mut writer = CommandWriter::begin(&mut message, 7, Flags::NONE, command);
    writer.string("$db", "app");
    writer.finish(&[]);
    let message = OpMsg::read(&message).unwrap();
    let command = Arc::new(MonitoredCommand::new(&message, 7, 1, ConnectionId(1)));
    let took = Duration::from_millis(20);
    let end = match error {
        None => command.succeeded(took, &ReplyDocument::from(rawdoc! { "ok": 1 })),
        Some(error) => command.failed(took, error),
    };
    for command_event in [command.started(&message), end] {
        let (server, address, command) = (ServerId(1), address("h"), Arc::clone(&command));
        let kind = EventKind::Command { server, address, command, event: command_event };
        metrics.note(&event(0, kind));
    }
}

fn refused(code: Option<i32>) -> Option<OperationError> {
    let error = CommandError { code, ..CommandError::default() };
    Some(OperationError::Reply { stage: Stage::Operate, error })
}

fn named(name: &str) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    command.append(<&bson::raw::CStr>::try_from(name).unwrap(), 1);
    command
}

fn counts(metrics: &Metrics) -> Vec<String> {
    without_buckets(metrics, 0, &format!("{FAMILY}_count"))
}

/// OpenTelemetry, "Semantic conventions for database client metrics":
/// `db.client.operation.duration` with `db.operation.name`, `error.type` and the server.
#[test]
fn commands_are_timed_by_name_and_outcome() {
    let mut metrics = Metrics::new();
    note(&mut metrics, &named("find"), None);
    note(&mut metrics, &named("find"), None);
    note(&mut metrics, &named("find"), refused(Some(10_107)));
    note(&mut metrics, &named("find"), refused(None));
    note(&mut metrics, &named("find"), Some(OperationError::Stream(failure(Cause::Timeout))));
    note(&mut metrics, &named("ping"), Some(InvalidCommand::Busy.into()));
    let of = |name: &str, rest: &str| {
        format!(
            "{FAMILY}_count{{db_operation_name=\"{name}\",db_system_name=\"mongodb\",\
             server_address=\"h\",server_port=\"27017\"{rest}"
        )
    };
    let expected = [
        of("find", "} 2"),
        of("find", ",error_type=\"_OTHER\"} 1"),
        of("find", ",error_type=\"timeout\"} 1"),
        of("find", ",error_type=\"10107\"} 1"),
        of("ping", ",error_type=\"invalid\"} 1"),
    ];
    assert_eq!(counts(&metrics), expected);
    let sums = lines(&metrics, 0, &format!("{FAMILY}_sum"));
    assert!(sums[0].ends_with(" 0.04"), "{sums:?}");
    let buckets = lines(&metrics, 0, &format!("{FAMILY}_bucket"));
    assert!(buckets[2].ends_with("le=\"0.01\"} 0") && buckets[3].ends_with("le=\"0.05\"} 2"));
}

#[test]
fn names_that_are_none_or_one_too_many_count_as_others() {
    let mut metrics = Metrics::new();
    let long = "x".repeat(65);
    for name in ["", "two words", "hunter2\n", "é", &long] {
        note(&mut metrics, &named(name), None);
    }
    let others = |metrics: &Metrics| {
        let counts = counts(metrics);
        let others: Vec<_> = counts.iter().filter(|it| it.contains("\"_OTHER\"")).collect();
        assert_eq!(others.len(), 1, "{counts:?}");
        others[0].rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(others(&metrics), "5");
    for number in 0..MAX_OPERATIONS + 3 {
        note(&mut metrics, &named(&format!("command{number}")), None);
        note(&mut metrics, &named("command0"), None);
    }
    assert_eq!(others(&metrics), "8");
    assert_eq!(counts(&metrics).len(), MAX_OPERATIONS + 1);
}

#[test]
fn errors_that_are_too_many_count_as_others() {
    let mut metrics = Metrics::new();
    for code in 0..MAX_ERRORS as i32 + 4 {
        note(&mut metrics, &named("find"), refused(Some(code)));
    }
    let counts = counts(&metrics);
    assert_eq!(counts.len(), MAX_ERRORS + 1);
    assert!(counts[0].ends_with("error_type=\"_OTHER\"} 4"), "{counts:?}");
}

/// The documents of an application stay with it.
#[test]
fn nothing_of_a_command_but_its_name_is_told() {
    let mut metrics = Metrics::new();
    note(&mut metrics, &rawdoc! { "insert": "hunter2", "documents": ["hunter2"] }, None);
    let message = "hunter2".to_owned();
    let error = CommandError { message, code: Some(18), ..CommandError::default() };
    let error = OperationError::Reply { stage: Stage::Operate, error };
    note(&mut metrics, &rawdoc! { "saslStart": 1, "payload": "hunter2" }, Some(error));
    let text = lines(&metrics, 0, "").concat();
    assert!(text.contains("\"saslStart\"") && !text.contains("hunter2"), "{text}");
}

/// It comes to the same as events do, limits included, however often it is taken in.
#[test]
fn commands_that_were_counted_in_place_are_added() {
    let (mut told, mut added) = (Metrics::new(), Metrics::new());
    let took = Duration::from_millis(20);
    for round in 0..3 {
        let mut traffic = Traffic::default();
        for number in 0..MAX_OPERATIONS / 2 {
            let name = format!("command{round}x{number}");
            for error in [None, refused(Some(13))] {
                traffic.command_ended(&name, took, error.as_ref());
                note(&mut told, &named(&name), error);
            }
        }
        traffic.command_ended("no name", took, None);
        note(&mut told, &named("no name"), None);
        added.add(&address("h"), traffic);
        assert_eq!(counts(&added), counts(&told));
        assert_eq!(lines(&added, 0, FAMILY), lines(&told, 0, FAMILY));
    }
    assert!(counts(&added).iter().any(|line| line.contains("\"_OTHER\"")));
}

/// Between two looks, names are distinguished up to the same limit.
#[test]
fn of_commands_counted_in_place_too_many_names_are_one() {
    let mut traffic = Traffic::default();
    for number in 0..10 * MAX_OPERATIONS {
        traffic.command_ended(&format!("command{number}"), Duration::ZERO, None);
    }
    let mut metrics = Metrics::new();
    metrics.add(&address("h"), traffic);
    assert_eq!(counts(&metrics).len(), MAX_OPERATIONS + 1);
}
