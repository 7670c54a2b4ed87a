//! The printed lines, from events of the machine itself.

use std::time::{Duration, SystemTime};

use sdam_core::failure::Cause;
use sdam_core::time::Instant;
use serde_json::Value;

use super::Report;
use super::json::{Json, WallClock};
use super::plain::Plain;
use super::story::Story;
use crate::fixture::{Fixture, member};

/// The wall clock began in 2001.
struct Millennium;

impl WallClock for Millennium {
    fn wall_clock(&self, at: Instant) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(978_307_200) + at.since_origin()
    }
}

/// Returns the plain lines of all that has happened.
fn lines(fixture: &Fixture, heartbeats: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut plain = Plain::new(&mut out, Story::new(heartbeats, fixture.diagnose()), false);
    for event in &fixture.events {
        plain.event(event).expect("writing to memory");
    }
    let text = String::from_utf8(out).expect("text");
    text.lines().map(ToOwned::to_owned).collect()
}

/// Returns the JSON objects of all that has happened.
fn objects(fixture: &Fixture) -> Vec<Value> {
    let mut out = Vec::new();
    let mut json = Json::new(&mut out, Millennium);
    for event in &fixture.events {
        json.event(event).expect("writing to memory");
    }
    let text = String::from_utf8(out).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

const HOSTS: [&str; 2] = ["a:27017", "b:27017"];

fn discovered() -> Fixture {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs0");
    fixture.at(5).reply("a:27017", &member("rs0", &HOSTS, HOSTS[0], Some(HOSTS[0])));
    fixture.at(6).reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[0])));
    fixture
}

#[test]
fn plain_lines_say_what_has_changed() {
    let mut fixture = discovered();
    fixture.at(10_005).refuse("a:27017", "connection reset");
    fixture.refuse("a:27017", "connection refused");
    fixture.at(10_006).reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[1])));
    fixture.at(12_000).close();
    let expected = "  \
  +0.000s  topology              opening
  +0.000s  topology              Unknown → ReplicaSetNoPrimary, setName rs0, servers +a:27017
  +0.000s  a:27017               opening
  +0.005s  a:27017               Unknown → RSPrimary, tags dc:paris
  +0.005s  b:27017               opening
  +0.005s  topology              ReplicaSetNoPrimary → ReplicaSetWithPrimary, servers +b:27017
  +0.006s  b:27017               Unknown → RSSecondary, tags dc:paris
 +10.005s  a:27017               heartbeat failed after 0.00 ms: connection reset
 +10.005s  a:27017               RSPrimary → Unknown
 +10.005s  topology              ReplicaSetWithPrimary → ReplicaSetNoPrimary
 +10.005s  a:27017               heartbeat failed after 0.00 ms: connection refused
 +10.006s  b:27017               RSSecondary → RSPrimary
 +10.006s  topology              ReplicaSetNoPrimary → ReplicaSetWithPrimary
 +12.000s  a:27017               closed
 +12.000s  b:27017               closed
 +12.000s  topology              closed";
    assert_eq!(lines(&fixture, false).join("\n"), expected);
}

#[test]
fn that_a_server_goes_on_failing_as_it_did_is_no_news() {
    let mut fixture = discovered();
    fixture.at(10_005).refuse("a:27017", "a:27017: gone (os error 104)");
    for second in 11..60 {
        fixture.at(second * 1000);
        if fixture.streams().iter().any(|(_, host, _)| host == "a:27017") {
            fixture.refuse("a:27017", if second < 40 { "refused" } else { "unreachable" });
        }
    }
    let texts = |lines: Vec<String>| {
        let of_a =
            lines.into_iter().filter(|line| line.contains("a:27017 ") && line.contains("failed"));
        of_a.map(|line| line.rsplit(": ").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(lines(&fixture, false)), ["gone", "refused", "unreachable"]);
    assert!(texts(lines(&fixture, true)).len() > 4);
    // After a success it is.
    fixture.at(90_000).reply("a:27017", &member("rs0", &HOSTS, HOSTS[0], None));
    fixture.at(101_000).refuse("a:27017", "unreachable");
    let texts = texts(lines(&fixture, false));
    assert_eq!(texts.iter().filter(|text| *text == "unreachable").count(), 2, "{texts:#?}");
}

#[test]
fn a_primary_that_was_elected_again_and_one_that_was_not_known_are_news() {
    let mut fixture = discovered();
    let elected = |election: u8| {
        let mut reply = member("rs0", &HOSTS, HOSTS[0], Some(HOSTS[0]));
        let id = bson::oid::ObjectId::from_bytes([election; 12]);
        reply.append(bson::cstr!("electionId"), id);
        reply
    };
    fixture.at(10_005).reply("a:27017", &elected(1));
    fixture.at(10_006).reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], None));
    fixture.at(20_005).reply("a:27017", &elected(2));
    fixture.at(20_006).reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some("c:27017")));
    let lines = lines(&fixture, false);
    let said = |text: &str| lines.iter().filter(|line| line.ends_with(text)).count();
    assert_eq!(said("elected again"), 1, "{lines:#?}");
    assert_eq!(said("names c:27017 as primary"), 1, "{lines:#?}");
    assert_eq!(said("b:27017               primary a:27017 → none"), 0, "{lines:#?}");
}

