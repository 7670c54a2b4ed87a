//! The laws of the machine that `Lawful` cannot see, and those of elections, under any fate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use proptest::prelude::*;
use sdam_core::bson;
use sdam_core::machine::Machine;
use sdam_core::time::Instant;
use sdam_core::wire::{Flags, write_op_msg, write_op_query};

use super::{
    Action, Change, ClusterOptions, Input, MemberId, MemberOptions, SECOND, ServerVersion, World,
    awaitable, is, member as member_at, options,
};
use crate::ClusterEvent;

/// The addresses of the members, and of one more that may come.
const ADDRESSES: [&str; 4] = ["a:1", "b:2", "c:3", "d:4"];

fn lives(seed: u64, fates: &[(u8, usize, u64)]) -> World {
    let version = if seed.is_multiple_of(2) { ServerVersion::V4_4 } else { ServerVersion::V8_0 };
    let seeded = ClusterOptions { seed, ..options(version) };
    let mut world = World::new(seeded);
    for &(fate, index, millis) in fates {
        let member = MemberId(index);
        let with_priority = |priority| MemberOptions { priority, ..member_at(ADDRESSES[index]) };
        let change = match fate {
            6 => Some(Change::Remove(member)),
            7 => Some(Change::Add(with_priority(1))),
            8..=10 => Some(Change::Set(member, with_priority(u16::from(fate - 8)))),
            _ => None,
        };
        match (fate, change) {
            (0, _) => world.handle(Input::Kill { member }),
            (1, _) => world.handle(Input::Start { member }),
            (2, _) => world.handle(Input::Freeze { member }),
            (3, _) => world.handle(Input::Thaw { member }),
            (4, _) => world.handle(Input::StepDown { member }),
            (5, _) => world.handle(Input::Shutdown { member }),
            (11, _) => world.handle(Input::Cut { member }),
            (12, _) => world.handle(Input::Heal { member }),
            (_, change) => {
                world.handle(Input::Reconfig { changes: change.as_slice() });
            }
        }
        world.advance(Duration::from_millis(millis));
    }
    for member in (0..4).map(MemberId) {
        world.handle(Input::Thaw { member });
        world.handle(Input::Heal { member });
    }
    // A primary that was replaced while it was cut off has heard of it by then.
    world.advance(SECOND / 5);
    world
}

fn fates() -> impl Strategy<Value = Vec<(u8, usize, u64)>> {
    prop::collection::vec((0..13_u8, 0..4_usize, 0..3000_u64), 0..40)
}

/// The members that run, and what they answer to hello.
fn hellos(world: &mut World) -> Vec<(MemberId, RawDocumentBuf)> {
    let running = (0..4).map(MemberId).filter(|it| world.model.get().is_running(*it));
    running.collect::<Vec<_>>().into_iter().map(|it| (it, world.hello(it))).collect()
}

