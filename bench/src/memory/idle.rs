//! Very many servers on one thread, while nothing happens: the processor's time and the memory.

use std::time::{Duration, Instant};

use sdam_bench::Failure;
use sdam_bench::idle::Idle;
use sdam_bench::load::cpu_time;
use sdam_bench::watch::{is_whole, wait};
use sdam_core::config::{MAX_SEEDS, Options};
use sdam_tokio::Topology;
use tokio::time::sleep;

use crate::crowd::{Crowd, allow_files};

/// The time that discovery may take.
const LIMIT: Duration = Duration::from_secs(180);

/// The interval at which views are looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// The time after discovery in which all monitors begin to wait for news, and to ping.
const SETTLE: Duration = Duration::from_secs(25);

/// The number of files besides connections.
const SPARE_FILES: usize = 20;

/// Watches so many servers, by as few clients as may be, and prints what that takes.
pub(crate) fn measure(servers: usize, mode: &str, window: Duration) -> Result<(), Failure> {
    let connections = if mode == "poll" { servers } else { 2 * servers };
    allow_files(connections + SPARE_FILES)?;
    let crowd = Crowd::start(servers)?;
    let clients = servers.div_ceil(MAX_SEEDS);
    let each = servers.div_ceil(clients.max(1)).max(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (before, begun) = (cpu_time(), Instant::now());
    let _entered = runtime.enter();
    let mut watching = Vec::new();
    for seeds in crowd.addresses.chunks(each) {
        let uri = format!("mongodb://{}/?serverMonitoringMode={mode}", seeds.join(","));
        watching.push(Topology::new(Options::parse(&uri)?)?);
    }
    let is_well = || watching.iter().all(|client| is_whole(&client.view()));
    wait(LIMIT, || runtime.block_on(sleep(PAUSE)), is_well)?;
    println!(
        "{servers} servers, {} clients, all found after {:.1} s and {:.1} s of CPU time",
        watching.len(),
        begun.elapsed().as_secs_f64(),
        (cpu_time() - before).as_secs_f64(),
    );
    let idle = Idle::measure(SETTLE, window, |time| {
        runtime.block_on(sleep(time));
        Ok(())
    })?;
    println!(
        "idle for {:.0} s: {:.2} % of a core, {:.1} MiB ({:.1} KiB a server), {} threads{}",
        idle.elapsed.as_secs_f64(),
        100.0 * idle.share(),
        idle.usage.private as f64 / 1024.0,
        idle.usage.private as f64 / servers as f64,
        idle.usage.threads,
        if is_well() { "" } else { "; some servers were lost meanwhile" },
    );
    Ok(())
}
