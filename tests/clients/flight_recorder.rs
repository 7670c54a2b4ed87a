//! A flight recorder hands out what it kept when a selection fails, to a callback or a folder.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use sdam_conformance::refusal::RefusingPort;
use sdam_core::config::Options;
use sdam_core::selection::Criteria;
use sdam_core::trace::{Replay, Trace};
use sdam_host::flight_recorder::{dump_to, on_dump};
use sdam_host::{FLIGHT_RECORDER_LEN, Recording};
use sdam_tokio::Topology;

const GENEROUS: Duration = Duration::from_secs(90);

/// A client of a port that nothing listens on fails to select a server.
async fn fail(recording: &Recording) {
    let port = RefusingPort::new().expect("a free port");
    let uri = format!("mongodb://{}/?serverSelectionTimeoutMS=50", port.address());
    let options = Options::parse(&uri).expect("options");
    let client = Topology::builder(options).record(recording).build().expect("a client");
    client.select(Criteria::write()).await.expect_err("there is no server");
    client.close().await;
}

fn replays(trace: &str) {
    let trace = Trace::parse(trace).expect("a trace");
    assert_eq!(Replay::new(&trace).expect("all of it").finish(), Ok(()));
}

#[tokio::test]
async fn a_callback_is_called_with_a_trace_that_replays() {
    let recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
    let (send, dumps) = mpsc::channel();
    on_dump(recording.clone(), move |trace| drop(send.send(trace))).expect("a thread");
    fail(&recording).await;
    drop(recording);
    replays(&dumps.recv_timeout(GENEROUS).expect("a dump"));
    while dumps.recv_timeout(GENEROUS).is_ok() {}
    // The thread has ended with the client, or else its end of the channel would still be there.
    assert_eq!(dumps.recv_timeout(GENEROUS), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn the_thread_of_a_client_that_never_was_ends() {
    let recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
    let (send, dumps) = mpsc::channel::<String>();
    on_dump(recording.clone(), move |trace| drop(send.send(trace))).expect("a thread");
    assert_eq!(dumps.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
    drop(recording);
    assert_eq!(dumps.recv_timeout(GENEROUS), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[tokio::test]
async fn a_folder_is_created_and_written_to_and_no_file_is_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
    dump_to(recording.clone(), folder.path().join("deep")).expect("a thread");
    fail(&recording).await;
    let first = wait_for(&folder.path().join("deep"), 1);
    // Another client has a flight recorder of its own, for the same folder.
    let recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
    dump_to(recording.clone(), folder.path().join("deep")).expect("a thread");
    fail(&recording).await;
    let both = wait_for(&folder.path().join("deep"), 2);
    both.values().for_each(|trace| replays(trace));
    assert!(first.iter().all(|(file, trace)| both.get(file) == Some(trace)));
    let process = format!("-{}-", process::id());
    assert!(both.keys().all(|file| file.starts_with("sdam-") && file.contains(&process)));
}

/// Waits until so many files are there and whole, and returns what they contain.
fn wait_for(folder: &Path, count: usize) -> BTreeMap<String, String> {
    let deadline = Instant::now() + GENEROUS;
    loop {
        let traces = traces(folder);
        if traces.len() == count && traces.values().all(|trace| Trace::parse(trace).is_ok()) {
            return traces;
        }
        assert!(Instant::now() < deadline, "{:?}", traces.keys());
        thread::sleep(Duration::from_millis(5));
    }
}

fn traces(folder: &Path) -> BTreeMap<String, String> {
    let mut traces = BTreeMap::new();
    // It may not be there yet.
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        traces.insert(name, fs::read_to_string(path).expect("a trace"));
    }
    traces
}
