//! This library under tokio, by the same call as the official driver's.

use std::net::SocketAddr;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::Options;
use sdam_host::{self as host, Recording, Runtime};
use sdam_tokio::Client;

use super::uri;
use crate::Failure;
use crate::load::{Ping, on_tokio};
use crate::sample::Sample;

/// A task's share of the client, under whichever runtime.
pub(super) struct Pinger<R: Runtime> {
    client: host::Client<R>,
    command: RawDocumentBuf,
}

impl<R: Runtime> Pinger<R> {
    /// Shares a client among tasks.
    pub(super) fn share(client: &host::Client<R>, tasks: usize) -> Vec<Self> {
        let pinger = || Self { client: client.clone(), command: rawdoc! { "ping": 1 } };
        std::iter::repeat_with(pinger).take(tasks).collect()
    }
}

impl<R: Runtime> Ping for Pinger<R> {
    async fn ping(&mut self) -> Result<(), Failure> {
        self.client.run_command("admin", &self.command).await?;
        Ok(())
    }
}

/// Measures tasks that share one client, whose pool has a connection for each; if it is recorded,
/// somebody reads that.
pub(super) fn measure(
    address: SocketAddr,
    tasks: usize,
    window: Duration,
    recording: Option<Recording>,
) -> Result<Sample, Failure> {
    let open = async move {
        let mut builder = Client::builder(Options::parse(&uri(address, tasks))?);
        if let Some(mut recording) = recording {
            builder = builder.record(&recording);
            tokio::spawn(async move { while recording.next().await.is_some() {} });
        }
        let client = builder.build()?;
        Ok(Pinger::share(&client, tasks))
    };
    on_tokio(open, window)
}
