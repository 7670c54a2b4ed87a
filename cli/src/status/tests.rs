//! The table, the JSON and the exit code, from views of the machine itself.

use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::selection::Criteria;
use serde_json::Value;

use super::report::{Status, WhyNot};
use crate::fixture::{Fixture, member};

const HOSTS: [&str; 2] = ["a:27017", "b:27017"];

fn status(fixture: &Fixture) -> Status {
    let any = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    Status {
        view: fixture.view(),
        is_settled: super::is_settled(&fixture.view()),
        elapsed: fixture.now().since_origin(),
        time: "2026-05-09T03:00:00.000Z".to_owned(),
        write: fixture.error(&Criteria::write()).map(WhyNot::Selection),
        read: fixture.error(&any).map(WhyNot::Selection),
    }
}

fn table(status: &Status) -> String {
    let mut out = Vec::new();
    status.print(&mut out, false).expect("writing to memory");
    String::from_utf8(out).expect("text")
}

fn object(status: &Status) -> Value {
    let mut out = Vec::new();
    status.print_json(&mut out).expect("writing to memory");
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
    let verdict = "writes  no, the replica set has had no primary for 2.0 s\nreads   yes\n";
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
    assert!(table.ends_with("reads   no, every server refused the connection; check the ports, and that the servers run\n"), "{table}");
}

#[test]
fn a_balancer_that_answers_nothing_is_2() {
    let mut status = status(&discovered());
    let refused = || Some(WhyNot::Operation("nobody is there".to_owned()));
    (status.write, status.read) = (refused(), refused());
    assert_eq!(status.exit_code(), 2);
    assert!(table(&status).contains("writes  no, nobody is there"));
    assert_eq!(object(&status)["whyNotReadable"]["verdict"], "operationFailed");
}

#[test]
fn colours_are_codes_around_the_same_words() {
    let status = status(&discovered());
    let mut out = Vec::new();
    status.print(&mut out, true).expect("writing to memory");
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
    for name in ["verdict", "cause", "text"] {
        assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
    }
}
