//! Random inputs of a topology: servers that say anything, and operations that wait, fail and give
//! up at any time.

mod replies;
mod world;

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sdam_core::config::Options;
use sdam_core::dns::DnsError;
use sdam_core::dns::srv::{self, SrvRecord};
use sdam_core::machine::Lawful;
use sdam_core::topology::Topology;
use sdam_core::trace::Recorder;

use replies::Age;
use world::World;

/// The result of a lookup.
type RescanResult = std::result::Result<Vec<SrvRecord>, DnsError>;

/// The number of steps that are taken.
const MAX_STEPS: usize = 120;

/// The seed of the topology.
const SEED: u64 = 1;

/// The clients that there are: what their connection strings say.
static CLIENTS: LazyLock<Vec<Arc<Options>>> = LazyLock::new(|| {
    let uris = [
        "mongodb://a,b,c/?replicaSet=rs",
        "mongodb://a,b,c/?replicaSet=rs&serverMonitoringMode=poll",
        "mongodb://a/?replicaSet=rs&heartbeatFrequencyMS=500&connectTimeoutMS=300",
        "mongodb://a,b",
        "mongodb://a/?directConnection=true",
        "mongodb://a/?directConnection=true&replicaSet=rs&serverMonitoringMode=stream",
        "mongodb://a/?loadBalanced=true",
    ];
    let clients = uris.map(|uri| Options::parse(uri).expect("a connection string"));
    clients.into_iter().chain([in_dns()]).map(Arc::new).collect()
});

/// A client whose servers are in DNS.
fn in_dns() -> Options {
    let options = Options::parse("mongodb+srv://c.example.com/?srvMaxHosts=3&tls=false");
    let options = options.expect("a connection string");
    let records = ["a", "b"].map(replies::record);
    let complete = srv::complete(&options, &records, Ok(Vec::new()), 1);
    complete.expect("records that are allowed")
}

/// The first bytes say whether to play twice, choose a client and how old its servers are; the
/// others are steps, each with what happens and what it is about.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn topology(bytes: &[u8]) {
    let whole = play(bytes, false, |_, _| {});
    // Laws 4 and 6: the same inputs again, but all bytes torn. That takes as long again, so that
    // the first byte says whether.
    if bytes.first().is_some_and(|first| first.is_multiple_of(4)) {
        assert_eq!(play(bytes, true, |_, _| {}), whole, "how bytes are split changes what is done");
    }
}

/// Plays an input; returns the trace of it.
pub(super) fn recorded(bytes: &[u8], torn: bool) -> String {
    let text = Arc::<Mutex<String>>::default();
    let sink = Arc::clone(&text);
    play(bytes, torn, |recorder, options| {
        recorder.record(options, SEED, move |lines| locked(&sink).push_str(lines));
    });
    std::mem::take(&mut *locked(&text))
}

fn locked(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays an input with a recorder that was prepared; returns what distinguishes one run from
/// another.
fn play(
    bytes: &[u8],
    torn: bool,
    prepare: impl FnOnce(&mut Recorder<Lawful<Topology>>, &Options),
) -> u64 {
    let mut input = Unstructured::new(bytes.get(1..).unwrap_or_default());
    let Ok((client, age)) = choose(&mut input) else { return 0 };
    let options = &CLIENTS[client];
    let mut topology = Recorder::off(Lawful::new(Topology::new(Arc::clone(options), SEED)));
    prepare(&mut topology, options);
    let mut world = World::new(topology, options, age, torn);
    for _ in 0..MAX_STEPS {
        // An input that is too short has said all that it has to say.
        if input.is_empty() || step(&mut world, &mut input).is_err() {
            break;
        }
    }
    world.shut_down()
}

fn choose(input: &mut Unstructured<'_>) -> Result<(usize, Age)> {
    let client = input.int_in_range(0..=CLIENTS.len() - 1)?;
    let age = if input.arbitrary()? { Age::Old } else { Age::New };
    Ok((client, age))
}

fn step(world: &mut World, input: &mut Unstructured<'_>) -> Result<()> {
    match input.int_in_range(0..=23_u8)? {
        0..=3 => world.open(input)?,
        4..=10 => world.reply(input)?,
        11 => world.babble(input)?,
        12 => world.close(input)?,
        13 | 14 => world.pass(millis(input)?),
        15 => world.sleep(millis(input)?),
        16 | 17 => world.wait(input)?,
        18 => world.abandon(input)?,
        19 => world.request_check(),
        20 | 21 => world.fail_operation(input)?,
        22 => world.haunt(input)?,
        _ => match input.int_in_range(0..=7_u8)? {
            0 => drop(world.shut_down()),
            _ => world.resolve(input)?,
        },
    }
    world.settle();
    Ok(())
}

/// Times around those that timers have.
fn millis(input: &mut Unstructured<'_>) -> Result<Duration> {
    let times = [0, 1, 20, 300, 499, 500, 501, 1_000, 9_999, 10_000, 10_500, 30_000, 60_000];
    Ok(Duration::from_millis(*input.choose(&times)?))
}

/// Returns the answer of an application's own resolver, which may have failed.
fn records(input: &mut Unstructured<'_>) -> Result<RescanResult> {
    let mut records = Vec::new();
    for _ in 0..input.int_in_range(0..=4)? {
        records.push(replies::record(replies::host(input)?));
    }
    if records.is_empty() && input.arbitrary()? {
        return Ok(Err(replies::dns_error(input)?));
    }
    Ok(Ok(records))
}
