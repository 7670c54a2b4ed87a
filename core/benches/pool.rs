//! The cost of a pool: the short cuts there and back, and a queue of many.
//!
//! `cargo bench -p sdam-core --bench pool`. What is done for each operation in the queue should
//! hardly depend on how many wait.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sdam_core::config::PoolOptions;
use sdam_core::id::WaiterId;
use sdam_core::machine::Machine;
use sdam_core::pool::{Action, CheckOut, Command, Established, Input, Pool, PoolConfig};
use sdam_core::time::Instant;

const NOW: Instant = Instant::from_millis(1);

fn config(options: PoolOptions) -> PoolConfig {
    let address = "h".parse().unwrap();
    let connect_timeout = Some(Duration::from_secs(10));
    PoolConfig::new(address, options).with_connect_timeout(connect_timeout)
}

/// A pool that is ready and has checked out that many connections.
fn lending(count: u64, options: PoolOptions) -> (Pool<u64>, Vec<(CheckOut, u64)>) {
    let (mut pool, mut out) = (Pool::new(config(options)), Vec::new());
    pool.handle(NOW.into(), Input::Command(Command::Ready), &mut out);
    for waiter in 0..count {
        let waiter = WaiterId(waiter);
        pool.handle(NOW.into(), Input::CheckOut { waiter, deadline: None }, &mut out);
        let Some(Action::Establish { connection, .. }) = out.pop() else { unreachable!() };
        let outcome = Ok(Established::new(connection.number(), None));
        pool.handle(NOW.into(), Input::Established { connection, outcome }, &mut out);
    }
    let lent = out.into_iter().filter_map(|action| match action {
        Action::Deliver { outcome, .. } => outcome.ok(),
        _ => None,
    });
    let lent = lent.collect();
    (pool, lent)
}

fn short_cuts(c: &mut Criterion) {
    let mut group = c.benchmark_group("check out and in");
    for count in [1, 100] {
        let (mut pool, lent) = lending(count, PoolOptions::default());
        for (check_out, connection) in lent {
            pool.try_check_in(NOW, check_out, connection).unwrap();
        }
        group.bench_function(BenchmarkId::new("short cuts", count), |b| {
            b.iter(|| {
                let (check_out, connection) = pool.try_check_out(black_box(NOW)).unwrap();
                pool.try_check_in(NOW, check_out, connection).unwrap();
            });
        });
    }
    let (mut pool, lent) = lending(1, PoolOptions::default());
    let (check_out, connection) = lent[0];
    pool.try_check_in(NOW, check_out, connection).unwrap();
    let (mut out, mut waiter) = (Vec::new(), 1_000_000);
    group.bench_function("inputs, with events", |b| {
        b.iter(|| {
            waiter += 1;
            let check_out = Input::CheckOut { waiter: WaiterId(waiter), deadline: None };
            pool.handle(NOW.into(), check_out, &mut out);
            let Some(Action::Deliver { outcome: Ok((check_out, connection)), .. }) = out.pop()
            else {
                unreachable!()
            };
            let outcome = Ok(connection);
            pool.handle(NOW.into(), Input::CheckIn { check_out, outcome }, &mut out);
            out.clear();
        });
    });
    group.finish();
}

/// A pool with one connection, which is in use, and that many who wait for it.
fn crowded(count: u64) -> (Pool<u64>, (CheckOut, u64)) {
    let (mut pool, lent) = lending(1, PoolOptions::default().with_max_pool_size(1));
    enter(&mut pool, count);
    (pool, lent[0])
}

fn enter(pool: &mut Pool<u64>, count: u64) {
    let mut out = Vec::new();
    for waiter in 0..count {
        let (waiter, deadline) = (WaiterId(1_000_000 + waiter), Some(Instant::from_millis(5000)));
        pool.handle(NOW.into(), Input::CheckOut { waiter, deadline }, &mut out);
        out.clear();
    }
}

/// Serves all of them, one after the other.
fn serve(pool: &mut Pool<u64>, mut lent: (CheckOut, u64)) {
    let mut out = Vec::new();
    while pool.counts().waiting > 0 {
        let (check_out, outcome) = (lent.0, Ok(lent.1));
        pool.handle(NOW.into(), Input::CheckIn { check_out, outcome }, &mut out);
        let Some(Action::Deliver { outcome: Ok(next), .. }) = out.pop() else { unreachable!() };
        lent = next;
        out.clear();
    }
}

fn queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    group.sample_size(10);
    for count in [1000, 10_000, 100_000] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(BenchmarkId::new("enter", count), |b| {
            let empty = || crowded(0).0;
            b.iter_batched_ref(empty, |pool| enter(pool, count), BatchSize::PerIteration);
        });
        group.bench_function(BenchmarkId::new("serve", count), |b| {
            let full = || crowded(count);
            let serve = |(pool, lent): &mut (Pool<u64>, (CheckOut, u64))| serve(pool, *lent);
            b.iter_batched_ref(full, serve, BatchSize::PerIteration);
        });
        group.bench_function(BenchmarkId::new("time out", count), |b| {
            let full = || (crowded(count).0, Vec::with_capacity(2 * count as usize));
            let expire = |(pool, out): &mut (Pool<u64>, Vec<Action<u64>>)| {
                pool.tick(Instant::from_millis(5000).into(), out);
            };
            b.iter_batched_ref(full, expire, BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group!(benches, short_cuts, queue);
criterion_main!(benches);
