//! This library under smol, by the same call as under tokio.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use sdam_async_std::{Client, Task};
use sdam_core::options::Options;
use smol::Executor;

use crate::Failure;
use crate::load::{Ping, on_smol};
use crate::sample::Sample;

/// A task's share of the client.
struct Pinger {
    client: Client,
    command: RawDocumentBuf,
}

impl Ping for Pinger {
    async fn ping(&mut self) -> Result<(), Failure> {
        self.client.run_command("admin", &self.command).await?;
        Ok(())
    }
}

/// Measures tasks that share one client, whose pool has a connection for each.
pub(super) fn measure(
    address: SocketAddr,
    tasks: usize,
    window: Duration,
) -> Result<Sample, Failure> {
    let executor = Arc::new(Executor::new());
    let uri = format!("mongodb://{address}/?directConnection=true&maxPoolSize={tasks}");
    let spawn = {
        let executor = Arc::clone(&executor);
        move |task: Task| executor.spawn(task).detach()
    };
    let client = Client::new(Options::parse(&uri)?, spawn)?;
    let pinger = || Pinger { client: client.clone(), command: rawdoc! { "ping": 1 } };
    on_smol(&executor, std::iter::repeat_with(pinger).take(tasks).collect(), window)
}
