//! This library under tokio, by the same call as the official driver's.

use std::net::SocketAddr;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use sdam_core::config::Options;
use sdam_host::{self as host, Recording, Runtime};
use sdam_tokio::Topology;

use super::uri;
use crate::Failure;
use crate::load::{Work, on_tokio};
use crate::sample::Sample;

/// A task's share of the client, under whichever runtime.
pub(super) struct Pinger<R: Runtime> {
    client: host::Topology<R>,
    command: RawDocumentBuf,
}

impl<R: Runtime> Pinger<R> {
    /// Shares a client among tasks.
    pub(super) fn share(client: &host::Topology<R>, tasks: usize) -> Vec<Self> {
        let pinger = || Self { client: client.clone(), command: rawdoc! { "ping": 1 } };
        std::iter::repeat_with(pinger).take(tasks).collect()
    }
}

impl<R: Runtime> Work for Pinger<R> {
    async fn once(&mut self) -> Result<(), Failure> {
        self.client.run_command("admin", &self.command).await?;
        Ok(())
    }
}

/// The observers of a client that pings.
pub(super) enum Onlooker {
    /// No observer.
    None,
    /// A reader of everything that is recorded.
    Recording(Recording),
    /// A reader of the metrics, each second.
    Metrics,
}

/// The time between two looks at the metrics: more often than collectors come.
const METRICS_PAUSE: Duration = Duration::from_secs(1);

/// Measures tasks that share one client, whose pool has a connection for each.
pub(super) fn measure(
    address: SocketAddr,
    tasks: usize,
    window: Duration,
    onlooker: Onlooker,
) -> Result<Sample, Failure> {
    let open = async move {
        let builder = Topology::builder(Options::parse(&uri(address, tasks))?);
        let client = match onlooker {
            Onlooker::None => builder.build()?,
            Onlooker::Recording(mut recording) => {
                let client = builder.record(&recording).build()?;
                tokio::spawn(async move { while recording.next().await.is_some() {} });
                client
            }
            Onlooker::Metrics => {
                let client = builder.metrics().build()?;
                let counted = client.clone();
                tokio::spawn(async move {
                    loop {
                        tokio::time::sleep(METRICS_PAUSE).await;
                        std::hint::black_box(counted.metrics());
                    }
                });
                client
            }
        };
        Ok(Pinger::share(&client, tasks))
    };
    on_tokio(open, window)
}
