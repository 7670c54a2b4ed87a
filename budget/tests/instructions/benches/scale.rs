//! Machines with few servers and with many: what must cost the same with both, and what may only
//! grow as their number does.

use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};
use sdam_core::config::Options;
use sdam_core::harness::VirtualTopology;
use sdam_core::id::LinkId;
use sdam_core::machine::Machine as _;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::wire::{Flags, write_op_msg};

use crate::measured::counted;

/// The number of kinds of members that a reply to hello names, each in a list of its own.
const LISTS: [&str; 3] = ["hosts", "passives", "arbiters"];

/// A bench of many servers, beside the same of few.
pub(crate) struct Growth {
    pub(crate) name: &'static str,
    pub(crate) few: &'static str,
    pub(crate) many: &'static str,
    /// The most in the dev profile.
    pub(crate) dev: Most,
    /// The most in an optimised build, which takes far less for all but looking up and copying, so
    /// that what there is of that weighs more.
    pub(crate) release: Most,
}

/// The most that the count of many servers may be.
#[derive(Clone, Copy)]
pub(crate) enum Most {
    /// A multiple of that of few.
    Times(f64),
    /// So many instructions more than that of few.
    More(u64),
}

impl Growth {
    /// Returns the most in the profile that is counted.
    pub(crate) const fn most(&self) -> Most {
        if cfg!(debug_assertions) { self.dev } else { self.release }
    }
}

/// The most that 3,000 servers may cost beside 3, and beside 300 where each of them has its share:
/// ten times as much, and some more for trees that are deeper.
pub(crate) const GROWTHS: &[Growth] = &[
    Growth {
        name: "a_heartbeat_hardly_costs_more_with_3000_servers",
        few: "heartbeat_of_3",
        many: "heartbeat_of_3000",
        // A copy of 94 pointers to chunks, and look-ups in trees that are three levels deeper:
        // 11,859 instructions, and 6,954 in an optimised build.
        dev: Most::More(13_000),
        release: Most::More(7_700),
    },
    Growth {
        name: "a_get_more_hardly_costs_more_with_3000_servers",
        few: "get_more_of_3",
        many: "get_more_of_3000",
        // A search for the address in chunks of servers: 772 instructions.
        dev: Most::More(1_000),
        release: Most::More(1_000),
    },
    Growth {
        name: "finding_is_linear",
        few: "finding_300",
        many: "finding_3000",
        dev: Most::Times(11.5),
        release: Most::Times(11.6),
    },
    Growth {
        name: "joining_is_linear",
        few: "joining_300",
        many: "joining_3000",
        dev: Most::Times(11.5),
        release: Most::Times(11.5),
    },
    Growth {
        name: "leaving_is_linear",
        few: "leaving_300",
        many: "leaving_3000",
        dev: Most::Times(12.0),
        release: Most::Times(12.8),
    },
];

fn name(index: usize) -> String {
    format!("h{index:04}:27017")
}

/// Returns the reply of another member, which names three: those of its own configuration.
fn secondary(address: &str) -> RawDocumentBuf {
    let hosts: RawArrayBuf = (0..3).map(name).collect();
    rawdoc! {
        "helloOk": true, "topologyVersion": version(3), "setName": "rs0", "setVersion": 3,
        "isWritablePrimary": false, "secondary": true, "primary": name(0), "me": address,
        "hosts": hosts, "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000, "localTime": bson::DateTime::from_millis(1),
        "logicalSessionTimeoutMinutes": 30, "connectionId": 7, "minWireVersion": 0,
        "maxWireVersion": 17, "readOnly": false, "ok": 1.0,
    }
}

/// Returns the reply of the primary of a set with so many members.
fn primary(members: usize, counter: i64) -> RawDocumentBuf {
    let mut reply = rawdoc! {
        "helloOk": true, "topologyVersion": version(counter), "setName": "rs0",
        "setVersion": counter, "isWritablePrimary": true, "secondary": false,
        "primary": name(0), "me": name(0), "electionId": ObjectId::from_bytes([1; 12]),
        "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000, "localTime": bson::DateTime::from_millis(1),
        "logicalSessionTimeoutMinutes": 30, "connectionId": 7, "minWireVersion": 0,
        "maxWireVersion": 17, "readOnly": false, "ok": 1.0,
    };
    for (index, list) in LISTS.into_iter().enumerate() {
        let listed: RawArrayBuf = (index..members).step_by(LISTS.len()).map(name).collect();
        reply.append(bson::raw::CString::try_from(list).expect("a name"), listed);
    }
    reply
}

