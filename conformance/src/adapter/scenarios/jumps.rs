//! Processes that are stopped for longer than any time-out: what arrived meanwhile counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::child::{COMMAND, Watcher};
use crate::adapter::fixture::{Deployment, Fixture, Outcome, direct, ensure, wait_until};
use crate::adapter::scripted::{Scripted, reply};
use crate::forwarder::Traffic;

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("jumps::replies_that_came_while_the_process_was_stopped_count", replies),
        Test::new("jumps::a_reply_to_a_command_that_came_meanwhile_counts", command),
        Test::new("jumps::a_server_that_was_silent_meanwhile_is_found_out", silence),
    ]
}

/// An awaited reply comes every 500 ms, and may take so long on a machine with other things to do.
const QUICK: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=4000";

/// For how long the process is stopped.
const SUSPENSION: Duration = Duration::from_millis(6000);

fn suspend(watcher: &Watcher) -> Outcome {
    watcher.stop()?;
    thread::sleep(SUSPENSION);
    watcher.forget();
    watcher.go_on()?;
    Ok(())
}

fn replies<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(3)?;
    let uri = format!("{}&{QUICK}", cluster.uri());
    let watcher = Watcher::start(&*fixture.adapter, &uri, None)?;
    // Until every server streams its replies.
    watcher.successes(9).map_err(|error| format!("before it was stopped: {error}"))?;
    suspend(&watcher)?;
    watcher.successes(18)
}

/// The deadline of a command passes while its reply is there to be read.
fn command<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let is_stopped = Arc::<AtomicBool>::default();
    let may_reply = Arc::clone(&is_stopped);
    let server = Scripted::start(move |name, _| {
        if name == COMMAND {
            wait_until(|| may_reply.load(Ordering::Relaxed));
        }
        reply(name)
    })?;
    let time = SUSPENSION - Duration::from_secs(1);
    let watcher = Watcher::start(&*fixture.adapter, &server.uri(), Some(time))?;
    server.wait_for(COMMAND);
    watcher.stop()?;
    is_stopped.store(true, Ordering::Relaxed);
    thread::sleep(SUSPENSION);
    watcher.go_on()?;
    watcher.successes(1)
}

fn silence<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let uri = format!("{}&{QUICK}", direct(forwarder.address()));
    let watcher = Watcher::start(&*fixture.adapter, &uri, None)?;
    watcher.successes(3)?;
    forwarder.set(Traffic::Blackhole);
    suspend(&watcher)?;
    let failure = watcher.failure()?;
    ensure!(failure.contains("reply within"), "{failure}");
    // That may be all that is wrong.
    let finding = watcher.finding()?;
    ensure!(finding.ends_with("processPaused"), "{finding}");
    forwarder.set(Traffic::Pass);
    watcher.recovery()
}
