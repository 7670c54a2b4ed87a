//! Fixtures for the tests of operations.

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::config::{Acknowledgment, ReadConcern, WriteConcern};

use super::{Facts, Operation, Scope};

/// A server of MongoDB 8.2.
pub(crate) const NEW: Facts = Facts::of_wire_version(27);
/// A server of MongoDB 4.2.
pub(crate) const OLD: Facts = Facts::of_wire_version(8);

pub(crate) fn scope() -> Scope {
    Scope {
        database: "app".into(),
        collection: "things".into(),
        read_concern: ReadConcern::default(),
        write_concern: WriteConcern::default(),
        has_timeout: false,
    }
}

pub(crate) fn majority() -> Scope {
    let w = Some(Acknowledgment::Named("majority".to_owned()));
    Scope { write_concern: WriteConcern::default().with_w(w), ..scope() }
}

pub(crate) fn unacknowledged() -> Scope {
    let w = Some(Acknowledgment::Servers(0));
    Scope { write_concern: WriteConcern::default().with_w(w), ..scope() }
}

/// A command as it was written, with copies of its documents.
pub(crate) struct Written {
    pub(crate) body: RawDocumentBuf,
    pub(crate) sequences: Vec<(&'static str, Vec<RawDocumentBuf>)>,
}

/// Writes the next command of an operation on `app.things`.
pub(crate) fn written(operation: &mut impl Operation, facts: Facts) -> Written {
    written_in(operation, &scope(), facts)
}

/// Writes the next command of an operation, which has the name that the operation says it has.
pub(crate) fn written_in(operation: &mut impl Operation, scope: &Scope, facts: Facts) -> Written {
    let name = operation.command_name();
    let command = operation.command(scope, &facts).expect("it can be written");
    let first = command.body.iter().next().expect("it has a name").expect("it is BSON");
    assert_eq!(first.0.as_str(), name);
    let owned = |documents: &Vec<&RawDocument>| {
        documents.iter().map(|document| (*document).to_owned()).collect()
    };
    let sequences = command.sequences.iter().map(|(name, documents)| (*name, owned(documents)));
    Written { sequences: sequences.collect(), body: command.body }
}
