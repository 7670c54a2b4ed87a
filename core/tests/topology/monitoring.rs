//! The Server Monitoring specification, section by section, in virtual time.

use super::fixture::{Fixture, fresh, ms, ok, primary, secondary, standalone};
use bson::{RawBsonRef, cstr, rawdoc};
use sdam_core::config::Options;
use sdam_core::config::address_map::AddressMap;
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::machine::Machine;
use sdam_core::topology::{Action, EventKind, Input};

pub(super) const POLLING: &str = "mongodb://a/?directConnection=true&serverMonitoringMode=poll";
pub(super) const STREAMING: &str = "mongodb://a/?directConnection=true&serverMonitoringMode=stream";

/// A direct connection to a server that streams, with its first awaitable hello under way.
pub(super) fn streaming() -> Fixture {
    let mut fixture = Fixture::new(STREAMING);
    fixture.at(1).opened("a.0").at(6).reply("a.0", &fresh(standalone(), 1));
    fixture
}

#[test]
fn heartbeats_the_first_check_publishes_its_start_before_the_stream_is_opened() {
    let mut fixture = Fixture::new(POLLING);
    assert_eq!(
        fixture.log(),
        [
            "topology opening",
            "publish Single a=Unknown",
            "topology Unknown -> Single a=Unknown",
            "opening a",
            "started a",
            "open a.0",
        ]
    );
    fixture.at(2).opened("a.0");
    assert_eq!(fixture.log(), ["send a.0 isMaster"]);
    fixture.at(7).reply("a.0", &standalone());
    assert_eq!(
        fixture.log(),
        [
            "succeeded a 5ms",
            "publish Single a=Standalone",
            "server a Unknown -> Standalone",
            "topology Single a=Unknown -> Single a=Standalone",
        ]
    );
}

#[test]
fn monitoring_legacy_hello_is_kept_for_servers_that_do_not_say_hello_ok() {
    let old = rawdoc! { "ok": 1, "ismaster": true, "maxWireVersion": 8 };
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &old).at(10_000);
    assert_eq!(fixture.command("a.0").iter().next().unwrap().unwrap().0, "isMaster");
    assert!(fixture.command("a.0").get_bool("helloOk").unwrap());
}

/// Server Discovery And Monitoring Logging and Monitoring, "driverConnectionId" and
/// "serverConnectionId".
#[test]
fn heartbeats_tell_which_connection_they_are_about_by_the_names_of_both_sides() {
    let named = |name: bson::RawBson| {
        let mut reply = standalone();
        reply.append(cstr!("connectionId"), name);
        reply
    };
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &named(77.into())).at(10_000).reply("a.0", &standalone());
    fixture.at(20_000).closed("a.0").greet("a.1", &named("none".into()));
    let told = |action: &Action| {
        let Action::Emit { event } = action else { return None };
        let (kind, connection) = match &event.kind {
            EventKind::ServerHeartbeatStarted { connection, .. } => ("started", connection),
            EventKind::ServerHeartbeatSucceeded { connection, .. } => ("succeeded", connection),
            EventKind::ServerHeartbeatFailed { connection, .. } => ("failed", connection),
            _ => return None,
        };
        let of_server = connection.server_connection_id.map(std::num::NonZero::get);
        Some((kind, connection.driver_connection_id, of_server))
    };
    assert_eq!(
        fixture.topology.actions.iter().filter_map(told).collect::<Vec<_>>(),
        [
            ("started", 1, None),
            ("succeeded", 1, Some(77)),
            ("started", 1, Some(77)),
            ("succeeded", 1, Some(77)),
            ("started", 1, Some(77)),
            ("failed", 1, Some(77)),
            ("started", 2, None),
            ("succeeded", 2, None),
        ]
    );
}

