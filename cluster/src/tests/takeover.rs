//! Priority takeover.

use std::time::Duration;

use super::{
    Action, Input, MemberId, MemberOptions, SECOND, ServerVersion, World, awaitable, body, counter,
    member,
};
use crate::ClusterEvent::{Elected, SteppedDown};
use crate::{Change, ClusterOptions};

const MOST: MemberId = MemberId(2);

fn with_priority(address: &str, priority: u16) -> MemberOptions {
    MemberOptions { priority, ..member(address) }
}

/// A set whose last member wants to be primary most, the second more than the first.
fn world() -> World {
    let members = [member("a:1"), with_priority("b:2", 5), with_priority("c:3", 9)];
    let mut world = World::of(ServerVersion::V6_0, &members);
    world.advance(10 * SECOND);
    assert_eq!(world.primary(), Some(MOST));
    world
}

/// As on real servers, an election timeout after it follows the new primary, and some offset.
#[test]
fn a_member_of_higher_priority_takes_over_once_it_follows() {
    let mut world = world();
    world.handle(Input::Kill { member: MOST });
    world.advance(8 * SECOND);
    assert_eq!(world.primary(), Some(MemberId(1)), "the second best for as long as that");
    let seen = world.hello(MemberId(1));
    let watching = world.connect(MemberId(1));
    world.request(watching, super::Flags::NONE, &awaitable(&seen, 60 * SECOND));
    world.log.clear();
    let (started, term) = (world.now, world.model.get().term());
    world.handle(Input::Start { member: MOST });
    world.advance(10 * SECOND);
    assert_eq!(world.primary(), Some(MOST));
    let changes = world.log.iter().filter_map(|(at, action)| match action {
        Action::Publish { event: SteppedDown { member } } => Some((*at, *member, 0)),
        Action::Publish { event: Elected { member, term } } => Some((*at, *member, *term)),
        _ => None,
    });
    let [(at, former, _), (elected_at, MOST, new_term)] = changes.collect::<Vec<_>>()[..] else {
        panic!("the primary steps down, and the other is elected");
    };
    assert_eq!((former, new_term, elected_at), (MemberId(1), term + 1, at));
    let after = at - started;
    assert!((2 * SECOND..Duration::from_millis(2600)).contains(&after), "{after:?}");
    let replies = world.replies(watching);
    assert_eq!((replies.len(), replies[0].0), (1, at));
    let reply = body(&replies[0].1);
    assert!(reply.get_bool("secondary").unwrap() && counter(&reply) > counter(&seen));
}

/// With members of priority 1, 5 and 9, that of 5 waits twice as long as that of 9.
#[test]
fn each_rank_below_the_highest_waits_one_election_timeout_more() {
    let delays: Vec<Duration> = (0..16)
        .filter_map(|seed| {
            let members = vec![member("a:1"), with_priority("b:2", 5), with_priority("c:3", 9)];
            let options = super::options(ServerVersion::V6_0);
            let mut world = World::new(ClusterOptions { members, seed, ..options });
            world.advance(10 * SECOND);
            world.handle(Input::Kill { member: MOST });
            world.log.clear();
            world.advance(20 * SECOND);
            assert_eq!(world.primary(), Some(MemberId(1)), "the best of those that run");
            let elected = world.log.iter().filter_map(|(at, action)| match action {
                Action::Publish { event: Elected { member, .. } } => Some((*at, *member)),
                _ => None,
            });
            match elected.collect::<Vec<_>>()[..] {
                [(first, MemberId(0)), (second, MemberId(1))] => Some(second - first),
                _ => None,
            }
        })
        .collect();
    assert!(!delays.is_empty(), "the one of lowest priority won at least once");
    let expected = 4 * SECOND..Duration::from_millis(4500);
    assert!(delays.iter().all(|it| expected.contains(it)), "{delays:?}");
}

#[test]
fn a_primary_that_stepped_down_leaves_it_to_the_next_best_and_returns_much_later() {
    let mut world = world();
    world.handle(Input::StepDown { member: MOST });
    world.advance(SECOND);
    assert_eq!(world.primary(), Some(MemberId(1)));
    world.advance(10 * SECOND);
    assert_eq!(world.primary(), Some(MemberId(1)), "it abstains for six election timeouts");
    world.advance(10 * SECOND);
    assert_eq!(world.primary(), Some(MOST));
}

#[test]
fn no_member_takes_over_from_an_equal() {
    let mut world = World::settled(ServerVersion::V6_0);
    world.advance(60 * SECOND);
    assert_eq!(world.model.get().term(), 1);
}

#[test]
fn a_new_priority_lets_its_member_take_over() {
    let mut world = World::settled(ServerVersion::V6_0);
    let eager = world.secondary();
    let address = ["a:1", "b:2", "c:3"][eager.0];
    world.reconfig(&[Change::Set(eager, with_priority(address, 2))]);
    world.advance(SECOND);
    assert_ne!(world.primary(), Some(eager));
    world.advance(3 * SECOND);
    assert_eq!(world.primary(), Some(eager));
}
