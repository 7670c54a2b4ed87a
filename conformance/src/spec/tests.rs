//! The runner itself: what it must not let pass.

use super::{
    CaseReport, Difference, FoundFile, SUITES, Skip, Suite, Verdict, run_file, run_text,
    skip_reason,
};

fn suite(name: &str) -> &'static Suite {
    SUITES.iter().find(|suite| suite.name == name).unwrap()
}

/// The only case of a file of that suite.
fn case(name: &str, text: &str) -> CaseReport {
    let [case] = run_text(suite(name), text).try_into().unwrap();
    case
}

fn differences(name: &str, text: &str) -> Vec<Difference> {
    match case(name, text).verdict {
        Verdict::Passed => Vec::new(),
        Verdict::Failed { differences } => differences,
        Verdict::Skipped { reason } => panic!("skipped: {reason}"),
    }
}

/// The differences as texts: where, what was expected, what came.
fn complaints(name: &str, text: &str) -> Vec<[String; 3]> {
    let triple = |Difference { place, expected, found }| [place, expected, found];
    differences(name, text).into_iter().map(triple).collect()
}

const STATES: &str = "server-discovery-and-monitoring/rs";

/// A case in which `a` says that it is a standalone, and whose outcome is given.
fn standalone(outcome: &str) -> String {
    format!(
        r#"{{ "description": "one server", "uri": "mongodb://a", "phases": [ {{
            "responses": [["a:27017", {{
                "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 21
            }}]],
            "outcome": {outcome}
        }} ] }}"#
    )
}

#[test]
fn a_case_that_holds_passes_under_its_description() {
    let text = standalone(
        r#"{ "topologyType": "Single", "setName": null, "compatible": true,
             "servers": { "A": { "type": "Standalone", "maxWireVersion": 21,
                                 "pool": { "generation": 0 } } } }"#,
    );
    let case = case(STATES, &text);
    assert_eq!((case.name.as_str(), case.verdict), ("one server", Verdict::Passed));
}

#[test]
fn every_difference_says_where_it_is_what_was_expected_and_what_came() {
    let text = standalone(
        r#"{ "topologyType": "Sharded", "setName": "rs", "servers": {
             "a:27017": { "type": "Mongos", "setVersion": 2, "pool": { "generation": 1 } },
             "b:27017": { "type": "Unknown" } } }"#,
    );
    let expected = [
        ["phase 1, topologyType", "Sharded", "Single"],
        ["phase 1, setName", "rs", "unset"],
        ["phase 1, servers", "a:27017 b:27017", "a:27017"],
        ["phase 1, server a:27017, type", "Mongos", "Standalone"],
        ["phase 1, server a:27017, setVersion", "2", "unset"],
        ["phase 1, server a:27017, pool.generation", "1", "0"],
    ];
    assert_eq!(complaints(STATES, &text), expected);
}

#[test]
fn null_demands_that_a_value_is_unset() {
    let text = standalone(
        r#"{ "topologyType": "Single",
             "servers": { "a:27017": { "type": "Standalone", "maxWireVersion": null } } }"#,
    );
    let expected = [["phase 1, server a:27017, maxWireVersion", "unset", "21"]];
    assert_eq!(complaints(STATES, &text), expected);
}

#[test]
fn what_the_runner_does_not_understand_fails() {
    let good =
        r#"{ "topologyType": "Single", "servers": { "a:27017": { "type": "Standalone" } } }"#;
    assert!(differences(STATES, &standalone(good)).is_empty());
    for (bad, complaint) in [
        (standalone(good).replace("\"uri\"", "\"url\""), "`url`"),
        (standalone(&good.replace("\"type\"", "\"kind\": 1, \"type\"")), "`kind`"),
        (standalone(&good.replace("\"servers\"", "\"compat\": true, \"servers\"")), "`compat`"),
        (standalone(&good.replace("Standalone", "Standby")), "\"Standby\" is no type of server"),
        (standalone(&good.replace("a:27017", "a:x")), "\"a:x\" is no address"),
        (standalone("{}"), "missing field"),
        ("{".to_owned(), "the file is not JSON"),
        ("[]".to_owned(), "does not follow the format"),
    ] {
        let [[_, _, found]] = complaints(STATES, &bad).try_into().unwrap();
        assert!(found.contains(complaint), "{complaint:?} is not in {found:?}");
    }
}

