//! Machines without a host: the choice of a server, and a view from a reply.

use std::hint::black_box;
use std::sync::Arc;

use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::harness::VirtualTopology;
use sdam_core::machine::Machine as _;
use sdam_core::rng::Rng;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::wire::Flags;

use super::repeat;
use crate::measured::counted;
use crate::server::{MEMBERS, member};

/// A topology whose monitors are connected, and have not been answered.
fn connected() -> VirtualTopology<Topology> {
    let uri = format!("mongodb://{}/?replicaSet=rs0", MEMBERS.join(","));
    let options = Arc::new(Options::parse(&uri).expect("a connection string"));
    let mut topology = VirtualTopology::new(Topology::new(options, 1));
    topology.pass(Instant::from_millis(1));
    let links: Vec<_> = topology.connected().map(|(link, _)| link).collect();
    links.into_iter().for_each(|link| topology.accept(link));
    topology
}

/// Chooses among three members of a set, as for a read from the nearest.
pub(super) fn selection() -> u64 {
    let mut topology = connected();
    for address in MEMBERS {
        let link = topology.last_link(address).expect("a monitor");
        topology.reply(link, &member(address.parse().expect("an address")));
    }
    let snapshot = Arc::clone(topology.machine.snapshot());
    let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let mut random = Rng::new(1);
    repeat(1000, || {
        let chosen = snapshot.select(black_box(&nearest), |_| 0, random.next_u64());
        assert!(chosen.is_ok_and(|chosen| chosen.is_some()), "each is suitable");
    })
}

/// Turns the primary's first reply into a view.
pub(super) fn hello_to_view() -> u64 {
    const TIMES: usize = 10;
    let prepared = std::iter::repeat_with(|| {
        let mut topology = connected();
        let link = topology.last_link(MEMBERS[0]).expect("a monitor");
        let reply = member(MEMBERS[0].parse().expect("an address"));
        let bytes = topology.answer(link, &reply, Flags::NONE);
        let now = topology.now();
        (topology.machine, link, bytes, now, Vec::with_capacity(64))
    });
    let mut prepared: Vec<_> = prepared.take(TIMES).collect();
    counted(&mut || {
        for (machine, link, bytes, now, out) in &mut prepared {
            machine.handle((*now).into(), Input::Received { link: *link, bytes }, out);
        }
    });
    for (_, _, _, _, out) in prepared {
        assert!(out.iter().any(|action| matches!(action, Action::Publish { .. })));
    }
    TIMES as u64
}
