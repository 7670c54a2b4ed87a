//! The failover that the guide describes: an application that writes while the primary of a real
//! set is killed and started again, with its metrics, its log and its trace.
//!
//! With `UPDATE=1`, as `scripts/last-night` sets it, what was found becomes that of the guide, in
//! `docs/last-night`.

mod picture;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use bson::rawdoc;
use jiff::Timestamp;
use sdam_conformance::mongod::{Binary, ReplicaSet};
use sdam_core::config::Options;
use sdam_core::description::ServerType;
use sdam_core::logging::LogSettings;
use sdam_core::metrics::{Exposition, Family, SampleValue};
use sdam_host::Recording;
use sdam_tokio::Topology;
use tokio::runtime;

use crate::Outcome;
use crate::watch::GENEROUS;

/// Operations that do not wait as long as an election takes.
const OPTIONS: &str = "appName=shop&serverSelectionTimeoutMS=1500";

/// The pause between two writes.
const PAUSE: Duration = Duration::from_millis(100);

/// The time between two looks at the metrics.
const LOOK: Duration = Duration::from_millis(100);

/// The time of the client's clock at which the primary is killed; the guide looks at what was known
/// a second later.
const KILLED_AT: Duration = Duration::from_secs(5);

/// The time for which the application goes on afterwards.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// The variables that the application is started with, and the file that the last one names.
const VARIABLES: [(&str, &str); 2] =
    [("MONGODB_LOG_TOPOLOGY", "debug"), ("MONGODB_LOG_SERVER_SELECTION", "info")];

/// A look at the metrics.
struct Look {
    at: f64,
    families: Vec<Family>,
}

impl Look {
    fn take(client: &Topology) -> Self {
        Self { at: client.now().since_origin().as_secs_f64(), families: client.metrics() }
    }

    /// Returns the values of a family, each with the value of a label.
    fn values(&self, name: &str, label: &str) -> Vec<(String, f64)> {
        let family = self.families.iter().find(|family| family.definition.name == name);
        let samples = family.map_or(&[][..], |family| &family.samples);
        let value = |value: &SampleValue| match value {
            SampleValue::Number(number) => Some(*number),
            SampleValue::Distribution(distribution) => Some(distribution.count as f64),
            _ => None,
        };
        let of = |labels: &[(&str, String)]| {
            let found = labels.iter().find(|(name, _)| *name == label);
            found.map_or_else(String::new, |(_, value)| value.clone())
        };
        let pair =
            |sample: &sdam_core::metrics::Sample| Some((of(&sample.labels), value(&sample.value)?));
        samples.iter().filter_map(pair).collect()
    }

    /// Returns the sum of all values of a family.
    fn value(&self, name: &str) -> f64 {
        self.values(name, "").iter().map(|(_, value)| value).sum()
    }

    fn text(&self) -> String {
        Exposition::new(&self.families).to_string()
    }
}

/// The application, its files and how its writes fare.
struct Shop {
    client: Topology,
    recording: Recording,
    log: PathBuf,
    written: Arc<AtomicU32>,
    failed: Arc<AtomicU32>,
}

impl Shop {
    fn open(set: &ReplicaSet, folder: &Path) -> Outcome<Self> {
        let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
        let (seeds, name) = (seeds.join(","), set.set_name());
        let options = Options::parse(&format!("mongodb://{seeds}/?replicaSet={name}&{OPTIONS}"))?;
        let log = folder.join("shop.log");
        let path = log.to_str().ok_or("a path that is text")?.to_owned();
        let (settings, _) = LogSettings::from_variables(|asked| match asked {
            "MONGODB_LOG_PATH" => Some(path.clone()),
            _ => VARIABLES.iter().find(|(name, _)| *name == asked).map(|(_, it)| (*it).to_owned()),
        });
        let recording = Recording::everything();
        let builder = Topology::builder(options).metrics().log(settings).record(&recording);
        let client = builder.build()?;
        recording.note(&format!("+0.000000000 was {:.3}", Timestamp::now()));
        let (written, failed) = Default::default();
        Ok(Self { client, recording, log, written, failed })
    }