#[test]
fn every_phase_reaches_the_client_also_after_a_network_error() {
    let reply = r#"{ "ok": 1, "isWritablePrimary": true, "maxWireVersion": 21 }"#;
    let phase = |reply: &str, found: &str| {
        format!(
            r#"{{ "responses": [["a", {reply}]], "outcome": {{ "topologyType": "Single",
                  "servers": {{ "a": {{ "type": "{found}" }} }} }} }}"#
        )
    };
    let phases = [phase(reply, "Standalone"), phase("{}", "Unknown"), phase(reply, "Mongos")];
    let text = format!(
        r#"{{ "description": "", "uri": "mongodb://a", "phases": [{}] }}"#,
        phases.join(",")
    );
    assert_eq!(
        complaints(STATES, &text),
        [["phase 3, server a:27017, type", "Mongos", "Standalone"]]
    );
}

#[test]
fn a_server_that_the_client_never_knew_cannot_answer() {
    let text = standalone(r#"{ "topologyType": "Unknown", "servers": {} }"#)
        .replace(r#"["a:27017""#, r#"["z:27017""#);
    let [[_, _, found]] = complaints(STATES, &text).try_into().unwrap();
    assert_eq!(found, "z:27017 is to answer, but the client never connected to it");
}

#[test]
fn all_events_of_a_phase_must_come_in_order_and_no_others() {
    let text =
        standalone(r#"{ "events": [ { "topology_opening_event": { "topologyId": "42" } } ] }"#);
    let [[place, expected, found]] =
        complaints("server-discovery-and-monitoring/monitoring", &text).try_into().unwrap();
    assert_eq!((place.as_str(), expected.as_str()), ("phase 1, events", "topology opening"));
    assert_eq!(
        found,
        "topology opening, topology changed, a:27017 opening, a:27017 changed, topology changed"
    );
}

#[test]
fn the_round_trip_time_is_compared() {
    let text = |average: &str| {
        format!(r#"{{ "avg_rtt_ms": {average}, "new_rtt_ms": 20, "new_avg_rtt": 12 }}"#)
    };
    assert_eq!(complaints("server-selection/rtt", &text("10")), [[""; 3]; 0]);
    let expected = [["average", "12 ms", "20 ms"]];
    assert_eq!(complaints("server-selection/rtt", &text("\"NULL\"")), expected);
    let [[_, _, found]] = complaints("server-selection/rtt", &text("1e300")).try_into().unwrap();
    assert!(found.contains("a day in milliseconds"), "{found}");
}

/// A replica set of a primary, a near secondary and one far away.
const MEMBERS: &str = r#"{ "type": "ReplicaSetWithPrimary", "servers": [
    { "address": "a", "avg_rtt_ms": 26, "type": "RSPrimary", "lastUpdateTime": 7 },
    { "address": "b", "avg_rtt_ms": 5, "type": "RSSecondary", "tags": { "dc": "x" } },
    { "address": "c", "avg_rtt_ms": 100, "type": "RSSecondary" } ] }"#;

fn selection(members: &str, suitable: &str, in_window: &str) -> String {
    format!(
        r#"{{ "topology_description": {members}, "operation": "read",
              "read_preference": {{ "mode": "Nearest" }},
              "suitable_servers": {suitable}, "in_latency_window": {in_window} }}"#
    )
}

#[test]
fn suitable_servers_and_those_in_the_latency_window_are_compared_by_address() {
    let name = "server-selection/server_selection";
    let server = |address: &str| format!(r#"{{ "address": "{address}", "type": "Unknown" }}"#);
    let all = format!("[{}, {}, {}]", server("c"), server("a:27017"), server("B"));
    let near = format!("[{}]", server("b"));
    assert_eq!(complaints(name, &selection(MEMBERS, &all, &near)), [[""; 3]; 0]);
    let expected = [
        ["suitable servers", "b:27017", "a:27017 b:27017 c:27017"],
        ["in latency window", "none", "b:27017"],
        ["selected", "none", "b:27017"],
    ];
    assert_eq!(complaints(name, &selection(MEMBERS, &near, "[]")), expected);
}

#[test]
fn a_deployment_that_cannot_be_shown_to_the_client_fails_its_case() {
    let text = selection(&MEMBERS.replace("RSPrimary", "RSSecondary"), "[]", "[]");
    let [[_, _, found]] =
        complaints("server-selection/server_selection", &text).try_into().unwrap();
    assert!(
        found.starts_with("the client sees ReplicaSetNoPrimary: a:27017 RSSecondary"),
        "{found}"
    );
}

#[test]
fn an_invalid_maximum_of_staleness_must_be_an_error_and_a_valid_one_must_not() {
    let text = |seconds: u32, rest: &str| {
        format!(
            r#"{{ "topology_description": {MEMBERS}, "heartbeatFrequencyMS": 500, {rest},
                  "read_preference": {{ "mode": "Secondary", "maxStalenessSeconds": {seconds} }} }}"#
        )
    };
    let servers = r#""suitable_servers": [], "in_latency_window": []"#;
    let error = r#""error": true"#;
    assert_eq!(complaints("max-staleness", &text(89, error)), [[""; 3]; 0]);
    let [[_, _, found]] = complaints("max-staleness", &text(90, error)).try_into().unwrap();
    assert_eq!(found, "a choice from: b:27017");
    let [[_, _, found]] = complaints("max-staleness", &text(89, servers)).try_into().unwrap();
    assert!(found.starts_with("an error: maxStalenessSeconds is 89 s"), "{found}");
    let both = format!("{error}, {servers}");
    let [[_, _, found]] = complaints("max-staleness", &text(89, &both)).try_into().unwrap();
    assert!(found.contains("either error: true or both lists"), "{found}");
}

