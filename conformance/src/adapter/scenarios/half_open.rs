//! Connections of which nothing comes any more, though neither side has closed them.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Stage as At};
use sdam_host::ErrorKind;

use super::Test;
use crate::adapter::fixture::{Deployment, Fixture, Outcome, direct, ensure, ping};
use crate::adapter::silent::{Full, Silent};
use crate::adapter::{Adapter, Feature};
use crate::forwarder::Traffic;

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("half_open::connecting_that_never_ends_is_given_up", connecting),
        Test::new("half_open::a_server_that_says_nothing_is_given_up", hello),
        Test::new("half_open::a_server_that_falls_silent_is_noticed_and_found_again", idle),
        Test::new("half_open::an_exchange_ends_with_the_socket_time_out", exchange),
        Test::new("half_open::an_exchange_is_interrupted_by_the_monitor", interrupted)
            .of(Feature::Interruption),
    ]
}

/// Options by which a check is given up soon where none succeeds.
const HASTY: &str = "&connectTimeoutMS=2000";

/// Options for frequent checks, which are given up soon, where handshakes have to succeed,
/// on a machine that has other things to do.
const QUICK: &str = "&connectTimeoutMS=5000&heartbeatFrequencyMS=500";

/// The client says at which stage its only server keeps it waiting.
fn given_up<A: Adapter>(fixture: &Fixture<A>, address: SocketAddr, at: At) -> Outcome {
    let begun = Instant::now();
    let client = fixture.client(&format!("{}{HASTY}", direct(address)))?;
    let failure = fixture.failure(&client)?;
    let took = begun.elapsed();
    ensure!(took >= Duration::from_millis(2000), "it was given up after {took:?}");
    ensure!((failure.stage, &failure.cause) == (at, &Cause::Timeout), "{failure:?}");
    fixture.block_on(client.close());
    Ok(())
}

fn connecting<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = Full::start()?;
    given_up(fixture, server.address(), At::Connect)
}

fn hello<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = Silent::start()?;
    given_up(fixture, server.address(), At::Hello)
}

fn idle<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let client = fixture.client(&format!("{}{QUICK}", direct(forwarder.address())))?;
    fixture.ping(&client)?;
    forwarder.set(Traffic::Blackhole);
    let view = fixture.view(&client, |view| {
        view.servers().iter().all(|server| server.server_type == ServerType::Unknown)
    })?;
    let cause = view.servers()[0].error.clone().map(|failure| failure.cause);
    ensure!(cause == Some(Cause::Timeout), "{cause:?}");
    forwarder.set(Traffic::Pass);
    fixture.known(&client)?;
    fixture.ping(&client)
}

fn exchange<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let client =
        fixture.client(&format!("{}&socketTimeoutMS=2000", direct(forwarder.address())))?;
    let primary = fixture.primary(&client)?;
    let mut checked_out = fixture.block_on(primary.check_out())?;
    fixture.block_on(checked_out.command("admin", &ping()))?;
    forwarder.set(Traffic::Blackhole);
    let begun = client.now();
    let reply = fixture.block_on(checked_out.command("admin", &ping()));
    let took = client.now() - begun;
    ensure!(took >= Duration::from_millis(2000), "it was given up after {took:?}");
    let Err(error) = reply else { return Err(format!("{reply:?}").into()) };
    ensure!(error.kind() == ErrorKind::Timeout, "{error:?}");
    Ok(())
}

/// Connection Monitoring and Pooling, "Clearing a Connection Pool": in-use connections are
/// interrupted when the monitor's check has timed out.
fn interrupted<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let client = fixture.client(&format!("{}{QUICK}", direct(forwarder.address())))?;
    let primary = fixture.primary(&client)?;
    let mut checked_out = fixture.block_on(primary.check_out())?;
    fixture.block_on(checked_out.command("admin", &ping()))?;
    forwarder.set(Traffic::Blackhole);
    // On a thread of its own, as in an application.
    let reply = thread::scope(|scope| {
        scope.spawn(|| fixture.block_on(checked_out.command("admin", &ping()))).join()
    });
    match reply.map_err(|_| "the exchange panicked")? {
        Err(error) if error.failure().is_some_and(|it| it.cause == Cause::Interrupted) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
