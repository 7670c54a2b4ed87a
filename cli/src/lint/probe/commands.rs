//! Commands that write nothing.

use sdam_core::bson::{Bson, Document, doc};
use sdam_core::failure::Failure;

use super::{DATABASE, Probe, with};
use crate::lint::evidence::{Kind, Topic};

/// The number of a cursor that there is not.
const NO_CURSOR: i64 = 4_242_424_242_424_242;

/// The topics about data, which some members do not bear.
const OF_DATA: [Topic; 11] = [
    Topic::WrongType,
    Topic::FindNothing,
    Topic::BareFind,
    Topic::UnknownCursor,
    Topic::KillUnknown,
    Topic::StartSession,
    Topic::WithSession,
    Topic::EndSessions,
    Topic::UnknownTransaction,
    Topic::Gossip,
    Topic::SecondaryWrite,
];

/// Runs all of them as an application would.
pub(super) async fn ask(probe: &Probe) -> Result<(), Failure> {
    let mut talk = probe.open_logged_in().await?;
    let ping = doc! { "ping": 1, "$db": "admin" };
    let reply = talk.command(Topic::Ping, ping.clone()).await;
    talk.command(Topic::UnknownCommand, doc! { "sdamLintNoCommand": 1, "$db": "admin" }).await;
    if !probe.bears_data() {
        probe.not_asked(&OF_DATA, "it bears no data");
        return Ok(());
    }
    let nothing = format!("{}_nothing", probe.collection());
    talk.command(Topic::WrongType, with(probe.find(&nothing), doc! { "filter": "x" })).await;
    talk.command(Topic::FindNothing, probe.find(&nothing)).await;
    let mut bare = probe.find(&nothing);
    bare.remove("$readPreference");
    talk.command(Topic::BareFind, bare).await;
    let cursor = Bson::Int64(NO_CURSOR);
    let more = doc! { "getMore": cursor.clone(), "collection": &nothing, "$db": DATABASE };
    talk.command(Topic::UnknownCursor, more).await;
    let kill = doc! { "killCursors": &nothing, "cursors": [cursor], "$db": DATABASE };
    talk.command(Topic::KillUnknown, kill).await;
    let lsid = probe.session(1);
    talk.command(Topic::WithSession, with(probe.find(&nothing), doc! { "lsid": lsid.clone() }))
        .await;
    let started = talk.command(Topic::StartSession, doc! { "startSession": 1, "$db": "admin" });
    let started = started.await.and_then(|reply| reply.get_document("id").ok().cloned());
    // An id of another kind breaks another rule.
    let is_id = |id: &Document| id.get_binary_generic("id").is_err() && id.contains_key("id");
    let ended: Vec<_> = started.into_iter().filter(is_id).chain([lsid]).collect();
    talk.command(Topic::EndSessions, doc! { "endSessions": ended, "$db": "admin" }).await;
    match reply.as_ref().and_then(|reply| reply.get("$clusterTime")) {
        Some(time) => {
            talk.command(Topic::Gossip, with(ping, doc! { "$clusterTime": time.clone() })).await;
        }
        None => probe.not_asked(&[Topic::Gossip], "its reply has no $clusterTime"),
    }
    if probe.kind() == Some(Kind::Primary) {
        let mut find = probe.find(&nothing);
        find.remove("$readPreference");
        let transaction =
            doc! { "lsid": probe.session(2), "txnNumber": 1_i64, "autocommit": false };
        talk.command(Topic::UnknownTransaction, with(find, transaction)).await;
    }
    Ok(())
}
