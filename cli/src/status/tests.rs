//! The table, the JSON and the exit code, from views of the machine itself.

use std::time::Duration;

use sdam_core::diagnosis::Verdict;
use serde_json::Value;

use super::report::{Status, WhyNot};
use super::token::Reach;
use crate::fixture::{Fixture, member};
use crate::history::{Oplog, reach};
use crate::printer::Printer;

const HOSTS: [&str; 2] = ["a:27017", "b:27017"];

fn status(fixture: &Fixture) -> Status {
    let (write, read) = super::reasons(&fixture.view(), |criteria| fixture.error(criteria));
    Status {
        view: fixture.view(),
        is_settled: super::is_settled(&fixture.view()),
        elapsed: fixture.now().since_origin(),
        time: "2026-05-09T03:00:00.000Z".to_owned(),
        write,
        read,
        token: None,
    }
}

fn table(status: &Status) -> String {
    let mut out = Vec::new();
    status.print(&mut Printer::new(&mut out, false)).expect("writing to memory");
    String::from_utf8(out).expect("text")
}

fn object(status: &Status) -> Value {
    let mut out = Vec::new();
    status.print_json(&mut Printer::new(&mut out, false)).expect("writing to memory");
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
    serde_json::from_slice(&out).expect("an object")
}

fn discovered() -> Fixture {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs0");
    fixture.accept("a:27017").accept("b:27017").at(5);
    fixture.reply("a:27017", &member("rs0", &HOSTS, HOSTS[0], Some(HOSTS[0])));
    fixture.reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[0])));
    fixture
}

#[test]
fn a_deployment_with_a_primary_is_0_and_two_times_yes() {
    let status = status(&discovered());
    assert_eq!(status.exit_code(), 0);
    let expected = "\
ReplicaSetWithPrimary, set rs0, 2 servers
ADDRESS  TYPE         RTT      TAGS
a:27017  RSPrimary    5.00 ms  dc:paris
b:27017  RSSecondary  5.00 ms  dc:paris
writes  yes
reads   yes
";
    assert_eq!(table(&status), expected);
    let object = object(&status);
    assert_eq!(object["writable"], true);
    assert_eq!(object["settled"], true);
    assert_eq!(object["whyNotWritable"], Value::Null);
    assert_eq!(object["description"]["servers"][1]["type"], "RSSecondary");
}

#[test]
fn without_a_primary_it_is_1_and_says_for_how_long() {
    let mut fixture = discovered();
    fixture.at(10_006).refuse("a:27017", "a:27017: connection refused").at(12_000);
    let status = status(&fixture);
    assert_eq!(status.exit_code(), 1);
    let table = table(&status);
    let failed = "a:27017  Unknown      –\n    connection refused\nb:27017";
    assert!(table.contains(failed), "{table}");
    let verdict = "writes  no, the replica set has had no primary for 2.0 s\nreads   yes\n\
                   advice  wait for the election; if it takes long, check that a majority of the \
                   members runs\n";
    assert!(table.ends_with(verdict), "{table}");
    let object = object(&status);
    assert_eq!(object["whyNotWritable"]["verdict"], "noPrimary");
    assert_eq!(object["whyNotReadable"], Value::Null);
}

#[test]
fn without_any_server_it_is_2_and_says_what_has_not_answered() {
    let mut fixture = Fixture::new("mongodb://a");
    fixture.at(5_000);
    let open = status(&fixture);
    assert_eq!((open.exit_code(), open.is_settled), (2, false));
    let table_of_open = table(&open);
    assert!(table_of_open.contains("writes  no, no server has answered yet"), "{table_of_open}");
    let more = "After 5.00 s, not every server has answered or failed; --for waits longer.\n";
    assert!(table_of_open.ends_with(more), "{table_of_open}");
    fixture.refuse("a:27017", "connection refused");
    let failed = status(&fixture);
    assert_eq!((failed.exit_code(), failed.is_settled), (2, true));
    let table = table(&failed);
    let end = "reads   no, every server refused the connection\n\
               advice  check the ports, and that the servers run\n";
    assert!(table.ends_with(end), "{table}");
}

