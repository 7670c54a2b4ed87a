//! Single writes, as bulks of writes have them (CRUD, "Write Models"; Bulk Write, "Write Models").

use bson::raw::{CStr, cstr};
use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf};
use serde::Serialize;

use super::aggregate::first_key;
use super::arguments::read;
use super::bounded::Bounded;
use super::fields::{Fields, Value, get};
use crate::error::{ArgumentError, Error};

/// A single write of a bulk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WriteModel {
    /// Inserts a document.
    InsertOne(InsertModel),
    /// Updates the first document that a filter matches.
    UpdateOne(UpdateModel),
    /// Updates all documents that a filter matches.
    UpdateMany(UpdateModel),
    /// Replaces the first document that a filter matches.
    ReplaceOne(ReplaceModel),
    /// Deletes the first document that a filter matches.
    DeleteOne(DeleteModel),
    /// Deletes all documents that a filter matches.
    DeleteMany(DeleteModel),
}

operation! {
    /// The insertion of a document.
    #[derive(Clone, Debug)]
    pub struct InsertModel {}

    arguments {
        /// Inserts a document, with an `_id` if it has none: the document itself, or a reference.
        new(document: serialized = "document");
    }

    options {}
}

operation! {
    /// An update of documents.
    #[derive(Clone, Debug)]
    pub struct UpdateModel {}

    arguments {
        /// Updates what a filter matches, by operators or a pipeline.
        new(filter: document = "filter", modifications: modifications = "update");
    }

    options {
        /// Sets which elements of arrays are updated.
        array_filters: documents = "arrayFilters";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the order, of which the first document is updated (MongoDB 8.0); not for all of
        /// them.
        sort: document = "sort";
        /// Inserts a document if none matches.
        upsert: bool = "upsert";
    }
}

operation! {
    /// The replacement of a document.
    #[derive(Clone, Debug)]
    pub struct ReplaceModel {}

    arguments {
        /// Replaces the document that a filter matches by another one, or by a reference to it.
        new(filter: document = "filter", replacement: serialized = "replacement");
    }

    options {
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the order, of which the first document is replaced (MongoDB 8.0).
        sort: document = "sort";
        /// Inserts the document if none matches.
        upsert: bool = "upsert";
    }
}

operation! {
    /// The deletion of documents.
    #[derive(Clone, Debug)]
    pub struct DeleteModel {}

    arguments {
        /// Deletes what a filter matches.
        new(filter: document = "filter");
    }

    options {
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Sets the index to be used.
        hint: hint = "hint";
    }
}

impl UpdateModel {
    pub(crate) fn parts(&self, multi: bool) -> Result<Parts<'_>, Error> {
        self.options.check()?;
        let modifications = update(&self.modifications)?;
        Ok(Parts::Update {
            filter: get(&self.filter)?,
            modifications,
            multi,
            options: &self.options,
        })
    }
}

impl ReplaceModel {
    pub(crate) fn parts(&self) -> Result<Parts<'_>, Error> {
        self.options.check()?;
        let modifications = replacement(&self.replacement)?;
        let (filter, options) = (get(&self.filter)?, &self.options);
        Ok(Parts::Update { filter, modifications, multi: false, options })
    }
}

impl DeleteModel {
    pub(crate) fn parts(&self, multi: bool) -> Result<Parts<'_>, Error> {
        self.options.check()?;
        Ok(Parts::Delete { filter: get(&self.filter)?, multi, options: &self.options })
    }
}

/// The parts of a single write, after its arguments were found to be valid.
pub(crate) enum Parts<'a> {
    Insert(&'a RawDocument),
    Update {
        filter: RawBsonRef<'a>,
        modifications: RawBsonRef<'a>,
        multi: bool,
        options: &'a Fields,
    },
    Delete {
        filter: RawBsonRef<'a>,
        multi: bool,
        options: &'a Fields,
    },
}

impl WriteModel {
    /// Reads it from a document with one field: the name of the write, `updateOne` for one, with
    /// its arguments.
    ///
    /// # Errors
    ///
    /// Fails if there is no write of this name, and if one of its arguments is missing, unknown or
    /// of another type.
    pub fn from_document(write: Document) -> Result<Self, ArgumentError> {
        const KNOWN: &[&str] =
            &["insertOne", "updateOne", "updateMany", "replaceOne", "deleteOne", "deleteMany"];
        let single = <[_; 1]>::try_from(Vec::from_iter(write));
        let [(name, arguments)] = single.map_err(|_| ArgumentError::WrongType {
            name: "write".to_owned(),
            expected: "a document with one field, such as updateOne",
        })?;
        if !KNOWN.contains(&name.as_str()) {
            return Err(ArgumentError::UnknownArgument { name, known: KNOWN.to_vec() });
        }
        let arguments = read(&name, arguments)?;
        Ok(match name.as_str() {
            "insertOne" => Self::InsertOne(InsertModel::from_document(arguments)?),
            "updateOne" => Self::UpdateOne(UpdateModel::from_document(arguments)?),
            "updateMany" => Self::UpdateMany(UpdateModel::from_document(arguments)?),
            "replaceOne" => Self::ReplaceOne(ReplaceModel::from_document(arguments)?),
            "deleteOne" => Self::DeleteOne(DeleteModel::from_document(arguments)?),
            _ => Self::DeleteMany(DeleteModel::from_document(arguments)?),
        })
    }

