//! The recordings of real servers under `transcripts` replay exactly, byte for byte.
//!
//! `UPDATE=1` rewrites their actions from their inputs, after a change that is meant. New ones are
//! recorded by `UPDATE=1 cargo test -p sdam-cli --test real_servers recordings`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use sdam_core::trace::{Replay, Trace};

const SERIES: [&str; 4] = ["4.2", "4.4", "5.0", "6.0"];
const INCIDENTS: [&str; 5] = ["discovery", "step-down", "kill", "freeze", "reconfig"];

fn transcripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let path = |series: &str, incident| folder.join(format!("{series}-{incident}.trace"));
    let mut all: Vec<PathBuf> =
        SERIES.iter().flat_map(|series| INCIDENTS.map(|incident| path(series, incident))).collect();
    // With operations, of one version.
    all.push(path("6.0", "writes"));
    all
}

#[test]
fn every_recording_of_real_servers_replays_exactly() {
    for path in transcripts() {
        let text = fs::read_to_string(&path).expect("a transcript");
        let name = path.display();
        let trace = Trace::parse(&text).unwrap_or_else(|error| panic!("{name}, {error}"));
        let mut replay = Replay::new(&trace).expect("it begins at the beginning");
        let outcome = replay.finish();
        let rewritten = Replay::new(&trace).expect("it begins at the beginning").rewrite();
        if env::var_os("UPDATE").is_some() {
            fs::write(&path, rewritten).expect("the checkout can be written");
            continue;
        }
        if let Err(difference) = outcome {
            panic!("{name}: {difference}");
        }
        assert!(rewritten == text, "{name}: the actions are the same, but not the bytes");
        let events: Vec<&str> = text.lines().filter(|line| line.contains("> emit ")).collect();
        assert!(events[0].contains(r#""topologyOpening""#), "{name}");
        assert!(events[events.len() - 1].contains(r#""topologyClosed""#), "{name}");
    }
}
