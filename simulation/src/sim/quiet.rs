//! Simulations in which nothing is wrong, for tests that plant what checks are to find.

use std::sync::Arc;

use sdam_core::config::Options;
use sdam_core::time::Instant;

use super::client::Client;
use super::network::Network;
use super::plan::Plan;
use super::random::Random;
use super::scenario::SCENARIOS;
use super::trace::Observed;
use super::world::World;
use sdam_cluster::{MemberId, MemberState};

/// A scenario in which nothing is unusual but its faults.
pub(super) const PLAIN: &str = "farewells";

/// Three members with two clients, as in a scenario, a minute after their beginning, and long
/// before the last fault.
pub(super) fn quiet_world(name: &str) -> World {
    quiet_world_with(name, |_| {})
}

/// The same, with something else planned than the scenario does.
pub(super) fn quiet_world_with(name: &str, change: impl FnOnce(&mut Plan)) -> World {
    let mut world = quiet_world_from_start(name, change);
    step_until(&mut world, Instant::from_millis(60_000));
    world
}

/// The same, at its beginning.
pub(super) fn quiet_world_from_start(name: &str, change: impl FnOnce(&mut Plan)) -> World {
    let mut random = Random::new(1);
    let scenario = SCENARIOS.iter().find(|it| it.name == name).unwrap();
    let mut plan = Plan { calm: Instant::from_millis(600_000), ..scenario.plan(&mut random) };
    plan.faults.clear();
    change(&mut plan);
    World::new(plan, random, Observed::Nothing)
}

/// The member that the client of [`direct_world`] connects to.
pub(super) const ONLY: usize = 1;

/// The same, whose only client connects directly.
pub(super) fn direct_world() -> World {
    quiet_world_with(PLAIN, |plan| {
        plan.clients.truncate(1);
        let client = &mut plan.clients[0];
        let seed = &client.addresses[ONLY];
        let options = Options::parse(&format!("mongodb://{seed}/?directConnection=true"));
        client.options = Arc::new(options.unwrap());
        (client.direct, client.seeds) = (Some(ONLY), vec![ONLY]);
    })
}

/// Lets everything happen until then, in which no rule is to be broken.
pub(super) fn step_until(world: &mut World, at: Instant) {
    while world.network.now < at {
        world.step().unwrap();
    }
}

/// Lets things happen until a rule is broken, for some minutes at most; returns which.
pub(super) fn step_until_broken(world: &mut World) -> Option<&'static str> {
    while world.network.now < Instant::from_millis(300_000) {
        if let Err((_, violation)) = world.step() {
            return Some(violation.check);
        }
    }
    None
}

/// Returns the first client of a world, to which it is a moment later, and the network.
pub(super) fn acting(world: &mut World) -> (&mut Client, &mut Network) {
    let World { clients, network, .. } = world;
    (&mut clients[0], network)
}

/// Returns what is so of a member, to be changed.
pub(super) fn member(world: &mut World, member: usize) -> &mut MemberState {
    world.oracle.current.members.get_mut(&MemberId(member)).unwrap()
}
