//! The single-threaded mode: what errors of operations are worth, and what they say.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::{Generation, WaiterId};
use sdam_core::machine::Machine;
use sdam_core::operation::{CommandError, OperationError, OperationFailure};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input};

use super::fixture::{Fixture, fresh, primary, secondary};
use super::single_threaded::{HOSTS, SET, scanned, select, single, story};

/// An operation on `host` fails with this error.
fn fails(fixture: &mut Fixture, host: &str, error: OperationError) {
    let (generation, server) = (Generation::new(0), fixture.server(host).id);
    let failure = OperationFailure::new(generation, 17, error);
    fixture.input(Input::OperationFailed { server, failure });
}

fn code(code: i32) -> OperationError {
    let error = CommandError::in_reply(&rawdoc! { "ok": 0, "code": code }).unwrap();
    OperationError::Reply { stage: Step::Operate, error }
}

fn closed() -> OperationError {
    OperationError::Stream(Failure::new(Step::Operate, Cause::Closed, "it broke"))
}

fn refused() -> OperationError {
    OperationError::Stream(Failure::new(Step::Connect, Cause::Refused, "there is no listener"))
}

fn overloaded() -> OperationError {
    let reply = rawdoc! { "ok": 0, "code": 462, "errorLabels": ["SystemOverloadedError"] };
    let error = CommandError::in_reply(&reply).unwrap();
    OperationError::Reply { stage: Step::Operate, error }
}

/// Server Monitoring, "hello or legacy hello Cancellation": another scan finds out what the check
/// would have found.
#[test]
fn a_check_that_an_error_has_cancelled_is_worth_another_scan() {
    let mut fixture = scanned(SET);
    fixture.at(60_000);
    select(&mut fixture, 1, Criteria::write());
    fails(&mut fixture, "a", closed());
    fixture.reply("b.0", &secondary("b", &HOSTS));
    assert_eq!(story(&mut fixture), ["started a", "started b"], "no operation is refused");
    fixture.at(60_500).reply("b.0", &secondary("b", &HOSTS));
    fixture.greet("a.1", &primary("a", &HOSTS, 1));
    assert_eq!(story(&mut fixture), ["started b", "started a", "wake 1"]);
}

/// SDAM, "not writable primary and node is recovering": the topology is marked stale by the first
/// and by "node is shutting down", and not by other errors.
#[test]
fn errors_of_operations_mark_the_topology_stale_unless_the_node_recovers_or_the_network_fails() {
    for (error, scans) in [
        (code(10107), true),
        // It is a secondary, which was known.
        (code(13435), false),
        (code(91), true),
        (code(11600), true),
        (code(11602), false),
        (code(13436), false),
        (closed(), false),
        (code(1), false),
        (overloaded(), false),
        // No monitor would find out whether the server only sheds load.
        (refused(), true),
    ] {
        let mut fixture = scanned(SET);
        fixture.at(1000);
        fails(&mut fixture, "b", error.clone());
        assert_eq!(story(&mut fixture), [""; 0], "no check is requested");
        assert_eq!(fixture.topology.machine.deadline(), None);
        select(&mut fixture, 1, Criteria::write());
        let expected = if scans { "started a" } else { "wake 1" };
        assert_eq!(story(&mut fixture), [expected], "{error}");
    }
}

/// "so the next server selection scans all servers", those included that the scan in progress has
/// checked before the error.
#[test]
fn an_error_during_a_scan_is_worth_another_one() {
    let mut fixture = scanned(SET);
    fixture.at(60_000);
    select(&mut fixture, 1, Criteria::write());
    fixture.reply("a.0", &primary("a", &HOSTS, 1));
    fails(&mut fixture, "a", code(10107));
    fixture.reply("b.0", &secondary("b", &HOSTS)).at(60_499);
    assert_eq!(story(&mut fixture), ["started a", "started b"]);
    fixture.at(60_500).reply("b.0", &primary("b", &HOSTS, 2)).reply("a.0", &secondary("a", &HOSTS));
    assert_eq!(story(&mut fixture), ["started b", "started a", "wake 1"]);
}

/// The same section: the error is ignored if its topologyVersion is not newer.
#[test]
fn a_stale_error_marks_nothing() {
    let mut fixture = single("mongodb://a/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    fixture.greet("a.0", &fresh(primary("a", &["a"], 1), 5)).at(1000).quiet();
    let version = super::fixture::version(5);
    let reply = rawdoc! { "ok": 0, "code": 10107, "topologyVersion": version };
    let error = CommandError::in_reply(&reply).unwrap();
    fails(&mut fixture, "a", OperationError::Reply { stage: Step::Operate, error });
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(story(&mut fixture), ["wake 2"]);
}

#[test]
fn the_error_says_what_is_wrong_with_each_server_and_when_it_may_be_checked_again() {
    let mut fixture = single("mongodb://a");
    select(&mut fixture, 1, Criteria::write());
    fixture.at(1000).closed("a.0");
    let Some(Action::Wake { outcome: Err(error), .. }) = fixture.topology.actions.last() else {
        panic!("no answer")
    };
    assert_eq!(error.verdict, Verdict::ConnectionRefused);
    assert_eq!(error.troubles[0].next, Some(Duration::from_secs(5)));
}

/// Server Monitoring, "Network or command error during server check": the next check follows at
/// once "if this was a network error and the server was in a known state before the error", and
/// else after cooldownMS.
#[test]
fn a_server_whose_check_fails_is_checked_once_more_by_the_same_scan_only_if_it_was_known() {
    for was_known in [true, false] {
        let mut fixture = single("mongodb://a/?replicaSet=rs");
        select(&mut fixture, 1, Criteria::write());
        fixture.greet("a.0", &primary("a", &["a"], 1)).at(60_000).quiet();
        if !was_known {
            fails(&mut fixture, "a", code(10107));
        }
        select(&mut fixture, 2, Criteria::write());
        fixture.closed("a.0");
        if !was_known {
            assert_eq!(story(&mut fixture), ["started a", "refuse 2"]);
            fixture.at(65_000);
            select(&mut fixture, 2, Criteria::write());
        }
        fixture.greet("a.1", &primary("a", &["a"], 1));
        let expected: &[&str] = if was_known { &["started a"; 2] } else { &["started a"] };
        assert_eq!(story(&mut fixture), [expected, &["wake 2"]].concat());
    }
}

#[test]
fn the_error_says_no_time_of_a_check_that_has_begun() {
    let mut fixture = single("mongodb://a");
    select(&mut fixture, 1, Criteria::write());
    fixture.at(1000).closed("a.0");
    let (waiter, criteria) = (WaiterId(2), Arc::new(Criteria::write()));
    let deadline = Some(Instant::from_millis(8000));
    fixture.at(7000).input(Input::Wait { waiter, criteria, deadline }).at(8000);
    let Some(Action::Wake { outcome: Err(error), .. }) = fixture.topology.actions.last() else {
        panic!("no answer")
    };
    assert_eq!((error.troubles.len(), error.troubles[0].next), (1, None));
}