#[test]
fn heartbeats_are_shown_on_request_only() {
    let fixture = discovered();
    let texts = |lines: Vec<String>| lines.join("\n").matches("heartbeat").count();
    assert_eq!(texts(lines(&fixture, false)), 0);
    assert_eq!(texts(lines(&fixture, true)), 4);
}

#[test]
fn a_wrong_set_name_is_explained_with_what_to_do() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=wrong");
    fixture.at(3).reply("a:27017", &member("rs0", &HOSTS, HOSTS[0], None));
    let lines = lines(&fixture, false).join("\n");
    for expected in [
        "closed: it is in replica set \"rs0\", but \"wrong\" is expected",
        "the servers are in replica set \"rs0\", not in \"wrong\" as asked for; correct replicaSet \
         or the hosts in the connection string",
    ] {
        assert!(lines.contains(expected), "{lines}");
    }
}

#[test]
fn a_standalone_in_place_of_a_replica_set_is_explained() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs0");
    let reply = bson::rawdoc! { "ok": 1, "isWritablePrimary": true, "maxWireVersion": 21 };
    fixture.at(3).reply("a:27017", &reply);
    let lines = lines(&fixture, false).join("\n");
    let expected = "a:27017 is a Standalone, but a replica set is expected; \
                    leave out replicaSet, or name members of the replica set";
    assert!(lines.contains(expected), "{lines}");
}

/// The set was initiated with an address that leads to another server here.
#[test]
fn a_standalone_that_a_member_has_advertised_is_no_reason_to_leave_out_the_set() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs0");
    fixture.at(3).reply("a:27017", &member("rs0", &["b:27017"], "b:27017", Some("b:27017")));
    let reply = bson::rawdoc! { "ok": 1, "isWritablePrimary": true, "maxWireVersion": 21 };
    fixture.at(6).reply("b:27017", &reply);
    let lines = lines(&fixture, false).join("\n");
    assert!(lines.contains("a:27017 answered, but its replica set lists only b:27017"), "{lines}");
    assert!(!lines.contains("leave out"), "{lines}");
}

#[test]
fn why_a_primary_is_stale_is_shown_to_the_end() {
    let mut fixture = discovered();
    let elected = |host: &str, election: u8| {
        let mut reply = member("rs0", &HOSTS, host, Some(host));
        let id = bson::oid::ObjectId::from_bytes([election; 12]);
        reply.append(bson::cstr!("electionId"), id);
        reply
    };
    fixture.at(10_005).reply("a:27017", &elected(HOSTS[0], 1));
    fixture.at(10_006).reply("b:27017", &elected(HOSTS[1], 2));
    fixture.at(20_005).reply("a:27017", &elected(HOSTS[0], 1));
    let lines = lines(&fixture, false).join("\n");
    let stale = fixture.events.iter().find_map(|event| match &event.kind {
        sdam_core::topology::EventKind::ServerDescriptionChanged { new, .. } => {
            new.error.as_ref().filter(|error| error.cause == Cause::StalePrimary)
        }
        _ => None,
    });
    let stale = stale.expect("a stale primary").to_string();
    assert!(stale.len() > 60 && lines.contains(&stale), "{stale}\n{lines}");
}

#[test]
fn a_member_that_the_primary_does_not_list_says_why_it_leaves() {
    let mut fixture = discovered();
    let alone = member("rs0", &HOSTS[..1], HOSTS[0], Some(HOSTS[0]));
    fixture.at(10_005).reply("a:27017", &alone);
    let lines = lines(&fixture, false).join("\n");
    assert!(lines.contains("a:27017               hosts −b:27017"), "{lines}");
    let expected = "closed: it is not listed by the primary of the replica set";
    assert!(lines.contains(expected), "{lines}");
    assert!(!lines.contains("no server is left"), "{lines}");
}

