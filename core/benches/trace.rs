//! The cost of recording: a heartbeat from its tick to the published snapshot, recorded and not.
//!
//! `cargo bench -p sdam-core --features harness,trace --bench trace`.

use std::hint::black_box;
use std::sync::Arc;

use bson::{RawDocumentBuf, rawdoc};
use criterion::{Criterion, criterion_group, criterion_main};
use sdam_core::config::Options;
use sdam_core::harness::VirtualTopology;
use sdam_core::id::LinkId;
use sdam_core::machine::Machine;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Topology};
use sdam_core::trace::{Recorder, Seal};

/// A client of one server, which it asks every ten seconds.
struct Deployment {
    topology: VirtualTopology<Recorder<Topology>>,
    link: LinkId,
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
        let mut topology = VirtualTopology::new(recorder);
        topology.pass(Instant::ZERO);
        let (link, _) = topology.connected().next().unwrap();
        topology.accept(link);
        let mut new = Self { topology, link, reply };
        new.answer();
        new
    }

    /// Answers the last hello.
    fn answer(&mut self) {
        self.topology.reply(self.link, &self.reply);
        let actions = self.topology.take_actions();
        assert!(actions.iter().any(|action| matches!(action, Action::Publish { .. })));
    }

    fn heartbeat(&mut self) {
        self.topology.pass(self.topology.machine.deadline().unwrap());
        self.answer();
    }
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