proptest! {
    #[test]
    fn no_term_has_two_primaries_and_no_instant_either(seed: u64, fates in fates()) {
        let mut world = lives(seed, &fates);
        let terms: Vec<i64> = world.log.iter().filter_map(|(_, action)| match action {
            Action::Publish { event: ClusterEvent::Elected { term, .. } } => Some(*term),
            _ => None,
        }).collect();
        prop_assert!(terms.windows(2).all(|pair| pair[0] < pair[1]), "{terms:?}");
        let hellos = hellos(&mut world);
        let writable = hellos.iter().filter(|(_, it)| is(it, "isWritablePrimary")).count();
        prop_assert!(writable <= 1);
        prop_assert_eq!(writable == 1, world.primary().is_some());
    }

    /// Once all are up again, they agree about everything, and the primary is one of those who want
    /// it most.
    #[test]
    fn in_the_end_all_members_agree(seed: u64, fates in fates()) {
        let mut world = lives(seed, &fates);
        world.advance(4 * SECOND);
        (0..4).for_each(|it| world.handle(Input::Start { member: MemberId(it) }));
        world.advance(60 * SECOND);
        let state = world.model.get().state(None);
        let configured: BTreeMap<_, _> =
            state.members.iter().filter_map(|(id, it)| Some((*id, it.options.clone()?))).collect();
        let mut said = BTreeSet::new();
        for (id, reply) in hellos(&mut world) {
            prop_assert_eq!(configured.contains_key(&id), !is(&reply, "isreplicaset"));
            if configured.contains_key(&id) {
                let secondary = world.primary() != Some(id);
                prop_assert_eq!(is(&reply, "secondary"), secondary);
                let primary = reply.get_str("primary").unwrap().to_owned();
                said.insert((primary, reply.get_i32("setVersion").unwrap()));
            }
        }
        prop_assert_eq!(said.len(), 1, "{:?}", said);
        let most = configured.values().map(|it| it.priority).max();
        let primary = &configured[&world.primary().unwrap()];
        prop_assert_eq!(Some(primary.priority), most);
    }

    /// Law 4: same state, same time, same input, same actions.
    #[test]
    fn the_same_fate_has_the_same_outcome(seed: u64, fates in fates()) {
        prop_assert_eq!(lives(seed, &fates).log, lives(seed, &fates).log);
    }

    /// Law 6: splitting the bytes received at one instant differently changes nothing.
    #[test]
    fn splitting_the_bytes_changes_nothing(
        kinds in prop::collection::vec(0..7_u8, 1..8),
        cuts in prop::collection::vec(1_usize..200, 0..40),
        junk in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut world = World::settled(ServerVersion::V6_0);
        let primary = world.primary().unwrap();
        let bytes = requests(&world.hello(primary), &kinds, &junk);
        let connection = world.connect(primary);
        let (mut whole, mut split) = (world.clone(), world);
        whole.receive(connection, &bytes);
        let (mut rest, mut cuts) = (&bytes[..], cuts.into_iter());
        while !rest.is_empty() {
            let count = cuts.next().unwrap_or(rest.len()).min(rest.len());
            split.receive(connection, &rest[..count]);
            rest = &rest[count..];
        }
        for world in [&mut whole, &mut split] {
            world.handle(Input::StepDown { member: primary });
            world.advance(3 * SECOND);
        }
        prop_assert_eq!(whole.log, split.log);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut world = World::settled(ServerVersion::V6_0);
        let connection = world.connect(MemberId(0));
        world.receive(connection, &bytes);
        let framed = [&i32::try_from(bytes.len() + 16).unwrap().to_le_bytes()[..], &[0; 8],
            &2013_i32.to_le_bytes(), &bytes].concat();
        let connection = world.connect(MemberId(0));
        world.receive(connection, &framed);
        world.advance(SECOND);
        prop_assert!(world.primary().is_some());
    }
}

/// Requests of all kinds in one stream.
fn requests(seen: &bson::RawDocument, kinds: &[u8], junk: &[u8]) -> Vec<u8> {
    let (ping, hello) = (rawdoc! { "ping": 1, "$db": "admin" }, awaitable(seen, SECOND));
    let mut bytes = Vec::new();
    for (id, kind) in (1..).zip(kinds) {
        match kind {
            0 => write_op_msg(&mut bytes, id, 0, Flags::NONE, &ping),
            1 => write_op_msg(&mut bytes, id, 0, Flags::MORE_TO_COME, &ping),
            2 => write_op_msg(&mut bytes, id, 0, Flags::CHECKSUM_PRESENT, &hello),
            3 => write_op_msg(&mut bytes, id, 0, Flags::EXHAUST_ALLOWED, &hello),
            4 => write_op_query(&mut bytes, id, "admin", &rawdoc! { "isMaster": 1 }),
            5 => write_op_query(&mut bytes, id, "admin", &hello),
            _ => bytes.extend_from_slice(junk),
        }
    }
    bytes
}

#[test]
fn the_end_of_time_is_survived() {
    let mut world = World::settled(ServerVersion::V6_0);
    let primary = world.primary().unwrap();
    let seen = world.hello(primary);
    let connection = world.connect(primary);
    world.request(connection, Flags::EXHAUST_ALLOWED, &awaitable(&seen, SECOND));
    world.now = Instant::from_nanos(u64::MAX);
    let mut out = Vec::new();
    world.model.tick(world.now.into(), &mut out);
    world.handle(Input::Kill { member: primary });
    world.handle(Input::Start { member: primary });
    assert_eq!(world.model.deadline(), None);
}
