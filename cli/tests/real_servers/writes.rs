//! An application that writes while a primary steps down and another one is killed, recorded, and
//! `sdam report` of that.
//!
//! With `UPDATE=1` the recording becomes the golden trace `writes` of its version.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use bson::rawdoc;
use jiff::Timestamp;
use sdam_conformance::mongod::ReplicaSet;
use sdam_core::config::Options;
use sdam_core::description::ServerType;
use sdam_host::Recording;
use sdam_tokio::Topology;
use serde_json::Value;
use tokio::runtime;

use crate::Outcome;
use crate::watch::GENEROUS;

/// Operations that do not wait as long as an election takes; and monitors that ask only now and
/// then, so that operations are the first to meet what has happened.
const OPTIONS: &str = "heartbeatFrequencyMS=1000&serverMonitoringMode=poll&connectTimeoutMS=20000\
                       &serverSelectionTimeoutMS=700";

/// The number of operations at a time, and the pause between those of one task.
const WRITERS: usize = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// The number of writes that succeed before anything happens, and after another was elected.
const ENOUGH: u32 = 60;

/// The number of times that a failover is recorded: on a busy machine there may be more reigns than
/// were made, and a page names no primary of more than a few.
const TRIES: usize = 3;

/// The numbers of writes that have gone well, and that have not.
#[derive(Debug, Default)]
struct Counts {
    written: AtomicU32,
    failed: AtomicU32,
    is_over: AtomicBool,
}

/// A failover under writes becomes a page that says who was primary when, how long there was none,
/// and how the operations of the application fared.
pub(crate) fn a_failover_under_writes_becomes_a_page(set: &mut ReplicaSet) -> Outcome {
    let mut printed = record_and_check(set);
    for _ in 1..TRIES {
        if printed.is_ok() {
            break;
        }
        for index in 0..set.members().len() {
            if !set.members()[index].is_running() {
                set.restart(index)?;
            }
        }
        set.wait_until_settled(GENEROUS)?;
        printed = record_and_check(set);
    }
    printed
}

fn record_and_check(set: &mut ReplicaSet) -> Outcome {
    let build = set.members()[0].command(&bson::doc! { "buildInfo": 1 }, GENEROUS)?;
    let version = build.get_str("version")?;
    let series = version.rsplit_once('.').map_or(version, |(series, _)| series).to_owned();
    let (trace, primaries) = record(set)?;
    let path = env::temp_dir().join(format!("sdam-{}-writes.trace", process::id()));
    fs::write(&path, &trace)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_sdam"));
    let output = command.arg("report").arg(&path).args(["-o", "-"]).output()?;
    fs::remove_file(&path)?;
    let page = String::from_utf8(output.stdout)?;
    let report = page.split_once("id=\"data\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let report: Value = serde_json::from_str(report.ok_or("no report in the page")?.0)?;
    check(&report, &primaries).map_err(|error| format!("{error}:\n{report}"))?;
    if env::var_os("UPDATE").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/transcripts");
        fs::write(folder.join(format!("{series}-writes.trace")), trace)?;
    }
    Ok(())
}

/// Lets a primary step down under writes, kills the next one and brings it back; returns what was
/// recorded, and that one with its successor.
fn record(set: &mut ReplicaSet) -> Result<(String, [String; 2]), Box<dyn std::error::Error>> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let (seeds, name) = (seeds.join(","), set.set_name());
    let options = Options::parse(&format!("mongodb://{seeds}/?replicaSet={name}&{OPTIONS}"))?;
    let mut recording = Recording::everything();
    let connecting = Topology::builder(options).record(&recording).connect();
    let client = runtime.block_on(connecting)?;
    recording.note(&format!("+0.000000000 was {:.3}", Timestamp::now()));
    let counts = Arc::<Counts>::default();
    let writers = (0..WRITERS).map(|_| runtime.spawn(write(client.clone(), Arc::clone(&counts))));
    let writers: Vec<_> = writers.collect();
    let written = || counts.written.load(Ordering::Relaxed);
    let enough = || {
        let before = written();
        wait("writes", || written() >= before + ENOUGH)
    };
    let primary = || client.view().primary().map(|server| server.address.to_string());
    let another = |old: &str| -> Result<String, Box<dyn std::error::Error>> {
        wait("another primary", || primary().is_some_and(|primary| primary != old))?;
        primary().ok_or_else(|| "a primary that is lost again".into())
    };
    enough()?;
    let first = set.members()[set.wait_for_primary(GENEROUS)?].address().to_string();
    set.step_down()?;
    let old = another(&first)?;
    enough()?;
    let killed = set.wait_for_primary(GENEROUS)?;
    set.kill(killed)?;
    let new = another(&old)?;
    enough()?;
    set.restart(killed)?;
    let is_back = || {
        let view = client.view();
        let mut servers = view.servers().iter();
        servers.any(|it| it.address.to_string() == old && it.server_type == ServerType::RsSecondary)
    };
    wait("the old primary", is_back)?;
    counts.is_over.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        for writer in writers {
            writer.await?;
        }
        client.close().await;
        Ok::<(), tokio::task::JoinError>(())
    })?;
    if counts.failed.load(Ordering::Relaxed) == 0 {
        return Err("no write has failed".into());
    }
    let trace = std::iter::from_fn(|| recording.try_next()).collect::<Vec<_>>().concat();
    Ok((trace, [old, new]))
}

async fn write(client: Topology, counts: Arc<Counts>) {
    let insert = rawdoc! { "insert": "report", "documents": [{ "some": "thing" }] };
    while !counts.is_over.load(Ordering::Relaxed) {
        let count = match client.run_command("test", &insert).await {
            Ok(_) => &counts.written,
            Err(_) => &counts.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
}

fn wait(what: &str, is_so: impl Fn() -> bool) -> Outcome {
    let deadline = Instant::now() + GENEROUS;
    while !is_so() {
        if Instant::now() > deadline {
            return Err(format!("{what} did not come within {GENEROUS:?}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn check(report: &Value, [old, new]: &[String; 2]) -> Outcome {
    let array = |name: &str| report[name].as_array().map_or(&[][..], Vec::as_slice);
    let primaries: Vec<Option<&str>> =
        array("primaries").iter().map(|reign| reign["primary"].as_str()).collect();
    let wanted = [Some(&**old), None, Some(new)];
    if primaries.windows(3).all(|three| three != wanted) {
        return Err(format!("{primaries:?} is not {wanted:?}").into());
    }
    let is_outage = |it: &&Value| it["fault"]["verdict"] == "noPrimary";
    let outages = array("writes").iter().filter(is_outage);
    let longest = outages.map(|it| it["toMS"].as_f64().zip(it["fromMS"].as_f64()));
    let longest = longest.flatten().map(|(to, from)| to - from).fold(0.0, f64::max);
    if longest < 100.0 {
        return Err(format!("writes failed for {longest} ms only").into());
    }
    let waited = array("waits").iter().filter(|wait| wait["end"] == "failed").count();
    if array("errors").is_empty() || waited == 0 {
        return Err("no operation has failed".into());
    }
    let sentences = report["headline"]["sentences"].to_string();
    for said in [
        format!("{old} was primary until +"),
        "there was none, and writes failed".to_owned(),
        format!("{new} is primary from +"),
        " operations failed, from +".to_owned(),
        " without finding one.".to_owned(),
    ] {
        if !sentences.contains(&said) {
            return Err(format!("{said:?} is not said").into());
        }
    }
    Ok(())
}
