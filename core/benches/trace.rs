//! What recording costs: a heartbeat from its tick to the published snapshot, recorded and not.
//!
//! `cargo bench -p sdam-core --features trace --bench trace`.

use std::hint::black_box;
use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use criterion::{Criterion, criterion_group, criterion_main};
use sdam_core::config::Options;
use sdam_core::id::LinkId;
use sdam_core::machine::Machine;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::trace::{Recorder, Seal};
use sdam_core::wire::{Flags, Frames, write_op_msg};

/// A client of one server, which it asks every ten seconds.
struct Deployment {
    recorder: Recorder<Topology>,
    now: Instant,
    out: Vec<Action>,
    reply: RawDocumentBuf,
}

impl Deployment {
    fn new(recorded: bool) -> Self {
        let uri = "mongodb://a/?directConnection=true&serverMonitoringMode=poll";
        let options = Arc::new(Options::parse(uri).unwrap());
        let mut recorder = Recorder::off(Topology::new(Arc::clone(&options), 1));
        if recorded {
            let mut seal = Seal::new();
            recorder.record(&options, 1, move |lines| drop(black_box(seal.seal(lines))));
        }
        let reply = rawdoc! {
            "isWritablePrimary": true, "helloOk": true, "hosts": ["a:27017", "b:27017", "c:27017"],
            "setName": "rs0", "setVersion": 5, "me": "a:27017", "primary": "a:27017",
            "tags": { "dc": "east", "rack": "1" }, "maxBsonObjectSize": 16_777_216,
            "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
            "localTime": bson::DateTime::from_millis(1), "logicalSessionTimeoutMinutes": 30,
            "connectionId": 7, "minWireVersion": 0, "maxWireVersion": 17, "ok": 1.0,
        };
        let mut new = Self { recorder, now: Instant::ZERO, out: Vec::new(), reply };
        new.recorder.tick(new.now.into(), &mut new.out);
        let link = new.out.iter().find_map(opened).unwrap();
        new.recorder.handle(new.now.into(), Input::Opened { link }, &mut new.out);
        new.answer();
        new
    }

    /// Answers the last hello.
    fn answer(&mut self) {
        let (link, id) = self.out.iter().rev().find_map(requested).unwrap();
        let mut bytes = Vec::new();
        write_op_msg(&mut bytes, 1, id, Flags::NONE, &self.reply);
        self.recorder.handle(
            self.now.into(),
            Input::Received { link, bytes: &bytes },
            &mut self.out,
        );
        assert!(self.out.iter().any(|action| matches!(action, Action::Publish { .. })));
        self.out.clear();
    }

    fn heartbeat(&mut self) {
        self.now = self.recorder.deadline().unwrap();
        self.recorder.tick(self.now.into(), &mut self.out);
        self.answer();
    }
}

fn opened(action: &Action) -> Option<LinkId> {
    match action {
        Action::Open { link, .. } => Some(*link),
        _ => None,
    }
}

fn requested(action: &Action) -> Option<(LinkId, i32)> {
    let Action::Send { link, bytes } = action else { return None };
    let mut frames = Frames::new();
    frames.extend(bytes);
    Some((*link, frames.next().unwrap().unwrap().header().request_id))
}

fn heartbeat(c: &mut Criterion) {
    let mut group = c.benchmark_group("heartbeat");
    for (name, recorded) in [("plain", false), ("recorded", true)] {
        let mut deployment = Deployment::new(recorded);
        group.bench_function(name, |b| b.iter(|| deployment.heartbeat()));
    }
    group.finish();
}

criterion_group!(benches, heartbeat);
criterion_main!(benches);
