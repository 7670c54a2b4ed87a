//! Discovery and failover, on the embedded deployment.

use sdam_core::config::Options;
use sdam_core::description::{TopologyDescription, TopologyType};
use sdam_core::failure::Cause;
use sdam_core::topology::EventKind;

use super::Test;
use crate::adapter::fixture::{
    Deployment, Fixture, GRACE, Outcome, direct, ensure, is_whole, primary_of, world,
};
use crate::adapter::{Adapter, Feature};
use sdam_cluster::MemberId;

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("discovery::the_whole_set_is_found_from_one_seed", one_seed),
        Test::new("discovery::a_closed_port_is_told_and_a_server_that_starts_is_found", refused),
        Test::new("discovery::a_single_threaded_client_looks_when_it_has_to", single_threaded)
            .of(Feature::SingleThreaded),
        Test::new("failover::a_new_primary_is_found_and_the_old_one_when_it_returns", failover),
        Test::new("failover::a_step_down_is_heard_of_without_a_failed_check", step_down),
    ]
}

fn one_seed<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::start(3)?;
    let client = fixture.client(&format!("mongodb://{}", deployment.0.addresses()[2]))?;
    let view = fixture.view(&client, is_whole)?;
    ensure!(view.topology_type == TopologyType::ReplicaSetWithPrimary, "{view:?}");
    ensure!(view.set_name.as_deref() == Some("demo"), "{view:?}");
    fixture.ping(&client)
}

fn refused<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::start(1)?;
    let (cluster, only) = (&deployment.0, MemberId(0));
    world().block_on(cluster.kill(only))?;
    let client = fixture.client(&direct(cluster.addresses()[0]))?;
    let failure = fixture.failure(&client)?;
    ensure!(failure.cause == Cause::Refused, "{failure:?}");
    world().block_on(cluster.restart(only))?;
    client.request_check();
    fixture.known(&client)?;
    world().block_on(cluster.elected())?;
    fixture.ping(&client)
}

/// Servers are scanned by the caller that needs one, and streams are left alone in between.
fn single_threaded<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(3)?;
    let options = Options::builder().uri(&cluster.uri())?.single_threaded(true);
    let (client, events) = fixture.adapter.client(options.build()?)?;
    fixture.ping(&client)?;
    ensure!(client.view().primary().is_some(), "{:?}", client.view());
    let killed = cluster.primary().ok_or("there is a primary")?;
    world().block_on(cluster.kill(killed))?;
    let end = client.now() + GRACE;
    while let Err(error) = fixture.ping(&client) {
        ensure!(client.now() < end, "{error}");
    }
    fixture.block_on(client.close());
    fixture.ends(events)
}

fn failover<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(3)?;
    let client = fixture.client(&cluster.uri())?;
    let old = primary_of(&*fixture.view(&client, is_whole)?);
    let killed = cluster.primary().ok_or("there is a primary")?;
    world().block_on(cluster.kill(killed))?;
    let view = fixture.view(&client, |view| {
        let new = primary_of(view);
        new.is_some() && new != old
    })?;
    let gone = old.and_then(|old| view.server(&old).and_then(|server| server.error.clone()));
    let cause = gone.map(|failure| failure.cause);
    // The last one if the new primary was heard of first.
    let is_gone =
        matches!(cause, Some(Cause::Refused | Cause::Closed | Cause::Io | Cause::StalePrimary));
    ensure!(is_gone, "{cause:?}");
    fixture.ping(&client)?;
    world().block_on(cluster.restart(killed))?;
    client.request_check();
    fixture.view(&client, is_whole).map(drop)
}

/// The old primary may be elected again, as the only member that is up to date so early.
fn step_down<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(3)?;
    let client = fixture.client(&cluster.uri())?;
    let view = fixture.view(&client, is_whole)?;
    let old = view.primary().map(|primary| primary.address.clone());
    // The new primary may be heard of before the old primary.
    let is_followed = |view: &TopologyDescription| {
        view.primary().is_none_or(|primary| Some(&primary.address) != old.as_ref())
    };
    let mut events = client.subscribe();
    world().block_on(cluster.step_down(cluster.primary().ok_or("there is a primary")?))?;
    fixture.block_on(async {
        while let Some(event) = events.next().await {
            match event.kind {
                EventKind::ServerHeartbeatFailed { failure, .. } => return Err(failure.to_string()),
                EventKind::TopologyDescriptionChanged { new, .. } if is_followed(&new) => {
                    return Ok(());
                }
                _ => {}
            }
        }
        Err("the client was closed".to_owned())
    })?;
    fixture.view(&client, is_whole)?;
    fixture.ping(&client)
}
