//! Names: of hosts, which the operating system resolves, and of deployments, in DNS.

use std::pin::pin;

use sdam_core::config::Options;
use sdam_core::config::address_map::AddressMap;
use sdam_core::failure::{Cause, Stage as At};

use super::Test;
use crate::adapter::fixture::{Deployment, Fixture, Outcome, direct, ensure, is_whole, wait_until};
use crate::adapter::name_server::{DEPLOYMENT, HOST, NameServer};
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
fn rescans<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (names, deployment) = (NameServer::start()?, Deployment::sharded()?);
    let connect = || -> Outcome<_> {
        let options = options(&deployment)?;
        Ok(fixture.block_on(fixture.adapter.connect(options, vec![names.address()]))?)
    };
    let ((closed, closed_events), (dropped, dropped_events)) = (connect()?, connect()?);
    names.fall_silent();
    wait_until(|| names.ignored() >= 2);
    fixture.block_on(closed.close());
    fixture.ends(closed_events)?;
    drop(dropped);
    fixture.ends(dropped_events)
}

fn found<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (names, deployment) = (NameServer::start()?, Deployment::start(3)?);
    let connecting = fixture.adapter.connect(options(&deployment)?, vec![names.address()]);
    let (client, _events) = fixture.block_on(connecting)?;
    fixture.view(&client, is_whole)?;
    fixture.ping(&client)
}

fn given_up<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (names, deployment) = (NameServer::start()?, Deployment::start(1)?);
    names.fall_silent();
    let mut connecting =
        pin!(fixture.adapter.connect(options(&deployment)?, vec![names.address()]));
    fixture.poll_until(connecting.as_mut(), || names.ignored() > 0)
}

/// A label has 63 octets at most (RFC 1035, "Size limits"): no name server is asked, which might be
/// out of reach.
fn unknown_name<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let name = format!("{}.invalid", "n".repeat(64));
    let client = fixture.client(&direct(&name))?;
    let failure = fixture.failure(&client)?;
    let resolving = (failure.stage, &failure.cause) == (At::Resolve, &Cause::NotResolved);
    ensure!(resolving && failure.detail.contains(&name), "{failure:?}");
    Ok(())
}