    async fn write(client: Topology, written: Arc<AtomicU32>, failed: Arc<AtomicU32>) {
        let order = rawdoc! { "insert": "orders", "documents": [{ "item": "lamp" }] };
        loop {
            let count = match client.run_command("shop", &order).await {
                Ok(_) => &written,
                Err(_) => &failed,
            };
            count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Topology) -> bool) -> Outcome {
        let deadline = Instant::now() + GENEROUS;
        while !is_so(&self.client) {
            if Instant::now() > deadline {
                return Err(format!("{what} did not come within {GENEROUS:?}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Lets the primary die, another one be elected and the first come back.
    fn live_through(&self, set: &mut ReplicaSet) -> Outcome {
        self.wait("a write", |client| {
            client.now().since_origin() >= KILLED_AT && self.written.load(Ordering::Relaxed) > 0
        })?;
        let killed = set.wait_for_primary(GENEROUS)?;
        let old = set.members()[killed].address().to_string();
        set.kill(killed)?;
        let primary =
            |client: &Topology| client.view().primary().map(|server| server.address.to_string());
        self.wait("another primary", |client| primary(client).is_some_and(|it| it != old))?;
        thread::sleep(AFTERWARDS);
        set.restart(killed)?;
        self.wait("the old primary", |client| {
            let view = client.view();
            let mut servers = view.servers().iter();
            servers.any(|it| {
                it.address.to_string() == old && it.server_type == ServerType::RsSecondary
            })
        })?;
        thread::sleep(AFTERWARDS);
        Ok(())
    }
}

/// The metrics, the log and the trace of one client describe the same failover; the files are those
/// of the guide.
pub(crate) fn last_night(binary: &Binary) -> Outcome {
    let mut set = ReplicaSet::start(binary, 3, &sdam_conformance::mongod::Options::default())?;
    set.wait_until_settled(GENEROUS)?;
    let folder = tempfile::tempdir()?;
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let entered = runtime.enter();
    let shop = Shop::open(&set, folder.path())?;
    shop.wait("a primary", |client| client.view().primary().is_some())?;
    let (written, failed) = (Arc::clone(&shop.written), Arc::clone(&shop.failed));
    let writer = runtime.spawn(Shop::write(shop.client.clone(), written, failed));
    let is_over = AtomicBool::new(false);
    let (lived, looks) = thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                looks.push(Look::take(&shop.client));
                thread::sleep(LOOK);
            }
            looks
        });
        let lived = shop.live_through(&mut set);
        is_over.store(true, Ordering::Relaxed);
        (lived, looking.join().expect("it does not panic"))
    });
    lived?;
    writer.abort();
    let after = Look::take(&shop.client);
    runtime.block_on(shop.client.close());
    drop(entered);
    let mut recording = shop.recording;
    let trace = std::iter::from_fn(|| recording.try_next()).collect::<Vec<_>>().concat();
    let log = fs::read_to_string(&shop.log)?;
    if env::var_os("UPDATE").is_some() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/last-night");
        let before = looks.iter().rfind(|look| look.at < KILLED_AT.as_secs_f64());
        fs::write(docs.join("before.txt"), before.ok_or("no look before")?.text())?;
        fs::write(docs.join("after.txt"), after.text())?;
        fs::write(docs.join("shop.log"), &log)?;
        fs::write(docs.join("shop.trace"), &trace)?;
        fs::write(docs.join("dashboard.svg"), picture::draw(&looks))?;
    }
    check(&after, &log, &trace)
}

/// All three report one election, and a time without a primary.
fn check(after: &Look, log: &str, trace: &str) -> Outcome {
    let elections = after.value("sdam.elections");
    let absence = after.value("sdam.primary.absence");
    if elections < 1.0 || absence < 0.1 {
        return Err(format!("{elections} elections, {absence} s without a primary").into());
    }
    for message in ["Server heartbeat failed", "Waiting for suitable server to become available"] {
        if !log.contains(message) {
            return Err(format!("{message:?} is not in the log:\n{log}").into());
        }
    }
    if !trace.contains("ReplicaSetNoPrimary") {
        return Err("the trace has no moment without a primary".into());
    }
    Ok(())
}
