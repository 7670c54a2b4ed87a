//! Change streams whose server leaves, is lost while nothing is read, or refuses a connection.

use std::time::Duration;

use bson::{Document, doc};
use sdam::generic::{ChangeStream, Collection};
use sdam::results::ChangeStreamEvent;
use sdam_cluster::{Change, Input, MemberId};
use sdam_core::config::{ReadMode, ReadPreference, ServerAddress};
use sdam_core::diagnosis::{ChangeStreamVerdict, Verdict};
use sdam_simulation::virtual_time::Runtime;

use super::{Fixture, address};

type Stream = ChangeStream<Runtime, ChangeStreamEvent<Document>>;

/// Opens a stream of these documents, and returns the member that has its cursor.
fn open(fixture: &mut Fixture, things: Collection<Runtime>) -> (Stream, MemberId) {
    let stream = fixture.run(async move { things.watch().await }).0.unwrap();
    let at = last(fixture, "aggregate");
    let member = (0..3).find(|index| address(*index) == at).expect("it is a member");
    (stream, MemberId(member))
}

/// The server that has answered such a command last.
fn last(fixture: &Fixture, name: &str) -> ServerAddress {
    fixture.ended(name).last().expect("there was one").address.clone()
}

/// Inserts a document, and reads the event of that; returns how long that took.
fn read_on(fixture: &mut Fixture, mut stream: Stream, id: i32) -> (Stream, Duration) {
    let things = fixture.things();
    fixture.run(async move { things.insert_one(&doc! { "_id": id }).await }).0.unwrap();
    let ((event, stream), took) = fixture.run(async move { (stream.next().await, stream) });
    let event = event.expect("it goes on").unwrap();
    assert_eq!(event.full_document, Some(doc! { "_id": id }));
    (stream, took)
}

/// "Any error encountered which is not a server error": the member that has the cursor is none any
/// more.
#[test]
fn a_stream_goes_on_when_its_member_has_left_the_set() {
    let mut fixture = Fixture::new("");
    let secondary = ReadPreference::new(ReadMode::Secondary);
    let things = fixture.things().with_read_preference(secondary);
    let (stream, member) = open(&mut fixture, things);
    let (stream, _) = read_on(&mut fixture, stream, 1);
    fixture.simulation.inject(Input::Reconfig { changes: &[Change::Remove(member)] });
    fixture.simulation.run_for(Duration::from_secs(30));
    read_on(&mut fixture, stream, 2);
    assert_ne!(last(&fixture, "aggregate"), address(member.0));
}

