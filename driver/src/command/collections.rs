//! Collections: enumerated, created, changed, renamed, dropped (Enumerate Collections).

use std::borrow::Cow;

use bson::RawDocumentBuf;
use bson::raw::cstr;
use sdam_core::wire::ReplyDocument;

use super::fields::{Fields, Value, document, get, options};
use super::{
    Command, Facts, Operation, Progress, Route, Scope, check_name, check_namespace, find, left_out,
};
use crate::cursor::{CursorState, Settings, TimeoutMode, Timing};
use crate::error::{Error, WriteConcernError};
use crate::value::IntoDocument;

/// The collections of a database.
///
/// Documents that describe indexes have no field `ns` since MongoDB 4.4.
#[derive(Clone, Debug, Default)]
pub struct ListCollections {
    filter: Option<Value>,
    names_only: bool,
    options: Fields,
    timeout_mode: Option<TimeoutMode>,
    settings: Settings,
}

options! {
    ListCollections {
        /// Leaves out collections that the user may not use, and needs fewer privileges for that.
        authorized_collections: truth = "authorizedCollections";
        /// Sets how many documents a batch has.
        batch_size: int = "batchSize";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Describes time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: truth = "rawData";
    }
}

impl ListCollections {
    /// Sets what `timeoutMS` limits.
    #[must_use]
    pub const fn timeout_mode(mut self, mode: TimeoutMode) -> Self {
        self.timeout_mode = Some(mode);
        self
    }

    /// Asks for all collections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for those only that a filter matches.
    #[must_use]
    pub fn filter(mut self, filter: impl IntoDocument) -> Self {
        self.filter = Some(document(filter));
        self
    }

    /// Asks for names alone, where the filter allows it: "drivers MUST NOT set nameOnly if a filter
    /// specifies any keys other than name".
    #[must_use]
    pub const fn names(mut self) -> Self {
        self.names_only = true;
        self
    }

    /// Returns whether the filter asks for nothing but names.
    fn is_by_name(&self) -> bool {
        self.filter.as_ref().is_none_or(|filter| {
            get(filter).is_ok_and(|filter| {
                let fields = filter.as_document().into_iter().flatten();
                fields.map_while(Result::ok).all(|(key, _)| key.as_str() == "name")
            })
        })
    }
}

impl Operation for ListCollections {
    type Output = CursorState;

    fn timing(&self) -> Timing {
        Timing { mode: self.timeout_mode, ..Timing::default() }
    }

    fn name(&self) -> Cow<'static, str> {
        "listCollections".into()
    }

    fn route(&self) -> Route {
        Route::ReadPrimary
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        // "drivers MUST NOT attach the comment to subsequent getMore commands".
        self.settings = Settings { comment: None, ..find::settings(&self.options, facts) };
        let mut body = RawDocumentBuf::new();
        body.append(cstr!("listCollections"), 1);
        if let Some(filter) = &self.filter {
            body.append(cstr!("filter"), get(filter)?);
        }
        let mut cursor = RawDocumentBuf::new();
        if let Some(size) = self.options.get(cstr!("batchSize")) {
            cursor.append(cstr!("batchSize"), size);
        }
        body.append(cstr!("cursor"), cursor);
        if self.names_only && self.is_by_name() {
            body.append(cstr!("nameOnly"), true);
        }
        self.options.write(&mut body, &left_out(scope, facts, &[cstr!("batchSize")]))?;
        Ok(Command { retryable: true, ..Command::run(scope, body).opening() })
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<CursorState>, Error> {
        let settings = std::mem::take(&mut self.settings);
        Ok(Progress::Done(CursorState::open("listCollections", reply, settings)?))
    }
}

/// The creation of a collection, or of a view.
#[derive(Clone, Debug)]
pub struct CreateCollection {
    name: String,
    options: Fields,
}

options! {
    CreateCollection {
        /// Makes a collection of a fixed size, in which the oldest documents make room.
        capped: truth = "capped";
        /// Keeps documents of before and after changes for change streams (MongoDB 6.0).
        change_stream_pre_and_post_images: document = "changeStreamPreAndPostImages";
        /// Stores documents in the order of their keys (MongoDB 5.3).
        clustered_index: document = "clusteredIndex";
        /// Sets the rules for comparing texts, of all operations that set none.
        collation: document = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the fields that are encrypted.
        encrypted_fields: document = "encryptedFields";
        /// Has time series expire, after this many seconds.
        expire_after_seconds: long = "expireAfterSeconds";
        /// Sets the options of indexes that set none.
        index_option_defaults: document = "indexOptionDefaults";
        /// Sets the number of documents that a capped collection has at most.
        max: long = "max";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Sets the pipeline of a view.
        pipeline: documents = "pipeline";
        /// Sets the size of a capped collection in bytes.
        size: long = "size";
        /// Sets options of the storage engine.
        storage_engine: document = "storageEngine";
        /// Makes a time series (MongoDB 5.0).
        timeseries: document = "timeseries";
        /// Sets what happens to documents that break the rules: `error` or `warn`.
        validation_action: text = "validationAction";
        /// Sets which writes are judged by the rules: `off`, `strict` or `moderate`.
        validation_level: text = "validationLevel";
        /// Sets the rules for documents.
        validator: document = "validator";
        /// Makes a view of this collection.
        view_on: text = "viewOn";
    }
}

