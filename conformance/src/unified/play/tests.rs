//! Tests of the machine: a caller that does what a test says, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, Timestamp, doc, rawdoc};
use sdam_core::config::{PoolOptions, ReadConcern};
use sdam_core::description::ServerDescription;
use sdam_core::harness::{CheckOutcome, Harness};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::pool::{CloseReason, Pool, PoolConfig, PoolEvent};
use sdam_core::time::{Instant, Time};
use sdam_core::topology::EventKind as CoreEvent;

use super::{
    Action, Broken, Ended, Failed, Fault, Input, Logged, OfSession, Play, Subject, Token, Traced,
    needs, needs_with_encryption,
};
use crate::spec::Difference;
use crate::unified::format::{Component, Entity, File, Level, parse};

/// A client and a database, before operations as JSON.
fn file(operations: &str, more: &str) -> File {
    let text = format!(
        r#"{{ "description": "file", "schemaVersion": "1.20",
              "createEntities": [
                {{ "client": {{ "id": "client0",
                    "observeEvents": ["topologyOpeningEvent", "topologyClosedEvent"] }} }},
                {{ "database": {{ "id": "database0", "client": "client0", "databaseName": "db" }} }},
                {{ "thread": {{ "id": "thread0" }} }}
              ],
              "tests": [{{ "description": "test", "operations": [{operations}] {more} }}] }}"#
    );
    parse(&text).unwrap_or_else(|error| panic!("{error}"))
}

const PING: &str = r#""name": "runCommand", "object": "database0",
    "arguments": { "commandName": "ping", "command": { "ping": 1 } }"#;

/// A caller that has opened everything it was asked to open.
struct Caller {
    play: Lawful<Play>,
    now: Instant,
    out: Vec<Action>,
}

impl Caller {
    fn begin(operations: &str, more: &str) -> Self {
        let file = file(operations, more);
        let mut caller = Self::of(&file);
        caller.open("client0");
        caller
    }

    fn of(file: &File) -> Self {
        let play = Lawful::new(Play::new(file, &file.tests[0]));
        let mut caller = Self { play, now: Instant::ZERO, out: Vec::new() };
        caller.play.tick(Time::ZERO, &mut caller.out);
        caller
    }

    fn input(&mut self, input: Input<'_>) {
        self.play.handle(self.now.into(), input, &mut self.out);
    }

    fn open(&mut self, client: &str) {
        self.input(Input::Opened { client, result: Ok(()) });
    }

    fn report(&mut self, event: &CoreEvent) {
        self.input(Input::Event { client: "client0", event });
    }

    /// Lets time pass until the machine is due.
    fn wait(&mut self) -> Instant {
        let due = self.play.deadline().expect("something is due");
        self.now = due;
        self.play.tick(due.into(), &mut self.out);
        due
    }

    /// Returns the command that is to be run, and by whom.
    fn run(&mut self) -> (Token, String, Document) {
        let actions: Vec<Action> = self.out.drain(..).collect();
        let mut runs = actions.into_iter().filter_map(|action| match action {
            Action::Run { token, client, command, .. } => Some((token, client, command)),
            Action::Operate(token, operate) => {
                let command = operate.arguments.get_document("command").cloned();
                Some((token, operate.client, command.unwrap_or(operate.arguments)))
            }
            Action::Internal(token, command) => Some((token, "internal".into(), command.command)),
            _ => None,
        });
        runs.next().expect("a command is to be run")
    }

    fn reply(&mut self, token: Token, reply: Document) {
        let server = Some("a:27017".parse().expect("an address"));
        let result = Ok(Ended { result: Some(Bson::Document(reply)), server });
        self.input(Input::Ended { token, result });
    }

    fn refuse(&mut self, token: Token, failed: Failed) {
        self.input(Input::Ended { token, result: Err(Box::new(failed)) });
    }

    /// Returns the result, if there is one by now.
    fn result(&self) -> Option<Result<(), Fault>> {
        self.out.iter().find_map(|action| match action {
            Action::Finished(result) => Some(result.clone()),
            _ => None,
        })
    }

    fn failure(&self) -> Difference {
        match self.result() {
            Some(Err(Fault::Differs(difference))) => difference,
            other => panic!("it has to fail: {other:?}"),
        }
    }

    fn breakdown(&self) -> Broken {
        match self.result() {
            Some(Err(Fault::Broken(broken))) => broken,
            other => panic!("the runner has to break down: {other:?}"),
        }
    }
}

fn waits_for_opening() -> String {
    r#"{ "name": "waitForEvent", "object": "testRunner", "arguments":
        { "client": "client0", "event": { "topologyClosedEvent": {} }, "count": 2 } }"#
        .to_owned()
}

#[test]
fn an_event_that_is_waited_for_may_have_come_already_and_has_ten_seconds() {
    let mut caller = Caller::begin(&waits_for_opening(), "");
    caller.report(&CoreEvent::TopologyClosed);
    caller.report(&CoreEvent::TopologyOpening);
    assert_eq!(caller.result(), None);
    caller.report(&CoreEvent::TopologyClosed);
    assert_eq!(caller.result(), Some(Ok(())));

    let mut caller = Caller::begin(&waits_for_opening(), "");
    caller.report(&CoreEvent::TopologyClosed);
    assert_eq!(caller.wait(), Instant::from_millis(30_000));
    let failure = caller.failure();
    assert_eq!(failure.place, "operations[0]");
    assert!(failure.expected.contains("not 1"), "{failure:?}");
}

