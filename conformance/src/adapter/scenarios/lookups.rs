//! Names: of hosts, which the operating system resolves, and of deployments, in DNS.

use std::pin::pin;

use sdam_core::config::Options;
use sdam_core::config::address_map::AddressMap;
use sdam_core::failure::{Cause, Stage as At};

use super::Test;
use crate::adapter::name_server::{DEPLOYMENT, HOST, NameServer};
use crate::adapter::stage::{Deployment, Outcome, Stage, direct, ensure, is_whole, wait_until};
use crate::adapter::{Adapter, Feature};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        // First, as it takes a minute, in which there is nothing to do.
        Test::new("lookups::a_client_ends_while_a_name_server_keeps_it_waiting", rescans)
            .of(Feature::Lookups),
        Test::new("lookups::a_deployment_is_found_by_its_name", found).of(Feature::Lookups),
        Test::new("lookups::a_lookup_may_be_given_up", given_up).of(Feature::GivingUp),
        Test::new("lookups::a_name_without_address_is_told", unknown_name),
    ]
}

/// Options by which the host that DNS names leads to a member.
fn options(deployment: &Deployment) -> Outcome<Options> {
    let rule = format!("{HOST}={}", deployment.0.addresses()[0]);
    let uri = format!("mongodb+srv://{DEPLOYMENT}/?tls=false&connectTimeoutMS=600000");
    let map = AddressMap::new([rule.parse()?])?;
    Ok(Options::builder().uri(&uri)?.address_map(map).build()?)
}

/// A rescan is due after a minute at the earliest (Polling SRV Records for mongos Discovery). The
/// hosts are of no replica set then, as only a deployment of mongos is looked up again.
fn rescans<A: Adapter>(stage: &Stage<A>) -> Outcome {
    let (names, deployment) = (NameServer::start()?, Deployment::sharded()?);
    let connect = || -> Outcome<_> {
        let options = options(&deployment)?;
        Ok(stage.block_on(stage.adapter.connect(options, vec![names.address()]))?)
    };
    let ((closed, closed_events), (dropped, dropped_events)) = (connect()?, connect()?);
    names.fall_silent();
    wait_until(|| names.ignored() >= 2);
    stage.block_on(closed.close());
    stage.ends(closed_events)?;
    drop(dropped);
    stage.ends(dropped_events)
}

fn found<A: Adapter>(stage: &Stage<A>) -> Outcome {
    let (names, deployment) = (NameServer::start()?, Deployment::start(3)?);
    let connecting = stage.adapter.connect(options(&deployment)?, vec![names.address()]);
    let (client, _events) = stage.block_on(connecting)?;
    stage.view(&client, is_whole)?;
    stage.ping(&client)
}

fn given_up<A: Adapter>(stage: &Stage<A>) -> Outcome {
    let (names, deployment) = (NameServer::start()?, Deployment::start(1)?);
    names.fall_silent();
    let mut connecting = pin!(stage.adapter.connect(options(&deployment)?, vec![names.address()]));
    stage.poll_until(connecting.as_mut(), || names.ignored() > 0)
}

/// A label has 63 octets at most (RFC 1035, "Size limits"): no name server is asked, which might be
/// out of reach.
fn unknown_name<A: Adapter>(stage: &Stage<A>) -> Outcome {
    let name = format!("{}.invalid", "n".repeat(64));
    let client = stage.client(&direct(&name))?;
    let failure = stage.failure(&client)?;
    let resolving = (failure.stage, &failure.cause) == (At::Resolve, &Cause::NotResolved);
    ensure!(resolving && failure.detail.contains(&name), "{failure:?}");
    Ok(())
}
