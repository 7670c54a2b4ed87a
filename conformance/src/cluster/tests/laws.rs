//! The laws of the machine that `Lawful` cannot see, and those of elections, under any fate.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::rawdoc;
use proptest::prelude::*;
use sdam_core::bson;
use sdam_core::machine::Machine;
use sdam_core::time::Instant;
use sdam_core::wire::{Flags, write_op_msg, write_op_query};

use super::{
    Action, ClusterOptions, Input, MemberId, SECOND, ServerVersion, World, awaitable, options,
};

fn lives(seed: u64, fates: &[(u8, usize, u64)]) -> World {
    let seeded = ClusterOptions { seed, ..options(ServerVersion::V6_0) };
    let mut world = World::new(seeded);
    for &(fate, member, millis) in fates {
        let member = MemberId(member);
        world.handle(match fate {
            0 => Input::Kill { member },
            1 => Input::Start { member },
            2 => Input::Freeze { member },
            3 => Input::Thaw { member },
            _ => Input::StepDown { member },
        });
        world.advance(Duration::from_millis(millis));
    }
    (0..3).for_each(|it| world.handle(Input::Thaw { member: MemberId(it) }));
    world
}

fn fates() -> impl Strategy<Value = Vec<(u8, usize, u64)>> {
    prop::collection::vec((0..5_u8, 0..3_usize, 0..3000_u64), 0..40)
}

proptest! {
    #[test]
    fn no_term_has_two_primaries_and_no_instant_either(seed: u64, fates in fates()) {
        let mut world = lives(seed, &fates);
        let terms: Vec<i64> = world.log.iter().filter_map(|(_, action)| match action {
            Action::Elected { term, .. } => Some(*term),
            _ => None,
        }).collect();
        prop_assert!(terms.windows(2).all(|pair| pair[0] < pair[1]), "{terms:?}");
        let mut writable = 0;
        for member in (0..3).map(MemberId) {
            if !world.model.get().is_running(member) {
                continue;
            }
            let reply = world.hello(member);
            writable += u8::from(reply.get_bool("isWritablePrimary").unwrap());
        }
        prop_assert!(writable <= 1);
        prop_assert_eq!(writable == 1, world.primary().is_some());

        // Once all are up again, they agree.
        (0..3).for_each(|it| world.handle(Input::Start { member: MemberId(it) }));
        world.advance(5 * SECOND);
        let named: BTreeSet<String> = (0..3)
            .map(|it| world.hello(MemberId(it)).get_str("primary").unwrap().to_owned())
            .collect();
        prop_assert_eq!(named.len(), 1);
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
    world.model.tick(world.now, &mut out);
    world.handle(Input::Kill { member: primary });
    world.handle(Input::Start { member: primary });
    assert_eq!(world.model.deadline(), None);
}