#[test]
fn polling_the_next_check_begins_a_heartbeat_frequency_after_the_end_of_the_last() {
    let mut fixture = Fixture::new(POLLING);
    fixture.at(40).greet("a.0", &standalone()).quiet().at(10_039);
    assert_eq!(fixture.log(), [""; 0]);
    fixture.at(10_040);
    assert_eq!(fixture.log(), ["started a", "send a.0 hello"]);
    fixture.at(10_050).reply("a.0", &standalone());
    assert_eq!(fixture.log(), ["succeeded a 10ms", "publish Single a=Standalone"]);
    assert_eq!(fixture.topology.machine.deadline().unwrap().since_origin(), ms(20_050));
}

#[test]
fn streaming_starts_as_soon_as_the_server_has_shown_a_topology_version() {
    let mut fixture = Fixture::new(STREAMING);
    fixture.opened("a.0").at(3).quiet().reply("a.0", &fresh(standalone(), 5));
    assert_eq!(
        fixture.log(),
        [
            "succeeded a 3ms",
            "publish Single a=Standalone",
            "server a Unknown -> Standalone",
            "topology Single a=Unknown -> Single a=Standalone",
            "started a awaited",
            "send a.0 awaitable hello",
            "open a.1",
        ]
    );
    let command = fixture.command("a.0");
    assert_eq!(command.get("maxAwaitTimeMS").unwrap(), Some(RawBsonRef::Int64(10_000)));
    assert_eq!(command.get_document("topologyVersion").unwrap(), &*super::fixture::version(5));
}

#[test]
fn streaming_each_reply_is_processed_and_the_next_awaited_without_a_request() {
    let mut fixture = streaming();
    fixture.quiet().at(5000).stream("a.0", &fresh(standalone(), 1));
    let unchanged =
        ["succeeded a awaited 4994ms", "publish Single a=Standalone", "started a awaited"];
    assert_eq!(fixture.log(), unchanged);
    let mut draining = fresh(ok(), 2);
    draining.append(cstr!("msg"), "isdbgrid");
    fixture.at(5100).stream("a.0", &draining);
    assert_eq!(fixture.server("a").server_type, ServerType::Mongos);
}

#[test]
fn streaming_several_replies_in_one_read_are_processed_in_order() {
    let mut fixture = streaming();
    let flags = sdam_core::wire::Flags::MORE_TO_COME;
    let mut bytes = fixture.answer("a.0", &fresh(standalone(), 2), flags);
    bytes.extend(fixture.answer("a.0", &fresh(standalone(), 3), flags));
    fixture.quiet().at(100).bytes("a.0", &bytes);
    assert_eq!(fixture.server("a").topology_version.unwrap().counter, 3);
    let started = fixture.events().iter().filter(|line| *line == "started a awaited").count();
    assert_eq!(started, 2);
}

#[test]
fn streaming_a_reply_without_more_to_come_is_followed_by_a_new_awaitable_hello() {
    let mut fixture = streaming();
    fixture.at(9000).quiet().reply("a.0", &fresh(standalone(), 8));
    assert!(fixture.log().contains(&"send a.0 awaitable hello".into()));
    let version = fixture.command("a.0").get_document("topologyVersion").unwrap();
    assert_eq!(version.get_i64("counter").unwrap(), 8);
}

#[test]
fn streaming_is_given_up_when_the_server_does_not_show_a_topology_version_any_more() {
    let mut fixture = streaming();
    fixture.greet("a.1", &standalone()).at(9000).quiet().reply("a.0", &standalone()).at(19_000);
    assert!(fixture.log().ends_with(&["send a.0 hello".into(), "close a.1".into()]));
}

#[test]
fn server_monitoring_mode_poll_never_streams_nor_opens_a_second_connection() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &fresh(standalone(), 1)).at(10_000).reply("a.0", &fresh(standalone(), 1));
    assert_eq!(fixture.links(), ["a.0"]);
    assert_eq!(fixture.command("a.0").get("maxAwaitTimeMS").unwrap(), None);
}

