//! A step-down of the primary, as the streams and connections of clients see it.

use std::pin::pin;
use std::time::Duration;

use sdam_core::bson::{Document, doc};
use sdam_core::config::ServerAddress;
use sdam_core::failure::Failure;

use super::streaming::EXHAUST_ALLOWED;
use super::{Probe, awaitable, version_of};
use crate::lint::evidence::{Exchange, Kind, Topic, kind_of};
use crate::lint::request::Request;

/// The topics that need permission to step a primary down.
pub(super) const TOPICS: [Topic; 5] = [
    Topic::BeforeStepDown,
    Topic::StepDown,
    Topic::StepDownStream,
    Topic::AfterStepDown,
    Topic::NewPrimary,
];

/// The time that a streaming hello may wait: the default of drivers.
const WAIT: Duration = Duration::from_secs(10);

/// The time that the primary stays away, and that another one may take to catch up.
const AWAY: i32 = 10;
const CATCH_UP: i32 = 8;

/// The time between questions who is primary now, and the number of these.
const PAUSE: Duration = Duration::from_millis(200);
const QUESTIONS: usize = 150;

/// Steps the primary down, while a stream and an idle connection look on.
pub(super) async fn ask(probe: &Probe) -> Result<(), Failure> {
    let mut witness = probe.open_logged_in().await?;
    let mut talk = probe.open_logged_in().await?;
    let Some(mut stream) = probe.open(&TOPICS).await else { return Ok(()) };
    let reply = stream.command(Topic::BeforeStepDown, probe.legacy_hello()).await;
    let version = reply.as_ref().and_then(version_of);
    let streamed = match &version {
        Some(version) => {
            let hello = Request::new(awaitable(version, WAIT), WAIT + probe.timeout);
            let hello = Request { flags: EXHAUST_ALLOWED, ..hello };
            Some((stream.connection.begin(&hello).await, hello.timeout))
        }
        None => {
            probe.not_asked(&[Topic::StepDownStream], "its hello has no topologyVersion");
            None
        }
    };
    let step_down = doc! {
        "replSetStepDown": AWAY, "secondaryCatchUpPeriodSecs": CATCH_UP, "$db": "admin",
    };
    let timeout = probe.timeout + Duration::from_secs(CATCH_UP.unsigned_abs().into());
    let stepping = talk.ask(Topic::StepDown, Request::new(step_down, timeout));
    let looking = async {
        let (mut exchange, timeout) = streamed?;
        while exchange.end.is_none()
            && !shows_another(&exchange)
            && stream.connection.listen(&mut exchange, timeout).await
        {}
        Some(exchange)
    };
    let (mut stepping, mut looking) = (pin!(stepping), pin!(looking));
    let (stepped, exchange) = tokio::select! {
        exchange = &mut looking => (stepping.await, exchange),
        stepped = &mut stepping => match stepped {
            Some(reply) => (Some(reply), looking.await),
            // There is nothing to be seen.
            None => (None, None),
        },
    };
    if let Some(exchange) = exchange {
        probe.note(Topic::StepDownStream, exchange);
    }
    witness.command(Topic::AfterStepDown, doc! { "ping": 1, "$db": "admin" }).await;
    if stepped.is_some() {
        find_primary(probe).await;
    }
    Ok(())
}

/// Returns whether the last reply of a stream is that of a server that is no primary.
fn shows_another(exchange: &Exchange) -> bool {
    let last = exchange.answers.last().and_then(|answer| answer.document.as_ref().ok());
    let is_primary = last.is_none_or(|reply| kind_of(reply) == Kind::Primary);
    // A server that does not stream has said all that it says.
    !is_primary || exchange.answers.last().is_some_and(|answer| answer.flags & 2 == 0)
}

/// Waits for the next primary, and notes its hello.
async fn find_primary(probe: &Probe) {
    for _ in 0..QUESTIONS {
        if let Some(address) = primary(probe).await
            && let Some((reply, exchange)) = hello(probe, &address).await
            && kind_of(&reply) == Kind::Primary
        {
            return probe.note(Topic::NewPrimary, exchange);
        }
        tokio::time::sleep(PAUSE).await;
    }
    probe.not_asked(&[Topic::NewPrimary], "there was no new primary");
}

/// Asks the server which member is primary now.
async fn primary(probe: &Probe) -> Option<ServerAddress> {
    let (reply, _) = hello(probe, &probe.address).await?;
    reply.get_str("primary").ok()?.parse().ok()
}

async fn hello(probe: &Probe, address: &ServerAddress) -> Option<(Document, Exchange)> {
    let mut connection = probe.dialer.open(address).await.ok()?;
    let exchange = connection.ask(probe.request(probe.legacy_hello())).await;
    let reply = exchange.answers.first()?.document.clone().ok()?;
    Some((reply, exchange))
}
