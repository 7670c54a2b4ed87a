//! "Application errors": what an operation's failure does to the topology and to pools.

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::Generation;
use sdam_core::operation::{CommandError, OperationError, OperationFailure};
use sdam_core::topology::Input;

use super::fixture::{Fixture, fresh, ms, primary, secondary, standalone, version};

const HOSTS: [&str; 2] = ["a", "b"];

/// A replica set whose primary is `a`; both stream.
fn replica_set() -> Fixture {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    fixture.greet("a.0", &fresh(primary("a", &HOSTS, 1), 1));
    fixture.greet("b.0", &fresh(secondary("b", &HOSTS), 1)).at(5000).quiet();
    fixture
}

/// An operation on `host` fails over a connection of that generation to a 6.0 server.
fn fails(fixture: &mut Fixture, host: &str, generation: u32, error: OperationError) {
    let failure = OperationFailure::new(Generation::new(generation), 17, error);
    let server = fixture.server(host).id;
    fixture.input(Input::OperationFailed { server, failure });
}

fn stream(fixture: Step, cause: Cause) -> OperationError {
    OperationError::Stream(Failure::new(fixture, cause, "it broke"))
}

fn reply(document: &RawDocument) -> OperationError {
    let error = CommandError::in_reply(document).expect("an error");
    OperationError::Reply { stage: Step::Operate, error }
}

fn code(code: i32) -> RawDocumentBuf {
    rawdoc! { "ok": 0, "code": code, "errmsg": "it is over" }
}

/// A provider of certificates that is slow, or a responder of OCSP, says nothing of the server; what
/// a login needs counts, as any error of it does (SDAM, "MongoDB Handshake errors").
#[test]
fn the_server_is_not_blamed_for_what_was_asked_of_others_before_it() {
    let mut fixture = replica_set();
    fixture.pools();
    for stage in [Step::Certificates, Step::Revocation] {
        for cause in [Cause::Timeout, Cause::Configuration] {
            fails(&mut fixture, "a", 0, stream(stage, cause));
            assert_eq!(fixture.pools(), [] as [&str; 0], "{stage:?}");
        }
    }
    fails(&mut fixture, "a", 0, stream(Step::Credentials, Cause::Timeout));
    let pools = fixture.pools();
    assert!(pools.contains(&"pool a clear to 1".to_owned()), "{pools:?}");
}

#[test]
fn pools_exist_before_a_view_names_their_server_and_are_ready_before_it_can_be_selected() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
    assert_eq!(fixture.pools(), ["pool a joins", "publish ReplicaSetNoPrimary a=Unknown"]);
    fixture.greet("a.0", &fresh(primary("a", &HOSTS, 1), 1));
    assert_eq!(
        fixture.pools(),
        ["pool b joins", "pool a ready", "publish ReplicaSetWithPrimary a=RSPrimary b=Unknown"]
    );
    fixture.stream("a.0", &fresh(primary("a", &["a"], 1), 2));
    assert_eq!(fixture.pools(), ["publish ReplicaSetWithPrimary a=RSPrimary", "pool b leaves"]);
}

#[test]
fn pools_of_servers_that_cannot_be_used_are_not_ready_unless_connected_to_directly() {
    let mut arbiter = super::fixture::member("a", &HOSTS);
    arbiter.append(cstr!("arbiterOnly"), true);
    for (uri, ready) in [
        ("mongodb://a/?replicaSet=rs", false),
        ("mongodb://a/?replicaSet=rs&directConnection=true", true),
    ] {
        let mut fixture = Fixture::new(uri);
        fixture.greet("a.0", &arbiter);
        assert_eq!(fixture.pools().contains(&"pool a ready".into()), ready, "{uri}");
    }
}

#[test]
fn a_failed_check_clears_the_pool_and_a_time_out_interrupts() {
    let uri = "mongodb://a/?directConnection=true&serverMonitoringMode=poll";
    let mut fixture = Fixture::new(uri);
    fixture.greet("a.0", &standalone()).at(10_000).quiet().reply("a.0", &code(1));
    assert_eq!(fixture.pools(), ["publish Single a=Unknown", "pool a clear to 1"]);
    fixture.at(20_000).greet("a.1", &standalone());
    assert_eq!(fixture.pools(), ["pool a ready", "publish Single a=Standalone"]);
    fixture.at(40_000);
    let cleared = ["publish Single a=Unknown", "pool a clear to 2, interrupting"];
    assert_eq!(fixture.pools(), cleared);
}