#[test]
fn server_monitoring_mode_auto_polls_on_function_platforms_and_streams_elsewhere() {
    use sdam_core::config::metadata::Environment;
    for (lambda, links) in [(true, 1), (false, 2)] {
        let variable =
            |name: &str| (lambda && name == "AWS_LAMBDA_RUNTIME_API").then(|| "host".to_owned());
        let environment = Environment::detect(variable, |_| false);
        let options = Options::builder().uri("mongodb://a/?directConnection=true").unwrap();
        let mut fixture = Fixture::with(options.environment(environment).build().unwrap());
        fixture.greet("a.0", &fresh(standalone(), 1));
        assert_eq!(fixture.links().len(), links);
    }
}

#[test]
fn socket_timeout_connecting_and_hello_may_take_connect_timeout_each() {
    let mut fixture = Fixture::new(POLLING);
    fixture.quiet().at(9_999);
    assert_eq!(fixture.log(), [""; 0]);
    fixture.at(10_000);
    let failed = "failed a: no connection within 10s";
    assert_eq!(fixture.log()[..2], ["close a.0", failed]);
    fixture.at(20_000).opened("a.1").quiet().at(29_999);
    assert_eq!(fixture.log(), [""; 0]);
    fixture.at(30_000);
    assert_eq!(fixture.log()[..2], ["close a.1", "failed a: no reply to hello within 10s"]);
}

#[test]
fn failures_name_the_advertised_address_and_the_dialled_one_if_they_differ() {
    let map = AddressMap::new(["a=tunnel:1".parse().unwrap()]).unwrap();
    let options = Options::builder().uri(POLLING).unwrap().address_map(map).build().unwrap();
    let mut fixture = Fixture::with(options);
    fixture.quiet().closed("a.0");
    let failed = "failed a: dialled as tunnel:1: connection refused";
    assert_eq!(fixture.log()[0], failed);
    fixture.at(10_000).quiet().at(20_000);
    let failed = "failed a: dialled as tunnel:1: no connection within 10s";
    assert_eq!(fixture.log()[..2], ["close a.1", failed]);
}

#[test]
fn socket_timeout_an_awaited_reply_may_take_connect_timeout_and_heartbeat_frequency() {
    let mut fixture = streaming();
    fixture.greet("a.1", &standalone()).quiet().at(20_005);
    assert!(!fixture.events().iter().any(|line| line.starts_with("failed")));
    fixture.at(20_006);
    assert_eq!(fixture.events()[0], "failed a awaited: no awaited reply within 20s");
}

#[test]
fn socket_timeout_a_connect_timeout_of_zero_is_unlimited_for_awaited_replies_too() {
    let mut fixture = Fixture::new(&format!("{STREAMING}&connectTimeoutMS=0"));
    fixture.at(100_000).opened("a.0").at(200_000).reply("a.0", &fresh(standalone(), 1));
    fixture.greet("a.1", &standalone()).quiet().at(1_000_000);
    assert!(!fixture.events().iter().any(|line| line.starts_with("failed")));
}

#[test]
fn network_error_on_a_known_server_is_retried_once_at_once() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &standalone()).at(10_000).quiet().at(10_001).closed("a.0");
    assert_eq!(
        fixture.log(),
        [
            "failed a: the server closed the connection",
            "publish Single a=Unknown",
            "server a Standalone -> Unknown",
            "topology Single a=Standalone -> Single a=Unknown",
            "started a",
            "open a.1",
        ]
    );
    fixture.closed("a.1");
    assert_eq!(fixture.events()[0], "failed a: connection refused");
    fixture.at(20_000);
    assert_eq!(fixture.log(), [""; 0], "the second failure waits for the heartbeat frequency");
    fixture.at(20_001);
    assert_eq!(fixture.log(), ["started a", "open a.2"]);
}

#[test]
fn command_error_marks_unknown_closes_the_connection_and_waits() {
    let refusal = rawdoc! { "ok": 0, "code": 13, "codeName": "Unauthorized", "errmsg": "no" };
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &standalone()).at(10_000).quiet().reply("a.0", &refusal);
    let log = fixture.log();
    assert_eq!(log[..2], ["close a.0", "failed a: no (Unauthorized, code 13)"]);
    assert_eq!(
        fixture.server("a").error.as_ref().unwrap().to_string(),
        "no (Unauthorized, code 13)"
    );
    fixture.at(19_999);
    assert_eq!(fixture.log(), [""; 0]);
    fixture.at(20_000);
    assert_eq!(fixture.log(), ["started a", "open a.1"]);
}