#[test]
fn events_come_in_order_and_none_follows_unless_that_is_allowed() {
    let expected = |more: &str| {
        format!(
            r#", "expectEvents": [{{ "client": "client0", "eventType": "sdam", {more}
                 "events": [{{ "topologyOpeningEvent": {{}} }}] }}]"#
        )
    };
    for (more, is_allowed) in [("", false), (r#""ignoreExtraEvents": true,"#, true)] {
        let mut caller = Caller::begin(&format!("{{ {PING} }}"), &expected(more));
        let (token, ..) = caller.run();
        caller.report(&CoreEvent::TopologyOpening);
        caller.report(&CoreEvent::TopologyClosed);
        caller.reply(token, doc! { "ok": 1 });
        assert_eq!(caller.result().is_some_and(|result| result.is_ok()), is_allowed, "{more}");
    }
    let mut caller = Caller::begin(&format!("{{ {PING} }}"), &expected(""));
    let (token, ..) = caller.run();
    caller.reply(token, doc! { "ok": 1 });
    assert_eq!(caller.failure().found, "no further event");
}

#[test]
fn a_result_is_a_document_at_the_root_and_an_error_fails_the_test() {
    let ping = format!(r#"{{ {PING}, "expectResult": {{ "ok": 1 }} }}"#);
    let mut caller = Caller::begin(&ping, "");
    let (token, client, command) = caller.run();
    assert_eq!((client.as_str(), command), ("client0", doc! { "ping": 1 }));
    caller.reply(token, doc! { "ok": 1.0, "more": true });
    assert_eq!(caller.result(), Some(Ok(())));

    let mut caller = Caller::begin(&ping, "");
    let (token, ..) = caller.run();
    caller.refuse(token, Failed { message: "no".to_owned(), ..Failed::default() });
    assert_eq!(caller.failure().found, "no");
}

#[test]
fn an_expected_error_is_looked_at_in_all_its_parts() {
    let reply = doc! { "ok": 0, "code": 59, "codeName": "CommandNotFound" };
    let of_server = Failed {
        message: "no such command: 'x'".to_owned(),
        is_timeout: false,
        labels: vec!["A".to_owned()],
        reply: Some(reply),
        ..Failed::default()
    };
    let of_client = Failed { is_timeout: true, reply: None, ..of_server.clone() };
    let of_writes = Failed {
        write_errors: doc! { "1": { "code": 7, "message": "" } },
        write_concern_errors: vec![Bson::Document(doc! { "code": 91, "message": "" })],
        ..Failed::default()
    };
    for (expected, failed, is_met) in [
        (r#""isClientError": false"#, &of_server, true),
        (r#""isClientError": true"#, &of_server, false),
        (r#""isClientError": true"#, &of_client, true),
        (r#""isTimeoutError": true"#, &of_client, true),
        (r#""isTimeoutError": true"#, &of_server, false),
        (r#""errorContains": "NO SUCH""#, &of_server, true),
        (r#""errorContains": "other""#, &of_server, false),
        (r#""errorCode": 59"#, &of_server, true),
        (r#""errorCode": 59"#, &of_client, false),
        (r#""errorCodeName": "commandnotfound""#, &of_server, true),
        (r#""errorCodeName": "Other""#, &of_server, false),
        (r#""errorLabelsContain": ["A"]"#, &of_server, true),
        (r#""errorLabelsContain": ["A", "B"]"#, &of_server, false),
        (r#""errorLabelsOmit": ["B"]"#, &of_server, true),
        (r#""errorLabelsOmit": ["A"]"#, &of_server, false),
        (r#""errorResponse": { "code": 59 }"#, &of_server, true),
        (r#""errorResponse": { "code": 60 }"#, &of_server, false),
        (r#""errorResponse": { "code": 59 }"#, &of_client, false),
        (r#""expectResult": { "$$unsetOrMatches": {} }"#, &of_server, true),
        (r#""expectResult": {}"#, &of_server, false),
        (r#""writeErrors": {}"#, &of_server, true),
        (r#""writeErrors": { "1": { "code": 7 } }"#, &of_writes, true),
        (r#""writeErrors": { "1": { "code": 8 } }"#, &of_writes, false),
        (r#""writeErrors": { "0": { "code": 7 }, "1": {} }"#, &of_writes, false),
        (r#""writeErrors": {}"#, &of_writes, false),
        (r#""writeConcernErrors": [{ "code": 91 }]"#, &of_writes, true),
        (r#""writeConcernErrors": [{ "code": 90 }]"#, &of_writes, false),
        (r#""writeConcernErrors": [{ "code": 91 }, {}]"#, &of_writes, false),
    ] {
        let operation = format!(r#"{{ {PING}, "expectError": {{ {expected} }} }}"#);
        let mut caller = Caller::begin(&operation, "");
        let (token, ..) = caller.run();
        caller.refuse(token, failed.clone());
        assert_eq!(caller.result().is_some_and(|result| result.is_ok()), is_met, "{expected}");
    }
    let mut caller =
        Caller::begin(&format!(r#"{{ {PING}, "expectError": {{ "isError": true }} }}"#), "");
    let (token, ..) = caller.run();
    caller.reply(token, doc! { "ok": 1 });
    assert_eq!(caller.failure().expected, "an error");
}

#[test]
fn a_fail_point_is_set_by_the_named_client_and_off_in_the_end_whatever_happens() {
    let set = r#"{ "name": "failPoint", "object": "testRunner", "arguments": { "client": "client0",
        "failPoint": { "configureFailPoint": "failCommand", "mode": "alwaysOn" } } }"#;
    let mut caller = Caller::begin(&format!("{set}, {{ {PING} }}"), "");
    let (token, client, _) = caller.run();
    assert_eq!(client, "client0");
    caller.reply(token, doc! { "ok": 1 });
    let (token, ..) = caller.run();
    caller.refuse(token, Failed::default());
    assert_eq!(caller.result(), None, "first the fail point");
    let Some(Action::Internal(token, command)) = caller.out.first().cloned() else {
        panic!("{:?}", caller.out)
    };
    assert_eq!(command.server.expect("a server").to_string(), "a:27017");
    assert_eq!(command.command, doc! { "configureFailPoint": "failCommand", "mode": "off" });
    caller.reply(token, doc! { "ok": 1 });
    assert_eq!(caller.failure().place, "operations[1]");
}

#[test]
fn a_thread_works_beside_the_test_and_its_failure_is_that_of_the_test() {
    let operations = format!(
        r#"{{ "name": "runOnThread", "object": "testRunner",
              "arguments": {{ "thread": "thread0", "operation": {{ {PING} }} }} }},
           {{ {PING} }},
           {{ "name": "waitForThread", "object": "testRunner",
              "arguments": {{ "thread": "thread0" }} }}"#
    );
    let two = |caller: &mut Caller| {
        let tokens = caller.out.drain(..).filter_map(|action| match action {
            Action::Operate(token, _) => Some(token),
            _ => None,
        });
        let tokens: Vec<Token> = tokens.collect();
        assert_eq!(tokens.len(), 2, "both run at once");
        tokens
    };
    for (thread, is_good) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut caller = Caller::begin(&operations, "");
        let tokens = two(&mut caller);
        caller.reply(tokens[1 - thread], doc! { "ok": 1 });
        assert_eq!(caller.result(), None);
        match is_good {
            true => caller.reply(tokens[thread], doc! { "ok": 1 }),
            false => caller.refuse(tokens[thread], Failed::default()),
        }
        assert_eq!(caller.result().is_some_and(|result| result.is_ok()), is_good);
    }
}

#[test]
fn a_thread_that_does_not_end_is_waited_for_ten_seconds() {
    let operations = format!(
        r#"{{ "name": "runOnThread", "object": "testRunner",
              "arguments": {{ "thread": "thread0", "operation": {{ {PING} }} }} }},
           {{ "name": "waitForThread", "object": "testRunner",
              "arguments": {{ "thread": "thread0" }} }}"#
    );
    let mut caller = Caller::begin(&operations, "");
    assert_eq!(caller.wait(), Instant::from_millis(30_000));
    assert_eq!(caller.failure().expected, "the end of the thread");
}

#[test]
fn a_client_that_cannot_be_opened_fails_a_test_without_operations() {
    let mut caller = Caller::of(&file("", ""));
    assert_eq!(caller.result(), None, "the client is still being opened");
    let broken = Broken::new("client0", "no such option");
    caller.input(Input::Opened { client: "client0", result: Err(broken.clone().into()) });
    assert_eq!(caller.breakdown(), broken);
}

#[test]
fn collections_have_their_contents_before_and_are_compared_after() {
    let mut with_data = file(
        "",
        r#", "outcome": [{ "databaseName": "db", "collectionName": "c",
        "documents": [{ "_id": 1, "x": { "a": 1, "b": 2 } }] }]"#,
    );
    let before = r#"{ "description": "", "schemaVersion": "1.0", "initialData": [{
        "databaseName": "db", "collectionName": "c", "documents": [{ "_id": 1 }] }],
        "tests": [{ "description": "", "operations": [] }] }"#;
    with_data.initial_data = parse(before).expect("a file").initial_data;
    let found = |x: Document| {
        doc! { "cursor": { "firstBatch": [{ "x": x, "_id": 1 }] } }
    };
    for (x, is_good) in [(doc! { "b": 2, "a": 1 }, true), (doc! { "a": 1 }, false)] {
        let mut caller = Caller::of(&with_data);
        let mut commands = Vec::new();
        for _ in 0..4 {
            let (token, _, command) = caller.run();
            commands.push(command.keys().next().cloned().unwrap_or_default());
            match commands.last().map(String::as_str) {
                Some("drop") => caller.refuse(token, missing()),
                _ => caller.reply(token, doc! { "ok": 1 }),
            }
        }
        assert_eq!(commands, ["drop", "drop", "drop", "insert"]);
        caller.open("client0");
        let (token, who, command) = caller.run();
        assert_eq!((who.as_str(), command.get_str("find").ok()), ("internal", Some("c")));
        caller.reply(token, found(x));
        assert_eq!(caller.result().is_some_and(|result| result.is_ok()), is_good);
    }
}

/// The error of what is not there.
fn missing() -> Failed {
    of_code(26)
}

fn of_code(code: i32) -> Failed {
    Failed { reply: Some(doc! { "ok": 0, "code": code }), ..Failed::default() }
}

#[test]
fn contents_that_cannot_be_given_are_a_breakdown_of_the_runner() {
    let data = r#"{ "description": "", "schemaVersion": "1.0", "initialData": [{
        "databaseName": "db", "collectionName": "c", "documents": [{ "_id": 1 }, { "_id": 1 }] }],
        "tests": [{ "description": "", "operations": [] }] }"#;
    let data = parse(data).expect("a file");
    let mut caller = Caller::of(&data);
    let (token, ..) = caller.run();
    caller.refuse(token, of_code(13));
    assert_eq!(caller.breakdown().subject, "its drop", "not allowed is not the same as missing");
    for errors in [
        doc! { "ok": 1, "n": 1, "writeErrors": [{ "index": 1, "code": 11000 }] },
        doc! { "ok": 1, "n": 2, "writeConcernError": { "code": 64 } },
    ] {
        let mut caller = Caller::of(&data);
        for _ in 0..3 {
            let (token, ..) = caller.run();
            caller.refuse(token, missing());
        }
        let (token, ..) = caller.run();
        caller.reply(token, errors);
        assert_eq!(caller.breakdown().subject, "its insert");
    }
}

#[test]
fn only_what_is_missing_does_not_exist() {
    let collection = r#"{ "name": "assertCollectionNotExists", "object": "testRunner",
        "arguments": { "databaseName": "db", "collectionName": "c" } }"#;
    let index = r#"{ "name": "assertIndexNotExists", "object": "testRunner",
        "arguments": { "databaseName": "db", "collectionName": "c", "indexName": "i" } }"#;
    let none = || doc! { "ok": 1, "cursor": { "firstBatch": [] } };
    for operation in [collection, index] {
        let mut caller = Caller::begin(operation, "");
        let (token, ..) = caller.run();
        caller.reply(token, none());
        assert_eq!(caller.result(), Some(Ok(())), "{operation}");
        let mut caller = Caller::begin(operation, "");
        let (token, ..) = caller.run();
        caller.refuse(token, of_code(13));
        assert!(caller.breakdown().subject.starts_with("its list"), "{operation}");
    }
    let mut caller = Caller::begin(index, "");
    let (token, ..) = caller.run();
    caller.refuse(token, missing());
    assert_eq!(caller.result(), Some(Ok(())), "no collection, no index");
}

#[test]
fn a_fail_point_that_stays_on_outweighs_what_the_test_has_found() {
    let set = r#"{ "name": "failPoint", "object": "testRunner", "arguments": { "client": "client0",
        "failPoint": { "configureFailPoint": "failCommand", "mode": "alwaysOn" } } }"#;
    let mut caller = Caller::begin(&format!("{set}, {{ {PING} }}"), "");
    let (token, ..) = caller.run();
    caller.reply(token, doc! { "ok": 1 });
    let (token, ..) = caller.run();
    caller.refuse(token, Failed::default());
    let (token, ..) = caller.run();
    caller.refuse(token, of_code(13));
    assert_eq!(caller.breakdown().subject, "its configureFailPoint");
}

#[test]
fn a_saved_result_is_an_entity() {
    let operations = format!(
        r#"{{ {PING}, "saveResultAsEntity": "first" }},
           {{ {PING}, "expectResult": {{ "$$matchesEntity": "first" }} }}"#
    );
    for (second, is_good) in [(doc! { "ok": 1 }, true), (doc! { "ok": 2 }, false)] {
        let mut caller = Caller::begin(&operations, "");
        let (token, ..) = caller.run();
        caller.reply(token, doc! { "ok": 1 });
        let (token, ..) = caller.run();
        caller.reply(token, second);
        assert_eq!(caller.result().is_some_and(|result| result.is_ok()), is_good);
    }
}

#[test]
fn what_is_no_operation_or_no_argument_or_no_entity_fails_the_test() {
    for (operation, place) in [
        (r#"{ "name": "fly", "object": "testRunner" }"#, "operations[0]"),
        (r#"{ "name": "close", "object": "nobody" }"#, "operations[0]"),
        (r#"{ "name": "close", "object": "client0", "arguments": { "x": 1 } }"#, "operations[0]"),
        (
            r#"{ "name": "createEntities", "object": "testRunner", "arguments":
                { "entities": [{ "client": { "id": "client0" } }] } }"#,
            "operations[0]",
        ),
        (
            r#"{ "name": "assertNumberConnectionsCheckedOut", "object": "testRunner",
                 "arguments": { "client": "client0" } }"#,
            "operations[0]",
        ),
    ] {
        let caller = Caller::begin(operation, "");
        assert_eq!(caller.failure().place, place, "{operation}");
    }
}

#[test]
fn a_wait_takes_its_time() {
    let operation = r#"{ "name": "wait", "object": "testRunner", "arguments": { "ms": 70 } }"#;
    let mut caller = Caller::begin(operation, "");
    assert_eq!(caller.wait(), Instant::from_millis(70));
    assert_eq!(caller.result(), Some(Ok(())));
}

#[test]
fn pools_have_some_time_to_come_to_their_least_size() {
    let mut file = file("", "");
    let crate::unified::format::Entity::Client(client) = &mut file.entities[0] else {
        panic!("a client comes first")
    };
    client.await_min_pool_size_ms = Some(500);
    client.uri_options = doc! { "minPoolSize": 1 };
    let mut caller = Caller::of(&file);
    caller.open("client0");
    assert_eq!(caller.wait(), Instant::from_millis(500));
    assert_eq!(caller.failure().place, "the client client0");
}

/// A primary and a secondary as they come to be known, and connections to them.
#[test]
fn pools_are_filled_when_every_member_is_known_and_has_its_connections() {
    let mut file = file("", "");
    let crate::unified::format::Entity::Client(client) = &mut file.entities[0] else {
        panic!("a client comes first")
    };
    client.await_min_pool_size_ms = Some(500);
    client.uri_options = doc! { "minpoolsize": 1 };
    let mut caller = Caller::of(&file);
    caller.open("client0");
    let mut harness = Harness::new("mongodb://a,b/?replicaSet=rs", None).expect("options");
    let pool = |caller: &mut Caller, of: &ServerDescription, is_established: bool| {
        let address = of.address.clone();
        // The number of a connection, which only pools give.
        let pool: Pool<()> = Pool::new(PoolConfig::new(address.clone(), PoolOptions::default()));
        let connection = pool.newest();
        let (duration, stages) = Default::default();
        let ready = PoolEvent::ConnectionReady { connection, duration, stages };
        let (reason, error) = (CloseReason::Error, None);
        let closed = PoolEvent::ConnectionClosed { connection, reason, error };
        let event = if is_established { ready } else { closed };
        caller.report(&CoreEvent::Pool { server: of.id, address, event });
    };
    for (name, is_primary) in [("a", true), ("b", false)] {
        let hello = rawdoc! {
            "ok": 1, "helloOk": true, "setName": "rs", "hosts": ["a:27017", "b:27017"],
            "isWritablePrimary": is_primary, "secondary": !is_primary, "maxWireVersion": 21,
        };
        let address = format!("{name}:27017").parse().expect("an address");
        harness.answer(&address, CheckOutcome::Reply(&hello)).expect("it is asked");
        harness.take_events().iter().for_each(|event| caller.report(&event.kind));
        let member = Arc::clone(harness.view().server(&address).expect("a member"));
        // Closed without ever having been established: that takes nothing away.
        pool(&mut caller, &member, false);
        assert_eq!(caller.result(), None, "{name} has no connection");
        pool(&mut caller, &member, true);
        assert_eq!(caller.result().is_some(), name == "b", "{name}");
    }
    assert_eq!(caller.result(), Some(Ok(())));
}

/// A test of the log of a client, which has tried to log in.
fn log_test(expected: &str) -> Caller {
    let messages =
        format!(r#", "expectLogMessages": [{{ "client": "client0", "messages": [{expected}] }}]"#);
    let operation = format!(r#"{{ {PING}, "expectError": {{ "isError": true }} }}"#);
    let mut caller = Caller::begin(&operation, &messages);
    let (token, ..) = caller.run();
    let reply = doc! { "ok": 0, "code": 18, "errmsg": "no such user" };
    let message = "error 18: no such user (at a:27017)".to_owned();
    caller.refuse(token, Failed { message, reply: Some(reply), ..Failed::default() });
    caller
}

fn log(caller: &mut Caller, level: Level, data: Document) {
    let message = Logged { level, component: Component::Command, data };
    caller.input(Input::Logged { client: "client0", message });
}

#[test]
fn messages_come_in_order_and_have_some_time_to_come() {
    let one = r#"{ "level": "debug", "component": "command", "data": { "message": "m" } }"#;
    let mut caller = log_test(one);
    assert_eq!(caller.result(), None, "it is waited for");
    log(&mut caller, Level::Debug, doc! { "message": "m", "more": 1 });
    assert_eq!(caller.result(), Some(Ok(())));

    let mut caller = log_test(one);
    assert_eq!(caller.wait(), Instant::from_millis(30_000));
    assert_eq!(caller.failure().place, "expectLogMessages[0].messages[0]");
    for (level, message) in [(Level::Info, "m"), (Level::Debug, "n")] {
        let mut caller = log_test(one);
        log(&mut caller, level, doc! { "message": message });
        assert!(caller.failure().place.starts_with("expectLogMessages[0].messages[0]"));
    }
    assert_eq!(log_test("").result(), Some(Ok(())));
}

#[test]
fn messages_may_be_ignored_and_more_may_follow_where_that_is_allowed() {
    let extra = |more: &str| {
        let messages = format!(
            r#", "expectLogMessages": [{{ "client": "client0", {more} "messages": [
                {{ "level": "debug", "component": "command", "data": {{ "message": "m" }} }}] }}]"#
        );
        let mut caller = Caller::begin(&format!("{{ {PING} }}"), &messages);
        let (token, ..) = caller.run();
        for message in ["x", "m", "y"] {
            log(&mut caller, Level::Debug, doc! { "message": message });
        }
        caller.reply(token, doc! { "ok": 1 });
        caller.result().is_some_and(|result| result.is_ok())
    };
    let ignored = r#""ignoreMessages": [
        { "level": "debug", "component": "command", "data": { "message": "x" } }],"#;
    assert!(!extra("") && !extra(ignored) && !extra(r#""ignoreExtraMessages": true,"#));
    assert!(extra(&format!(r#"{ignored} "ignoreExtraMessages": true,"#)));
}

#[test]
fn a_redacted_failure_has_no_words_of_the_server_and_another_one_has_all() {
    for (is_redacted, failure, is_met) in [
        (true, Some("error 18"), true),
        (true, Some("error 18: no such user"), false),
        (true, None, false),
        (false, Some("error 18: no such user"), true),
        (false, Some("error 18"), false),
        (false, Some("redacted"), false),
    ] {
        let mut caller = log_test(&format!(
            r#"{{ "level": "debug", "component": "command", "failureIsRedacted": {is_redacted},
                  "data": {{}} }}"#
        ));
        let mut data = doc! { "message": "Command failed" };
        data.extend(failure.map(|failure| ("failure".to_owned(), Bson::from(failure))));
        log(&mut caller, Level::Debug, data);
        let is_good = caller.result().is_some_and(|result| result.is_ok());
        assert_eq!(is_good, is_met, "{is_redacted} {failure:?}");
    }
}

/// Compares these spans with what is expected of them.
fn compare_spans(expected: &str, ignores_extra: bool, spans: &[Traced]) -> Result<(), Fault> {
    let expected = format!(
        r#", "expectTracingMessages": [{{ "client": "client0",
            "ignoreExtraSpans": {ignores_extra}, "spans": [{expected}] }}]"#
    );
    let mut caller = Caller::begin(&format!("{{ {PING} }}"), &expected);
    let (token, ..) = caller.run();
    for span in spans {
        caller.input(Input::Traced { client: "client0", span: span.clone() });
    }
    caller.reply(token, doc! { "ok": 1 });
    caller.result().expect("nothing else is waited for")
}

fn span(name: &str, attributes: Document, nested: Vec<Traced>) -> Traced {
    Traced { name: name.to_owned(), attributes, nested }
}

/// Unified Test Format, "expectTracingMessages".
#[test]
fn spans_are_compared_with_their_attributes_and_what_is_within_them() {
    let expected = r#"{ "name": "find a", "attributes": { "n": 1 }, "nested": [
        { "name": "find", "attributes": { "text": { "$$exists": false } } } ] }"#;
    let find = || span("find", doc! {}, vec![]);
    let whole = || span("find a", doc! { "n": 1_i64, "more": 1 }, vec![find()]);
    let compare = |spans: &[Traced]| compare_spans(expected, false, spans);
    assert_eq!(compare(&[whole()]), Ok(()));
    for wrong in [
        vec![],
        vec![whole(), find()],
        vec![find(), whole()],
        vec![span("find b", doc! { "n": 1 }, vec![find()])],
        vec![span("find a", doc! { "n": 2 }, vec![find()])],
        vec![span("find a", doc! { "n": 1 }, vec![])],
        vec![span("find a", doc! { "n": 1 }, vec![find(), find()])],
        vec![span("find a", doc! { "n": 1 }, vec![span("find", doc! { "text": "t" }, vec![])])],
    ] {
        assert!(matches!(compare(&wrong), Err(Fault::Differs(_))), "{wrong:?}");
    }
    let ignoring = |spans: &[Traced]| compare_spans(expected, true, spans);
    assert_eq!(ignoring(&[find(), whole(), find()]), Ok(()));
    let differs = |spans: &[Traced]| match ignoring(spans) {
        Err(Fault::Differs(difference)) => (difference.place, difference.found),
        other => panic!("it does not differ: {other:?}"),
    };
    // The first span of the name is named, and none that came later or has another name.
    let (wrong, later) = (span("find a", doc! { "n": 2 }, vec![]), span("find a", doc! {}, vec![]));
    for spans in [vec![wrong.clone()], vec![find(), wrong.clone(), later, find()]] {
        let (place, found) = differs(&spans);
        assert!(place.ends_with(".spans[0].attributes.n") && found == "2", "{place}: {found}");
    }
    assert_eq!(differs(&[find()]).1, "no further span");
}

#[test]
fn needs_are_named_once_each_in_the_order_of_the_test() {
    let operations = r#"
        { "name": "createEntities", "object": "testRunner", "arguments": { "entities": [
            { "collection": { "id": "c", "database": "database0", "collectionName": "c" } },
            { "session": { "id": "session0", "client": "client0" } },
            { "bucket": { "id": "bucket0", "database": "database0" } } ] } },
        { "name": "find", "object": "c", "arguments": { "filter": {}, "session": "session0" } },
        { "name": "createEntities", "object": "testRunner", "arguments": { "entities": [
            { "client": { "id": "client1", "uriOptions": { "waitQueueSize": 1 } } },
            { "client": { "id": "client2", "uriOptions": { "waitQueueSize": 2 } } } ] } },
        { "name": "withTransaction", "object": "session0", "arguments": { "callback": [
            { "name": "download", "object": "bucket0" } ] } },
        { "name": "runOnThread", "object": "testRunner", "arguments": { "thread": "thread0",
            "operation": { "name": "upload", "object": "bucket0" } } },
        { "name": "fly", "object": "c" }"#;
    let spans = r#", "expectTracingMessages": [{ "client": "client0", "spans": [] }]"#;
    let file = file(operations, spans);
    assert_eq!(needs(&file, &file.tests[0]), ["waitQueueSize"]);
    let encrypted = needs_with_encryption(&file, &file.tests[0]);
    assert_eq!(encrypted[..2], ["client-side encryption", "waitQueueSize"]);
    let ping = self::file(&format!("{{ {PING} }}"), "");
    assert_eq!(needs(&ping, &ping.tests[0]), Vec::<String>::new());
    assert_eq!(needs_with_encryption(&ping, &ping.tests[0]), ["client-side encryption"]);
}

/// A test with a session of these options, whose operations are called with it.
fn with_session(options: &str, operations: &str) -> Caller {
    let operations = format!(
        r#"{{ "name": "createEntities", "object": "testRunner", "arguments": {{ "entities": [
            {{ "session": {{ "id": "session0", "client": "client0",
                "sessionOptions": {{ {options} }} }} }} ] }} }}, {operations}"#
    );
    Caller::begin(&operations, "")
}

fn called(caller: &mut Caller) -> (Token, String, OfSession) {
    let mut calls = caller.out.drain(..).filter_map(|action| match action {
        Action::Session(token, session, call) => Some((token, session, call)),
        _ => None,
    });
    calls.next().expect("the session is called")
}

fn answer(caller: &mut Caller, token: Token, result: Option<Bson>) {
    caller.input(Input::Ended { token, result: Ok(Ended { result, server: None }) });
}

#[test]
fn a_session_is_started_with_its_options_and_matches_by_its_id() {
    let ping = PING.replace(r#""commandName""#, r#""session": "session0", "commandName""#);
    let expected = r#""expectResult": { "lsid": { "$$sessionLsid": "session0" } }"#;
    let operations = format!("{{ {ping}, {expected} }}");
    for (id, is_met) in [(1, true), (2, false)] {
        let mut caller = with_session(r#""snapshot": true"#, &operations);
        let started = caller.out.iter().find_map(|action| match action {
            Action::Start { session, client, options } => Some((session, client, options)),
            _ => None,
        });
        let (session, client, options) = started.expect("a session is to be started");
        assert_eq!((session.as_str(), client.as_str()), ("session0", "client0"));
        assert!(options.snapshot && options.causal_consistency.is_none());
        let called = caller.out.iter().find_map(|action| match action {
            Action::Operate(token, operate) => Some((*token, operate.clone())),
            _ => None,
        });
        let (token, operate) = called.expect("an operation is called");
        assert_eq!(operate.session.as_deref(), Some("session0"));
        assert!(!operate.arguments.contains_key("session"), "the caller need not read it");
        caller.input(Input::Started { session: "session0", result: Ok(doc! { "id": 1 }) });
        caller.reply(token, doc! { "lsid": { "id": id } });
        assert_eq!(caller.result().is_some_and(|result| result.is_ok()), is_met, "{id}");
    }
}

#[test]
fn a_session_that_cannot_be_started_or_has_other_options_fails_its_test() {
    let operations = format!("{{ {PING} }}");
    let mut caller = with_session("", &operations);
    let refusal = Difference::from(Broken::new("session0", "no"));
    let result = Err(Fault::Differs(refusal.clone()));
    caller.input(Input::Started { session: "session0", result });
    assert_eq!(caller.failure(), refusal);
    for options in [r#""fast": true"#, r#""snapshotTime": "never""#, r#""snapshot": 1"#] {
        let place = with_session(options, &operations).failure().place;
        assert_eq!(place, "operations[0].sessionOptions", "{options}");
    }
    let ping = PING.replace(r#""commandName""#, r#""session": "database0", "commandName""#);
    let caller = Caller::begin(&format!("{{ {ping} }}"), "");
    assert_eq!(caller.failure().found, "a database");
}

#[test]
fn a_session_is_asked_whether_it_is_dirty() {
    for (name, wanted) in [("assertSessionDirty", true), ("assertSessionNotDirty", false)] {
        for found in [true, false] {
            let operation = format!(
                r#"{{ "name": "{name}", "object": "testRunner",
                      "arguments": {{ "session": "session0" }} }}"#
            );
            let mut caller = with_session("", &operation);
            let (token, session, call) = called(&mut caller);
            assert_eq!((session.as_str(), call), ("session0", OfSession::IsDirty));
            answer(&mut caller, token, Some(Bson::Boolean(found)));
            let is_good = caller.result().is_some_and(|result| result.is_ok());
            assert_eq!(is_good, wanted == found, "{name} {found}");
        }
    }
}

#[test]
fn the_time_of_a_snapshot_is_saved_for_another_session() {
    let mut caller = with_session(
        "",
        r#"{ "name": "getSnapshotTime", "object": "session0", "saveResultAsEntity": "time" },
           { "name": "createEntities", "object": "testRunner", "arguments": { "entities": [
               { "session": { "id": "session1", "client": "client0",
                   "sessionOptions": { "snapshot": true, "snapshotTime": "time" } } } ] } },
           { "name": "endSession", "object": "session0" }"#,
    );
    let (token, _, call) = called(&mut caller);
    assert_eq!(call, OfSession::SnapshotTime);
    let time = Timestamp { time: 7, increment: 1 };
    answer(&mut caller, token, Some(Bson::Timestamp(time)));
    let given = caller.out.iter().find_map(|action| match action {
        Action::Start { options, .. } => Some(options.snapshot_time),
        _ => None,
    });
    assert_eq!(given, Some(Some(time)));
    let (token, session, call) = called(&mut caller);
    assert_eq!((session.as_str(), call), ("session0", OfSession::End));
    answer(&mut caller, token, None);
    assert_eq!(caller.result(), Some(Ok(())));
}

#[test]
fn the_limit_of_an_operation_is_its_own_beside_that_of_its_database() {
    let begin = |more: &str| {
        let ping = PING.replace(r#""commandName""#, &format!(r#"{more} "commandName""#));
        let mut file = file(&format!("{{ {ping} }}"), "");
        for entity in &mut file.entities {
            if let Entity::Database { options, .. } = entity {
                options.timeout_ms = Some(50);
            }
        }
        let mut caller = Caller::of(&file);
        caller.open("client0");
        caller.out.into_iter().find_map(|action| match action {
            Action::Operate(_, operate) => Some(operate),
            _ => None,
        })
    };
    let operate = begin("").expect("a call");
    assert_eq!((operate.timeout_ms, operate.options.timeout_ms), (None, Some(50)));
    let operate = begin(r#""timeoutMS": 0,"#).expect("a call");
    assert_eq!((operate.timeout_ms, operate.options.timeout_ms), (Some(0), Some(50)));
    let arguments = operate.arguments;
    assert!(!arguments.contains_key("timeoutMS"), "{arguments}");
}

#[test]
fn a_cursor_is_kept_by_its_name_and_goes_on() {
    let operations = r#"
        { "name": "createCommandCursor", "object": "database0", "saveResultAsEntity": "cursor0",
          "arguments": { "commandName": "ping", "command": { "ping": 1 } } },
        { "name": "iterateUntilDocumentOrError", "object": "cursor0", "expectResult": { "a": 1 } },
        { "name": "fly", "object": "cursor0" }"#;
    let mut caller = Caller::begin(operations, "");
    let call = |caller: &mut Caller| {
        let mut calls = caller.out.drain(..).filter_map(|action| match action {
            Action::Operate(token, operate) => Some((token, operate)),
            _ => None,
        });
        calls.next().expect("a call")
    };
    let (token, operate) = call(&mut caller);
    assert_eq!(operate.save_as.as_deref(), Some("cursor0"));
    answer(&mut caller, token, None);
    let (token, operate) = call(&mut caller);
    assert_eq!(operate.subject, Subject::Cursor("cursor0".to_owned()));
    assert_eq!(operate.client, "client0");
    caller.reply(token, doc! { "a": 1 });
    assert_eq!(caller.failure().place, "operations[2]");
}

#[test]
fn a_transaction_is_started_and_ended_by_calls_of_its_session() {
    let mut caller = with_session(
        r#""defaultTransactionOptions": { "readConcern": { "level": "majority" } }"#,
        r#"{ "name": "startTransaction", "object": "session0",
             "arguments": { "writeConcern": { "w": 1 }, "maxCommitTimeMS": 60 } },
           { "name": "assertSessionTransactionState", "object": "testRunner",
             "arguments": { "session": "session0", "state": "starting" } },
           { "name": "commitTransaction", "object": "session0", "arguments": { "timeoutMS": 9 } },
           { "name": "assertSessionPinned", "object": "testRunner",
             "arguments": { "session": "session0" } }"#,
    );
    let defaults = caller.out.iter().find_map(|action| match action {
        Action::Start { options, .. } => options.default_transaction_options.clone(),
        _ => None,
    });
    assert_eq!(defaults.and_then(|it| it.read_concern), Some(ReadConcern::majority()));
    let (token, _, call) = called(&mut caller);
    let OfSession::StartTransaction(options) = call else { panic!("{call:?}") };
    assert_eq!(options.max_commit_time, Some(Duration::from_millis(60)));
    assert_eq!(options.read_concern, None);
    assert!(options.write_concern.is_some_and(|concern| concern.is_acknowledged()));
    answer(&mut caller, token, None);
    let (token, _, call) = called(&mut caller);
    assert_eq!(call, OfSession::TransactionState);
    answer(&mut caller, token, Some("starting".into()));
    let (token, _, call) = called(&mut caller);
    assert_eq!(call, OfSession::Commit(Some(9)));
    answer(&mut caller, token, None);
    let (token, _, call) = called(&mut caller);
    assert_eq!(call, OfSession::IsPinned);
    answer(&mut caller, token, Some(false.into()));
    ends_sessions(&mut caller);
    assert_eq!(caller.failure().place, "operations[4]");
}

#[test]
fn a_fail_point_is_set_on_the_mongos_of_a_session_and_off_in_the_end() {
    let mut caller = with_session(
        "",
        r#"{ "name": "targetedFailPoint", "object": "testRunner", "arguments":
             { "session": "session0", "failPoint": { "configureFailPoint": "failCommand" } } }"#,
    );
    let target = caller.out.drain(..).find_map(|action| match action {
        Action::Target { token, session, command } => Some((token, session, command)),
        _ => None,
    });
    let (token, session, command) = target.expect("a fail point is to be set");
    assert_eq!(session, "session0");
    assert_eq!(command, doc! { "configureFailPoint": "failCommand" });
    caller.reply(token, doc! { "ok": 1 });
    let (_, client, command) = caller.run();
    assert_eq!(client, "internal");
    assert_eq!(command, doc! { "configureFailPoint": "failCommand", "mode": "off" });
}

/// Has the sessions of a test end that may have left a transaction open.
fn ends_sessions(caller: &mut Caller) {
    let (token, client, command) = caller.run();
    assert_eq!((client.as_str(), command), ("internal", doc! { "killAllSessions": [] }));
    caller.reply(token, doc! { "ok": 1 });
}

/// A transaction that is run as a whole, with one operation in its callback; returns its call.
fn with_transaction(caller: &mut Caller) -> Token {
    let run = caller.out.drain(..).find_map(|action| match action {
        Action::WithTransaction(token, run) => Some((token, run)),
        _ => None,
    });
    let (token, run) = run.expect("a transaction is to be run");
    assert_eq!((run.session.as_str(), run.timeout_ms), ("session0", Some(50)));
    token
}

fn returned(caller: &mut Caller) -> (Token, Option<Option<Token>>) {
    let returned = caller.out.drain(..).find_map(|action| match action {
        Action::Return { token, failed } => Some((token, failed)),
        _ => None,
    });
    returned.expect("a callback is to be ended")
}

/// Unified Test Format, "withTransaction": "Test runners MUST evaluate error and result assertions
/// when executing these operations in the callback", and "MUST allow any errors from the callback
/// operation(s) to propagate to `withTransaction`, irrespective of `ignoreResultAndError` or
/// `expectError`".
#[test]
fn a_callback_runs_its_operations_each_time_and_returns_their_errors() {
    let run = format!(
        r#"{{ "name": "withTransaction", "object": "session0", "arguments": {{ "timeoutMS": 50,
              "callback": [ {{ {PING}, "expectError": {{ "errorCode": 7 }} }}, {{ {PING} }} ] }} }}"#
    );
    let mut caller = with_session("", &run);
    let whole = with_transaction(&mut caller);
    for _ in 0..2 {
        caller.input(Input::Called { token: whole });
        let (token, ..) = caller.run();
        caller.refuse(token, of_code(7));
        assert_eq!(returned(&mut caller), (whole, Some(Some(token))), "the second is not called");
    }
    answer(&mut caller, whole, None);
    ends_sessions(&mut caller);
    assert_eq!(caller.result(), Some(Ok(())));

    let mut caller = with_session("", &run);
    let whole = with_transaction(&mut caller);
    caller.input(Input::Called { token: whole });
    let (token, ..) = caller.run();
    caller.reply(token, doc! { "ok": 1 });
    let returns = |action: &Action| matches!(action, Action::Return { token, failed: Some(None) } if *token == whole);
    assert!(caller.out.iter().any(returns));
    ends_sessions(&mut caller);
    assert_eq!(caller.failure().place, "operations[1].arguments.callback[0]");
    caller.input(Input::Called { token: whole });
    assert_eq!(returned(&mut caller), (whole, Some(None)), "the test has ended");
}

#[test]
fn a_callback_returns_when_its_operations_have_ended() {
    let mut caller = with_session(
        "",
        &format!(
            r#"{{ "name": "withTransaction", "object": "session0", "arguments":
                  {{ "timeoutMS": 50, "callback": [ {{ {PING} }} ] }} }}"#
        ),
    );
    let whole = with_transaction(&mut caller);
    caller.input(Input::Called { token: whole });
    let (token, ..) = caller.run();
    caller.reply(token, doc! { "ok": 1 });
    assert_eq!(returned(&mut caller), (whole, None));
    assert_eq!(caller.result(), None);
    answer(&mut caller, whole, None);
    ends_sessions(&mut caller);
    assert_eq!(caller.result(), Some(Ok(())));
}

/// A session that has ended aborts its transaction in the background: the events of that have some
/// time to come, and those of nothing else.
#[test]
fn events_after_the_end_of_a_session_have_some_time_to_come() {
    let expected = r#", "expectEvents": [{ "client": "client0", "eventType": "sdam",
        "events": [{ "topologyClosedEvent": {} }] }]"#;
    for (operation, waits) in
        [(r#""name": "endSession", "object": "session0""#, true), (PING, false)]
    {
        let operations = format!(
            r#"{{ "name": "createEntities", "object": "testRunner", "arguments": {{ "entities": [
                {{ "session": {{ "id": "session0", "client": "client0" }} }} ] }} }},
               {{ {operation} }}"#
        );
        let mut caller = Caller::begin(&operations, expected);
        let token = caller.out.drain(..).find_map(|action| match action {
            Action::Session(token, ..) | Action::Operate(token, _) => Some(token),
            _ => None,
        });
        answer(&mut caller, token.expect("a call"), None);
        assert_eq!(caller.result().is_none(), waits);
        if waits {
            caller.report(&CoreEvent::TopologyClosed);
            assert_eq!(caller.result(), Some(Ok(())));
        }
    }
}