/// "not writable primary": a command without `$readPreference` is for the primary, so that its
/// refusal says that the supposed primary is none; of a member that was known to be none it says
/// nothing, whether the error has a topologyVersion or, as before 4.4, does not.
#[test]
fn a_secondary_that_wants_to_be_told_that_it_is_meant_is_still_a_secondary() {
    let versions = [None, Some(version(2))];
    for version in versions {
        let mut refusal = code(13435);
        if let Some(version) = version {
            refusal.append(cstr!("topologyVersion"), version);
        }
        let mut fixture = replica_set();
        fails(&mut fixture, "b", 0, reply(&refusal));
        assert_eq!(fixture.log(), [""; 0], "neither view nor pool nor monitor hears of it");
        assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=RSPrimary b=RSSecondary");
        fails(&mut fixture, "a", 0, reply(&refusal));
        assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=RSSecondary");
    }
    let mut fixture = Fixture::new("mongodb://b/?directConnection=true");
    fixture.greet("b.0", &secondary("b", &HOSTS)).quiet();
    fails(&mut fixture, "b", 0, reply(&code(13435)));
    assert_eq!(fixture.summary(), "Single b=RSSecondary");
}

/// Server Selection, "Calculation of Average Round Trip Times", and Server Monitoring, "Measuring
/// RTT": streamed replies are no samples, so that a server known by one has the average of before,
/// and is not taken for a near one; the first sample is the average again.
#[test]
fn a_server_that_streams_that_it_is_back_is_as_far_away_as_it_was_until_it_is_measured() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
    fixture.opened("a.0").at(80).reply("a.0", &fresh(primary("a", &["a"], 1), 1));
    fixture.opened("a.1").at(160).reply("a.1", &primary("a", &["a"], 1));
    fails(&mut fixture, "a", 0, reply(&code(10107)));
    assert_eq!(fixture.server("a").round_trip_time, None, "it is Unknown");
    fixture.at(200).stream("a.0", &fresh(secondary("a", &["a"]), 2));
    assert_eq!(fixture.server("a").round_trip_time, Some(ms(80)));
    fixture.at(10_160).at(10_170).reply("a.1", &secondary("a", &["a"]));
    fixture.at(10_200).stream("a.0", &fresh(secondary("a", &["a"]), 2));
    assert_eq!(fixture.server("a").round_trip_time, Some(ms(10)));
}

#[test]
fn network_error_after_the_handshake_marks_unknown_clears_and_cancels_the_check() {
    let mut fixture = replica_set();
    fails(&mut fixture, "a", 0, stream(Step::Operate, Cause::Closed));
    assert_eq!(
        fixture.pools(),
        ["publish ReplicaSetNoPrimary a=Unknown b=RSSecondary", "pool a clear to 1"]
    );
    assert_eq!(fixture.server("a").error.as_ref().unwrap().to_string(), "it broke");
    assert!(!fixture.has_link("a.0"), "the running check is cancelled");
    fixture.quiet().at(14_999);
    assert!(!fixture.log().contains(&"started a".into()), "and no immediate one requested");
    fixture.at(15_000);
    assert!(fixture.log().contains(&"started a".into()));
}

#[test]
fn cancelling_a_check_closes_both_connections_and_ends_the_heartbeat() {
    let mut fixture = replica_set();
    fixture.opened("a.1");
    fails(&mut fixture, "a", 0, stream(Step::Operate, Cause::Closed));
    let log = fixture.log();
    let end = ["close a.0", "close a.1", "failed a awaited: the check was abandoned"];
    assert_eq!(log[log.len() - 3..], end);
    fixture.at(5100).input(Input::RequestCheck).at(5499);
    assert_eq!(fixture.log(), [""; 0], "a request is heard, with the floor of 500 ms");
    fixture.at(5500);
    assert_eq!(fixture.log(), ["started a", "open a.2"]);
}

