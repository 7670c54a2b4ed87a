//! The cost of a `ping`, and those who ping: one module for each.

mod bare;
mod bare_tokio;
mod official;
mod official_sync;
mod sdam;
mod sdam_blocking;
mod sdam_smol;

use std::net::SocketAddr;
use std::time::Duration;

use bson::rawdoc;
use clap::ValueEnum;
use sdam_core::wire::Flags;
use sdam_host::{FLIGHT_RECORDER_LEN, Recording};

use self::sdam::Onlooker;
use crate::sample::Sample;
use crate::{Failure, raw};

/// Those who ping, in the order of the rows; the first is what the others are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Competitor {
    /// A thread with a blocking socket for each task: a floor.
    Bare,
    /// A tokio task with a socket for each task: the floor of that runtime.
    BareTokio,
    /// The official driver.
    Mongodb,
    /// The official driver's API for threads.
    MongodbSync,
    /// This library under tokio.
    Sdam,
    /// The same, with everything recorded and read.
    SdamRecorded,
    /// The same, with a flight recorder of 256 KiB.
    SdamFlight,
    /// The same, with metrics that are read each second.
    SdamMetrics,
    /// This library under smol.
    SdamSmol,
    /// This library without a runtime, a thread for each task.
    SdamBlocking,
}

impl Competitor {
    /// Measures `tasks` that ping for as long as `window`.
    ///
    /// # Errors
    ///
    /// Fails with the first error of a task.
    pub fn measure(
        self,
        address: SocketAddr,
        tasks: usize,
        window: Duration,
    ) -> Result<Sample, Failure> {
        match self {
            Self::Bare => bare::measure(address, tasks, window),
            Self::BareTokio => bare_tokio::measure(address, tasks, window),
            Self::Mongodb => official::measure(address, tasks, window),
            Self::MongodbSync => official_sync::measure(address, tasks, window),
            Self::Sdam => sdam::measure(address, tasks, window, Onlooker::None),
            Self::SdamRecorded => {
                let onlooker = Onlooker::Recording(Recording::everything());
                sdam::measure(address, tasks, window, onlooker)
            }
            Self::SdamFlight => {
                let recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
                sdam::measure(address, tasks, window, Onlooker::Recording(recording))
            }
            Self::SdamMetrics => sdam::measure(address, tasks, window, Onlooker::Metrics),
            Self::SdamSmol => sdam_smol::measure(address, tasks, window),
            Self::SdamBlocking => sdam_blocking::measure(address, tasks, window),
        }
    }
}

/// Names the server to a client whose pool has a connection for each task.
fn uri(address: SocketAddr, tasks: usize) -> String {
    format!("mongodb://{address}/?directConnection=true&maxPoolSize={tasks}")
}

/// The time that the bare competitors wait for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Returns the message that the bare competitors send again and again.
fn message() -> Vec<u8> {
    raw::message(Flags::NONE, &rawdoc! { "ping": 1, "$db": "admin" })
}

/// The buffer in which bare competitors read a reply: long enough for that of `ping`.
type Reply = [u8; 1024];
