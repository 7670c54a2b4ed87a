//! Connections of which nothing comes any more, though nobody has closed them.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Stage as At};
use sdam_core::operation::OperationError;

use super::Test;
use crate::adapter::silent::{Full, Silent};
use crate::adapter::stage::{Deployment, Outcome, Stage, direct, ensure, ping};
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

/// How soon a check is given up where none succeeds.
const HASTY: &str = "&connectTimeoutMS=2000";

/// How often servers are checked, and how soon that is given up where handshakes have to succeed,
/// on a machine that has other things to do.
const QUICK: &str = "&connectTimeoutMS=5000&heartbeatFrequencyMS=500";

/// The client says at which stage its only server keeps it waiting.
fn given_up<A: Adapter>(stage: &Stage<A>, address: SocketAddr, at: At) -> Outcome {
    let begun = Instant::now();
    let client = stage.client(&format!("{}{HASTY}", direct(address)))?;
    let failure = stage.failure(&client)?;
    let took = begun.elapsed();
    ensure!(took >= Duration::from_millis(2000), "it was given up after {took:?}");
    ensure!((failure.stage, &failure.cause) == (at, &Cause::Timeout), "{failure:?}");
    stage.block_on(client.close());
    Ok(())
}

fn connecting<A: Adapter>(stage: &Stage<A>) -> Outcome {
    let server = Full::start()?;
    given_up(stage, server.address(), At::Connect)
}

fn hello<A: Adapter>(stage: &Stage<A>) -> Outcome {
    let server = Silent::start()?;
    given_up(stage, server.address(), At::Hello)
}

fn idle<A: Adapter>(stage: &Stage<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let client = stage.client(&format!("{}{QUICK}", direct(forwarder.address())))?;
    stage.ping(&client)?;
    forwarder.set(Traffic::Blackhole);
    let view = stage.view(&client, |view| {
        view.servers().iter().all(|server| server.server_type == ServerType::Unknown)
    })?;
    let cause = view.servers()[0].error.clone().map(|failure| failure.cause);
    ensure!(cause == Some(Cause::Timeout), "{cause:?}");
    forwarder.set(Traffic::Pass);
    stage.known(&client)?;
    stage.ping(&client)
}

fn exchange<A: Adapter>(stage: &Stage<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let client = stage.client(&format!("{}&socketTimeoutMS=2000", direct(forwarder.address())))?;
    let primary = stage.primary(&client)?;
    let mut loan = stage.block_on(primary.check_out(None))?;
    stage.block_on(loan.command("admin", &ping()))?;
    forwarder.set(Traffic::Blackhole);
    let begun = client.now();
    let reply = stage.block_on(loan.command("admin", &ping()));
    let took = client.now() - begun;
    ensure!(took >= Duration::from_millis(2000), "it was given up after {took:?}");
    let Err(OperationError::Stream(failure)) = reply else {
        return Err(format!("{reply:?}").into());
    };
    ensure!(failure.cause == Cause::Timeout, "{failure:?}");
    Ok(())
}

/// Connection Monitoring and Pooling, "Clearing a Connection Pool": in-use connections are
/// interrupted when the monitor's check has timed out.
fn interrupted<A: Adapter>(stage: &Stage<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let client = stage.client(&format!("{}{QUICK}", direct(forwarder.address())))?;
    let primary = stage.primary(&client)?;
    let mut loan = stage.block_on(primary.check_out(None))?;
    stage.block_on(loan.command("admin", &ping()))?;
    forwarder.set(Traffic::Blackhole);
    // On a thread of its own, as in an application.
    let reply = thread::scope(|scope| {
        scope.spawn(|| stage.block_on(loan.command("admin", &ping()))).join()
    });
    match reply.map_err(|_| "the exchange panicked")? {
        Err(OperationError::Stream(failure)) if failure.cause == Cause::Interrupted => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
