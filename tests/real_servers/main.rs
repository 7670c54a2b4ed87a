//! Operations on real servers of the oldest and the newest version there is, under each runtime.

mod blocking;
mod futures;
mod lost_history;
mod prose;
mod refused_streams;

use std::process::ExitCode;
use std::sync::Mutex;

use libtest_mimic::{Arguments, Failed, Trial};
use sdam_conformance::mongod::{Availability, Binary, Config, ReplicaSet, Server};
use sdam_core::config::Options;
use serde::{Deserialize, Serialize};

/// A document of an application's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Thing {
    #[serde(rename = "_id")]
    id: i32,
    kind: String,
    n: i64,
}

fn thing(id: i32) -> Thing {
    let kind = if id % 2 == 0 { "even" } else { "odd" };
    Thing { id, kind: kind.to_owned(), n: i64::from(id) * 10 }
}

/// The sets of the oldest and the newest version, which end with the process that owns them.
static SETS: [Mutex<Option<ReplicaSet>>; 2] = [const { Mutex::new(None) }; 2];

fn main() -> ExitCode {
    let availability = Availability::look();
    let mut arguments = Arguments::from_args();
    // Two at a time: more servers than that get in each other's way.
    arguments.test_threads.get_or_insert(2);
    let binaries = availability.binaries();
    let ends = [binaries.first(), binaries.last().filter(|_| binaries.len() > 1)];
    let ends = || ends.into_iter().flatten();
    let mut all: Vec<Trial> = ends().flat_map(trials).collect();
    all.extend(ends().zip(&SETS).flat_map(|(binary, set)| prose::trials(binary, set)));
    all.extend(ends().map(refused_streams::trial));
    all.extend(binaries.last().map(lost_history::trials).unwrap_or_default());
    let passed = !libtest_mimic::run(&arguments, all).has_failed();
    for set in &SETS {
        // A static is never dropped.
        drop(set.lock().map(|mut set| set.take()));
    }
    availability.conclude(passed)
}

fn trials(binary: &Binary) -> Vec<Trial> {
    let trial = |runtime: &str, run: fn(&Options) -> Result<(), Failed>| {
        let (name, binary) = (format!("{runtime}_on_mongod_{}", binary.version()), binary.clone());
        Trial::test(name, move || {
            let server = Server::start(&binary, Config::default())?;
            run(&Options::parse(&format!("mongodb://{}/", server.address()))?)
        })
    };
    vec![
        trial("tokio", futures::tokio),
        trial("smol", futures::smol),
        trial("async_std", futures::async_std),
        trial("futures_of_blocking", futures::blocking),
        trial("blocking", blocking::with_a_thread),
        trial("blocking_without_threads", blocking::without_threads),
    ]
}
