//! Processes that are forked off: a client says that it is not theirs, and its own is as it was.

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::child::Watcher;
use crate::adapter::fixture::{Deployment, Fixture, Outcome};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![Test::new("forks::a_client_says_that_it_is_another_process_s", forks)]
}

/// In a process of its own, as this one has threads that hold locks all the time.
fn forks<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(3)?;
    let uri = format!("{}&heartbeatFrequencyMS=500", cluster.uri());
    Watcher::start_forking(&*fixture.adapter, &uri)?.successes(1)
}