/// Server Monitoring, "hello or legacy hello Cancellation": `cancelCheck` interrupts a check, and
/// does not touch how long a monitor waits that is between two.
#[test]
fn a_network_error_does_not_put_off_the_check_that_a_sleeping_monitor_is_about_to_begin() {
    let polling = || {
        let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs&serverMonitoringMode=poll");
        fixture.greet("a.0", &primary("a", &["a"], 1)).at(100).quiet();
        assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=RSPrimary");
        fixture
    };
    let mut fixture = polling();
    fails(&mut fixture, "a", 0, stream(Step::Operate, Cause::Closed));
    assert_eq!(fixture.links(), [""; 0], "the monitoring connection is closed");
    fixture.quiet().at(9999);
    assert_eq!(fixture.log(), [""; 0]);
    fixture.at(10_000);
    assert_eq!(fixture.log(), ["started a", "open a.1"], "when it would have begun anyway");

    let mut fixture = polling();
    fails(&mut fixture, "a", 0, reply(&code(10107)));
    fails(&mut fixture, "a", 0, stream(Step::Operate, Cause::Closed));
    fixture.quiet().at(500);
    assert_eq!(
        fixture.log(),
        ["started a", "open a.1"],
        "\"not writable primary\" has asked for it"
    );
}

#[test]
fn network_time_out_after_the_handshake_changes_nothing() {
    let mut fixture = replica_set();
    fails(&mut fixture, "a", 0, stream(Step::Operate, Cause::Timeout));
    assert_eq!((fixture.pools(), fixture.links().len()), (vec![], 4));
}

#[test]
fn backpressure_network_errors_and_time_outs_while_connecting_or_in_hello_change_nothing() {
    for step in [Step::Connect, Step::Hello] {
        for cause in [Cause::Refused, Cause::Timeout, Cause::Closed, Cause::Io] {
            let error = stream(step, cause);
            assert_eq!(error.labels(), ["SystemOverloadedError", "RetryableError"]);
            let mut fixture = replica_set();
            fails(&mut fixture, "a", 0, error);
            assert_eq!(fixture.pools(), [""; 0]);
        }
    }
}

#[test]
fn backpressure_names_that_do_not_resolve_have_no_label_and_mark_unknown() {
    let error = stream(Step::Resolve, Cause::NotResolved);
    assert_eq!(error.labels(), [""; 0]);
    let mut fixture = replica_set();
    fails(&mut fixture, "a", 0, error);
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=RSSecondary");
}

#[test]
fn errors_of_authentication_mark_unknown_and_clear() {
    let refused = CommandError::in_reply(&code(18)).unwrap();
    for error in [
        stream(Step::Authenticate, Cause::Timeout),
        stream(Step::Authenticate, Cause::Closed),
        OperationError::Reply { stage: Step::Authenticate, error: refused },
    ] {
        let mut fixture = replica_set();
        fails(&mut fixture, "a", 0, error);
        assert_eq!(
            fixture.pools(),
            ["publish ReplicaSetNoPrimary a=Unknown b=RSSecondary", "pool a clear to 1"]
        );
    }
}

#[test]
fn backpressure_a_handshake_that_the_server_refuses_for_overload_changes_nothing() {
    let mut document = code(462);
    document.append(
        cstr!("errorLabels"),
        ["SystemOverloadedError", "RetryableError"].into_iter().collect::<bson::RawArrayBuf>(),
    );
    let error = CommandError::in_reply(&document).unwrap();
    let mut fixture = replica_set();
    fails(&mut fixture, "a", 0, OperationError::Reply { stage: Step::Hello, error });
    assert_eq!(fixture.pools(), [""; 0]);
}

#[test]
fn other_command_errors_change_nothing() {
    let mut fixture = replica_set();
    fails(&mut fixture, "a", 0, reply(&code(11000)));
    assert_eq!(fixture.pools(), [""; 0]);
}

