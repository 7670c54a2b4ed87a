//! Cursors: read to their end or left before, one document after the other or all at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bson::{Document, doc};
use futures_core::Stream;
use sdam::error::Error;
use sdam::generic::Cursor;
use sdam::operation::Find;
use sdam::options::{CursorType, TimeoutMode};
use sdam_core::bson;

use super::{Application, Terms};
use crate::virtual_time::Runtime;

/// The number of documents of a batch.
const BATCH: u32 = 2;

/// The number of documents that are read at most.
const MOST: i64 = 12;

/// The way in which a cursor is read.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// To its end, at once.
    Collect,
    /// As a stream, with pauses.
    Stream,
    /// With its own method, with pauses.
    Next,
}

pub(super) async fn read_many(application: &mut Application) {
    let terms = application.terms();
    let things = application.things(terms);
    let (manner, kind) = (
        application.random.pick(&[Manner::Collect, Manner::Stream, Manner::Stream, Manner::Next]),
        application.random.below(5),
    );
    let number = application.begin(terms);
    let find = Find::new(doc! {}).batch_size(BATCH).limit(MOST).comment(number);
    let opened = match kind {
        0 => {
            let stages = [doc! { "$match": {} }, doc! { "$limit": MOST }];
            things.aggregate(stages).batch_size(BATCH).comment(number).await
        }
        1 => {
            let exhaust = Find::new(doc! {}).batch_size(BATCH).comment(number);
            things.find(exhaust.cursor_type(CursorType::Exhaust)).await
        }
        _ if terms.timeout.is_some() => {
            things.find(find.timeout_mode(TimeoutMode::Iteration)).await
        }
        _ => things.find(find).await,
    };
    application.ended(number, opened.as_ref().err());
    if let Ok(cursor) = opened {
        let iterates = terms.timeout.is_some() && kind > 1;
        let terms = Terms { timeout: terms.timeout.filter(|_| iterates), ..terms };
        read(application, cursor, manner, (number, terms)).await;
    }
    application.over(number);
}

async fn read(
    application: &mut Application,
    mut cursor: Cursor<Runtime, Document>,
    manner: Manner,
    (number, terms): (i64, Terms),
) {
    if matches!(manner, Manner::Collect) {
        cursor.try_collect::<Vec<_>>().await.ok();
        return;
    }
    let pause = application.random.millis(0, 600);
    let most = 1 + application.random.below(10);
    for _ in 0..most {
        let begun = application.time.elapsed();
        let next = match manner {
            Manner::Stream => poll_fn(|cx| Pin::new(&mut cursor).poll_next(cx)).await,
            Manner::Collect | Manner::Next => cursor.next().await,
        };
        let Some(next) = next else { break };
        let took = application.time.elapsed() - begun;
        judge_iteration(application, number, terms.timeout, (took, next.err().as_ref()));
        application.time.sleep(pause).await;
    }
    application.state().checks.sessions.reads_no_more(number);
    match application.random.percent(30) {
        true => cursor.close().await,
        false => drop(cursor),
    }
}

/// "the timeoutMS value MUST be refreshed for each `next` call" (CSOT, "Cursors").
fn judge_iteration(
    application: &Application,
    number: i64,
    timeout: Option<Duration>,
    (took, error): (Duration, Option<&Error>),
) {
    let Some(timeout) = timeout.filter(|_| error.is_some_and(Error::is_timeout)) else {
        return;
    };
    if took.is_zero() && !application.state().is_too_far(application.number, timeout) {
        let detail = format!("the cursor of operation {number} has {timeout:?}, and fails at once");
        let check = "each iteration of a cursor has its own time";
        application.state().fail(application.number, check, format!("{detail}: {error:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use sdam::error::ArgumentError;
    use sdam_cluster::ServerVersion;
    use sdam_core::config::Options;
    use sdam_core::time::Instant;

    use super::{Application, Duration, Error, Terms, doc, judge_iteration};
    use crate::sim::applications::checks::{Checks, Retries};
    use crate::sim::applications::ledger::Ledger;
    use crate::sim::applications::work::Workload;
    use crate::sim::random::Random;
    use crate::virtual_time::Simulation;

    #[test]
    fn an_iteration_that_has_no_time_of_its_own_is_found() {
        let mut simulation = Simulation::new(7);
        let client = simulation.topology(Options::parse(simulation.uri()).unwrap()).unwrap();
        let ledger =
            Ledger::new(Checks::new(false, Retries::new(2, false, false)), Vec::new(), None);
        let version = ServerVersion::V8_0;
        let workload = Workload { from: Instant::ZERO, to: Instant::ZERO, version };
        let application = Application::new(
            (0, client),
            (simulation.time(), Arc::clone(&ledger)),
            (workload, Duration::ZERO),
            Random::new(7),
        );
        // No server is known within a millisecond.
        let terms = Terms { timeout: Some(Duration::from_millis(1)), session: None };
        let things = application.collection_of(&application.client, terms);
        let late = Arc::new(Mutex::new(None));
        let failed = Arc::clone(&late);
        simulation.spawn(async move {
            *failed.lock().unwrap() = things.find_one(doc! {}).await.err();
        });
        assert!(simulation.run(Duration::from_secs(60)));
        let late = late.lock().unwrap().take().unwrap();
        let other = Error::from(ArgumentError::SessionInUse);
        let (second, zero) = (Duration::from_secs(1), Duration::ZERO);
        for (timeout, took, error, is_found) in [
            (Some(second), zero, Some(&late), true),
            (Some(second), second, Some(&late), false),
            (Some(second), zero, Some(&other), false),
            (Some(second), zero, None, false),
            (None, zero, Some(&late), false),
        ] {
            judge_iteration(&application, 1, timeout, (took, error));
            let found = ledger.lock().take_violation();
            assert_eq!(found.is_some(), is_found, "{timeout:?}, {took:?}, {error:?}: {found:?}");
        }
    }
}
