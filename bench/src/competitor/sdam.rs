//! This library, by the same call as the official driver's.

use std::net::SocketAddr;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use sdam_core::options::Options;
use sdam_tokio::Client;

use crate::Failure;
use crate::load::{Ping, on_tokio};
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
    let open = async move {
        let uri = format!("mongodb://{address}/?directConnection=true&maxPoolSize={tasks}");
        let client = Client::new(Options::parse(&uri)?)?;
        let pinger = || Pinger { client: client.clone(), command: rawdoc! { "ping": 1 } };
        Ok(std::iter::repeat_with(pinger).take(tasks).collect())
    };
    on_tokio(open, window)
}
