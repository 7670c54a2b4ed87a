//! The cost of the machine: selecting a server, and turning a reply into a published snapshot.
//!
//! `cargo bench -p sdam-core --features harness`. Compare within one run only: between runs, the
//! machine's mood moves figures by some ten per cent.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use sdam_core::config::{Options, ReadMode, ReadPreference, TagSet};
use sdam_core::harness::VirtualTopology;
use sdam_core::id::LinkId;
use sdam_core::machine::Machine;
use sdam_core::rng::Rng;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::wire::{Flags, write_op_msg};

/// A topology whose servers have all answered once, and their links in the order of the seeds.
struct Deployment {
    topology: VirtualTopology<Topology>,
    links: Vec<LinkId>,
}

impl Deployment {
    /// `count` servers, of which the `index`th says `reply(index)` to every hello.
    fn new(uri: &str, count: usize, reply: &impl Fn(usize) -> RawDocumentBuf) -> Self {
        let seeds: Vec<String> = (0..count).map(|index| format!("h{index:04}")).collect();
        let uri = uri.replace("SEEDS", &seeds.join(","));
        let topology = Topology::new(Arc::new(Options::parse(&uri).unwrap()), 1);
        let mut topology = VirtualTopology::new(topology);
        topology.pass(Instant::from_millis(1));
        let links: Vec<LinkId> = topology.connected().map(|(link, _)| link).collect();
        for (index, link) in links.iter().enumerate() {
            topology.accept(*link);
            topology.pass(topology.now() + Duration::from_micros(10 + index as u64 % 7));
            topology.reply(*link, &reply(index));
            topology.take_actions();
        }
        Self { topology, links }
    }
}

fn version() -> RawDocumentBuf {
    rawdoc! { "processId": ObjectId::from_bytes([7; 12]), "counter": 3_i64 }
}

/// Returns the reply of a mongos of 6.0.
fn mongos(_: usize) -> RawDocumentBuf {
    rawdoc! {
        "isWritablePrimary": true, "msg": "isdbgrid", "maxBsonObjectSize": 16_777_216,
        "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
        "localTime": bson::DateTime::from_millis(1), "logicalSessionTimeoutMinutes": 30,
        "connectionId": 7, "maxWireVersion": 17, "minWireVersion": 0, "helloOk": true,
        "topologyVersion": version(), "ok": 1.0,
    }
}

/// Returns the reply of a member of a set of `count`; the first one is primary.
fn member(count: usize) -> impl Fn(usize) -> RawDocumentBuf {
    move |index| {
        let mut hosts = RawArrayBuf::new();
        (0..count).for_each(|host| hosts.push(format!("h{host:04}:27017")));
        rawdoc! {
            "helloOk": true, "topologyVersion": version(), "hosts": hosts, "setName": "rs0",
            "setVersion": 5, "isWritablePrimary": index == 0, "secondary": index != 0,
            "primary": "h0000:27017", "tags": { "dc": "east", "rack": "1" },
            "me": format!("h{index:04}:27017"),
            "electionId": ObjectId::from_bytes([1; 12]),
            "lastWrite": {
                "opTime": { "ts": bson::Timestamp { time: 1, increment: 1 }, "t": 1_i64 },
                "lastWriteDate": bson::DateTime::from_millis(1),
            },
            "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000, "localTime": bson::DateTime::from_millis(1),
            "logicalSessionTimeoutMinutes": 30, "connectionId": 7, "minWireVersion": 0,
            "maxWireVersion": 17, "readOnly": false, "ok": 1.0,
        }
    }
}

const REPLICA_SET: &str = "mongodb://SEEDS/?replicaSet=rs0&connectTimeoutMS=0";
const SHARDED: &str = "mongodb://SEEDS/?connectTimeoutMS=0";

/// The least that a selection can do: a scan for the shortest time, one for the window, and a
/// choice of two, over plain numbers.
fn bare_scan(times: &[u64], loads: &[u32], random: u64) -> usize {
    let limit = times.iter().min().copied().unwrap_or(0) + 15_000_000;
    let count = times.iter().filter(|time| **time <= limit).count() as u64;
    let rank = |bits: u64| ((bits & 0xffff_ffff) * count) >> 32;
    let nth = |rank: u64| {
        let mut within = times.iter().enumerate().filter(|(_, time)| **time <= limit);
        within.nth(rank as usize).map_or(0, |(index, _)| index)
    };
    let (a, b) = (nth(rank(random)), nth(rank(random >> 32)));
    if loads[b] < loads[a] { b } else { a }
}

fn select(c: &mut Criterion) {
    let mut group = c.benchmark_group("select");
    let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let east = vec![TagSet::from([("dc".into(), "east".into())])];
    let tagged = ReadPreference::new(ReadMode::Nearest).with_tag_sets(east).unwrap();
    let tagged = Criteria::read(tagged);
    for count in [3, 50, 1000] {
        let deployment = Deployment::new(REPLICA_SET, count, &member(count));
        let snapshot = Arc::clone(deployment.topology.machine.snapshot());
        assert_eq!(snapshot.description().servers().len(), count);
        let (loads, mut rng) = (vec![0_u32; count], Rng::new(1));
        let times: Vec<u64> = (0..count as u64).map(|index| 10_000 + index % 7).collect();
        group.bench_function(BenchmarkId::new("bare_scan", count), |b| {
            b.iter(|| bare_scan(black_box(&times), &loads, rng.next_u64()));
        });
        group.bench_function(BenchmarkId::new("nearest", count), |b| {
            b.iter(|| snapshot.select(black_box(&nearest), |i| loads[i], rng.next_u64()));
        });
        group.bench_function(BenchmarkId::new("write", count), |b| {
            let write = Criteria::write();
            b.iter(|| snapshot.select(black_box(&write), |i| loads[i], rng.next_u64()));
        });
        group.bench_function(BenchmarkId::new("tagged", count), |b| {
            b.iter(|| snapshot.select(black_box(&tagged), |i| loads[i], rng.next_u64()));
        });
    }
    group.finish();
}

fn hello_to_publish(c: &mut Criterion) {
    let mut group = c.benchmark_group("hello_to_publish");
    let cases: [(&str, &str, usize); 4] = [
        ("sharded", SHARDED, 3),
        ("sharded", SHARDED, 1000),
        ("replica_set", REPLICA_SET, 3),
        ("replica_set", REPLICA_SET, 50),
    ];
    for (name, uri, count) in cases {
        let reply = |index| if name == "sharded" { mongos(index) } else { member(count)(index) };
        let deployment = Deployment::new(uri, count, &reply);
        let index = count / 2;
        let document = reply(index);
        // Of the replies that are streamed the first answers the request, and the others each the
        // one before; all but the first are the same bytes.
        let Deployment { mut topology, links } = deployment;
        let link = links[index];
        for _ in 0..2 {
            let bytes = topology.answer(link, &document, Flags::MORE_TO_COME);
            topology.receive(link, &bytes);
        }
        let (mut bytes, mut now, mut out) = (Vec::new(), topology.now(), Vec::new());
        let last = topology.peer(link).answers();
        write_op_msg(&mut bytes, last, last, Flags::MORE_TO_COME, &document);
        group.bench_function(BenchmarkId::new(name, count), |b| {
            b.iter_batched(
                || (),
                |()| {
                    now = now + Duration::from_micros(1);
                    let input = Input::Received { link, bytes: &bytes };
                    topology.machine.handle(now.into(), input, &mut out);
                    let published =
                        out.iter().any(|action| matches!(action, Action::Publish { .. }));
                    assert!(published);
                    out.clear();
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, select, hello_to_publish);
criterion_main!(benches);