#[test]
fn a_server_that_hangs_up_between_two_checks_is_checked_soon() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &standalone()).quiet().at(100).closed("a.0").at(499);
    assert_eq!(fixture.log(), [""; 0], "the minimum heartbeat frequency holds");
    fixture.at(500);
    assert_eq!(fixture.log(), ["started a", "open a.1"]);
    assert_eq!(fixture.summary(), "Single a=Standalone", "nothing is known to be wrong yet");
}

#[test]
fn requesting_an_immediate_check_wakes_a_sleeping_monitor_after_500_ms() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &standalone()).at(100).quiet().input(Input::RequestCheck).at(499);
    assert_eq!(fixture.log(), [""; 0]);
    fixture.at(500);
    assert_eq!(fixture.log(), ["started a", "send a.0 hello"]);
    fixture.reply("a.0", &standalone()).at(5000).quiet().input(Input::RequestCheck);
    assert_eq!(fixture.log(), ["started a", "send a.0 hello"], "at once, when it is long ago");
}

#[test]
fn requesting_an_immediate_check_is_ignored_while_one_is_in_progress() {
    let mut fixture = Fixture::new(POLLING);
    fixture.opened("a.0").quiet().input(Input::RequestCheck).reply("a.0", &standalone()).at(9_999);
    assert!(!fixture.events().iter().any(|line| line.starts_with("started")));
}

#[test]
fn sdam_p10_failing_checks_on_request_are_500_ms_apart() {
    let refusal = rawdoc! { "ok": 0, "code": 1234, "errmsg": "fail point" };
    let mut fixture = Fixture::new(POLLING);
    let mut starts = Vec::new();
    for attempt in 0..5 {
        fixture.greet(&format!("a.{attempt}"), &refusal).quiet();
        let failed_at = fixture.topology.machine.deadline().unwrap().since_origin() - ms(10_000);
        fixture.input(Input::RequestCheck);
        let next = fixture.topology.machine.deadline().unwrap().since_origin();
        starts.push(next - failed_at);
        fixture.at(u64::try_from(next.as_millis()).unwrap());
    }
    assert_eq!(starts, [ms(500); 5]);
}

#[test]
fn client_closing_leaves_nothing_running_and_every_heartbeat_ended() {
    let mut fixture = Fixture::new("mongodb://a,b,c/?replicaSet=rs");
    fixture.greet("a.0", &fresh(primary("a", &["a", "b", "c"], 1), 1)).opened("b.0").quiet();
    fixture.input(Input::Shutdown);
    assert_eq!(
        fixture.log(),
        [
            "publish Unknown",
            "close a.0",
            "close a.1",
            "failed a awaited: the client was closed",
            "closed a",
            "close b.0",
            "failed b: the client was closed",
            "closed b",
            "close c.0",
            "failed c: the client was closed",
            "closed c",
            "topology ReplicaSetWithPrimary a=RSPrimary b=Unknown c=Unknown -> Unknown",
            "topology closed",
        ]
    );
    assert_eq!(fixture.topology.machine.deadline(), None);
    assert_eq!(fixture.links(), [""; 0]);
    fixture.input(Input::RequestCheck).input(Input::Shutdown).at(100_000);
    assert_eq!(fixture.log(), [""; 0], "a closed topology stays closed");
}

#[test]
fn discovery_from_one_seed_takes_two_round_trips_and_connection_set_up() {
    let hosts = ["a", "b", "c"];
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
    // Set-up takes 20 ms, a round trip 10 ms.
    fixture.at(20).opened("a.0").at(30).reply("a.0", &fresh(secondary("a", &hosts), 1));
    assert_eq!(fixture.links(), ["a.0", "a.1", "b.0", "c.0"], "members are connected to at once");
    fixture.at(50).opened("b.0").opened("c.0").at(60);
    fixture
        .reply("b.0", &fresh(primary("b", &hosts, 1), 1))
        .reply("c.0", &fresh(secondary("c", &hosts), 1));
    assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=RSSecondary b=RSPrimary c=RSSecondary");
}

