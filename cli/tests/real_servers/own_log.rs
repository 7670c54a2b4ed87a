//! The log of an application by the Logging specification, over failovers of a real set: `sdam
//! check-log` finds it innocent.

use std::io::Write;
use std::process::{Command, Stdio};
use std::{fs, thread};

use sdam_conformance::mongod::ReplicaSet;
use sdam_core::config::Options;
use sdam_core::description::{ServerType, TopologyDescription};
use sdam_core::logging::LogSettings;
use sdam_core::topology::{EventKind, Topics};
use sdam_tokio::Topology;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::Outcome;
use crate::watch::GENEROUS;

/// Checks often enough to see a member fail more than once before another is elected.
const OPTIONS: &str = "heartbeatFrequencyMS=500&connectTimeoutMS=20000";

/// The number of checks of a member that fail before it is started again.
const FAILURES: usize = 3;

/// A client, and what runs it.
struct Application {
    runtime: Runtime,
    client: Topology,
}

impl Application {
    /// Waits for a view that is as it should be.
    fn view(&self, what: &str, wanted: impl Fn(&TopologyDescription) -> bool) -> Outcome {
        let mut views = self.client.watch_topology();
        let found = async {
            while let Some(view) = views.next().await {
                if wanted(&view) {
                    return;
                }
            }
        };
        let found = self.runtime.block_on(async { timeout(GENEROUS, found).await });
        let view = self.client.view();
        found.map_err(|_| format!("{what} did not come within {GENEROUS:?}: {view:?}").into())
    }

    fn primary(&self) -> Option<String> {
        self.client.view().primary().map(|server| server.address.to_string())
    }
}

fn is_whole(view: &TopologyDescription) -> bool {
    let secondaries = view.servers().iter();
    let secondaries = secondaries.filter(|server| server.server_type == ServerType::RsSecondary);
    view.primary().is_some() && secondaries.count() == 2
}

fn is_another(view: &TopologyDescription, old: Option<&str>) -> bool {
    let primary = view.primary().map(|server| server.address.to_string());
    primary.is_some() && primary.as_deref() != old
}

/// SDAM Logging and Monitoring, "Log Messages": what is logged while a primary steps down and the
/// next one is killed and started again is explained by itself, line by line.
pub(crate) fn the_own_log_of_a_step_down_and_a_kill_is_innocent(set: &mut ReplicaSet) -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("log");
    let (settings, _) = LogSettings::from_variables(|name| match name {
        "MONGODB_LOG_TOPOLOGY" => Some("debug".to_owned()),
        "MONGODB_LOG_MAX_DOCUMENT_LENGTH" => Some("100000".to_owned()),
        "MONGODB_LOG_PATH" => file.to_str().map(str::to_owned),
        _ => None,
    });
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let (seeds, name) = (seeds.join(","), set.set_name());
    let options = Options::parse(&format!("mongodb://{seeds}/?replicaSet={name}&{OPTIONS}"))?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let client = runtime.block_on(async { Topology::builder(options).log(settings).build() })?;
    let application = Application { runtime, client };
    fail_over(&application, set)?;
    application.runtime.block_on(application.client.close());
    judge(&fs::read_to_string(&file)?)
}

fn fail_over(application: &Application, set: &mut ReplicaSet) -> Outcome {
    application.view("the whole set", is_whole)?;
    let old = application.primary();
    set.step_down()?;
    let is_next = |view: &TopologyDescription| is_another(view, old.as_deref()) && is_whole(view);
    application.view("another primary after a step-down", is_next)?;
    let mut heartbeats = application.client.subscribe_to(Topics::HEARTBEATS);
    let killed = set.primary()?;
    let address = set.members()[killed].address().clone();
    let dead = address.to_string();
    set.kill(killed)?;
    let is_next = |view: &TopologyDescription| is_another(view, Some(&dead));
    application.view("another primary after a kill", is_next)?;
    let failures = async {
        let mut count = 0;
        while let Some(event) = heartbeats.next().await {
            let of_dead = |it: &EventKind| matches!(it, EventKind::ServerHeartbeatFailed { address: it, .. } if *it == address);
            count += usize::from(of_dead(&event.kind));
            if count == FAILURES {
                return;
            }
        }
    };
    let failures = application.runtime.block_on(async { timeout(GENEROUS, failures).await });
    failures.map_err(|_| format!("checks of {dead} have not failed within {GENEROUS:?}"))?;
    set.restart(killed)?;
    application.view("the whole set again", is_whole)
}

/// Checks a log, with its times: they are those of the events, also where a thread was held up.
fn judge(log: &str) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    command.args(["check-log", "--json", "--all", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn()?;
    let mut stdin = process.stdin.take().ok_or("no pipe")?;
    let fed = log.to_owned();
    let feed = thread::spawn(move || stdin.write_all(fed.as_bytes()));
    let output = process.wait_with_output()?;
    feed.join().map_err(|_| "the log was not written")??;
    let printed = String::from_utf8(output.stdout)?;
    let counts: Value = serde_json::from_str(printed.lines().last().unwrap_or_default())?;
    let count = |name: &str| counts["counts"][name].as_u64().unwrap_or_default();
    let is_reported = count("descriptionChanges") > 8 && count("failedHeartbeats") >= 3;
    match output.status.success() && is_reported && count("notCompared") == 0 {
        true => Ok(()),
        false => Err(format!("{printed}\n{log}").into()),
    }
}
