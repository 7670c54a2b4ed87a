//! The cost of checking a connection out and in again, alone and with others.
//!
//! Run with `cargo bench -p sdam-tokio`. The servers are the embedded deployment's, so that
//! connections are real; nothing is sent over them.

use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::selection::Criteria;
use sdam_tokio::{SelectedServer, Topology};
use tokio::runtime::{Builder, Runtime};

const TASKS: u32 = 64;

/// A client of a replica set, and its primary, with a connection for each task.
async fn stage() -> (EmbeddedCluster, Topology, SelectedServer) {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::default()).await.expect("a deployment");
    let options = Options::parse(&cluster.uri()).expect("a connection string");
    let client = Topology::new(options).expect("a client");
    let primary = client.select(Criteria::write()).await.expect("a primary");
    let mut in_use = Vec::new();
    for _ in 0..TASKS {
        in_use.push(primary.check_out().await.expect("a connection"));
    }
    drop(in_use);
    (cluster, client, primary)
}

fn check_out(criterion: &mut Criterion) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime: Runtime = runtime.expect("a runtime");
    let (_cluster, client, primary) = runtime.block_on(stage());
    let mut group = criterion.benchmark_group("check_out");
    group.bench_function("1 task", |bencher| {
        bencher.iter_custom(|count| {
            runtime.block_on(async {
                let start = Instant::now();
                for _ in 0..count {
                    drop(primary.check_out().await.expect("a connection"));
                }
                start.elapsed()
            })
        });
    });
    group.bench_function("64 tasks", |bencher| {
        bencher.iter_custom(|count| {
            runtime.block_on(async {
                let share = count.div_ceil(TASKS.into());
                let start = Instant::now();
                let tasks: Vec<_> = (0..TASKS)
                    .map(|_| {
                        let primary = primary.clone();
                        tokio::spawn(async move {
                            for _ in 0..share {
                                drop(primary.check_out().await.expect("a connection"));
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.expect("a task");
                }
                start.elapsed()
            })
        });
    });
    group.bench_function("1 task, with the selection", |bencher| {
        bencher.iter_custom(|count| {
            runtime.block_on(async {
                let criteria = std::sync::Arc::new(Criteria::write());
                let start = Instant::now();
                for _ in 0..count {
                    let selected = client.select(std::sync::Arc::clone(&criteria)).await;
                    drop(selected.expect("a primary").check_out().await.expect("a connection"));
                }
                start.elapsed()
            })
        });
    });
    group.finish();
    let ping = rawdoc! { "ping": 1 };
    runtime.block_on(client.run_command("admin", &ping)).expect("the connections are usable");
    runtime.block_on(client.close());
}

criterion_group!(benches, check_out);
criterion_main!(benches);