#[test]
fn step_down_changes_the_view_the_moment_the_streamed_reply_arrives() {
    let hosts = ["a", "b"];
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    fixture.greet("a.0", &fresh(primary("a", &hosts, 1), 1));
    fixture.greet("b.0", &fresh(secondary("b", &hosts), 1)).at(5432);
    let calls = fixture.topology.calls;
    fixture.stream("a.0", &fresh(secondary("a", &hosts), 2));
    assert_eq!(fixture.view().topology_type, TopologyType::ReplicaSetNoPrimary);
    assert_eq!(fixture.topology.calls - calls, 1, "no timer lies in between");
}

#[test]
fn a_server_that_has_left_is_not_monitored_any_more() {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    fixture.greet("a.0", &fresh(primary("a", &["a", "b"], 1), 1));
    fixture.greet("b.0", &fresh(secondary("b", &["a", "b"]), 1)).opened("b.1").quiet();
    let late =
        fixture.answer("b.0", &fresh(secondary("b", &["a", "b"]), 2), sdam_core::wire::Flags::NONE);
    let link = fixture.link("b.0");
    fixture.stream("a.0", &fresh(primary("a", &["a"], 1), 2));
    assert_eq!(
        fixture.log()[2..],
        [
            "server a RSPrimary -> RSPrimary",
            "close b.0",
            "close b.1",
            "failed b awaited: the server is no longer part of the deployment",
            "closed b",
            "topology ReplicaSetWithPrimary a=RSPrimary b=RSSecondary -> ReplicaSetWithPrimary a=RSPrimary",
            "started a awaited",
        ]
    );
    fixture.input(Input::Received { link, bytes: &late });
    assert_eq!(fixture.log(), [""; 0], "its late reply is ignored");
}

/// A server that expects TLS hangs up on clients that greet it without.
#[test]
fn a_server_that_hangs_up_when_it_is_greeted_may_expect_tls_unless_it_has_answered() {
    let detail = |fixture: &Fixture| fixture.server("a").error.as_ref().unwrap().detail.to_string();
    let mut fixture = Fixture::new(POLLING);
    fixture.opened("a.0").closed("a.0");
    assert!(detail(&fixture).contains("it may expect TLS"), "{}", detail(&fixture));
    let mut fixture = Fixture::new(POLLING);
    fixture.closed("a.0");
    assert_eq!(detail(&fixture), "connection refused");
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &standalone()).at(10_000).closed("a.0");
    assert_eq!(detail(&fixture), "the server closed the connection");
    fixture.opened("a.1").closed("a.1");
    assert!(detail(&fixture).contains("it may be ending"), "{}", detail(&fixture));
}

#[test]
fn events_of_changes_tell_what_has_changed() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
    fixture.forget();
    fixture.greet("a.0", &primary("a", &["a", "b"], 1));
    let mut told = Vec::new();
    for action in &fixture.topology.actions {
        let Action::Emit { event } = action else { continue };
        let Some(changes) = event.kind.changes() else { continue };
        told.extend(
            changes.into_iter().map(|it| format!("{}: {} -> {}", it.field, it.old, it.new)),
        );
    }
    for change in [
        "type: Unknown -> RSPrimary",
        "type: ReplicaSetNoPrimary -> ReplicaSetWithPrimary",
        "servers: a:27017 -> a:27017,b:27017",
    ] {
        assert!(told.iter().any(|it| it == change), "{change} is not among {told:#?}");
    }
}

#[test]
fn a_stream_that_is_said_to_be_up_twice_is_greeted_once() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
    let link = fixture.link("a.0");
    fixture.opened("a.0").quiet().input(Input::Opened { link });
    assert_eq!(fixture.log(), [""; 0]);
}
