//! The example's runtime with timers that ring too early, too late and twice, and never again
//! unless they are asked to.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant as Clock};

use sdam::Error;
use sdam::core::config::Options;
use sdam::core::time::Instant;
use sdam::host::{Client, Connector, Deadlines, Host};
use sdam_conformance::adapter::{Adapter, Feature, Subject};
use smol::{Timer, block_on};

use crate::example::Example;
use crate::example::own_runtime::Threads;

/// By how much a timer is early or late; what is later than 100 ms looks as if the process had been
/// stopped.
const LATE: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(150)];

/// Bad timers.
pub(crate) struct Unpunctual;

/// Sleeps until about then, and rings the host once more.
async fn sleep(host: Weak<Host<Threads>>, clock: Clock, at: Instant, number: u32) {
    let due = clock + at.since_origin();
    let left = due.saturating_duration_since(Clock::now());
    Timer::at(match number % 5 {
        0 => due.checked_sub(left / 2).unwrap_or(due),
        1 => due.checked_sub(Duration::from_millis(1)).unwrap_or(due),
        2 => due.checked_sub(Duration::from_nanos(1)).unwrap_or(due),
        3 => due + LATE[0],
        _ => due + LATE[1],
    })
    .await;
    thread::spawn(move || host.upgrade().iter().for_each(|host| host.ring()));
}

impl Adapter for Unpunctual {
    type Runtime = Threads;

    fn name(&self) -> &str {
        "unpunctual"
    }

    fn client(&self, options: Options) -> Result<Subject<Threads>, Error> {
        let options = options.or_environment(sdam_host::system::environment);
        let ((deadlines, timekeeper), clock) = (Deadlines::new(), Clock::now());
        let runtime = Threads(clock, Connector::new(&options)?, deadlines);
        let host = Host::new(Arc::new(options), sdam_host::system::client_seed()?, runtime);
        let (events, weak, rings) = (host.subscribe(), Arc::downgrade(&host), AtomicU32::new(0));
        let sleeping = Weak::clone(&weak);
        let keeps_time = timekeeper.run(weak, move |at| {
            let number = rings.fetch_add(1, Ordering::Relaxed);
            Box::pin(sleep(Weak::clone(&sleeping), clock, at, number))
        });
        thread::spawn(|| block_on(keeps_time));
        Ok((Client::from_host(host), events))
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        Example.block_on(future)
    }

    fn lacks(&self, feature: Feature) -> Option<&str> {
        Example.lacks(feature)
    }
}
