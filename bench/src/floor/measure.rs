//! The measurements: the columns of their tables, who is compared, and the goals.

use std::time::Duration;

use clap::ValueEnum;
use sdam_bench::{Failure, ping};

use crate::goal::Goal;
use crate::{Arguments, idle, select, start};

/// The measurements, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// A ping of one caller: CPU time in microseconds, and pings in a second.
    #[value(name = "ping-1")]
    Ping1,
    /// The same of 16 callers at once.
    #[value(name = "ping-16")]
    Ping16,
    /// The same of 64 callers at once.
    #[value(name = "ping-64")]
    Ping64,
    /// Selecting a server through the public client, in nanoseconds of CPU time.
    Select,
    /// The time from the creation of a client to the reply to its first ping, in milliseconds; the
    /// median of nine processes is one measurement.
    Start,
    /// Private memory in KiB, and CPU time in milliseconds a minute, of one monitored server.
    Idle,
    /// The threads of 50 clients.
    Threads,
}

/// Those who are compared, in the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Competitor {
    /// Raw sockets of the standard library, and what the protocol demands. Pings: `bare` of the
    /// bench of that name.
    Floor,
    /// The floor of tokio, for pings: `bare-tokio` of that bench.
    FloorTokio,
    /// This library under tokio.
    Sdam,
    /// This library without a runtime.
    SdamBlocking,
    /// The official driver.
    Mongodb,
    /// The official driver's API for threads.
    MongodbSync,
    /// The official driver for C.
    Libmongoc,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// The headline.
    pub(crate) name: &'static str,
    /// A floor to divide by exists: one that keeps nothing is none.
    pub(crate) has_floor: bool,
    /// The goal under tokio.
    sdam: Option<Goal>,
    /// The goal without a runtime.
    blocking: Option<Goal>,
}

impl Figure {
    /// Returns the goal of a competitor.
    pub(crate) fn goal(self, competitor: Competitor) -> Option<Goal> {
        match competitor {
            Competitor::Sdam => self.sdam,
            Competitor::SdamBlocking => self.blocking,
            Competitor::Floor
            | Competitor::FloorTokio
            | Competitor::Mongodb
            | Competitor::MongodbSync
            | Competitor::Libmongoc => None,
        }
    }
}

/// The columns of pings, with the goal of the CPU time.
const fn pings(most: f64) -> [Figure; 2] {
    let (most, least) = (Some(Goal::MostTimes(most)), Some(Goal::LeastTimes(0.95)));
    [
        Figure { name: "CPU us a ping", has_floor: true, sdam: most, blocking: most },
        Figure { name: "pings a second", has_floor: true, sdam: least, blocking: least },
    ]
}

const PINGS: [Figure; 2] = pings(1.5);
const SELECT: [Figure; 1] = [Figure {
    name: "ns a selection",
    has_floor: true,
    sdam: Some(Goal::Most(40.0)),
    blocking: Some(Goal::Most(40.0)),
}];
const START: [Figure; 1] = [Figure {
    name: "ms to the first ping",
    has_floor: true,
    sdam: Some(Goal::MostTimes(1.3)),
    blocking: Some(Goal::MostTimes(1.3)),
}];
const IDLE: [Figure; 2] = [
    Figure {
        name: "KiB a server",
        has_floor: false,
        sdam: Some(Goal::Most(10.5)),
        blocking: Some(Goal::Most(10.5)),
    },
    Figure {
        name: "CPU ms a minute",
        has_floor: true,
        sdam: Some(Goal::MostTimes(1.5)),
        blocking: Some(Goal::MostTimes(1.5)),
    },
];
const THREADS: [Figure; 1] = [Figure {
    name: "threads of 50 clients",
    has_floor: true,
    sdam: None,
    blocking: Some(Goal::Most(2.0)),
}];

