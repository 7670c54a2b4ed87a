//! The common parts of tests of pools: fail points, and events.

use sdam_core::bson::RawDocument;
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::pool::PoolEvent;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;
use sdam_host::{Events, Reply};
use sdam_tokio::Topology;

use crate::support::soon;

/// Runs a command on this very server, from a client of its own.
pub(crate) async fn tell(
    address: &str,
    command: &RawDocument,
) -> Result<Reply, Box<dyn std::error::Error>> {
    let uri = format!("mongodb://{address}/?directConnection=true&appName=operator");
    let client = Topology::new(Options::parse(&uri)?)?;
    let any = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let reply = client.run_command_on(any, "admin", command).await?;
    client.close().await;
    Ok(reply)
}

/// Waits for an event, and returns all up to it.
pub(crate) async fn until(
    events: &mut Events,
    wanted: impl Fn(&EventKind) -> bool,
) -> Vec<EventKind> {
    let mut seen = Vec::new();
    soon(async {
        loop {
            let event = events.next().await.expect("the client is open").kind;
            let done = wanted(&event);
            seen.push(event);
            if done {
                return;
            }
        }
    })
    .await;
    seen
}

/// Counts the events that are there already, and forgets them all.
pub(crate) fn count(events: &mut Events, counted: impl Fn(&EventKind) -> bool) -> usize {
    assert_eq!(events.dropped(), 0);
    std::iter::from_fn(|| events.try_next()).filter(|event| counted(&event.kind)).count()
}

pub(crate) fn is_cleared(event: &EventKind) -> bool {
    matches!(event, EventKind::Pool { event: PoolEvent::PoolCleared { .. }, .. })
}