fn version(counter: i64) -> RawDocumentBuf {
    rawdoc! { "processId": ObjectId::from_bytes([7; 12]), "counter": counter }
}

/// Has the machine take bytes of one link, counted; returns what it does.
fn take(topology: &mut VirtualTopology<Topology>, link: LinkId, bytes: &[u8]) -> Vec<Action> {
    let (now, mut out) = (topology.now(), Vec::with_capacity(8));
    counted(&mut || {
        topology.machine.handle(now.into(), Input::Received { link, bytes }, &mut out);
    });
    out
}

/// A topology that knows the primary of a set of so many members, all of which have joined.
fn set(members: usize) -> (VirtualTopology<Topology>, LinkId) {
    let uri = format!("mongodb://{}/?replicaSet=rs0&connectTimeoutMS=0", name(0));
    let options = Arc::new(Options::parse(&uri).expect("a connection string"));
    let mut topology = VirtualTopology::new(Topology::new(options, 1));
    topology.pass(Instant::from_millis(1));
    let link = topology.last_link(&name(0)).expect("a monitor");
    topology.accept(link);
    topology.reply(link, &primary(members, 3));
    drop(topology.take_actions());
    (topology, link)
}

/// The same, whose members other than the primary can be reached, and their replies, by links.
fn whole_set(members: usize) -> (VirtualTopology<Topology>, Vec<(LinkId, RawDocumentBuf)>) {
    let (mut topology, _) = set(members);
    let links = topology.connected().map(|(link, peer)| (link, peer.address.to_string()));
    let links = links.filter(|(_, address)| *address != name(0));
    let links: Vec<_> = links.map(|(link, address)| (link, secondary(&address))).collect();
    for (link, _) in &links {
        topology.accept(*link);
    }
    assert_eq!(links.len(), members - 1, "each has a monitor");
    (topology, links)
}

/// Reads a reply of one of so many servers, which says what the last one said.
pub(super) fn heartbeat<const COUNT: usize>() -> u64 {
    const TIMES: u64 = 20;
    let (mut topology, links) = whole_set(COUNT);
    for (link, reply) in &links {
        topology.reply(*link, reply);
        drop(topology.take_actions());
    }
    let (link, reply) = &links[links.len() / 2];
    // Of the replies that are streamed the first answers the request, and the others each the one
    // before; all but the first are the same bytes.
    for _ in 0..3 {
        let bytes = topology.answer(*link, reply, Flags::MORE_TO_COME);
        topology.receive(*link, &bytes);
    }
    let (mut bytes, last) = (Vec::new(), topology.peer(*link).answers());
    write_op_msg(&mut bytes, last, last, Flags::MORE_TO_COME, reply);
    for _ in 0..TIMES {
        let out = take(&mut topology, *link, &bytes);
        assert!(out.iter().any(|action| matches!(action, Action::Publish { .. })));
    }
    TIMES
}

/// Reads the first reply of each of so many servers but one.
pub(super) fn finding<const COUNT: usize>() -> u64 {
    let (mut topology, links) = whole_set(COUNT);
    let replies = links.into_iter().map(|(link, reply)| {
        let bytes = topology.answer(link, &reply, Flags::NONE);
        (link, bytes)
    });
    let replies: Vec<_> = replies.collect();
    for (link, bytes) in replies {
        drop(take(&mut topology, link, &bytes));
    }
    let view = topology.machine.snapshot().description();
    assert!(view.servers().iter().all(|server| server.server_type.is_data_bearing()));
    1
}

/// Reads a reply by which the set that had one member has so many, or the other way round.
fn change(before: usize, after: usize) -> u64 {
    let (mut topology, link) = set(before);
    let bytes = topology.answer(link, &primary(after, 4), Flags::MORE_TO_COME);
    drop(take(&mut topology, link, &bytes));
    let view = topology.machine.snapshot().description();
    assert_eq!(view.servers().len(), after, "all have joined or left");
    1
}

/// Has so many servers join with one reply.
pub(super) fn joining<const COUNT: usize>() -> u64 {
    change(1, COUNT)
}

/// Has so many servers leave with one reply.
pub(super) fn leaving<const COUNT: usize>() -> u64 {
    change(COUNT, 1)
}
