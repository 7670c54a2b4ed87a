//! Indexes for Atlas Search (Index Management, "Search Indexes").
//!
//! Servers answer before the indexes are made, changed or dropped: list them until they are.
//! No read concern or write concern is sent: servers would refuse it.

use bson::raw::{CStr, cstr};
use bson::{Bson, Document, RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::wire::ReplyDocument;

use super::Scope;
use super::aggregate::{Aggregate, AggregateOptions};
use super::arguments::{Arguments, FromArguments, Options, read};
use super::collections::NAMESPACE_NOT_FOUND;
use super::fields::{Fields, get};
use super::single::{Body, Rules, SingleCommand};
use crate::cursor::{CursorState, Timing};
use crate::error::{ArgumentError, Error, ReplyError};

operation! {
    /// An index for searches: its definition, and perhaps its name and type.
    #[derive(Clone, Debug)]
    pub struct SearchIndexModel {}

    arguments {
        /// Describes an index by its definition.
        new(definition: document = "definition");
    }

    options {
        /// Sets the name of the index; the server calls it `default` without one.
        name: text = "name";
        /// Sets the type of the index, `search` or `vectorSearch`; the server takes the first
        /// without one.
        index_type: text = "type";
    }
}

/// The creation of indexes for searches.
#[derive(Clone, Debug)]
pub struct CreateSearchIndexes {
    models: Vec<SearchIndexModel>,
    options: Fields,
}

operation! {
    pub struct CreateSearchIndexes;

    options {}
}

impl CreateSearchIndexes {
    /// Creates indexes.
    pub fn new(models: impl IntoIterator<Item = SearchIndexModel>) -> Self {
        Self { models: models.into_iter().collect(), options: Fields::default() }
    }
}

impl FromArguments for CreateSearchIndexes {
    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        let models = arguments.required::<Vec<Document>>("models")?.into_iter();
        Ok(Self::new(models.map(SearchIndexModel::from_document).collect::<Result<Vec<_>, _>>()?))
    }
}

from_document!(CreateSearchIndexes);

impl SingleCommand for CreateSearchIndexes {
    /// The names of the indexes.
    type Output = Vec<String>;

    const COMMAND: &'static CStr = cstr!("createSearchIndexes");
    const RULES: Rules = Rules::RUN;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        let mut indexes = RawArrayBuf::new();
        for model in &self.models {
            let mut index = RawDocumentBuf::new();
            index.append(cstr!("definition"), get(&model.definition)?);
            model.options.write(&mut index)?;
            indexes.push(index);
        }
        body.append(cstr!("indexes"), indexes);
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Vec<String>, Error> {
        let missing = |_| ReplyError::new(Self::COMMAND.as_str(), "indexesCreated");
        let created = reply.get_array("indexesCreated").map_err(missing)?;
        let created = created.into_iter().filter_map(|index| index.ok()?.as_document());
        Ok(created.filter_map(super::run::name).collect())
    }
}

operation! {
    /// The removal of an index for searches; it is no error if there is none.
    #[derive(Clone, Debug)]
    pub struct DropSearchIndex {}

    arguments {
        /// Drops the index of this name.
        new(name: text = "name");
    }

    options {}
}

impl SingleCommand for DropSearchIndex {
    type Output = ();

    const COMMAND: &'static CStr = cstr!("dropSearchIndex");
    const RULES: Rules = Rules::RUN;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.append(cstr!("name"), self.name.as_str());
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, _: &ReplyDocument) -> Result<(), Error> {
        Ok(())
    }

    /// "Drivers MUST suppress NamespaceNotFound errors for the dropSearchIndex helper."
    fn read_code(&self, code: i32) -> Option<()> {
        (code == NAMESPACE_NOT_FOUND).then_some(())
    }
}

operation! {
    /// The change of an index for searches.
    #[derive(Clone, Debug)]
    pub struct UpdateSearchIndex {}

    arguments {
        /// Gives the index of this name another definition.
        new(name: text = "name", definition: document = "definition");
    }

    options {}
}

impl SingleCommand for UpdateSearchIndex {
    type Output = ();

    const COMMAND: &'static CStr = cstr!("updateSearchIndex");
    const RULES: Rules = Rules::RUN;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.append(cstr!("name"), self.name.as_str());
        body.append(cstr!("definition"), get(&self.definition)?);
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, _: &ReplyDocument) -> Result<(), Error> {
        Ok(())
    }
}