impl CreateCollection {
    /// Creates a collection of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), options: Fields::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl From<&str> for CreateCollection {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl Operation for CreateCollection {
    type Output = ();

    fn name(&self) -> Cow<'static, str> {
        "create".into()
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        check_name(&self.name)?;
        let mut body = super::on_collection(cstr!("create"), &scope.at(&self.name));
        self.options.write(&mut body, &left_out(scope, facts, &[]))?;
        Command::write(scope, body, false)
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<()>, Error> {
        unless_write_concern_failed(reply).map(Progress::Done)
    }
}

/// The change of a collection's options: `collMod`.
#[derive(Clone, Debug, Default)]
pub struct ModifyCollection {
    options: Fields,
}

options! {
    ModifyCollection {
        /// Sets the size of a capped collection in bytes (MongoDB 6.0).
        capped_size: long = "cappedSize";
        /// Sets the number of documents that a capped collection has at most (MongoDB 6.0).
        capped_max: long = "cappedMax";
        /// Keeps documents of before and after changes for change streams, or not (MongoDB 6.0).
        change_stream_pre_and_post_images: document = "changeStreamPreAndPostImages";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Changes when time series expire: a number of seconds, or `off`.
        expire_after_seconds: value = "expireAfterSeconds";
        /// Changes an index: its `name` or `keyPattern`, with what is to be different.
        index: document = "index";
        /// Sets the pipeline of a view.
        pipeline: documents = "pipeline";
        /// Changes the options of a time series.
        timeseries: document = "timeseries";
        /// Sets what happens to documents that break the rules: `error` or `warn`.
        validation_action: text = "validationAction";
        /// Sets which writes are judged by the rules: `off`, `strict` or `moderate`.
        validation_level: text = "validationLevel";
        /// Sets the rules for documents.
        validator: document = "validator";
        /// Makes the view one of this collection.
        view_on: text = "viewOn";
    }
}

impl ModifyCollection {
    /// Changes nothing, but for what its options say.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Operation for ModifyCollection {
    type Output = ();

    fn name(&self) -> Cow<'static, str> {
        "collMod".into()
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let mut body = super::on_collection(cstr!("collMod"), scope);
        self.options.write(&mut body, &left_out(scope, facts, &[]))?;
        Ok(Command { takes_cluster_time: false, ..Command::write(scope, body, false)? })
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<()>, Error> {
        unless_write_concern_failed(reply).map(Progress::Done)
    }
}

/// The removal of a collection with its documents and indexes; it is no error if there is none.
#[derive(Clone, Debug, Default)]
pub struct DropCollection {
    options: Fields,
}

options! {
    DropCollection {
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
    }
}

impl DropCollection {
    /// Drops the collection.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Operation for DropCollection {
    type Output = ();

    fn name(&self) -> Cow<'static, str> {
        "drop".into()
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let mut body = super::on_collection(cstr!("drop"), scope);
        self.options.write(&mut body, &left_out(scope, facts, &[]))?;
        Command::write(scope, body, false)
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<()>, Error> {
        unless_write_concern_failed(reply).map(Progress::Done)
    }

    /// Servers older than 7.0 say that there is none; later ones do not.
    fn failed(&mut self, error: Error) -> Result<Progress<()>, Error> {
        match error.code() {
            Some(NAMESPACE_NOT_FOUND) => Ok(Progress::Done(())),
            _ => Err(error),
        }
    }
}

/// "NamespaceNotFound"
pub(crate) const NAMESPACE_NOT_FOUND: i32 = 26;

/// A new name for a collection, which may be in another database.
#[derive(Clone, Debug)]
pub struct RenameCollection {
    to: String,
    options: Fields,
}

options! {
    RenameCollection {
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Drops the collection that has the new name, if there is one.
        drop_target: truth = "dropTarget";
    }
}

impl RenameCollection {
    /// Renames the collection to this namespace: a database, a dot, and a collection.
    pub fn new(to: impl Into<String>) -> Self {
        Self { to: to.into(), options: Fields::default() }
    }
}

impl Operation for RenameCollection {
    type Output = ();

    fn name(&self) -> Cow<'static, str> {
        "renameCollection".into()
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        check_namespace(&self.to)?;
        let mut body = RawDocumentBuf::new();
        let from = format!("{}.{}", scope.database, scope.collection);
        body.append(cstr!("renameCollection"), from.as_str());
        body.append(cstr!("to"), self.to.as_str());
        self.options.write(&mut body, &left_out(scope, facts, &[]))?;
        let scope = Scope { database: "admin".into(), ..scope.clone() };
        Ok(Command { takes_cluster_time: false, ..Command::write(&scope, body, false)? })
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<()>, Error> {
        unless_write_concern_failed(reply).map(Progress::Done)
    }
}