#[test]
fn stale_generations_are_ignored() {
    let mut fixture = replica_set();
    fails(&mut fixture, "a", 0, reply(&code(91)));
    assert_eq!(fixture.pools().last().unwrap(), "pool a clear to 1");
    // The check that was requested makes it known again.
    fixture.stream("a.0", &fresh(primary("a", &HOSTS, 1), 2)).quiet();
    fails(&mut fixture, "a", 0, stream(Step::Operate, Cause::Closed));
    fails(&mut fixture, "a", 0, reply(&code(91)));
    assert_eq!(fixture.pools(), [""; 0]);
    fails(&mut fixture, "a", 1, stream(Step::Operate, Cause::Closed));
    assert_eq!(fixture.pools().last().unwrap(), "pool a clear to 2");
}

#[test]
fn stale_topology_versions_are_ignored_an_equal_one_too() {
    let with = |counter: i64| {
        let mut document = code(10107);
        document.append(cstr!("topologyVersion"), version(counter));
        reply(&document)
    };
    let mut fixture = replica_set();
    fails(&mut fixture, "a", 0, with(1));
    assert_eq!(fixture.pools(), [""; 0]);
    fails(&mut fixture, "a", 0, with(2));
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=RSSecondary");
    assert_eq!(fixture.server("a").topology_version.unwrap().counter, 2, "it is kept");
}

#[test]
fn sdam_p3_not_writable_primary_marks_unknown_keeps_the_pool_and_requests_a_check() {
    let uri = "mongodb://a,b/?replicaSet=rs&serverMonitoringMode=poll";
    let mut fixture = Fixture::new(uri);
    fixture.greet("a.0", &primary("a", &HOSTS, 1)).at(2000).quiet();
    fails(&mut fixture, "a", 0, reply(&code(10107)));
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=Unknown");
    let log = fixture.log();
    assert!(log.ends_with(&["started a".into(), "send a.0 hello".into()]), "{log:?}");
    assert!(!fixture.pools().iter().any(|line| line.contains("clear")));
}

#[test]
fn sdam_p4_node_is_recovering_marks_that_server_unknown_only() {
    let mut fixture = replica_set();
    fails(&mut fixture, "b", 0, reply(&code(13436)));
    assert_eq!(fixture.pools(), ["publish ReplicaSetWithPrimary a=RSPrimary b=Unknown"]);
}

#[test]
fn sdam_p5_a_write_concern_error_of_a_server_that_shuts_down_clears_too() {
    let shutting_down = rawdoc! {
        "ok": 1,
        "writeConcernError": { "code": 91, "errmsg": "Replication is being shut down" },
    };
    let mut fixture = replica_set();
    fails(&mut fixture, "a", 0, reply(&shutting_down));
    assert_eq!(
        fixture.pools(),
        ["publish ReplicaSetNoPrimary a=Unknown b=RSSecondary", "pool a clear to 1"]
    );
    let error = fixture.server("a").error.clone().unwrap();
    assert_eq!(error.to_string(), "Replication is being shut down (code 91)");
}

#[test]
fn sdam_p6_state_changes_without_a_code_keep_the_message() {
    for message in ["not master", "not master or secondary", "node is recovering"] {
        for document in [rawdoc! { "ok": 0, "errmsg": message }, rawdoc! { "$err": message }] {
            let mut fixture = replica_set();
            fails(&mut fixture, "a", 0, reply(&document));
            assert_eq!(fixture.server("a").error.as_ref().unwrap().to_string(), message);
        }
    }
}

#[test]
fn servers_before_4_2_lose_their_pool_with_any_state_change() {
    for (max_wire_version, is_cleared) in [(7, true), (8, false)] {
        let mut fixture = replica_set();
        let failure =
            OperationFailure::new(Generation::new(0), max_wire_version, reply(&code(10107)));
        let server = fixture.server("a").id;
        fixture.input(Input::OperationFailed { server, failure });
        assert_eq!(fixture.pools().contains(&"pool a clear to 1".into()), is_cleared);
    }
}

