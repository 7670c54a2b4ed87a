//! Recordings: what one thread reads while others write, dump and end them.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread::spawn;

use super::super::fixture::Fixture;
use super::super::puppet::{Puppet, host, pass};
use super::{Sleeper, block_on, explore};
use crate::machines::Host;
use crate::observe::recording::Recording;
use crate::sync::lock;
use sdam_core::failure::{self, Cause, Failure};
use sdam_core::trace::{Replay, Trace};

/// A client that is recorded from its beginning, and has discovered its server.
fn recorded(recording: &Recording) -> Fixture {
    let host = host("mongodb://a/?directConnection=true", false);
    host.record(recording);
    host.ring();
    Fixture::begin(host)
}

/// Reads a recording to its end.
fn read_all(mut recording: Recording) -> Vec<String> {
    let (sleeper, mut parts) = (Arc::<Sleeper>::default(), Vec::new());
    while let Some(part) = sleeper.run(recording.next()) {
        assert!(!part.is_empty(), "woken for nothing");
        parts.push(part);
    }
    sleeper.assert_woken_once_per_wait();
    parts
}

/// A client that was closed is gone, with the links that never ran.
fn end(host: Arc<Host<Puppet>>) {
    lock(&host.runtime().links).clear();
    drop(host);
}

fn time_out() -> Failure {
    Failure::new(failure::Stage::Hello, Cause::Timeout, "no reply")
}

#[test]
fn a_recording_is_read_to_its_end_and_replays_whatever_is_noted_meanwhile() {
    explore(100, || {
        let recording = Recording::everything();
        let Fixture { host, link, .. } = recorded(&recording);
        let noting = recording.clone();
        let notes = spawn(move || ["one", "two"].into_iter().for_each(|text| noting.note(text)));
        let reading = recording.clone();
        let reader = spawn(move || read_all(reading));
        let closing = Arc::clone(&host);
        let closes = spawn(move || closing.close());
        link.closed(time_out());
        notes.join().unwrap();
        closes.join().unwrap();
        end(host);
        let text = reader.join().unwrap().concat();
        let trace = Trace::parse(&text).unwrap();
        assert!(trace.is_sealed(), "{text}");
        assert_eq!(Replay::new(&trace).unwrap().finish(), Ok(()));
        assert!(text.contains("shutdown"), "{text}");
        // Too late, and for no reader.
        recording.note("three");
        assert_eq!(recording.clone().try_next(), None);
    });
}

#[test]
fn a_flight_recorder_hands_out_what_was_kept_before_it_ends() {
    explore(100, || {
        let recording = Recording::flight_recorder(1 << 16);
        let Fixture { host, link, .. } = recorded(&recording);
        let reading = recording.clone();
        let reader = spawn(move || read_all(reading));
        let noting = recording.clone();
        let notes = spawn(move || noting.note("meanwhile"));
        // In the middle of the next check, so that the pool is cleared.
        pass(&host, Duration::from_secs(10));
        link.closed(time_out());
        let closing = Arc::clone(&host);
        let closes = spawn(move || closing.close());
        [notes, closes].into_iter().for_each(|thread| thread.join().unwrap());
        end(host);
        let dumps = reader.join().unwrap();
        assert_eq!(dumps.len(), 1, "one a second");
        let trace = Trace::parse(&dumps[0]).unwrap();
        assert_eq!(Replay::new(&trace).unwrap().finish(), Ok(()));
    });
}

#[test]
fn a_reader_goes_on_when_the_client_that_was_given_the_recording_is_never_created() {
    explore(2000, || {
        let recording = Recording::everything();
        let given = [recording.clone(), recording.clone()];
        let reader = spawn(move || read_all(recording));
        let builders = given.map(|clone| spawn(move || drop(clone)));
        builders.into_iter().for_each(|builder| builder.join().unwrap());
        assert!(reader.join().unwrap().is_empty());
    });
}

#[test]
fn of_two_clients_that_are_given_a_recording_at_once_one_is_recorded() {
    explore(100, || {
        let recording = Recording::everything();
        let hosts = [(); 2].map(|()| host("mongodb://a/?directConnection=true", false));
        let recorders = hosts.map(|host| {
            let recording = recording.clone();
            spawn(move || {
                host.record(&recording);
                host.ring();
                host.close();
                lock(&host.runtime().links).clear();
                block_on(host.ended());
            })
        });
        let reader = spawn(move || read_all(recording));
        recorders.into_iter().for_each(|thread| thread.join().unwrap());
        let text = reader.join().unwrap().concat();
        assert_eq!(text.matches("\nseed").count(), 1, "{text}");
        let trace = Trace::parse(&text).unwrap();
        assert_eq!(Replay::new(&trace).unwrap().finish(), Ok(()));
    });
}