#[test]
fn frequencies_are_compared_within_the_tolerance_and_exactly_at_the_ends() {
    let text = |busy: u32, iterations: u32| {
        let members = MEMBERS.replace("100", "5");
        format!(
            r#"{{ "description": "two of three are near", "topology_description": {members},
                  "mocked_topology_state": [ {{ "address": "a", "operation_count": 0 }},
                      {{ "address": "b", "operation_count": {busy} }},
                      {{ "address": "c", "operation_count": 1 }} ],
                  "iterations": {iterations},
                  "outcome": {{ "tolerance": 0.05, "expected_frequencies":
                      {{ "a": 0, "b": 0.5, "c": 0.5 }} }} }}"#
        )
    };
    let name = "server-selection/in_window";
    assert_eq!(complaints(name, &text(1, 2000)), [[""; 3]; 0]);
    let expected = [
        ["frequency of b:27017", "0.5 (give or take 0.05)", "0"],
        ["frequency of c:27017", "0.5 (give or take 0.05)", "1"],
    ];
    assert_eq!(complaints(name, &text(9, 2000)), expected);
    let [[_, _, found]] = complaints(name, &text(1, u32::MAX)).try_into().unwrap();
    assert!(found.contains("from 1 to a million"), "{found}");
}

#[test]
fn a_panic_fails_its_file_only() {
    let suite = Suite { name: "x", folder: "x", run: |_| panic!("law 9 is broken") };
    let [case] = run_text(&suite, "").try_into().unwrap();
    assert!(case.to_string().contains("the core panicked: law 9 is broken"), "{case}");
}

#[test]
fn a_file_without_cases_and_a_file_that_cannot_be_read_fail() {
    let suite = Suite { name: "x", folder: "x", run: |_| Ok(Vec::new()) };
    let [case] = run_text(&suite, "").try_into().unwrap();
    assert!(case.to_string().contains("the file has no case"), "{case}");
    let file = FoundFile { name: "x/nothing.json".into(), path: "/nowhere/nothing.json".into() };
    let [case] = run_file(&suite, &file).cases.try_into().unwrap();
    assert!(case.to_string().contains("the file cannot be read"), "{case}");
}

#[test]
fn a_skip_is_for_one_file_and_has_a_reason() {
    let skips = [Skip { path: "a/tests/b.json", reason: "needs what core must not do" }];
    assert_eq!(skip_reason(&skips, "a/tests/b.json"), Some("needs what core must not do"));
    assert_eq!(skip_reason(&skips, "a/tests/c.json"), None);
}

/// A case of a connection string with these expectations.
fn connection_string(expectations: &str) -> String {
    format!(
        r#"{{ "tests": [ {{ "description": "one", "uri": "mongodb://u:p@h/db?w=2&x=1",
            {expectations} }} ] }}"#
    )
}

#[test]
fn a_connection_string_says_what_the_case_expects() {
    let text = connection_string(
        r#""valid": true, "warning": true,
           "hosts": [{ "type": "hostname", "host": "h", "port": null }],
           "auth": { "username": "u", "password": "p", "db": "db" }, "options": { "W": 2 }"#,
    );
    assert_eq!(complaints("connection-string", &text), Vec::<[String; 3]>::new());
    let text = connection_string(
        r#""valid": true, "warning": false,
           "hosts": [{ "type": "unix", "host": "h", "port": null }],
           "auth": { "username": "u", "password": "q", "db": null },
           "options": { "journal": true, "none": 1, "w": "2" }"#,
    );
    let complaints = complaints("uri-options", &text);
    let places: Vec<&str> = complaints.iter().map(|[place, ..]| place.as_str()).collect();
    let expected =
        ["warnings", "hosts", "auth, password", "options, journal", "options, none", "options, w"];
    assert_eq!(places, expected);
}