/// The indexes for searches, as an aggregation lists them, with the options of one.
#[derive(Clone, Debug)]
pub struct ListSearchIndexes {
    aggregate: Aggregate,
}

impl ListSearchIndexes {
    /// Lists all indexes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists the index of this name alone.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.aggregate = self.aggregate.with_stage(stage(&rawdoc! { "name": name.into() }));
        self
    }

    /// Sets options of the aggregation.
    #[must_use]
    pub fn with_options(mut self, options: impl Into<Option<AggregateOptions>>) -> Self {
        self.aggregate = self.aggregate.with_options(options);
        self
    }
}

impl Default for ListSearchIndexes {
    fn default() -> Self {
        Self { aggregate: Aggregate::new([stage(&RawDocumentBuf::new())]) }
    }
}

fn stage(of: &RawDocument) -> RawDocumentBuf {
    rawdoc! { "$listSearchIndexes": of.to_owned() }
}

impl Options for ListSearchIndexes {
    const OPTIONS: &'static [&'static str] = &["name", "aggregationOptions"];

    fn set(self, name: &str, value: Bson) -> Result<Self, ArgumentError> {
        match name {
            "name" => Ok(self.name(read::<String>(name, value)?)),
            "aggregationOptions" => {
                Ok(self.with_options(AggregateOptions::from_document(read(name, value)?)?))
            }
            _ => Err(ArgumentError::UnknownArgument {
                name: name.to_owned(),
                known: Self::OPTIONS.to_vec(),
            }),
        }
    }
}

impl FromArguments for ListSearchIndexes {
    fn required(_: &mut Arguments) -> Result<Self, ArgumentError> {
        Ok(Self::new())
    }
}

from_document!(ListSearchIndexes);

impl SingleCommand for ListSearchIndexes {
    type Output = CursorState;

    const COMMAND: &'static CStr = Aggregate::COMMAND;
    const RULES: Rules = Rules { reads: false, ..Aggregate::RULES };

    fn cursor_timing(&self) -> Timing {
        self.aggregate.cursor_timing()
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        self.aggregate.write(body)
    }

    fn read(&mut self, scope: &Scope, reply: &ReplyDocument) -> Result<CursorState, Error> {
        self.aggregate.read(scope, reply)
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, majority, scope, written_in};
    use super::super::{Operation, Progress};
    use super::{
        AggregateOptions, CreateSearchIndexes, DropSearchIndex, ListSearchIndexes,
        SearchIndexModel, UpdateSearchIndex,
    };

    /// Index Management: "Drivers MUST NOT apply a read concern or write concern to the commands."
    #[test]
    fn commands_have_no_concern() {
        let models = [
            SearchIndexModel::new(doc! { "a": 1 }),
            SearchIndexModel::new(doc! { "b": 1 }).name("mine").index_type("vectorSearch"),
        ];
        let mut create = CreateSearchIndexes::new(models);
        let expected = rawdoc! {
            "createSearchIndexes": "things",
            "indexes": [
                { "definition": { "a": 1 } },
                { "definition": { "b": 1 }, "name": "mine", "type": "vectorSearch" },
            ],
        };
        assert_eq!(written_in(&mut create, &majority(), NEW).body, expected);
        let mut update = UpdateSearchIndex::new("mine", doc! { "a": 1 });
        let expected = rawdoc! {
            "updateSearchIndex": "things", "name": "mine", "definition": { "a": 1 },
        };
        assert_eq!(written_in(&mut update, &majority(), NEW).body, expected);
        let mut drop = DropSearchIndex::new("mine");
        let expected = rawdoc! { "dropSearchIndex": "things", "name": "mine" };
        assert_eq!(written_in(&mut drop, &majority(), NEW).body, expected);
        let mut list = ListSearchIndexes::new()
            .with_options(AggregateOptions::builder().batch_size(10).build())
            .name("mine");
        let expected = rawdoc! {
            "aggregate": "things",
            "pipeline": [{ "$listSearchIndexes": { "name": "mine" } }],
            "cursor": { "batchSize": 10 },
        };
        let command = list.command(&scope(), &NEW).unwrap();
        assert!(!command.takes_read_concern);
        assert_eq!(command.body, expected);
        let created = rawdoc! { "indexesCreated": [{ "id": "1", "name": "default" }] };
        let names = create.reply(&scope(), &ReplyDocument::from(created)).unwrap();
        assert_eq!(names, Progress::Done(vec!["default".to_owned()]));
    }
}