    pub(crate) fn parts(&self) -> Result<Parts<'_>, Error> {
        match self {
            Self::InsertOne(insert) => {
                insert.options.check()?;
                let document = get(&insert.document)?.as_document();
                Ok(Parts::Insert(document.expect("it was written as a document")))
            }
            Self::UpdateOne(update) => update.parts(false),
            Self::UpdateMany(update) => update.parts(true),
            Self::ReplaceOne(replace) => replace.parts(),
            Self::DeleteOne(delete) => delete.parts(false),
            Self::DeleteMany(delete) => delete.parts(true),
        }
    }
}

/// The options of a statement, other than those of its command.
pub(crate) const OF_STATEMENT: [&CStr; 5] =
    [cstr!("arrayFilters"), cstr!("collation"), cstr!("hint"), cstr!("sort"), cstr!("upsert")];

impl Parts<'_> {
    /// Returns whether the write is about more than one document, so that it is not repeated
    /// (Retryable Writes, "Supported Write Operations").
    pub(crate) const fn is_multi(&self) -> bool {
        match self {
            Self::Insert(_) => false,
            Self::Update { multi, .. } | Self::Delete { multi, .. } => *multi,
        }
    }

    /// Writes the statement of an update or a delete command; an insertion is its document.
    pub(crate) fn statement(&self) -> Result<RawDocumentBuf, Error> {
        let mut statement = RawDocumentBuf::new();
        match self {
            Self::Insert(document) => return Ok((*document).to_owned()),
            Self::Update { filter, modifications, multi, options } => {
                statement.append(cstr!("q"), *filter);
                statement.append(cstr!("u"), *modifications);
                if *multi {
                    statement.append(cstr!("multi"), true);
                }
                options.write_only(&mut statement, &OF_STATEMENT)?;
            }
            Self::Delete { filter, multi, options } => {
                statement.append(cstr!("q"), *filter);
                statement.append(cstr!("limit"), i32::from(!*multi));
                options.write_only(&mut statement, &OF_STATEMENT)?;
            }
        }
        Ok(statement)
    }

    /// Returns whether the write is a deletion that names an index.
    pub(crate) fn is_hinted_delete(&self) -> bool {
        matches!(self, Self::Delete { options, .. } if options.has(cstr!("hint")))
    }
}

/// Returns the length of the document that an update stores for certain: that of a replacement; 0
/// if it has operators, or is a pipeline.
pub(crate) fn stored_len(modifications: Option<RawBsonRef<'_>>) -> usize {
    let document = modifications.and_then(RawBsonRef::as_document);
    let replacement =
        |document: &&RawDocument| first_key(document).is_none_or(|key| !key.starts_with('$'));
    document.filter(replacement).map_or(0, |document| document.as_bytes().len())
}

/// Returns a value of the application's as a document.
pub(crate) fn serialized(value: &impl Serialize) -> Value {
    bson::serialize_to_raw_document_buf(&Bounded::new(value)).into()
}

/// "an update document MUST have only atomic modifiers": an error if it is empty, or if its first
/// key does not start with `$`; pipelines are for the server to judge.
pub(crate) fn update(modifications: &Value) -> Result<RawBsonRef<'_>, Error> {
    let modifications = get(modifications)?;
    let Some(document) = modifications.as_document() else { return Ok(modifications) };
    match first_key(document) {
        Some(key) if key.starts_with('$') => Ok(modifications),
        _ => Err(ArgumentError::UpdateWithoutOperator.into()),
    }
}

/// "the replacement document parameter MUST NOT begin with an atomic modifier"
pub(crate) fn replacement(replacement: &Value) -> Result<RawBsonRef<'_>, Error> {
    let replacement = get(replacement)?;
    match replacement.as_document().and_then(first_key) {
        Some(key) if key.starts_with('$') => {
            Err(ArgumentError::ReplacementWithOperator(key.to_owned()).into())
        }
        _ => Ok(replacement),
    }
}
