//! Hello that waits, and streams of replies to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{Bson, Document, doc};
use tokio::time::{Instant, sleep};

use super::{Probe, Talk, awaitable, version_of, with};
use crate::lint::evidence::{Topic, number};
use crate::lint::request::Request;

/// The time that a single hello may wait.
const WAIT: Duration = Duration::from_secs(2);

/// The time that a hello may wait which is to be answered at once: so long that even on a machine
/// that is busy nothing takes half of it.
const LONG_WAIT: Duration = Duration::from_secs(6);

/// The number of times that another connection is asked while a hello waits.
const ASKED_BESIDE: u32 = 3;

/// The time between replies of a stream.
const INTERVAL: Duration = Duration::from_millis(300);

/// The number of replies of a stream that are waited for.
const REPLIES: usize = 6;

/// The flag exhaustAllowed.
pub(super) const EXHAUST_ALLOWED: u32 = 1 << 16;

/// Lets hello wait in each way.
pub(super) async fn ask(probe: &Probe) {
    tokio::join!(wait(probe), mistakes(probe), stream(probe));
}

const NONE: &str = "its hello has no topologyVersion";

async fn wait(probe: &Probe) {
    let topics = [Topic::BeforeAwait, Topic::AwaitUnchanged, Topic::Beside];
    let Some(mut talk) = probe.open(&topics).await else { return };
    let reply = talk.command(Topic::BeforeAwait, probe.legacy_hello()).await;
    let Some(mut version) = reply.as_ref().and_then(version_of) else {
        return probe.not_asked(&topics[1..], NONE);
    };
    let Some(mut beside) = probe.open(&topics[2..]).await else { return };
    beside.command(Topic::Beside, probe.legacy_hello()).await;
    for limit in [WAIT, LONG_WAIT, LONG_WAIT] {
        let newer = wait_beside(&mut talk, &mut beside, &version, limit).await;
        let has_ended = talk.connection.end().is_some() || beside.connection.end().is_some();
        let evidence = probe.evidence();
        // A machine that is busy looks like a server that blocks, but not for as long as that.
        if has_ended || evidence.is_unblocked() || (limit == LONG_WAIT && evidence.is_blocked()) {
            break;
        }
        version = newer.unwrap_or(version);
    }
}

/// Lets a hello wait, and asks on another connection meanwhile, more than once: a server that has
/// not read the first yet is not kept by it from answering. Returns the topologyVersion then.
async fn wait_beside(
    talk: &mut Talk<'_>,
    beside: &mut Talk<'_>,
    version: &Document,
    limit: Duration,
) -> Option<Document> {
    let probe = talk.probe;
    let waiting = Request::new(awaitable(version, limit), limit + probe.timeout);
    let mut exchange = talk.connection.begin(&waiting).await;
    let is_over = AtomicBool::new(false);
    tokio::join!(
        // The one that waits first: of two replies that are there, its own is then the earlier.
        biased;
        async {
            if exchange.end.is_none() {
                talk.connection.listen(&mut exchange, waiting.timeout).await;
            }
            is_over.store(true, Ordering::Relaxed);
        },
        async {
            for _ in 0..ASKED_BESIDE {
                sleep(limit / 8).await;
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let asked = Instant::now();
                let said = beside.command(Topic::Beside, doc! { "isMaster": 1, "$db": "admin" });
                if said.await.is_none() || asked.elapsed() > limit / 2 {
                    break;
                }
            }
        },
    );
    let reply = exchange.answers.first().and_then(|answer| answer.document.as_ref().ok());
    let version = reply.and_then(version_of);
    probe.note(Topic::AwaitUnchanged, exchange);
    version
}

/// Returns an ObjectId that is another one.
fn another_id(id: Option<&Bson>) -> Bson {
    let own = id.and_then(Bson::as_object_id).unwrap_or_default();
    let bytes = own.bytes().map(|byte| !byte);
    Bson::ObjectId(ObjectId::from_bytes(bytes))
}

/// Asks what is to be answered at once.
async fn mistakes(probe: &Probe) {
    let topics =
        [Topic::AwaitOther, Topic::AwaitOlder, Topic::AwaitWithoutTime, Topic::AwaitWithoutVersion];
    let Some(mut talk) = probe.open(&topics).await else { return };
    let reply = talk.connection.ask(probe.request(probe.legacy_hello())).await;
    let reply = reply.answers.first().and_then(|answer| answer.document.clone().ok());
    let Some(version) = reply.as_ref().and_then(version_of) else {
        return probe.not_asked(&topics, NONE);
    };
    let waiting =
        |version: &Document| Request::new(awaitable(version, LONG_WAIT), LONG_WAIT + probe.timeout);
    let other = with(version.clone(), doc! { "processId": another_id(version.get("processId")) });
    ask_at_once(&mut talk, Topic::AwaitOther, &waiting(&other)).await;
    match version.get("counter").and_then(number) {
        Some(counter) if counter > 0 => {
            let older = with(version.clone(), doc! { "counter": Bson::Int64(counter - 1) });
            ask_at_once(&mut talk, Topic::AwaitOlder, &waiting(&older)).await;
        }
        _ => probe.not_asked(&[Topic::AwaitOlder], "its counter is 0"),
    }
    let mut half = awaitable(&version, WAIT);
    half.remove("maxAwaitTimeMS");
    talk.command(Topic::AwaitWithoutTime, half).await;
    let mut half = awaitable(&version, WAIT);
    half.remove("topologyVersion");
    talk.ask(Topic::AwaitWithoutVersion, Request::new(half, WAIT + probe.timeout)).await;
}

/// Asks what is to be answered at once; a machine that is busy may be late, but not twice.
async fn ask_at_once(talk: &mut Talk<'_>, topic: Topic, request: &Request) {
    let asked = Instant::now();
    talk.ask(topic, request.clone()).await;
    if asked.elapsed() > LONG_WAIT / 2 {
        talk.ask(topic, request.clone()).await;
    }
}

async fn stream(probe: &Probe) {
    let topics = [Topic::BeforeStream, Topic::Stream];
    let Some(mut talk) = probe.open(&topics).await else { return };
    let reply = talk.command(Topic::BeforeStream, probe.legacy_hello()).await;
    let Some(version) = reply.as_ref().and_then(version_of) else {
        return probe.not_asked(&topics[1..], NONE);
    };
    let stream = Request {
        flags: EXHAUST_ALLOWED,
        answers: REPLIES,
        ..Request::new(awaitable(&version, INTERVAL), INTERVAL + probe.timeout)
    };
    talk.ask(Topic::Stream, stream).await;
}