#[test]
fn load_balanced_errors_clear_what_belongs_to_one_service_and_keep_the_server() {
    let (one, two) = (ObjectId::from_bytes([1; 12]), ObjectId::from_bytes([2; 12]));
    let mut fixture = Fixture::new("mongodb://a/?loadBalanced=true");
    let server = fixture.server("a").id;
    let mut fail = |service, generation, error: OperationError| {
        let generation = Generation::new(generation);
        let failure = OperationFailure::new(generation, 17, error).with_service(service);
        fixture.quiet().input(Input::OperationFailed { server, failure });
        assert_eq!(fixture.summary(), "LoadBalanced a=LoadBalancer");
        fixture.pools()
    };
    let closed = || stream(Step::Operate, Cause::Closed);
    assert_eq!(fail(Some(one), 0, closed()), [format!("pool a clear {one} to 1")]);
    assert_eq!(fail(Some(one), 0, closed()), [""; 0], "the generation is that of the service");
    assert_eq!(fail(Some(two), 0, reply(&code(91))), [format!("pool a clear {two} to 1")]);
    assert_eq!(fail(Some(one), 1, reply(&code(10107))), [""; 0], "no state of the server changes");
    assert_eq!(fail(None, 0, stream(Step::Authenticate, Cause::Closed)), [""; 0]);
}

/// The ids of services come from outside; what the pool has forgotten, its topology forgets, too.
#[test]
fn topology_and_pool_remember_the_same_services() {
    let mut fixture = Fixture::new("mongodb://a/?loadBalanced=true");
    let server = fixture.server("a").id;
    let mut fail = |number: u32| {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let (service, generation) = (Some(ObjectId::from_bytes(bytes)), Generation::new(0));
        let error = stream(Step::Operate, Cause::Closed);
        let failure = OperationFailure::new(generation, 17, error).with_service(service);
        fixture.quiet().input(Input::OperationFailed { server, failure });
        fixture.pools().len()
    };
    let cleared: usize = (1..=10_001).map(&mut fail).sum();
    assert_eq!(cleared, 10_001);
    assert_eq!(fail(2), 0, "it is remembered, so that this is stale");
    assert_eq!(fail(1), 1, "connections made now are of generation 0 again");
}

#[test]
fn a_cancelled_check_does_not_keep_a_waiting_operation_waiting() {
    use sdam_core::id::WaiterId;
    use sdam_core::selection::Criteria;
    use sdam_core::time::Instant;
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    fixture.greet("a.0", &fresh(secondary("a", &HOSTS), 1));
    fixture.greet("b.0", &fresh(secondary("b", &HOSTS), 1)).at(5000);
    let (waiter, criteria) = (WaiterId(1), std::sync::Arc::new(Criteria::write()));
    fixture.input(Input::Wait { waiter, criteria, deadline: Some(Instant::from_millis(30_000)) });
    fails(&mut fixture, "b", 0, stream(Step::Operate, Cause::Closed));
    fixture.quiet().at(5000);
    fixture.at(5500);
    assert!(fixture.log().contains(&"started b".into()), "500 ms after the last check at most");
}

#[test]
fn the_average_round_trip_time_is_forgotten_when_an_error_makes_the_server_unknown() {
    let uri = "mongodb://a/?directConnection=true&serverMonitoringMode=poll";
    for error in [stream(Step::Operate, Cause::Closed), reply(&code(10107))] {
        let mut fixture = Fixture::new(uri);
        fixture.opened("a.0").at(100).reply("a.0", &standalone()).at(1000);
        fails(&mut fixture, "a", 0, error);
        let mut link = "a.0";
        fixture.input(Input::RequestCheck).at(2000);
        if fixture.has_link("a.1") {
            link = "a.1";
            fixture.opened(link);
        }
        let asked = if link == "a.1" { 2000 } else { 1000 };
        fixture.at(2010).reply(link, &standalone());
        let expected = super::fixture::ms(2010 - asked);
        assert_eq!(fixture.server("a").round_trip_time, Some(expected));
    }
}

#[test]
fn pools_end_after_the_view_that_names_their_server_when_the_client_is_closed() {
    let mut fixture = replica_set();
    fixture.input(Input::Shutdown);
    assert_eq!(fixture.pools(), ["publish Unknown", "pool a leaves", "pool b leaves"]);
}
