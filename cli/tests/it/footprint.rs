//! `sdam footprint` as a process: its table, its object, and what it refuses.

use std::process::Command;

use serde_json::Value;

fn footprint(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    let output = command.arg("footprint").args(arguments).output().expect("a process");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn both_modes_are_reported_for_each_member_and_all() {
    let (code, table, err) = footprint(&["--processes", "500", "--clients", "2"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let row = |name: &str| {
        let line = table.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("no {name}:\n{table}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(row("stream, each")[2..4], ["2000", "200.0"]);
    assert_eq!(row("stream, all")[2..4], ["6000", "600.0"]);
    assert_eq!(row("poll, each")[2..4], ["1000", "100.0"]);
    assert_eq!(row("poll, all")[2..4], ["3000", "300.0"]);
}

#[test]
fn the_object_has_what_the_page_says() {
    let arguments = ["--processes", "10", "--members", "8", "--sharded", "--mode", "poll"];
    let (code, line, _) = footprint(&[&arguments[..], &["--pool", "20", "--json"]].concat());
    assert_eq!((code, line.lines().count()), (Some(0), 1));
    let object: Value = serde_json::from_str(&line).expect("an object");
    let fields = ["processes", "clientsPerProcess", "members", "heartbeatFrequencyMS"];
    assert_eq!(fields.map(|field| object[field].as_u64().expect(field)), [10, 1, 8, 10_000]);
    assert_eq!(
        (&object["sharded"], object["modes"][0]["mode"].as_str()),
        (&true.into(), Some("poll"))
    );
    let all = &object["modes"][0]["allMembers"];
    assert_eq!(all["sockets"].as_f64(), Some(10.0 * 8.0 * 21.0));
    for field in ["requestsPerSecond", "hellosPerSecond", "bytesInPerSecond", "bytesOutPerSecond"] {
        assert!(all[field].as_f64().expect(field) > 0.0, "{line}");
    }
    for field in ["requests", "hellos", "bytesIn", "bytesOut"] {
        assert!(all["start"][field].as_f64().expect(field) > 0.0, "{line}");
    }
}

#[test]
fn clients_that_share_monitors_cost_what_one_does_and_keep_their_pools() {
    let fleet = |arguments: &[&str]| {
        let (_, line, _) = footprint(&[arguments, &["--mode", "stream", "--json"]].concat());
        let object: Value = serde_json::from_str(&line).expect("an object");
        let all = &object["modes"][0]["allMembers"];
        let number = |field: &str| all[field].as_f64().expect("a number");
        (number("sockets"), number("hellosPerSecond"), object["shared"].as_bool())
    };
    let one = fleet(&["--processes", "7"]);
    let shared = fleet(&["--processes", "7", "--clients", "1000", "--shared"]);
    assert_eq!((shared.0, shared.1), (one.0, one.1));
    assert_eq!((one.2, shared.2), (Some(false), Some(true)));
    let pooled = fleet(&["--processes", "7", "--clients", "1000", "--shared", "--pool", "2"]);
    assert_eq!((pooled.0, pooled.1), (one.0 + 7.0 * 1000.0 * 3.0 * 2.0, one.1));
}

#[test]
fn what_makes_no_sense_is_refused_with_what_is_allowed() {
    let cases: [(&[&str], &str); 5] = [
        (&["--processes", "0"], "0 is not in 1..=10000000"),
        (
            &["--members", "8"],
            "a replica set has from 1 to 7 members here; for mongos, add --sharded",
        ),
        (&["--members", "1001", "--sharded"], "1001 is not in 1..=1000"),
        (&["--heartbeat", "499ms"], "at least 500ms are needed"),
        (&["--mode", "push"], "[possible values: stream, poll]"),
    ];
    for (arguments, expected) in cases {
        let (code, out, err) = footprint(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(err.contains(expected), "{err}");
    }
}