/// Read and Write Concern: errors of write concerns are errors of whichever command writes.
pub(crate) fn unless_write_concern_failed(reply: &ReplyDocument) -> Result<(), Error> {
    match WriteConcernError::in_reply(reply) {
        Some(error) => Err(Error::WriteConcern(error.into())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::config::ReadConcern;
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, majority, scope, written, written_in};
    use super::super::{Operation, Progress, Route};
    use super::{
        CreateCollection, DropCollection, ListCollections, ModifyCollection, RenameCollection,
    };
    use crate::cursor::CursorStep;
    use crate::error::{ArgumentError, Error};

    /// Enumerate Collections: the form of the command, on the primary, and repeated.
    #[test]
    fn collections_are_listed_on_the_primary() {
        let mut list = ListCollections::new().filter(doc! { "type": "view" }).batch_size(3);
        let expected = rawdoc! {
            "listCollections": 1,
            "filter": { "type": "view" },
            "cursor": { "batchSize": 3 },
        };
        assert_eq!(written(&mut list, NEW).body, expected);
        assert_eq!(list.route(), Route::ReadPrimary);
        assert!(list.command(&scope(), &NEW).unwrap().retryable);
    }

    /// Enumerate Collections, "Getting Collection Names": nameOnly, unless the filter has other
    /// keys.
    #[test]
    fn names_are_enough_unless_the_filter_wants_more() {
        let has = |list: ListCollections| {
            let body = written(&mut list.names(), NEW).body;
            body.get_bool("nameOnly").is_ok()
        };
        assert!(has(ListCollections::new()));
        assert!(has(ListCollections::new().filter(doc! { "name": "a" })));
        assert!(!has(ListCollections::new().filter(doc! { "name": "a", "type": "view" })));
        assert!(!has(ListCollections::new().names().filter(doc! { "options.capped": true })));
    }

    /// "drivers MUST NOT attach the comment to subsequent getMore commands".
    #[test]
    fn batches_of_collections_have_no_comment() {
        let mut list = ListCollections::new().comment("why").names();
        written(&mut list, NEW);
        let cursor = rawdoc! { "id": 7_i64, "ns": "app.$cmd.listCollections", "firstBatch": [] };
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "cursor": cursor });
        let Ok(Progress::Done(mut cursor)) = list.reply(&scope(), &reply) else { panic!("none") };
        let expected = rawdoc! { "getMore": 7_i64, "collection": "$cmd.listCollections" };
        let step = cursor.step().unwrap();
        assert!(matches!(&step, CursorStep::GetMore(body) if *body == expected), "{step:?}");
    }

    #[test]
    fn collections_are_created_changed_renamed_and_dropped_with_a_write_concern() {
        let concern = rawdoc! { "w": "majority" };
        let mut create = CreateCollection::new("new").capped(true).size(100);
        let expected = rawdoc! {
            "create": "new", "capped": true, "size": 100_i64, "writeConcern": concern.clone(),
        };
        assert_eq!(written_in(&mut create, &majority(), NEW).body, expected);
        let mut modify = ModifyCollection::new().validator(doc! { "a": 1 });
        let expected = rawdoc! {
            "collMod": "things", "validator": { "a": 1 }, "writeConcern": concern.clone(),
        };
        assert_eq!(written_in(&mut modify, &majority(), NEW).body, expected);
        let mut rename = RenameCollection::new("app.other").drop_target(true);
        let command = rename.command(&majority(), &NEW).unwrap();
        let expected = rawdoc! {
            "renameCollection": "app.things",
            "to": "app.other",
            "dropTarget": true,
            "writeConcern": concern.clone(),
        };
        assert_eq!((&*command.database, &command.body), ("admin", &expected));
        // Read and Write Concern, "`afterClusterTime`", has neither of these two.
        assert_eq!(command.read_concern(&majority()), None);
        assert_eq!(modify.command(&scope(), &NEW).unwrap().read_concern(&scope()), None);
        let command = create.command(&scope(), &NEW).unwrap();
        assert_eq!(command.read_concern(&scope()), Some(ReadConcern::default()));
        let mut drop = DropCollection::new();
        let expected = rawdoc! { "drop": "things", "writeConcern": concern.clone() };
        assert_eq!(written_in(&mut drop, &majority(), NEW).body, expected);
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let late = ReplyDocument::from(rawdoc! { "ok": 1, "writeConcernError": late });
        assert!(matches!(drop.reply(&scope(), &late), Err(Error::WriteConcern(_))));
        assert!(drop.failed(ArgumentError::SessionInUse.into()).is_err());
    }
}
