//! Hello that waits, and streams of replies to it.

use std::time::Duration;

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{Bson, Document, doc};
use tokio::time::{Instant, sleep};

use super::{Probe, Talk, awaitable, version_of, with};
use crate::lint::evidence::{Topic, number};
use crate::lint::wire::Request;

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
const REPLIES: usize = 3;

/// The flag exhaustAllowed.
pub(super) const EXHAUST_ALLOWED: u32 = 1 << 16;

/// Lets hello wait in each way.
pub(super) async fn ask(probe: &Probe) {
    tokio::join!(wait(probe), mistakes(probe), stream(probe));
}

const NONE: &str = "it tells no topologyVersion";

async fn wait(probe: &Probe) {
    let topics = [Topic::AwaitGreeting, Topic::AwaitUnchanged, Topic::Beside];
    let Some(mut talk) = probe.open(&topics).await else { return };
    let greeting = talk.command(Topic::AwaitGreeting, probe.legacy_hello()).await;
    let Some(version) = greeting.as_ref().and_then(version_of) else {
        return probe.not_asked(&topics[1..], NONE);
    };
    let Some(mut beside) = probe.open(&topics[2..]).await else { return };
    beside.command(Topic::Beside, probe.legacy_hello()).await;
    wait_beside(&mut talk, &mut beside, &version, WAIT).await;
    if probe.evidence().is_blocked() {
        // A machine that is busy looks like it, but not for as long as that.
        wait_beside(&mut talk, &mut beside, &version, LONG_WAIT).await;
    }
}

/// Lets a hello wait, and asks on another connection meanwhile, more than once: a server that has
/// not read the first yet is not kept by it from answering.
async fn wait_beside(
    talk: &mut Talk<'_>,
    beside: &mut Talk<'_>,
    version: &Document,
    limit: Duration,
) {
    let probe = talk.probe;
    let waiting = Request::new(awaitable(version, limit), limit + probe.patience);
    let mut exchange = talk.wire.begin(&waiting).await;
    tokio::join!(
        async {
            if exchange.end.is_none() {
                talk.wire.listen(&mut exchange, waiting.patience).await;
            }
        },
        async {
            for _ in 0..ASKED_BESIDE {
                sleep(limit / 8).await;
                let asked = Instant::now();
                let said = beside.command(Topic::Beside, doc! { "isMaster": 1, "$db": "admin" });
                if said.await.is_none() || asked.elapsed() > limit / 2 {
                    break;
                }
            }
        },
    );
    probe.note(Topic::AwaitUnchanged, exchange);
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
    let greeting = talk.wire.ask(probe.request(probe.legacy_hello())).await;
    let greeting = greeting.answers.first().and_then(|answer| answer.document.clone().ok());
    let Some(version) = greeting.as_ref().and_then(version_of) else {
        return probe.not_asked(&topics, NONE);
    };
    let waiting = |version: &Document| {
        Request::new(awaitable(version, LONG_WAIT), LONG_WAIT + probe.patience)
    };
    let other = with(version.clone(), doc! { "processId": another_id(version.get("processId")) });
    talk.ask(Topic::AwaitOther, waiting(&other)).await;
    match version.get("counter").and_then(number) {
        Some(counter) if counter > 0 => {
            let older = with(version.clone(), doc! { "counter": Bson::Int64(counter - 1) });
            talk.ask(Topic::AwaitOlder, waiting(&older)).await;
        }
        _ => probe.not_asked(&[Topic::AwaitOlder], "its counter is 0"),
    }
    let mut half = awaitable(&version, WAIT);
    half.remove("maxAwaitTimeMS");
    talk.command(Topic::AwaitWithoutTime, half).await;
    let mut half = awaitable(&version, WAIT);
    half.remove("topologyVersion");
    talk.ask(Topic::AwaitWithoutVersion, Request::new(half, WAIT + probe.patience)).await;
}

async fn stream(probe: &Probe) {
    let topics = [Topic::StreamGreeting, Topic::Stream];
    let Some(mut talk) = probe.open(&topics).await else { return };
    let greeting = talk.command(Topic::StreamGreeting, probe.legacy_hello()).await;
    let Some(version) = greeting.as_ref().and_then(version_of) else {
        return probe.not_asked(&topics[1..], NONE);
    };
    let stream = Request::new(awaitable(&version, INTERVAL), INTERVAL + probe.patience)
        .with_flags(EXHAUST_ALLOWED)
        .with_answers(REPLIES);
    talk.ask(Topic::Stream, stream).await;
}
