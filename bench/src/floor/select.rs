//! A selection of the primary, or the only server, through the public client.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use sdam_bench::load::cpu_time;
use sdam_bench::{Failure, THREADS, runtime};
use sdam_core::config::Options;
use sdam_core::selection::Criteria;

use crate::Competitor;

/// The number of selections.
const TIMES: u32 = 1_000_000;

/// Returns the time of a selection: CPU time, as it waits for nothing, and others may use the
/// processor meanwhile.
pub(crate) fn nanoseconds(competitor: Competitor, uri: &str) -> Result<f64, Failure> {
    let criteria = Arc::new(Criteria::write());
    match competitor {
        Competitor::Floor => {
            // A program that knows who is primary: it looks the number up, and takes the address.
            let (primary, servers) = (AtomicUsize::new(1), vec![uri.to_owned(), uri.to_owned()]);
            timed(|| {
                black_box(servers.get(black_box(&primary).load(Ordering::Acquire)));
                Ok(())
            })
        }
        Competitor::Sdam => {
            let runtime = runtime(THREADS)?;
            let client = {
                let _entered = runtime.enter();
                sdam_tokio::Topology::new(Options::parse(uri)?)?
            };
            runtime.block_on(client.select(Criteria::write()))?;
            // As a task selects that is running already.
            timed(|| {
                let select = pin!(client.select(Arc::clone(&criteria)));
                match select.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(selected) => drop(black_box(selected?)),
                    Poll::Pending => return Err("the server was lost".into()),
                }
                Ok(())
            })
        }
        Competitor::SdamBlocking => {
            let client = sdam_blocking::Topology::new(Options::parse(uri)?)?;
            client.select(Criteria::write())?;
            timed(|| {
                drop(black_box(client.select(Arc::clone(&criteria))?));
                Ok(())
            })
        }
        Competitor::FloorTokio
        | Competitor::Mongodb
        | Competitor::MongodbSync
        | Competitor::Libmongoc => Err("it does not select for its applications".into()),
    }
}

fn timed(mut once: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    for _ in 0..TIMES / 10 {
        once()?;
    }
    let before = cpu_time();
    for _ in 0..TIMES {
        once()?;
    }
    Ok((cpu_time() - before).as_secs_f64() * 1e9 / f64::from(TIMES))
}
