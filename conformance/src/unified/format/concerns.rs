//! Concerns and read preferences of operations, transactions and collections, as values (Unified
//! Test Format, "Common Options").

use std::time::Duration;

use bson::Bson;
use sdam_core::config::{
    Acknowledgment, ReadConcern, ReadMode, ReadPreference, TagSet, WriteConcern,
};
use sdam_core::session::TransactionOptions;

use super::error::FormatError;
use super::object::{Node, Object};

/// Reads a read concern.
///
/// # Errors
///
/// Fails if it has other fields than a level.
pub fn read_concern(node: Node) -> Result<ReadConcern, FormatError> {
    let mut object = node.object()?;
    let level = object.optional("level", Node::string)?;
    object.finish()?;
    Ok(ReadConcern::default().with_level(level))
}

/// Reads a write concern.
///
/// # Errors
///
/// Fails if it has fields that a write concern has not.
pub fn write_concern(node: Node) -> Result<WriteConcern, FormatError> {
    let mut object = node.object()?;
    let time = object.optional("wtimeoutMS", Node::count)?;
    let concern = WriteConcern::default()
        .with_w(object.optional("w", acknowledgment)?)
        .with_journal(object.optional("journal", Node::boolean)?)
        .with_timeout(time.map(Duration::from_millis));
    object.finish()?;
    Ok(concern)
}

fn acknowledgment(node: Node) -> Result<Acknowledgment, FormatError> {
    match node.clone().any()? {
        Bson::String(name) => Ok(Acknowledgment::Named(name)),
        _ => {
            let too_many = node.refuse("must be a number of servers");
            let members = u32::try_from(node.count()?).map_err(|_| too_many)?;
            Ok(Acknowledgment::Servers(members))
        }
    }
}

/// Reads a read preference.
///
/// # Errors
///
/// Fails if it has no mode, or what goes with none.
pub fn read_preference(node: Node) -> Result<ReadPreference, FormatError> {
    const MODES: [ReadMode; 5] = [
        ReadMode::Primary,
        ReadMode::PrimaryPreferred,
        ReadMode::Secondary,
        ReadMode::SecondaryPreferred,
        ReadMode::Nearest,
    ];
    let mut object = node.object()?;
    let name = object.required("mode", Node::string)?;
    let mode = MODES.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(&name));
    let mode = mode.ok_or_else(|| object.broken(format!("has {name:?}, which is no mode")))?;
    let sets = object.optional("tagSets", |node| node.list(tag_set))?;
    let staleness = object.optional("maxStalenessSeconds", Node::count)?;
    let refused = |error: &dyn std::fmt::Display| object.broken(format!("is refused: {error}"));
    let mut preference = ReadPreference::new(mode);
    if let Some(sets) = sets {
        preference = preference.with_tag_sets(sets).map_err(|error| refused(&error))?;
    }
    if let Some(seconds) = staleness {
        let staleness = Duration::from_secs(seconds);
        preference = preference.with_max_staleness(staleness).map_err(|error| refused(&error))?;
    }
    object.finish()?;
    Ok(preference)
}

fn tag_set(node: Node) -> Result<TagSet, FormatError> {
    let text = |value: &Bson| value.as_str().unwrap_or_default().to_owned();
    Ok(node.document()?.iter().map(|(key, value)| (key.clone(), text(value))).collect())
}

/// Reads the options of a transaction that stand among others.
///
/// # Errors
///
/// Fails if one of them is refused.
pub fn transaction_options(object: &mut Object) -> Result<TransactionOptions, FormatError> {
    let time = object.optional("maxCommitTimeMS", Node::count)?;
    Ok(TransactionOptions::default()
        .with_read_concern(object.optional("readConcern", read_concern)?)
        .with_write_concern(object.optional("writeConcern", write_concern)?)
        .with_read_preference(object.optional("readPreference", read_preference)?)
        .with_max_commit_time(time.map(Duration::from_millis)))
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};
    use sdam_core::config::{Acknowledgment, ReadMode};

    use super::{read_preference, transaction_options, write_concern};
    use crate::unified::format::Node;

    #[test]
    fn concerns_are_read_strictly() {
        let write = |document: Document| write_concern(Node::at("writeConcern", document));
        let given = write(doc! { "w": 2, "journal": true, "wtimeoutMS": 5000 }).expect("a concern");
        assert_eq!(given.w, Some(Acknowledgment::Servers(2)));
        assert_eq!((given.journal, given.timeout.map(|it| it.as_secs())), (Some(true), Some(5)));
        let named = write(doc! { "w": "majority" }).expect("a concern");
        assert_eq!(named.w, Some(Acknowledgment::Named("majority".into())));
        assert!(write(doc! { "w": -1 }).is_err() && write(doc! { "fast": 1 }).is_err());
        let read = |document: Document| read_preference(Node::at("readPreference", document));
        let mode = read(doc! { "mode": "primarypreferred" }).map(|it| it.mode());
        assert_eq!(mode.expect("a mode"), ReadMode::PrimaryPreferred);
        assert!(read(doc! { "mode": "fastest" }).is_err());
        assert!(read(doc! { "mode": "primary", "tagSets": [{ "dc": "ny" }] }).is_err());
    }

    #[test]
    fn options_of_a_transaction_leave_others_unread() {
        let given = doc! { "maxCommitTimeMS": 60, "readConcern": { "level": "snapshot" }, "x": 1 };
        let mut object = Node::at("arguments", given).object().expect("an object");
        let options = transaction_options(&mut object).expect("options");
        assert_eq!(options.max_commit_time.map(|it| it.as_millis()), Some(60));
        let level = options.read_concern.and_then(|it| it.level);
        assert_eq!(level.as_deref(), Some("snapshot"));
        assert_eq!(options.write_concern, None);
        assert_eq!(object.rest(), doc! { "x": 1 });
    }
}