#[test]
fn a_balancer_that_answers_nothing_is_2() {
    let mut status = status(&discovered());
    let refusal = || "no server is there".to_owned();
    let refused = || Some(WhyNot::Operation(Verdict::ConnectionRefused, refusal()));
    (status.write, status.read) = (refused(), refused());
    assert_eq!(status.exit_code(), 2);
    assert!(table(&status).contains("writes  no, every server refused the connection: no"));
    assert_eq!(object(&status)["whyNotReadable"]["verdict"], "connectionRefused");
}

/// Says of a token that is `behind` the last entry of an oplog of 100,000 seconds.
fn reached(behind: u64, is_full: bool) -> Reach {
    let (last, max_size) = (1_000_000, 990 << 20);
    let size = if is_full { max_size } else { max_size / 2 };
    let oplog = Oplog { window: Duration::from_secs(100_000), last, size, max_size };
    let server = HOSTS[0].parse().expect("an address");
    let (severity, verdict) = reach(last - behind, [(&server, oplog)]).expect("an oplog");
    Reach::Known(severity, verdict)
}

#[test]
fn a_token_that_is_or_will_soon_be_lost_is_worse_than_a_primary_that_is_there() {
    let mut status = status(&discovered());
    let reach = "the oplog of a:27017 reaches back for 100000.0 s";
    for (token, code, state, said) in [
        (reached(1000, true), 0, "kept", ": the token is lost in 99000.0 s at today's rate"),
        (reached(1000, false), 0, "kept", " and is not full: the token is not about to be lost"),
        (reached(90_000, true), 1, "ending", ": the token is lost in 10000.0 s at today's rate"),
        (reached(100_001, true), 2, "lost", ", which is not as far as the token"),
    ] {
        status.token = Some(token);
        assert_eq!(status.exit_code(), code, "{said}");
        let table = table(&status);
        let line = format!("\ntoken   {state}, {reach}{said}\n");
        assert!(table.contains(&line), "{table}");
        assert_eq!(table.contains("\nadvice  "), code > 0, "{table}");
        let object = object(&status);
        assert_eq!(object["token"]["state"], state);
        assert_eq!(object["token"]["verdict"], "historyEnds");
    }
    status.token = Some(Reach::Unknown("a:27017: not authorized".to_owned()));
    assert_eq!(status.exit_code(), 3);
    assert!(table(&status).ends_with("\ntoken   unknown, a:27017: not authorized\n"));
    status.write = Some(WhyNot::Verdict(Verdict::NoAnswer));
    assert_eq!(status.exit_code(), 1, "what is known comes first");
}

#[test]
fn colours_are_codes_around_the_same_words() {
    let status = status(&discovered());
    let mut out = Vec::new();
    status.print(&mut Printer::new(&mut out, true)).expect("writing to memory");
    let text = String::from_utf8(out).expect("text");
    assert!(text.contains("\u{1b}[32mRSPrimary\u{1b}[0m"), "{text:?}");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, code)) = rest.split_once('\u{1b}') {
        plain += before;
        rest = code.split_once('m').expect("the end of a code").1;
    }
    assert_eq!(plain + rest, table(&status));
}

#[test]
fn every_field_is_documented() {
    let documented = include_str!("../../STATUS.md");
    let mut fixture = discovered();
    fixture.refuse("a:27017", "connection refused");
    let object = object(&status(&fixture));
    for name in object.as_object().expect("an object").keys() {
        assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
    }
    for name in ["verdict", "cause", "advice", "line", "text", "state", "leftMS"] {
        assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
    }
}

/// Every selection of a direct connection succeeds; the operation does not.
#[test]
fn a_direct_connection_is_judged_by_the_type_of_its_server() {
    let mut fixture = Fixture::new("mongodb://b/?directConnection=true");
    fixture.accept("b:27017").at(5);
    fixture.reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[0])));
    let secondary = status(&fixture);
    assert_eq!(secondary.exit_code(), 1);
    let table = table(&secondary);
    assert!(table.contains("writes  no, b:27017 is of type RSSecondary"), "{table}");
    assert!(table.contains("directConnection") && table.contains("reads   yes"), "{table}");
    let object = object(&secondary);
    assert_eq!(object["writable"], false);
    assert_eq!(object["whyNotWritable"]["verdict"], "wrongServerType");
    assert_eq!(object["readable"], true);

    let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
    fixture.accept("a:27017").at(5);
    fixture.reply("a:27017", &member("rs0", &HOSTS, HOSTS[0], Some(HOSTS[0])));
    assert_eq!(status(&fixture).exit_code(), 0);
}
