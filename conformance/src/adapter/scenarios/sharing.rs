//! Clients that share monitors: one set for all of them, whatever each of them does, and nothing
//! that is left when the last has ended.

use sdam_cluster::User;
use sdam_core::bson::oid::ObjectId;
use sdam_core::config::Options;
use sdam_core::description::TopologyDescription;
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;
use sdam_host::ErrorKind;

use super::Test;
use crate::adapter::fixture::{
    Deployment, Fixture, Outcome, direct, ensure, is_whole, ping, wait_until, world,
};
use crate::adapter::{Adapter, Feature};

/// The number of clients that would be too many with monitors of their own. A thousand would be
/// as many threads with a runtime that has one for each task, and each of them makes it dearer
/// for the whole process to publish a view.
const MANY: usize = 200;

/// The number of clients that are watched through a failover.
const SOME: usize = 12;

/// Each so many-th client has a connection of its own.
const WORKING: usize = 20;

/// A monitor has one connection for checks, and one that measures the round trip time.
const MONITORING: u64 = 2;

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("sharing::one_set_of_monitors", monitors).of(Feature::Sharing),
        Test::new("sharing::a_failover_is_seen_by_all", failover).of(Feature::Sharing),
        Test::new("sharing::a_refused_login_is_one_clients_own", login).of(Feature::Sharing),
    ]
}

/// Options that agree in what monitors do, and in nothing else.
fn options(uri: &str, clients: usize) -> Outcome<Vec<Options>> {
    let own =
        |number: usize| format!("{uri}&maxPoolSize={}&timeoutMS={}", number + 1, 60_000 + number);
    (0..clients).map(|number| Ok(Options::parse(&own(number))?)).collect()
}

fn monitors<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let mut subjects =
        fixture.adapter.sharing_clients(options(&direct(forwarder.address()), MANY)?)?;
    for (client, _) in &subjects {
        fixture.known(client)?;
    }
    let open = forwarder.counters().open;
    ensure!(open <= MONITORING, "{MANY} clients have {open} connections and no pool");
    for (client, _) in subjects.iter().step_by(WORKING) {
        fixture.ping(client)?;
    }
    // Each has a pool of its own, and one that ends takes nothing from the others.
    let last = subjects.pop().ok_or("there are no clients")?;
    for (number, (client, events)) in subjects.into_iter().enumerate() {
        match number % 2 {
            0 => fixture.block_on(client.close()),
            _ => drop(client),
        }
        fixture.ends(events)?;
    }
    wait_until(|| forwarder.counters().open <= MONITORING + 1);
    fixture.ping(&last.0)?;
    fixture.block_on(last.0.close());
    fixture.ends(last.1)?;
    wait_until(|| forwarder.counters().open == 0);
    Ok(())
}

/// One client logs in, and another one with a wrong password does not: the first never notices.
fn login<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::with_users(vec![User::new("ann", "secret")])?;
    let uri = deployment.0.uri();
    let options = ["ann:secret", "ann:wrong"]
        .map(|user| Ok(Options::parse(&uri.replacen("//", &format!("//{user}@"), 1))?));
    let options = options.into_iter().collect::<Outcome<Vec<_>>>()?;
    let mut subjects = fixture.adapter.sharing_clients(options)?;
    let (refused, _) = subjects.pop().ok_or("there are no clients")?;
    let (client, mut events) = subjects.pop().ok_or("there is one client")?;
    fixture.ping(&client)?;
    for _ in 0..3 {
        let error = fixture.block_on(refused.run_command("admin", &ping())).err();
        let kind = error.ok_or("it has logged in with a wrong password")?.kind();
        ensure!(kind == ErrorKind::Authentication, "the kind of the error is {kind:?}");
        fixture.ping(&client)?;
    }
    while let Some(event) = events.try_next() {
        let is_cleared =
            matches!(&event.kind, EventKind::Pool { event: PoolEvent::PoolCleared { .. }, .. });
        ensure!(!is_cleared, "its pool was cleared: {event:?}");
    }
    Ok(())
}

/// Returns the election by which the primary has become one.
fn election_of(view: &TopologyDescription) -> Option<ObjectId> {
    view.primary()?.election_id
}

fn failover<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::start(3)?;
    let subjects = fixture.adapter.sharing_clients(options(&deployment.0.uri(), SOME)?)?;
    // Elections have numbers: where the process is held up, members may hold another one meanwhile,
    // and elect the one that was the primary before.
    let latest = |wanted: &dyn Fn(&TopologyDescription) -> bool| {
        let find = |(client, _): &_| Ok(election_of(&*fixture.view(client, wanted)?));
        let found = subjects.iter().map(find).collect::<Outcome<Vec<_>>>();
        found.map(|found| found.into_iter().max().flatten())
    };
    let before = latest(&is_whole)?;
    ensure!(before.is_some(), "no primary names its election");
    let primary = deployment.0.primary().ok_or("there is a primary")?;
    world().block_on(deployment.0.step_down(primary))?;
    let after = latest(&|view| election_of(view) > before)?;
    latest(&|view| election_of(view) >= after)?;
    for (client, mut events) in subjects {
        fixture.ping(&client)?;
        fixture.block_on(client.close());
        let mut kinds = Vec::new();
        while let Some(event) = fixture.block_on(events.next()) {
            kinds.push(event.kind);
        }
        let count = |is_it: fn(&EventKind) -> bool| kinds.iter().filter(|kind| is_it(kind)).count();
        ensure!(
            count(|kind| matches!(kind, EventKind::TopologyOpening)) == 1
                && count(|kind| matches!(kind, EventKind::TopologyClosed)) == 1
                && count(|kind| matches!(kind, EventKind::ServerOpening { .. })) >= 3
                && count(|kind| matches!(kind, EventKind::ServerClosed { .. })) >= 3,
            "the events are not those of a whole life: {kinds:?}"
        );
    }
    Ok(())
}
