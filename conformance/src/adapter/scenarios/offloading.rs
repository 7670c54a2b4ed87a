//! Work that keeps a thread busy: no task of the client waits for its end.

use std::pin::pin;
use std::sync::mpsc::channel;

use sdam_core::topology::EventKind;
use sdam_host::driver::DriverTopology;
use sdam_host::{Lane, Runtime as _};

use super::Test;
use crate::adapter::fixture::{Deployment, Fixture, Outcome, direct, ensure, once};
use crate::adapter::{Adapter, Feature};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("offloading::heartbeats_go_on_while_keys_are_derived", heartbeats)
            .of(Feature::Offloading),
    ]
}

/// The work lasts until checks have succeeded and a connection was established.
fn heartbeats<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::start(1)?;
    let uri = format!("{}&heartbeatFrequencyMS=500", direct(deployment.0.addresses()[0]));
    let (client, mut events) = fixture.subject(&uri)?;
    fixture.known(&client)?;
    let (begun, begins) = channel();
    let (end, ended) = channel::<()>();
    let work = Box::new(move || {
        let _ = begun.send(());
        // The sender is dropped when the test ends, however it does.
        let _ = ended.recv();
    });
    let mut offloaded = pin!(client.host().runtime().offload(Lane::Keys, work));
    let is_pending = fixture.block_on(once(offloaded.as_mut())).is_pending();
    ensure!(is_pending, "the work is done before it is");
    begins.recv()?;
    fixture.ping(&client)?;
    while events.try_next().is_some() {}
    fixture.block_on(async {
        let mut checks = 0;
        while checks < 3 {
            match events.next().await.ok_or("the client was closed")?.kind {
                EventKind::ServerHeartbeatSucceeded { .. } => checks += 1,
                EventKind::ServerHeartbeatFailed { failure, .. } => {
                    return Err(format!("a check has failed: {failure}").into());
                }
                _ => {}
            }
        }
        Outcome::Ok(())
    })?;
    drop(end);
    fixture.block_on(offloaded);
    Ok(())
}
