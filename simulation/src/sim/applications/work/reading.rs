//! Cursors: read to their end or left before, one document after the other or all at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bson::{Document, doc};
use futures_core::Stream;
use sdam_core::bson;
use sdam_driver::{Aggregate, Cursor, CursorType, Error, Find, TimeoutMode};

use super::{Application, Terms};
use crate::virtual_time::Runtime;

/// The number of documents of a batch.
const BATCH: i32 = 2;

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
            let aggregate = Aggregate::new(stages).batch_size(BATCH).comment(number);
            things.aggregate::<Document>(aggregate).await
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
        cursor.collect().await.ok();
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
    if took.is_zero() {
        let detail = format!("the cursor of operation {number} has {timeout:?}, and fails at once");
        let check = "each iteration of a cursor has its own time";
        application.state().fail(application.number, check, format!("{detail}: {error:?}"));
    }
}