#[test]
fn what_a_server_says_cannot_control_the_terminal() {
    let mut fixture = Fixture::new("mongodb://a");
    let evil = "\u{1b}]0;evil\u{7}\r\n\u{9b}31m";
    let reply = bson::rawdoc! { "ok": 0, "errmsg": evil, "code": 1 };
    fixture.at(3).reply("a:27017", &reply);
    let printed = lines(&fixture, false).join("");
    assert!(!printed.contains(|c: char| c.is_control()), "{printed:?}");
    assert!(printed.contains("\\u{1b}]0;evil"), "{printed}");
    // Undisguised for programs, but as JSON's escapes.
    let failed =
        objects(&fixture).into_iter().find(|object| object["event"] == "serverHeartbeatFailed");
    let failed = failed.expect("a failed heartbeat");
    assert_eq!(failed["failure"]["detail"], evil);
}

#[test]
fn json_objects_begin_with_their_times_and_end_with_the_changes() {
    let mut fixture = discovered();
    fixture.at(12_000).close();
    let mut out = Vec::new();
    let mut json = Json::new(&mut out, Millennium);
    json.event(&fixture.events[0]).expect("writing to memory");
    let first = String::from_utf8(out).expect("text");
    assert!(
        first.starts_with(r#"{"elapsedMs":0.0,"time":"2001-01-01T00:00:00.000Z","topologyId":""#),
        "{first}"
    );
    let objects = objects(&fixture);
    let kinds: Vec<&Value> = objects.iter().map(|object| &object["event"]).collect();
    assert_eq!(kinds.first(), Some(&&Value::from("topologyOpening")));
    assert_eq!(kinds.last(), Some(&&Value::from("topologyClosed")));
    assert_eq!(objects.last().expect("some")["time"], "2001-01-01T00:00:12.000Z");
    let changed: Vec<&Value> =
        objects.iter().filter(|object| object["event"] == "serverDescriptionChanged").collect();
    assert_eq!(changed[0]["elapsedMs"], 5.0);
    let expected = serde_json::json!({"field": "type", "old": "Unknown", "new": "RSPrimary"});
    assert_eq!(changed[0]["changes"][0], expected);
    for object in &objects {
        let has_changes = object.get("changes").is_some();
        assert_eq!(has_changes, object.get("newDescription").is_some(), "{object}");
    }
}

#[test]
fn dropped_events_are_reported_in_both_forms() {
    let fixture = discovered();
    let mut out = Vec::new();
    let mut plain = Plain::new(&mut out, Story::new(false, fixture.diagnose()), false);
    plain.dropped(3, &fixture.events[0]).expect("writing to memory");
    assert_eq!(
        String::from_utf8_lossy(&out),
        "  +0.000s  topology              \
         3 events were dropped, because they were not read in time\n"
    );
    let mut out = Vec::new();
    let mut json = Json::new(&mut out, Millennium);
    json.dropped(3, &fixture.events[0]).expect("writing to memory");
    let dropped: Value = serde_json::from_slice(&out).expect("an object");
    let expected = serde_json::json!({
        "elapsedMs": 0.0,
        "time": "2001-01-01T00:00:00.000Z",
        "event": "eventsDropped",
        "count": 3,
    });
    assert_eq!(dropped, expected);
}

/// Appends the names of all fields, those of tags excepted.
fn fields(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                names.push(name.clone());
                if name != "tags" {
                    fields(value, names);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

#[test]
fn every_field_and_event_is_documented() {
    let mut fixture = discovered();
    let reply = bson::rawdoc! { "ok": 0, "errmsg": "no", "code": 1 };
    fixture.at(10_005).reply("a:27017", &reply);
    let mut old = member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[1]));
    let process = bson::oid::ObjectId::from_bytes([7; 12]);
    let version = bson::rawdoc! { "processId": process, "counter": 1_i64 };
    old.append(bson::cstr!("electionId"), process);
    old.append(bson::cstr!("topologyVersion"), version);
    let date = bson::rawdoc! { "lastWriteDate": bson::DateTime::from_millis(1) };
    old.append(bson::cstr!("lastWrite"), date);
    fixture.at(10_006).reply("b:27017", &old).close();
    let (documented, mut names) = (include_str!("../../EVENTS.md"), Vec::new());
    for object in objects(&fixture) {
        fields(&object, &mut names);
        names.extend(object["event"].as_str().map(ToOwned::to_owned));
    }
    for expected in ["electionId", "topologyVersion", "lastWriteDate", "failure", "changes"] {
        assert!(names.iter().any(|name| name == expected), "{expected} never appeared");
    }
    for name in names {
        assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
    }
}
