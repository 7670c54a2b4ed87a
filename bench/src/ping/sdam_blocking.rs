//! This library without a runtime, by the same call as the official driver's.

use std::net::SocketAddr;
use std::time::Duration;

use bson::rawdoc;
use sdam_blocking::Topology;
use sdam_core::config::Options;

use super::uri;
use crate::Failure;
use crate::load::on_threads;
use crate::sample::Sample;

/// Measures threads that share one client, whose pool has a connection for each.
pub(super) fn measure(
    address: SocketAddr,
    tasks: usize,
    window: Duration,
) -> Result<Sample, Failure> {
    let uri = uri(address, tasks);
    let client = Topology::new(Options::parse(&uri)?)?;
    let pinger = || {
        let (client, command) = (client.clone(), rawdoc! { "ping": 1 });
        move || {
            client.run_command("admin", &command)?;
            Ok(())
        }
    };
    on_threads(std::iter::repeat_with(pinger).take(tasks).collect(), window)
}