#[test]
fn a_connection_string_is_valid_or_not_as_the_case_says() {
    let invalid = connection_string(r#""valid": false, "warning": false"#);
    assert_eq!(differences("uri-options", &invalid).len(), 1);
    let concern = connection_string(r#""valid": true, "warning": null, "writeConcern": {}"#);
    let name = "read-write-concern/connection-string";
    assert_eq!(complaints(name, &concern)[0][0], "writeConcern, w");
}

/// In this suite `null` is an expectation.
#[test]
fn a_credential_is_what_the_case_expects() {
    let case = |credential| {
        let text = format!(
            r#"{{ "tests": [ {{ "description": "one", "uri": "mongodb://u@h", "valid": true,
                "credential": {credential} }} ] }}"#
        );
        differences("auth/legacy", &text).len()
    };
    assert_eq!(case(r#"{ "username": "u", "password": null, "source": "admin" }"#), 0);
    assert_eq!(case(r#"{ "username": null, "source": "x", "mechanism": "PLAIN" }"#), 3);
    assert_eq!(case("null"), 1);
}

const POOLING: &str = "connection-monitoring-and-pooling/cmap-format";

/// A case of a pool for one connection, in which one of two operations waits without success.
fn pooling(events: &str, rest: &str) -> String {
    format!(
        r#"{{ "version": 1, "style": "unit", "description": "one pool",
              "poolOptions": {{ "maxPoolSize": 1, "waitQueueTimeoutMS": 50 }},
              "operations": [ {{ "name": "ready" }}, {{ "name": "checkOut", "label": "a" }},
                  {{ "name": "start", "target": "t" }}, {{ "name": "checkOut", "thread": "t" }},
                  {{ "name": "waitForThread", "target": "t" }} ],
              "events": {events}, "ignore": ["ConnectionPoolCreated", "ConnectionCreated"] {rest} }}"#
    )
}

#[test]
fn events_of_a_pool_are_compared_in_order_and_those_to_ignore_are_left_out() {
    let error = r#", "error": { "type": "WaitQueueTimeoutError", "message": "Timed out while" }"#;
    let good = r#"[ { "type": "ConnectionPoolReady", "address": 42 },
        { "type": "ConnectionCheckOutStarted" },
        { "type": "ConnectionReady", "connectionId": 1, "duration": 42 } ]"#;
    assert_eq!(complaints(POOLING, &pooling(good, error)), [[""; 3]; 0]);
    let bad = good
        .replace("\"connectionId\": 1", "\"connectionId\": 2")
        .replace("address", "serviceId")
        .replace("ConnectionCheckOutStarted", "ConnectionClosed");
    let complaints = complaints(POOLING, &pooling(&bad, error));
    let places: Vec<&str> = complaints.iter().map(|[place, ..]| place.as_str()).collect();
    assert_eq!(places, ["event 1", "event 2", "event 3"]);
}

#[test]
fn a_case_of_a_pool_must_fail_with_the_error_it_names_and_with_no_other() {
    let [[place, expected, found]] = complaints(POOLING, &pooling("[]", "")).try_into().unwrap();
    assert_eq!((place.as_str(), expected.as_str()), ("error", "none"));
    assert!(found.starts_with("Timed out while checking out a connection"), "{found}");
    let other = r#", "error": { "type": "PoolClosedError", "message": "Attempted" }"#;
    let complaints = complaints(POOLING, &pooling("[]", other));
    let places: Vec<&str> = complaints.iter().map(|[place, ..]| place.as_str()).collect();
    assert_eq!(places, ["error, type", "error, message"]);
    let text = pooling(r#"[{ "type": "x" }]"#, "")
        .replace("\"checkOut\", \"thread\"", "\"wait\", \"ms\": 1, \"thread\"");
    let [[_, _, found]] = self::complaints(POOLING, &text).try_into().unwrap();
    assert!(found.contains("ConnectionPoolReady"), "{found}");
}

#[test]
fn a_case_of_a_pool_that_cannot_go_on_fails() {
    for (from, to, complaint) in [
        (r#""target": "t" },"#, r#""target": "u" },"#, "the thread \"t\" was not started"),
        (r#""name": "ready""#, r#""name": "checkIn", "connection": "b""#, "label \"b\""),
        (r#""waitQueueTimeoutMS": 50"#, r#""minPoolSize": 1"#, "all threads wait"),
        (r#""name": "ready""#, r#""name": "open""#, "open"),
        (r#""name": "ready""#, r#""name": "ready", "ms": 1"#, "ms"),
        (r#""version": 1"#, r#""version": 2"#, "version 2"),
        (r#""waitForThread", "target": "t""#, r#""waitForEvent", "event": "x", "count": 1"#, "x"),
    ] {
        let text = pooling("[]", "").replace(from, to);
        let [[_, _, found]] = complaints(POOLING, &text).try_into().unwrap();
        assert!(found.contains(complaint), "{complaint:?} is not in {found:?}");
    }
}
