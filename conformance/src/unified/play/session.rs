//! Options of sessions (Unified Test Format, "entity_session").

use std::time::Duration;

use bson::{Bson, Document, Timestamp};
use sdam_core::session::SessionOptions;

use super::entities::Entities;
use super::wrong;
use crate::spec::Difference;
use crate::unified::format::concerns::transaction_options;
use crate::unified::format::{FormatError, Node};
use crate::unified::matching::Entities as _;

/// Reads the options of a session; the time of a snapshot is that of an entity.
pub(super) fn options(
    entities: &Entities,
    place: &str,
    options: Document,
) -> Result<SessionOptions, Difference> {
    let place = format!("{place}.sessionOptions");
    let read = || {
        let mut object = Node::at(place.clone(), Bson::Document(options)).object()?;
        let causal = object.optional("causalConsistency", Node::boolean)?;
        let snapshot = object.optional("snapshot", Node::boolean)?.unwrap_or_default();
        let time = object.optional("snapshotTime", Node::string)?;
        let of_transactions = object.optional("defaultTransactionOptions", |node| {
            let mut object = node.object()?;
            let options = transaction_options(&mut object)?;
            object.finish()?;
            Ok(options)
        })?;
        let limit = object.optional("defaultTimeoutMS", Node::count)?;
        object.finish()?;
        let options = SessionOptions::default()
            .with_causal_consistency(causal)
            .with_snapshot(snapshot)
            .with_default_transaction_options(of_transactions)
            .with_default_timeout(limit.map(Duration::from_millis));
        Ok((options, time))
    };
    let (options, time) = read()
        .map_err(|error: FormatError| wrong(place.clone(), "options that a session has", error))?;
    let time = time.map(|name| saved_time(entities, &place, &name)).transpose()?;
    Ok(options.with_snapshot_time(time))
}

fn saved_time(entities: &Entities, place: &str, name: &str) -> Result<Timestamp, Difference> {
    match entities.value(name) {
        Some(Bson::Timestamp(time)) => Ok(time),
        found => {
            let found = found.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
            Err(wrong(place, format!("a time called {name:?}"), found))
        }
    }
}
