//! Those who are measured: one module for each.

mod official;
mod official_sync;
mod sdam_blocking;
mod sdam_tokio;

use std::time::Duration;

use clap::ValueEnum;
use sdam_bench::Failure;
use sdam_bench::sample::Sample;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Operation;
use crate::events::Events;

/// Those who are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Competitor {
    /// The official driver.
    Mongodb,
    /// This library under tokio.
    Sdam,
    /// The official driver's API for threads.
    MongodbSync,
    /// This library without a runtime.
    SdamBlocking,
}

/// A type for documents of an application.
pub(crate) trait Shaped:
    Serialize + DeserializeOwned + Unpin + Send + Sync + 'static
{
}

impl<T: Serialize + DeserializeOwned + Unpin + Send + Sync + 'static> Shaped for T {}

impl Competitor {
    /// Measures one task that runs an operation for as long as `window`, with documents as `of`
    /// makes them.
    pub(crate) fn measure<T: Shaped>(
        self,
        uri: &str,
        task: (Operation, Events),
        of: fn(i32) -> T,
        window: Duration,
    ) -> Result<Sample, Failure> {
        let documents = task.0.documents(of);
        match self {
            Self::Mongodb => official::measure(uri, task, documents, window),
            Self::Sdam => sdam_tokio::measure(uri, task, documents, window),
            Self::MongodbSync => official_sync::measure(uri, task, documents, window),
            Self::SdamBlocking => sdam_blocking::measure(uri, task, documents, window),
        }
    }
}
