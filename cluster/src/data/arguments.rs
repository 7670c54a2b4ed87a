//! The arguments of commands that are about data.

use bson::{Bson, Document};
use sdam_core::bson;

use super::session_id;
use crate::store::{Owner, check_namespace, check_writable, whole};
use crate::wire::{CommandError, Request};

/// The commands that refuse the collections of the server's own.
const WRITES: [&str; 7] =
    ["insert", "update", "delete", "findAndModify", "findandmodify", "create", "createIndexes"];

/// The commands that read, and refuse a collection whose name has a dollar sign.
const READS: [&str; 3] = ["find", "count", "distinct"];

/// A command with all its documents, wherever the message has them.
#[derive(Clone, Debug)]
pub(super) struct Arguments {
    pub(super) body: Document,
    pub(super) database: String,
    /// The documents to be inserted that have two `_id`s, by index, ascending: `body` has the last
    /// one only.
    pub(super) twice_identified: Vec<usize>,
    /// The id of the session in whose transaction the command is.
    pub(super) transaction: Option<Vec<u8>>,
}

impl Arguments {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// Fails with `InvalidBSON` if a document of it is none.
    pub(super) fn read(request: &Request<'_>) -> Result<Self, CommandError> {
        let database = request.database.unwrap_or_default().to_owned();
        let twice_identified = request.twice_identified();
        let body = request.whole()?;
        let transaction = session_id(&body).filter(|_| request.is_in_transaction());
        Ok(Self { body, database, twice_identified, transaction })
    }

    /// Returns whether the document to be inserted at this index has two `_id`s.
    pub(super) fn has_two_ids(&self, index: usize) -> bool {
        self.twice_identified.binary_search(&index).is_ok()
    }

    /// Returns to whom a cursor belongs that this command opens or goes on with.
    pub(super) fn owner(&self) -> Owner {
        let number = self.body.get_i64("txnNumber").ok();
        let transaction = number.filter(|_| self.transaction.is_some());
        Owner { session: session_id(&self.body), transaction }
    }

    /// Returns the namespace of the collection that this field names.
    ///
    /// # Errors
    ///
    /// Fails with `InvalidNamespace` if it names none.
    pub(super) fn namespace(&self, field: &str) -> Result<String, CommandError> {
        let name = match self.body.get(field) {
            Some(Bson::String(name)) => name,
            Some(other) => {
                let reason = format!("collection name has invalid type {other:?}");
                return Err(CommandError::coded(73, reason));
            }
            None => "",
        };
        let namespace = format!("{}.{name}", self.database);
        check_namespace(&namespace)?;
        if WRITES.contains(&field) {
            check_writable(&namespace)?;
        }
        if READS.contains(&field) && name.contains('$') {
            let reason = format!("Invalid collection name specified '{namespace}");
            return Err(CommandError::coded(73, reason));
        }
        Ok(namespace)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        flag(&self.body, name)
    }

    pub(super) fn document(&self, name: &str) -> Result<Option<&Document>, CommandError> {
        document(&self.body, name)
    }

    /// Returns a number from 0 on.
    ///
    /// # Errors
    ///
    /// Fails as servers do if it is another, or none.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, CommandError> {
        count(&self.body, name)
    }

    /// Returns the statements of a write.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or more than `most`.
    pub(super) fn statements(&self, field: &str, most: i32) -> Result<Vec<Document>, CommandError> {
        let most = usize::try_from(most).unwrap_or_default();
        let wrong = || CommandError::numbered(40414, format!("BSON field '{field}' is missing"));
        let list = self.body.get_array(field).map_err(|_| wrong())?;
        if list.is_empty() || list.len() > most {
            let reason = format!(
                "Write batch sizes must be between 1 and {most}. Got {} operations.",
                list.len()
            );
            return Err(CommandError::coded(16, reason));
        }
        let statements = list.iter().map(|it| {
            let wrong = || CommandError::coded(14, format!("{field} has documents only"));
            it.as_document().cloned().ok_or_else(wrong)
        });
        statements.collect()
    }
}

pub(super) fn flag(document: &Document, name: &str) -> bool {
    document.get(name).is_some_and(|it| crate::store::is_true(Some(it)))
}

pub(super) fn document<'a>(
    document: &'a Document,
    name: &str,
) -> Result<Option<&'a Document>, CommandError> {
    match document.get(name) {
        None | Some(Bson::Null) => Ok(None),
        Some(Bson::Document(inner)) => Ok(Some(inner)),
        Some(_) => {
            let reason = format!("BSON field '{name}' is the wrong type, expected type 'object'");
            Err(CommandError::coded(14, reason))
        }
    }
}

pub(super) fn count(document: &Document, name: &str) -> Result<Option<usize>, CommandError> {
    let Some(value) = document.get(name) else { return Ok(None) };
    match whole(value) {
        Some(number @ 0..) => Ok(Some(usize::try_from(number).unwrap_or(usize::MAX))),
        Some(number) => {
            let reason = format!("BSON field '{name}' value must be >= 0, actual value '{number}'");
            Err(CommandError::numbered(51024, reason))
        }
        None => Err(CommandError::coded(14, format!("{name} is not a whole number"))),
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::Document;

    use super::Arguments;

    /// A walk through the list for each document would take hours.
    #[test]
    fn documents_with_two_ids_are_found_by_halves() {
        const COUNT: usize = 1 << 20;
        let arguments = Arguments {
            body: Document::new(),
            database: "app".to_owned(),
            twice_identified: (0..COUNT).map(|index| 2 * index + 1).collect(),
            transaction: None,
        };
        let found = (0..2 * COUNT).filter(|index| arguments.has_two_ids(*index));
        assert!(found.eq(arguments.twice_identified.iter().copied()));
    }
}
