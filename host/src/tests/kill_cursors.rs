//! Cursors that applications have dropped, as a server hears of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::OpenCursor;

use super::fixture::{Fixture, Task};
use super::lock;
use super::puppet::Puppet;
use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::machines::runtime;

fn client(fixture: &Fixture) -> Topology<Puppet> {
    Topology::from_host(Arc::clone(&fixture.host))
}

fn cursor(id: i64) -> OpenCursor {
    OpenCursor::new("a:27017".parse().unwrap(), ("app".into(), "things".into()), id)
}

fn take_tasks(fixture: &Fixture) -> Vec<runtime::Task> {
    std::mem::take(&mut *lock(&fixture.host.runtime().tasks))
}

/// The commands that close cursors, as the server has received them.
fn kills(fixture: &Fixture) -> Vec<RawDocumentBuf> {
    let commands = std::mem::take(&mut *lock(&fixture.server.commands));
    let is_kill = |it: &RawDocumentBuf| it.get("killCursors").unwrap().is_some();
    commands.into_iter().filter(is_kill).collect()
}

fn ids(kill: &RawDocument) -> Vec<i64> {
    let ids = kill.get_array("cursors").unwrap().into_iter();
    ids.map(|id| id.unwrap().as_i64().unwrap()).collect()
}

/// One task for a server, however many there are, and another one when that has ended.
#[test]
fn cursors_of_a_server_are_killed_by_one_task() {
    let fixture = Fixture::with_sessions("");
    let client = client(&fixture);
    for id in 1..=3 {
        client.kill_in_background(cursor(id));
    }
    let tasks = take_tasks(&fixture);
    assert_eq!(tasks.len(), 1);
    tasks.into_iter().for_each(|task| fixture.run(task));
    let [kill] = &kills(&fixture)[..] else { panic!("one command") };
    assert_eq!(ids(kill), [1, 2, 3]);
    assert!(kill.get("lsid").unwrap().is_some(), "every command has a session");
    client.kill_in_background(cursor(4));
    let mut tasks = take_tasks(&fixture);
    assert_eq!(tasks.len(), 1, "the first has ended");
    fixture.run(tasks.remove(0));
    assert_eq!(ids(&kills(&fixture)[0]), [4]);
}

/// Driver Sessions, "When sending a killCursors command": the session of the application's, and no
/// other one beside it.
#[test]
fn a_cursor_is_killed_in_the_session_that_it_was_opened_in() {
    let fixture = Fixture::with_sessions("");
    let session = rawdoc! { "id": 7 };
    client(&fixture).kill_in_background(cursor(1).with_session(Some(&session)));
    fixture.run(take_tasks(&fixture).remove(0));
    let [kill] = &kills(&fixture)[..] else { panic!("one command") };
    assert_eq!(kill.get_document("lsid").unwrap(), &*session);
    assert_eq!(kill.iter().filter(|it| it.as_ref().unwrap().0 == "lsid").count(), 1);
}

/// A runtime that ends drops the task: the cursors that waited are left to their server, and later
/// ones have another task.
#[test]
fn cursors_whose_task_was_dropped_do_not_hold_up_later_ones() {
    let fixture = Fixture::new("");
    let client = client(&fixture);
    client.kill_in_background(cursor(1));
    drop(take_tasks(&fixture));
    let mut closing = Task::new(client.close_cursors());
    assert!(closing.poll().is_ready(), "nothing is left to wait for");
    client.kill_in_background(cursor(2));
    let mut tasks = take_tasks(&fixture);
    assert_eq!(tasks.len(), 1, "there is another task");
    fixture.run(tasks.remove(0));
    let [kill] = &kills(&fixture)[..] else { panic!("one command") };
    assert_eq!(ids(kill), [2]);
}

/// `close` waits for them, but not for longer than a second, and not for a server of which nothing
/// is known.
#[test]
fn cursors_are_waited_for_while_their_server_is_known_and_answers() {
    let fixture = Fixture::new("");
    let client = client(&fixture);
    client.kill_in_background(cursor(1));
    let mut closing = Task::new(client.close_cursors());
    assert!(closing.poll().is_pending());
    fixture.run(take_tasks(&fixture).remove(0));
    assert!(closing.was_woken() && closing.poll().is_ready());
    assert_eq!(ids(&kills(&fixture)[0]), [1]);

    fixture.server.mute.store(true, Ordering::Relaxed);
    client.kill_in_background(cursor(2));
    let mut killer = Task::new(take_tasks(&fixture).remove(0));
    assert!(killer.poll().is_pending());
    let mut closing = Task::new(client.close_cursors());
    assert!(closing.poll().is_pending());
    fixture.pass(Duration::from_millis(999));
    assert!(closing.poll().is_pending());
    fixture.pass(Duration::from_millis(1));
    assert!(closing.poll().is_ready(), "a second is over");

    // While a check is in progress, so that it fails.
    fixture.pass(Duration::from_secs(9));
    fixture.link.closed(Failure::new(Stage::Hello, Cause::Io, "gone"));
    let view = fixture.host.view();
    assert!(view.servers()[0].error.is_some(), "it is not known any more");
    let mut later = Task::new(client.close_cursors());
    assert!(later.poll().is_ready(), "no server would hear of it");
}

/// The end of a client whose last handle is dropped waits for cursors, too, although servers keep
/// no session for it.
#[test]
fn cursors_that_wait_are_killed_before_a_dropped_client_is() {
    let fixture = Fixture::new("");
    let client = client(&fixture);
    client.kill_in_background(cursor(1));
    let mut tasks = take_tasks(&fixture);
    drop(client);
    let mut farewell = take_tasks(&fixture);
    assert_eq!(farewell.len(), 1, "servers are to hear of it");
    fixture.run(tasks.remove(0));
    assert_eq!(ids(&kills(&fixture)[0]), [1]);
    fixture.run(farewell.remove(0));
}