impl Measure {
    /// Returns the columns.
    pub(crate) const fn figures(self) -> &'static [Figure] {
        match self {
            Self::Ping1 | Self::Ping16 | Self::Ping64 => &PINGS,
            Self::Select => &SELECT,
            Self::Start => &START,
            Self::Idle => &IDLE,
            Self::Threads => &THREADS,
        }
    }

    /// Returns who can be compared.
    pub(crate) const fn competitors(self) -> &'static [Competitor] {
        use Competitor::{Floor, FloorTokio, Libmongoc, Mongodb, MongodbSync, Sdam, SdamBlocking};
        match self {
            Self::Ping1 | Self::Ping16 | Self::Ping64 => {
                &[Floor, FloorTokio, Sdam, SdamBlocking, Mongodb, MongodbSync]
            }
            // The official driver does not select for its applications.
            Self::Select => &[Floor, Sdam, SdamBlocking],
            Self::Start => &[Floor, Sdam, SdamBlocking, Mongodb, MongodbSync, Libmongoc],
            Self::Idle | Self::Threads => &[Floor, Sdam, SdamBlocking, Mongodb, MongodbSync],
        }
    }

    /// Returns whom a competitor is compared with: what pings under tokio, with the floor of tokio.
    pub(crate) fn floor(self, competitor: Competitor) -> Competitor {
        match (self, competitor) {
            (
                Self::Ping1 | Self::Ping16 | Self::Ping64,
                Competitor::FloorTokio | Competitor::Sdam | Competitor::Mongodb,
            ) => Competitor::FloorTokio,
            _ => Competitor::Floor,
        }
    }

    /// Measures one competitor in this process; returns a number for each column, or for idle
    /// ones what is to be divided by the number of servers.
    pub(crate) fn take(
        self,
        competitor: Competitor,
        uri: &str,
        arguments: &Arguments,
    ) -> Result<Vec<f64>, Failure> {
        let pings = |callers| {
            let pinger = competitor.pinger().ok_or("its program does not ping")?;
            let [address] = start::addresses(uri)?[..] else {
                return Err("more than one server to ping".into());
            };
            let window = Duration::from_secs(arguments.seconds);
            let sample = pinger.measure(address.parse()?, callers, window)?;
            Ok(vec![sample.cpu_each(), sample.per_second()])
        };
        match self {
            Self::Ping1 => pings(1),
            Self::Ping16 => pings(16),
            Self::Ping64 => pings(64),
            Self::Select => Ok(vec![select::nanoseconds(competitor, uri)?]),
            Self::Start => Ok(vec![start::milliseconds(competitor, uri)?]),
            Self::Idle => {
                let idle = idle::measure(competitor, uri, arguments.heartbeats)?;
                Ok(vec![idle.usage.private as f64, idle.share() * 60e3])
            }
            Self::Threads => Ok(vec![start::threads(competitor, uri)?]),
        }
    }
}

impl Competitor {
    /// Returns who pings for it.
    const fn pinger(self) -> Option<ping::Competitor> {
        Some(match self {
            Self::Floor => ping::Competitor::Bare,
            Self::FloorTokio => ping::Competitor::BareTokio,
            Self::Sdam => ping::Competitor::Sdam,
            Self::SdamBlocking => ping::Competitor::SdamBlocking,
            Self::Mongodb => ping::Competitor::Mongodb,
            Self::MongodbSync => ping::Competitor::MongodbSync,
            Self::Libmongoc => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::{Competitor, Measure};

    #[test]
    fn everyone_is_compared_with_a_floor_of_the_same_table_which_is_its_own() {
        for measure in Measure::value_variants() {
            for &competitor in measure.competitors() {
                let floor = measure.floor(competitor);
                assert!(measure.competitors().contains(&floor), "{measure:?}, {competitor:?}");
                assert_eq!(measure.floor(floor), floor, "{measure:?}, {competitor:?}");
            }
        }
        assert_eq!(Measure::Ping16.floor(Competitor::Sdam), Competitor::FloorTokio);
        assert_eq!(Measure::Ping16.floor(Competitor::SdamBlocking), Competitor::Floor);
        assert_eq!(Measure::Idle.floor(Competitor::Sdam), Competitor::Floor);
    }
}
