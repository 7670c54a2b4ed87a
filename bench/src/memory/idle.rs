//! Very many servers on one thread, while nothing happens: the processor's time and the memory.

use std::time::{Duration, Instant};

use sdam_bench::load::cpu_time;
use sdam_core::config::{MAX_SEEDS, Options};
use sdam_tokio::Client;

use crate::competitor::is_whole;
use crate::crowd::{Crowd, allow_files};
use crate::{Failure, Usage, usage};

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
    runtime.block_on(async {
        let mut watching = Vec::new();
        for seeds in crowd.addresses.chunks(each) {
            let uri = format!("mongodb://{}/?serverMonitoringMode={mode}", seeds.join(","));
            watching.push(Client::new(Options::parse(&uri)?)?);
        }
        while !watching.iter().all(|client| is_whole(&client.view())) {
            if begun.elapsed() > LIMIT {
                return Err("the servers were not all found in time".into());
            }
            tokio::time::sleep(PAUSE).await;
        }
        println!(
            "{servers} servers, {} clients, all found after {:.1} s and {:.1} s of CPU time",
            watching.len(),
            begun.elapsed().as_secs_f64(),
            (cpu_time() - before).as_secs_f64(),
        );
        tokio::time::sleep(SETTLE).await;
        let (before, begun) = (cpu_time(), Instant::now());
        tokio::time::sleep(window).await;
        let (used, elapsed) = ((cpu_time() - before).as_secs_f64(), begun.elapsed().as_secs_f64());
        let Usage { private, threads } = usage()?;
        let is_well = watching.iter().all(|client| is_whole(&client.view()));
        println!(
            "idle for {elapsed:.0} s: {:.2} % of a core, {:.1} MiB ({:.1} KiB a server), \
             {threads} threads{}",
            100.0 * used / elapsed,
            private as f64 / 1024.0,
            private as f64 / servers as f64,
            if is_well { "" } else { "; some servers were lost meanwhile" },
        );
        Ok(())
    })
}
