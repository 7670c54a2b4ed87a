//! This library under smol, by the same call as under tokio.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sdam_async_std::{Task, builder_on};
use sdam_core::config::Options;
use smol::Executor;

use super::sdam::Pinger;
use super::uri;
use crate::Failure;
use crate::load::on_smol;
use crate::sample::Sample;

/// Measures tasks that share one client, whose pool has a connection for each.
pub(super) fn measure(
    address: SocketAddr,
    tasks: usize,
    window: Duration,
) -> Result<Sample, Failure> {
    let executor = Arc::new(Executor::new());
    let uri = uri(address, tasks);
    let spawn = {
        let executor = Arc::clone(&executor);
        move |task: Task| executor.spawn(task).detach()
    };
    let client = builder_on(Options::parse(&uri)?, spawn).build()?;
    on_smol(&executor, Pinger::share(&client, tasks), window)
}
