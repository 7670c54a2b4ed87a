//! Those who ping: one module for each.

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
use sdam_bench::Failure;
use sdam_bench::sample::Sample;
use sdam_core::wire::{Flags, HEADER_LEN, write_op_msg};
use sdam_host::{FLIGHT_RECORDER_LEN, Recording};

use self::sdam::Onlooker;

/// Those who ping, in the order of the rows; the first is what the others are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Competitor {
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
    /// Returns the name on the command line and in the tables.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("no variant is skipped").get_name().to_owned()
    }

    /// Measures `tasks` that ping for as long as `window`.
    pub(crate) fn measure(
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

/// The message that the bare competitors send again and again.
fn message() -> Vec<u8> {
    let mut message = Vec::new();
    write_op_msg(&mut message, 1, 0, Flags::NONE, &rawdoc! { "ping": 1, "$db": "admin" });
    message
}

/// The buffer in which bare competitors read a reply: long enough for that of `ping`.
type Reply = [u8; 1024];

/// Returns whether a whole reply has been read.
fn is_whole(received: &[u8]) -> Result<bool, Failure> {
    let Some(length) = received.first_chunk() else { return Ok(false) };
    match usize::try_from(i32::from_le_bytes(*length)) {
        Ok(length) if (HEADER_LEN..=size_of::<Reply>()).contains(&length) => {
            Ok(received.len() >= length)
        }
        _ => Err("a reply that is no answer to a ping".into()),
    }
}
