//! Keys that take long to derive: the tasks of other servers go on meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};

use super::fixture::{Fixture, Task};
use super::puppet::Puppet;
use crate::machines::Host;
use crate::sync::lock;
use sdam_core::auth::MIN_ITERATIONS;
use sdam_core::config::Options;
use sdam_core::failure::Stage as Phase;

/// The most iterations that a server may ask for by default.
const MAX_ITERATIONS: u32 = 100_000;

/// A client whose server asks for so many iterations, and whose runtime leaves work to the test.
fn fixture(iterations: u32) -> Fixture {
    fixture_with(iterations, "")
}

/// The same with further options.
fn fixture_with(iterations: u32, options: &str) -> Fixture {
    let uri = "mongodb://user:pencil@a/?directConnection=true&authMechanism=SCRAM-SHA-256";
    let uri = &format!("{uri}{options}");
    let puppet = Puppet { leaves_work: true, ..Puppet::default() };
    let host = Host::new(Arc::new(Options::parse(uri).unwrap()), 1, puppet);
    host.ring();
    let fixture = Fixture::begin(host);
    // base64 of the nonce that connections are given, and what the server adds.
    let text = format!("r={}x,s=AAAA,i={iterations}", "BwcH".repeat(8));
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: text.into_bytes() };
    let first = rawdoc! { "ok": 1, "conversationId": 1, "done": false, "payload": payload };
    *lock(&fixture.server.reply) = Some(first);
    fixture
}

fn commands(fixture: &Fixture) -> Vec<String> {
    let commands = lock(&fixture.server.commands);
    commands.iter().map(|it| it.iter().next().unwrap().unwrap().0.to_string()).collect()
}

#[test]
fn a_login_that_derives_keys_keeps_no_task_waiting() {
    let fixture = fixture(MAX_ITERATIONS);
    let mut ping = Task::new(fixture.ping(None));
    assert!(ping.poll().is_pending());
    // The poll that takes the server's first message ends before the keys are derived.
    assert!(fixture.establish());
    assert!(lock(&fixture.host.runtime().work).is_some());
    assert_eq!(commands(&fixture), ["isMaster", "saslStart"]);
    // Without the work there is no login.
    drop(lock(&fixture.host.runtime().work).take());
    fixture.establish();
    let error = match ping.poll() {
        Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(error.contains("given up deriving the keys"), "{error}");
    assert_eq!(commands(&fixture), ["isMaster", "saslStart"]);
}

#[test]
fn a_login_goes_on_with_keys_that_were_derived_elsewhere() {
    let fixture = fixture(MIN_ITERATIONS);
    let mut ping = Task::new(fixture.ping(None));
    assert!(ping.poll().is_pending());
    assert!(fixture.establish());
    let work = lock(&fixture.host.runtime().work).take().unwrap();
    work();
    fixture.establish();
    assert_eq!(commands(&fixture), ["isMaster", "saslStart", "saslContinue"]);
}

/// Client Side Operations Timeout, "Background Connection Pooling": timeoutMS is that of commands,
/// and deriving keys is none.
#[test]
fn keys_may_take_longer_than_timeout_ms_where_no_operation_waits() {
    let fixture = fixture_with(MIN_ITERATIONS, "&minPoolSize=1&timeoutMS=10");
    assert!(fixture.establish());
    let work = lock(&fixture.host.runtime().work).take().unwrap();
    fixture.pass(Duration::from_millis(50));
    work();
    fixture.establish();
    assert_eq!(commands(&fixture), ["isMaster", "saslStart", "saslContinue"]);
}

#[test]
fn a_login_that_has_failed_derives_no_keys_and_says_what_was_wrong() {
    let fixture = fixture(MAX_ITERATIONS);
    fixture.server.chatty.store(true, Ordering::Relaxed);
    let mut ping = Task::new(fixture.ping(None));
    assert!(ping.poll().is_pending());
    fixture.establish();
    assert!(lock(&fixture.host.runtime().work).is_none());
    let error = match ping.poll() {
        Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(error.contains("a message that nothing asked for"), "{error}");
}

#[test]
fn a_login_that_the_server_does_not_answer_is_said_to_have_failed_there() {
    let fixture = fixture(MIN_ITERATIONS);
    fixture.server.hangs_up.store(true, Ordering::Relaxed);
    let pool = fixture.pool();
    let mut login = Task::new(pool.check_out());
    assert!(login.poll().is_pending());
    assert!(fixture.establish());
    let Poll::Ready(Err(error)) = login.poll() else { panic!("it goes on") };
    assert_eq!(error.failure().unwrap().stage, Phase::Authenticate, "{error}");
    assert!(error.as_check_out().is_some(), "{error}");
}
