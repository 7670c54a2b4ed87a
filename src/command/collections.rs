//! Collections: enumerated, created, changed, renamed, dropped (Enumerate Collections).

use bson::raw::{CStr, cstr};
use sdam_core::wire::ReplyDocument;

use super::collection_values::{
    ClusteredIndex, IndexOptionDefaults, TimeseriesOptions, ValidationAction, ValidationLevel,
};
use super::fields::{Value, get};
use super::single::{Body, Rules, SingleCommand, Target};
use super::{Scope, check_name, find, split_namespace};
use crate::cursor::{CursorState, Settings, TimeoutMode, Timing};
use crate::error::{Error, WriteConcernError};

operation! {
    /// The collections of a database.
    ///
    /// Documents that describe indexes have no field `ns` since MongoDB 4.4.
    #[derive(Clone, Debug, Default)]
    pub struct ListCollections as ListCollectionsOptions {
        filter: Option<Value>,
        names_only: bool,
        timeout_mode: Option<TimeoutMode>,
        settings: Settings,
    }

    arguments {
        /// Asks for all collections.
        new();
    }

    options {
        /// Leaves out collections that the user may not use, and needs fewer privileges for that.
        authorized_collections: bool = "authorizedCollections";
        /// Sets how many documents a batch has.
        batch_size: u32 = "batchSize";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Describes time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
        /// Asks for those only that a filter matches.
        filter: document = "filter" in filter;
        /// Sets what `timeoutMS` limits.
        timeout_mode: TimeoutMode = "timeoutMode" in timeout_mode;
    }
}

impl ListCollections {
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

impl SingleCommand for ListCollections {
    type Output = CursorState;

    const COMMAND: &'static CStr = cstr!("listCollections");
    const RULES: Rules = Rules::LIST.opening();

    fn target(&self) -> Target<'_> {
        Target::Database
    }

    fn cursor_timing(&self) -> Timing {
        Timing { mode: self.timeout_mode, ..Timing::default() }
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        // "drivers MUST NOT attach the comment to subsequent getMore commands".
        self.settings = Settings { comment: None, ..find::settings(&self.options, body.facts) };
        if let Some(filter) = &self.filter {
            body.append(cstr!("filter"), get(filter)?);
        }
        body.cursor(self.options.get(cstr!("batchSize")));
        if self.names_only && self.is_by_name() {
            body.append(cstr!("nameOnly"), true);
        }
        body.options(&self.options, &[cstr!("batchSize")])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<CursorState, Error> {
        let settings = std::mem::take(&mut self.settings);
        Ok(CursorState::open(Self::COMMAND.as_str(), reply, settings)?)
    }
}

operation! {
    /// The creation of a collection, or of a view.
    #[derive(Clone, Debug)]
    pub struct CreateCollection as CreateCollectionOptions {}

    arguments {
        /// Creates a collection of this name.
        new(name: text = "collection");
    }

    options {
        /// Makes a collection of a fixed size, in which the oldest documents make room.
        capped: bool = "capped";
        /// Keeps documents of before and after changes for change streams (MongoDB 6.0).
        change_stream_pre_and_post_images: document = "changeStreamPreAndPostImages";
        /// Stores documents in the order of their keys (MongoDB 5.3).
        clustered_index: ClusteredIndex = "clusteredIndex";
        /// Sets the rules for comparing texts, of all operations that set none.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the fields that are encrypted.
        encrypted_fields: document = "encryptedFields";
        /// Has time series expire, after this many seconds.
        expire_after_seconds: long = "expireAfterSeconds";
        /// Sets the options of indexes that set none.
        index_option_defaults: IndexOptionDefaults = "indexOptionDefaults";
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
        timeseries: TimeseriesOptions = "timeseries";
        /// Sets what happens to documents that break the rules.
        validation_action: ValidationAction = "validationAction";
        /// Sets which writes are judged by the rules.
        validation_level: ValidationLevel = "validationLevel";
        /// Sets the rules for documents.
        validator: document = "validator";
        /// Makes a view of this collection.
        view_on: text = "viewOn";
    }
}

impl From<String> for CreateCollection {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl From<&str> for CreateCollection {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl SingleCommand for CreateCollection {
    type Output = ();

    const COMMAND: &'static CStr = cstr!("create");
    const RULES: Rules = Rules::WRITE_ONCE;

    fn name(&self) -> &'static str {
        "createCollection"
    }

    fn target(&self) -> Target<'_> {
        Target::Named(&self.name)
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        check_name(&self.name)?;
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<(), Error> {
        WriteConcernError::check(reply)
    }
}

operation! {
    /// The change of a collection's options: `collMod`.
    #[derive(Clone, Debug, Default)]
    pub struct ModifyCollection as ModifyCollectionOptions {}

    arguments {
        /// Changes nothing, but for what its options say.
        new();
    }

    options {
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
        /// Sets what happens to documents that break the rules.
        validation_action: ValidationAction = "validationAction";
        /// Sets which writes are judged by the rules.
        validation_level: ValidationLevel = "validationLevel";
        /// Sets the rules for documents.
        validator: document = "validator";
        /// Makes the view one of this collection.
        view_on: text = "viewOn";
    }
}

impl SingleCommand for ModifyCollection {
    type Output = ();

    const COMMAND: &'static CStr = cstr!("collMod");
    const RULES: Rules = Rules { takes_cluster_time: false, ..Rules::WRITE_ONCE };

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<(), Error> {
        WriteConcernError::check(reply)
    }
}

operation! {
    /// The removal of a collection with its documents and indexes; it is no error if there is none.
    #[derive(Clone, Debug, Default)]
    pub struct DropCollection as DropCollectionOptions {}

    arguments {
        /// Drops the collection.
        new();
    }

    options {
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
    }
}

impl SingleCommand for DropCollection {
    type Output = ();

    const COMMAND: &'static CStr = cstr!("drop");
    const RULES: Rules = Rules::WRITE_ONCE;

    fn name(&self) -> &'static str {
        "dropCollection"
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<(), Error> {
        WriteConcernError::check(reply)
    }

    /// Servers older than 7.0 say that there is none; later ones do not.
    fn read_code(&self, code: i32) -> Option<()> {
        (code == NAMESPACE_NOT_FOUND).then_some(())
    }
}

/// "NamespaceNotFound"
pub(crate) const NAMESPACE_NOT_FOUND: i32 = 26;

operation! {
    /// A new name for a collection, which may be in another database.
    #[derive(Clone, Debug)]
    pub struct RenameCollection as RenameCollectionOptions {}

    arguments {
        /// Renames the collection to this namespace: a database, a dot, and a collection.
        new(to: text = "to");
    }

    options {
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Drops the collection that has the new name, if there is one.
        drop_target: bool = "dropTarget";
    }
}

impl SingleCommand for RenameCollection {
    type Output = ();

    const COMMAND: &'static CStr = cstr!("renameCollection");
    const RULES: Rules = Rules { takes_cluster_time: false, ..Rules::WRITE_ONCE };

    fn target(&self) -> Target<'_> {
        Target::Namespace
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        split_namespace(&self.to)?;
        body.append(cstr!("to"), self.to.as_str());
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<(), Error> {
        WriteConcernError::check(reply)
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
    use crate::error::ArgumentError;

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
        assert!(drop.reply(&scope(), &late).unwrap_err().as_write_concern().is_some());
        assert!(drop.failed(ArgumentError::SessionInUse.into()).is_err());
    }
}