/// "Perform server selection": a server that was lost while nothing was read is not waited for
/// while another one is there.
#[test]
fn a_stream_does_not_wait_for_a_server_while_there_is_another() {
    for elects_first in [true, false] {
        let mut fixture = Fixture::new("");
        let things = fixture.things();
        let (stream, member) = open(&mut fixture, things);
        let (mut stream, _) = read_on(&mut fixture, stream, 1);
        fixture.simulation.inject(Input::Kill { member });
        if elects_first {
            fixture.simulation.run_for(Duration::from_secs(30));
            let (_, took) = read_on(&mut fixture, stream, 2);
            assert!(took < Duration::from_secs(1), "{took:?}");
            continue;
        }
        // There is none yet, but there will be.
        let things = fixture.things();
        let insert = fixture.begin(async move { things.insert_one(&doc! { "_id": 2 }).await });
        let (event, took) = fixture.run(async move { stream.next().await });
        assert!(insert.lock().unwrap().take().is_some_and(|done| done.is_ok()));
        assert_eq!(event.unwrap().unwrap().full_document, Some(doc! { "_id": 2 }));
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
}

/// "Resume Process": "drivers MUST attempt to kill the cursor that is currently in use", which only
/// its own server knows, wherever the stream goes on.
#[test]
fn the_cursor_of_before_is_killed_at_its_own_server() {
    let mut fixture = Fixture::new("");
    let things = fixture.things();
    let (stream, member) = open(&mut fixture, things);
    let (stream, _) = read_on(&mut fixture, stream, 1);
    fixture.simulation.inject(Input::StepDown { member });
    fixture.simulation.run_for(Duration::from_secs(30));
    // It has kept the cursor.
    let (stream, _) = read_on(&mut fixture, stream, 2);
    let labels = ["ResumableChangeStreamError"];
    let failing = doc! { "failCommands": ["getMore"], "errorCode": 1, "errorLabels": labels };
    fixture.fail(member, doc! { "times": 1 }, failing);
    read_on(&mut fixture, stream, 3);
    assert_ne!(last(&fixture, "aggregate"), address(member.0));
    let killed = fixture.ended("killCursors");
    assert!(killed[0].succeeded);
    assert_eq!(killed[0].address, address(member.0));
}

/// The same of a connection that is refused while it is established, whatever the server says:
/// only its reply to the getMore is judged by labels and codes.
#[test]
fn a_stream_goes_on_when_a_new_connection_is_refused() {
    for code in [91, 11600, 2] {
        let mut fixture = Fixture::new("maxIdleTimeMS=1000");
        let things = fixture.things();
        let (stream, member) = open(&mut fixture, things);
        let (mut stream, _) = read_on(&mut fixture, stream, 1);
        let things = fixture.things();
        fixture.run(async move { things.insert_one(&doc! { "_id": 2 }).await }).0.unwrap();
        fixture.simulation.run_for(Duration::from_secs(5));
        fixture.heard.clear();
        let refusing = doc! { "failCommands": ["hello", "isMaster"], "errorCode": code };
        fixture.fail(member, doc! { "times": 1 }, refusing);
        let (event, _) = fixture.run(async move { stream.next().await });
        assert_eq!(event.unwrap().unwrap().full_document, Some(doc! { "_id": 2 }), "{code}");
        assert_eq!(fixture.started("aggregate").len(), 1, "{code}: it has begun again");
    }
}

/// The error of a server that has lost the history, and whom the client has asked how far that
/// reaches back.
fn lost(fixture: &mut Fixture, stream: Stream) -> (sdam::error::Error, Duration) {
    let mut stream = stream;
    let (event, took) = fixture.run(async move { stream.next().await });
    let error = event.expect("it fails").unwrap_err();
    assert_eq!(error.code(), Some(286), "{error}");
    let is_lost = matches!(
        error.verdict(),
        Some(Verdict::ChangeStream(ChangeStreamVerdict::HistoryLost { .. }))
    );
    assert!(is_lost, "{error:?}");
    (error, took)
}

/// Client Side Operations Timeout, "Change Streams": `timeoutMS` limits each call, with what is
/// asked for the sake of its error.
#[test]
fn a_call_is_over_in_time_although_the_oplog_is_asked_for() {
    let mut fixture = Fixture::new("timeoutMS=7000");
    let things = fixture.things();
    let (stream, member) = open(&mut fixture, things);
    let failing = doc! {
        "failCommands": ["getMore", "find"], "errorCode": 286,
        "blockConnection": true, "blockTimeMS": 6000,
    };
    fixture.fail(member, doc! { "times": 2 }, failing);
    let (_, took) = lost(&mut fixture, stream);
    assert!((Duration::from_secs(6)..=Duration::from_secs(7)).contains(&took), "{took:?}");
}

/// It is the oplog of the server that has lost the history, and not of another member.
#[test]
fn the_server_that_has_lost_the_history_is_asked_how_far_it_reaches_back() {
    for seed in 0..6 {
        let mut fixture = Fixture::seeded("", seed);
        let nearest = ReadPreference::new(ReadMode::Nearest);
        let things = fixture.things().with_read_preference(nearest);
        let (stream, member) = open(&mut fixture, things);
        let failing = doc! { "failCommands": ["getMore"], "errorCode": 286 };
        fixture.fail(member, doc! { "times": 1 }, failing);
        lost(&mut fixture, stream);
        assert_eq!(last(&fixture, "find"), address(member.0));
    }
}
