//! Indexes for Atlas Search (Index Management, "Search Indexes").
//!
//! Servers answer before the indexes are made, changed or dropped: list them until they are.
//! No read concern or write concern is sent: servers would refuse it.

use std::borrow::Cow;

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocumentBuf};
use sdam_core::wire::ReplyDocument;

use super::aggregate::Aggregate;
use super::collections::NAMESPACE_NOT_FOUND;
use super::fields::{Fields, Value, document, get, options};
use super::{Command, Facts, Operation, Progress, Route, Scope};
use crate::cursor::{CursorState, Timing};
use crate::error::{Error, ReplyError};
use crate::value::IntoDocument;

/// An index for searches: its definition, and perhaps its name and type.
#[derive(Clone, Debug)]
pub struct SearchIndexModel {
    definition: Value,
    options: Fields,
}

options! {
    SearchIndexModel {
        /// Sets the name of the index; the server calls it `default` without one.
        name: text = "name";
        /// Sets the type of the index, `search` or `vectorSearch`; the server takes the first
        /// without one.
        index_type: text = "type";
    }
}

impl SearchIndexModel {
    /// Describes an index by its definition.
    pub fn new(definition: impl IntoDocument) -> Self {
        Self { definition: document(definition), options: Fields::default() }
    }
}

/// The creation of indexes for searches.
#[derive(Clone, Debug)]
pub struct CreateSearchIndexes {
    models: Vec<SearchIndexModel>,
}

impl CreateSearchIndexes {
    /// Creates indexes.
    pub fn new(models: impl IntoIterator<Item = SearchIndexModel>) -> Self {
        Self { models: models.into_iter().collect() }
    }
}

impl Operation for CreateSearchIndexes {
    /// The names of the indexes.
    type Output = Vec<String>;

    fn name(&self) -> Cow<'static, str> {
        "createSearchIndexes".into()
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn command(&mut self, scope: &Scope, _: &Facts) -> Result<Command<'_>, Error> {
        let mut indexes = RawArrayBuf::new();
        for model in &self.models {
            let mut index = RawDocumentBuf::new();
            index.append(cstr!("definition"), get(&model.definition)?);
            model.options.write(&mut index, &[])?;
            indexes.push(index);
        }
        let mut body = super::on_collection(cstr!("createSearchIndexes"), scope);
        body.append(cstr!("indexes"), indexes);
        Ok(Command::run(scope, body))
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<Vec<String>>, Error> {
        let missing = |_| ReplyError { command: "createSearchIndexes", field: "indexesCreated" };
        let created = reply.get_array("indexesCreated").map_err(missing)?;
        let created = created.into_iter().filter_map(|index| index.ok()?.as_document());
        Ok(Progress::Done(created.filter_map(super::run::name).collect()))
    }
}

/// The removal of an index for searches; it is no error if there is none.
#[derive(Clone, Debug)]
pub struct DropSearchIndex {
    name: String,
}

impl DropSearchIndex {
    /// Drops the index of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

impl Operation for DropSearchIndex {
    type Output = ();

    fn name(&self) -> Cow<'static, str> {
        "dropSearchIndex".into()
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn command(&mut self, scope: &Scope, _: &Facts) -> Result<Command<'_>, Error> {
        let mut body = super::on_collection(cstr!("dropSearchIndex"), scope);
        body.append(cstr!("name"), self.name.as_str());
        Ok(Command::run(scope, body))
    }

    fn reply(&mut self, _: &Scope, _: &ReplyDocument) -> Result<Progress<()>, Error> {
        Ok(Progress::Done(()))
    }

    /// "Drivers MUST suppress NamespaceNotFound errors for the dropSearchIndex helper."
    fn failed(&mut self, error: Error) -> Result<Progress<()>, Error> {
        match error.code() {
            Some(NAMESPACE_NOT_FOUND) => Ok(Progress::Done(())),
            _ => Err(error),
        }
    }
}

/// The change of an index for searches.
#[derive(Clone, Debug)]
pub struct UpdateSearchIndex {
    name: String,
    definition: Value,
}

impl UpdateSearchIndex {
    /// Gives the index of this name another definition.
    pub fn new(name: impl Into<String>, definition: impl IntoDocument) -> Self {
        Self { name: name.into(), definition: document(definition) }
    }
}

impl Operation for UpdateSearchIndex {
    type Output = ();

    fn name(&self) -> Cow<'static, str> {
        "updateSearchIndex".into()
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn command(&mut self, scope: &Scope, _: &Facts) -> Result<Command<'_>, Error> {
        let mut body = super::on_collection(cstr!("updateSearchIndex"), scope);
        body.append(cstr!("name"), self.name.as_str());
        body.append(cstr!("definition"), get(&self.definition)?);
        Ok(Command::run(scope, body))
    }

    fn reply(&mut self, _: &Scope, _: &ReplyDocument) -> Result<Progress<()>, Error> {
        Ok(Progress::Done(()))
    }
}

/// The indexes for searches, as an aggregation lists them, with the options of one.
#[derive(Clone, Debug)]
pub struct ListSearchIndexes {
    aggregate: Aggregate,
}

impl ListSearchIndexes {
    /// Lists all indexes, or the one of this name; `with` sets options of the aggregation.
    pub fn new(name: Option<&str>, with: impl FnOnce(Aggregate) -> Aggregate) -> Self {
        let mut stage = RawDocumentBuf::new();
        if let Some(name) = name {
            stage.append(cstr!("name"), name);
        }
        let mut list = RawDocumentBuf::new();
        list.append(cstr!("$listSearchIndexes"), stage);
        Self { aggregate: with(Aggregate::new([list])) }
    }
}

impl Operation for ListSearchIndexes {
    type Output = CursorState;

    fn timing(&self) -> Timing {
        self.aggregate.timing()
    }

    fn name(&self) -> Cow<'static, str> {
        "aggregate".into()
    }

    fn route(&self) -> Route {
        Route::Read
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let command = self.aggregate.command(scope, facts)?;
        Ok(Command { takes_read_concern: false, ..command })
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<CursorState>, Error> {
        self.aggregate.reply(scope, reply)
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, majority, scope, written_in};
    use super::super::{Operation, Progress};
    use super::{
        CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, SearchIndexModel,
        UpdateSearchIndex,
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
        let mut list = ListSearchIndexes::new(Some("mine"), |list| list.batch_size(10));
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
