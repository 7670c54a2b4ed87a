//! Indexes (Index Management, "Standard API").

use bson::raw::{CStr, cstr};
use bson::{Document, RawArrayBuf, RawBsonRef, RawDocumentBuf};
use sdam_core::wire::ReplyDocument;
use serde::{Serialize, Serializer, ser};

use super::arguments::{Arguments, FromArguments, Options as _};
use super::collections::NAMESPACE_NOT_FOUND;
use super::fields::{Fields, Value, get};
use super::single::{Body, Rules, SingleCommand};
use super::{MONGODB_4_4, Scope, described, find};
use crate::cursor::{CursorState, Settings, TimeoutMode, Timing};
use crate::error::{ArgumentError, Error, WriteConcernError};
use crate::results::WriteResult;
use crate::value::IntoDocument;

/// An index: its keys and its options.
///
/// It is read with its `keys`, as configurations have them, or with its `key`, as servers describe
/// it: then, options that are not known here are left out.
///
/// ```
/// use sdam::options::IndexOptions;
/// use sdam::{IndexModel, doc};
///
/// let index = IndexModel::new(doc! { "name": 1, "born": -1 }).unique(true);
/// assert_eq!(index.index_name().as_deref(), Some("name_1_born_-1"));
/// assert_eq!(index.options().unique, Some(true));
///
/// let options = IndexOptions::builder().unique(true).build();
/// let built = IndexModel::builder().keys(doc! { "name": 1, "born": -1 }).options(options).build();
/// assert_eq!(built.index_name(), index.index_name());
/// ```
#[derive(Clone, Debug)]
pub struct IndexModel {
    keys: Value,
    options: Fields,
}

operation! {
    pub struct IndexModel as IndexOptions;

    options {
        /// Builds the index beside other operations; MongoDB 4.2 and later always do.
        background: bool = "background";
        /// Sets how exact geohashes are, for `2d` indexes.
        bits: int = "bits";
        /// Sets the number of units within which locations are grouped, for `geoHaystack` indexes,
        /// which MongoDB 5.0 no longer has.
        bucket_size: int = "bucketSize";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Sets the language of texts.
        default_language: text = "default_language";
        /// Has documents expire, this many seconds after the time in the field.
        expire_after_seconds: int = "expireAfterSeconds";
        /// Hides the index from queries (MongoDB 4.4).
        hidden: bool = "hidden";
        /// Sets the field that has the language of a document.
        language_override: text = "language_override";
        /// Sets the greatest longitude and latitude, for `2d` indexes.
        max: value = "max";
        /// Sets the least longitude and latitude, for `2d` indexes.
        min: value = "min";
        /// Sets the name of the index, in the place of the one that its keys give.
        name: text = "name";
        /// Leaves out documents that the filter does not match.
        partial_filter_expression: document = "partialFilterExpression";
        /// Leaves out documents that do not have the fields.
        sparse: bool = "sparse";
        /// Sets options of the storage engine.
        storage_engine: document = "storageEngine";
        /// Sets the version of the index of texts.
        text_index_version: int = "textIndexVersion";
        /// Sets the version of the index on a sphere.
        sphere_index_version: int = "2dsphereIndexVersion";
        /// Refuses documents with keys that another one has.
        unique: bool = "unique";
        /// Sets the version of the index.
        version: int = "v";
        /// Sets the weights of fields in the index of texts.
        weights: document = "weights";
        /// Sets which fields a wildcard index has.
        wildcard_projection: document = "wildcardProjection";
    }
}

impl IndexModel {
    /// Describes an index by its keys: fields with their directions, or types.
    pub fn new(keys: impl IntoDocument) -> Self {
        Self { keys: Value::document(keys), options: Fields::default() }
    }

    /// Starts without keys.
    pub fn builder() -> IndexModelBuilder<()> {
        IndexModelBuilder { model: (), options: IndexOptions::default() }
    }

    /// Returns the keys: fields with their directions, or types; none if these are no BSON.
    pub fn keys(&self) -> Document {
        let keys = get(&self.keys).ok().and_then(RawBsonRef::as_document);
        keys.and_then(|keys| Document::try_from(keys).ok()).unwrap_or_default()
    }

    /// Returns the options; none if there is one that is no BSON.
    pub fn options(&self) -> IndexOptions {
        let mut options = RawDocumentBuf::new();
        let written = self.options.write(&mut options);
        let options = written.ok().and_then(|()| Document::try_from(&*options).ok());
        described::of_server(options.unwrap_or_default())
    }

    /// Returns the name of the index: the one that was set, or the one that its keys give; `None`
    /// if these are no BSON.
    ///
    /// "the driver MUST generate the name as key-direction pairs, separated by underscores" (Index
    /// Management, "Index Name Generation").
    pub fn index_name(&self) -> Option<String> {
        if let Some(RawBsonRef::String(name)) = self.options.get(cstr!("name")) {
            return Some(name.to_owned());
        }
        let keys = get(&self.keys).ok()?.as_document()?;
        let mut parts = Vec::new();
        for (key, direction) in keys.iter().map_while(Result::ok) {
            parts.push(format!("{}_{}", key.as_str(), direction_text(direction)));
        }
        let name = parts.join("_");
        // The one exception: the index that every collection has is named without a direction.
        Some(if name == "_id_1" { "_id_".to_owned() } else { name })
    }

    fn write(&self) -> Result<RawDocumentBuf, Error> {
        let mut index = RawDocumentBuf::new();
        index.append(cstr!("key"), get(&self.keys)?);
        self.options.write(&mut index)?;
        if !self.options.has(cstr!("name"))
            && let Some(name) = self.index_name()
        {
            index.append(cstr!("name"), name);
        }
        Ok(index)
    }
}

impl FromArguments for IndexModel {
    const OPTIONAL: &'static [&'static str] = &["key"];

    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        match arguments.optional::<Document>("key")? {
            Some(keys) => {
                let options: IndexOptions = described::of_server(std::mem::take(&mut arguments.0));
                Ok(Self::new(keys).with_options(options))
            }
            None => Ok(Self::new(arguments.required::<Document>("keys")?)),
        }
    }
}

from_document!(IndexModel);
from_filter!(IndexModel document);

/// It is written as servers describe it, with its `key` and its `name`.
impl Serialize for IndexModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.write().map_err(ser::Error::custom)?.serialize(serializer)
    }
}

/// Collects an [`IndexModel`], which has to have keys.
#[derive(Clone, Debug)]
pub struct IndexModelBuilder<M> {
    model: M,
    options: IndexOptions,
}

impl<M> IndexModelBuilder<M> {
    /// Sets the keys: fields with their directions, or types.
    #[must_use]
    pub fn keys(self, keys: impl IntoDocument) -> IndexModelBuilder<IndexModel> {
        IndexModelBuilder { model: IndexModel::new(keys), options: self.options }
    }

    /// Sets the options.
    #[must_use]
    pub fn options(self, options: impl Into<Option<IndexOptions>>) -> Self {
        Self { options: options.into().unwrap_or_default(), ..self }
    }
}

impl IndexModelBuilder<IndexModel> {
    /// Returns the index.
    pub fn build(self) -> IndexModel {
        self.model.with_options(self.options)
    }
}

fn direction_text(direction: RawBsonRef<'_>) -> String {
    match direction {
        RawBsonRef::Int32(direction) => direction.to_string(),
        RawBsonRef::Int64(direction) => direction.to_string(),
        RawBsonRef::Double(direction) => direction.to_string(),
        RawBsonRef::String(kind) => kind.to_owned(),
        _ => "1".to_owned(),
    }
}

/// The creation of indexes.
#[derive(Clone, Debug)]
pub struct CreateIndexes {
    models: Vec<IndexModel>,
    options: Fields,
}

operation! {
    pub struct CreateIndexes as CreateIndexOptions;

    options {
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets how many members must have built the indexes before they are used (MongoDB 4.4): a
        /// [`CommitQuorum`](crate::options::CommitQuorum), or what it is in documents.
        commit_quorum: value = "commitQuorum";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Creates indexes of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
    }
}

impl CreateIndexes {
    /// Creates indexes.
    pub fn new(models: impl IntoIterator<Item = IndexModel>) -> Self {
        Self { models: models.into_iter().collect(), options: Fields::default() }
    }
}

/// The arguments of `createIndex` for one index, its keys and its options, stand beside those of
/// the command, as specifications have them.
impl FromArguments for CreateIndexes {
    const OPTIONAL: &'static [&'static str] = IndexModel::OPTIONS;

    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        let mut index = arguments.take(&["keys"]);
        index.0.extend(arguments.take(IndexModel::OPTIONS).0);
        Ok(Self::new([IndexModel::from_document(index.0)?]))
    }
}

from_document!(CreateIndexes);

impl<M: Into<IndexModel>> From<M> for CreateIndexes {
    fn from(model: M) -> Self {
        Self::new([model.into()])
    }
}

impl SingleCommand for CreateIndexes {
    /// The names of the indexes.
    type Output = Vec<String>;

    const COMMAND: &'static CStr = cstr!("createIndexes");
    const RULES: Rules = Rules::WRITE_ONCE;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        if self.models.is_empty() {
            return Err(ArgumentError::NoIndexes.into());
        }
        // "Drivers MUST manually raise an error if this option is specified when creating an index
        // on a pre 4.4 server."
        let is_old = body.facts.max_wire_version < MONGODB_4_4;
        if is_old && self.options.has(cstr!("commitQuorum")) {
            return Err(ArgumentError::ServerTooOld { option: "commitQuorum", since: "4.4" }.into());
        }
        let mut indexes = RawArrayBuf::new();
        for model in &self.models {
            indexes.push(model.write()?);
        }
        body.append(cstr!("indexes"), indexes);
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Vec<String>, Error> {
        let names = self.models.iter().filter_map(IndexModel::index_name).collect();
        match WriteConcernError::in_reply(reply) {
            Some(error) => Err(error.with(WriteResult::CreateIndexes(names)).into()),
            None => Ok(names),
        }
    }
}

/// The removal of an index, or of all of them but that of `_id`: read from a document, of all
/// unless that has a `name`.
#[derive(Clone, Debug)]
pub struct DropIndexes {
    index: Value,
    is_single: bool,
    options: Fields,
}

operation! {
    pub struct DropIndexes as DropIndexOptions;

    options {
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Drops indexes of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
    }
}

impl DropIndexes {
    /// Drops the index of this name.
    pub fn one(name: &str) -> Self {
        Self { index: name.to_owned().into(), is_single: true, options: Fields::default() }
    }

    /// Drops the index that has these keys.
    pub fn by_keys(keys: impl IntoDocument) -> Self {
        Self { index: Value::document(keys), is_single: true, options: Fields::default() }
    }

    /// Drops all indexes but that of `_id`.
    pub fn all() -> Self {
        Self { is_single: false, ..Self::one("*") }
    }
}

impl FromArguments for DropIndexes {
    const OPTIONAL: &'static [&'static str] = &["name"];

    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        let name = arguments.optional::<String>("name")?;
        Ok(name.map_or_else(Self::all, |name| Self::one(&name)))
    }
}

from_document!(DropIndexes);

impl From<&str> for DropIndexes {
    fn from(name: &str) -> Self {
        Self::one(name)
    }
}

impl SingleCommand for DropIndexes {
    type Output = ();

    const COMMAND: &'static CStr = cstr!("dropIndexes");
    const RULES: Rules = Rules::WRITE_ONCE;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        let index = get(&self.index)?;
        // "If the string passed is '*', the driver MUST raise an error"
        if self.is_single && index == RawBsonRef::String("*") {
            return Err(ArgumentError::DropEveryIndex.into());
        }
        body.append(cstr!("index"), index);
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<(), Error> {
        WriteConcernError::check(reply)
    }
}

operation! {
    /// The indexes of a collection; none, if there is no such collection.
    ///
    /// The documents have no field `ns` since MongoDB 4.4.
    #[derive(Clone, Debug, Default)]
    pub struct ListIndexes as ListIndexesOptions {
        timeout_mode: Option<TimeoutMode>,
        settings: Settings,
    }

    arguments {
        /// Asks for all indexes.
        new();
    }

    options {
        /// Sets how many documents a batch has.
        batch_size: u32 = "batchSize";
        /// Adds a comment, which servers write to their logs; it is sent with each getMore, too.
        comment: value = "comment";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Lists indexes of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
        /// Sets what `timeoutMS` limits.
        timeout_mode: TimeoutMode = "timeoutMode" in timeout_mode;
    }
}

impl SingleCommand for ListIndexes {
    type Output = CursorState;

    const COMMAND: &'static CStr = cstr!("listIndexes");
    const RULES: Rules = Rules::LIST.opening();

    fn cursor_timing(&self) -> Timing {
        Timing { mode: self.timeout_mode, ..Timing::default() }
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        self.settings = find::settings(&self.options, body.facts);
        body.cursor(self.options.get(cstr!("batchSize")));
        body.options(&self.options, &[cstr!("batchSize")])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<CursorState, Error> {
        let settings = std::mem::take(&mut self.settings);
        Ok(CursorState::open(Self::COMMAND.as_str(), reply, settings)?)
    }

    fn read_code(&self, code: i32) -> Option<CursorState> {
        (code == NAMESPACE_NOT_FOUND).then(CursorState::empty)
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, OLD, majority, scope, written, written_in};
    use super::super::{Facts, MONGODB_4_4, Operation, Progress};
    use super::{CreateIndexes, DropIndexes, IndexModel, IndexOptions, ListIndexes};
    use crate::cursor::CursorStep;
    use crate::error::WriteError;

    /// Index Management, "Index Name Generation".
    #[test]
    fn names_are_made_of_keys_and_directions() {
        for (keys, name) in [
            (doc! { "name": 1, "dob": -1 }, "name_1_dob_-1"),
            (doc! { "a": "text" }, "a_text"),
            (doc! { "a": -1_i64, "b": -1.0 }, "a_-1_b_-1"),
            (doc! { "_id": 1 }, "_id_"),
            (doc! { "_id": "hashed" }, "_id_hashed"),
        ] {
            assert_eq!(IndexModel::new(keys).index_name().as_deref(), Some(name));
        }
        let named = IndexModel::new(doc! { "a": 1 }).name("mine");
        assert_eq!(named.index_name().as_deref(), Some("mine"));
    }

    #[test]
    fn an_index_is_the_same_whichever_way_it_is_described() {
        let keys = || doc! { "a": 1 };
        let options = || IndexOptions::builder().unique(true).version(2).name("mine".to_owned());
        let document = doc! { "key": keys(), "unique": true, "v": 2, "name": "mine" };
        let by_configuration = doc! { "keys": keys(), "unique": true, "v": 2, "name": "mine" };
        for index in [
            IndexModel::new(keys()).unique(true).version(2).name("mine"),
            IndexModel::builder().keys(keys()).options(options().build()).build(),
            IndexModel::builder().options(options().build()).keys(keys()).build(),
            IndexModel::from_document(by_configuration).unwrap(),
            bson::deserialize_from_document(document.clone()).unwrap(),
        ] {
            assert_eq!(bson::serialize_to_document(&index).unwrap(), document);
            let options = index.options();
            assert_eq!(index.keys(), keys());
            assert_eq!((options.unique, options.version), (Some(true), Some(2)));
            assert_eq!(options.name.as_deref(), Some("mine"));
            assert_eq!(options.sparse, None);
        }
        assert!(IndexModel::builder().keys(keys()).options(None).build().options().name.is_none());
    }

    /// Servers keep what they were given, and add to it.
    #[test]
    fn indexes_are_read_whatever_servers_say() {
        let index = doc! {
            "v": 2.0, "key": { "a": 1 }, "name": "a_1", "ns": "a.b", "unique": 1, "sparse": 0.0,
            "background": 1_i64, "expireAfterSeconds": f64::NAN, "min": -1.0, "clustered": true,
        };
        let index: IndexModel = bson::deserialize_from_document(index).unwrap();
        let options = index.options();
        assert_eq!((options.version, options.unique), (Some(2), Some(true)));
        assert_eq!((options.sparse, options.background), (Some(false), Some(true)));
        assert_eq!((options.expire_after_seconds, options.min), (None, Some((-1.0).into())));
        let error = IndexModel::from_document(doc! { "keys": { "a": 1 }, "unqiue": true });
        assert!(error.unwrap_err().to_string().contains("known are key, background, "));
        let error = IndexModel::from_document(doc! { "unique": true }).unwrap_err();
        assert_eq!(error.to_string(), "the argument keys is missing");
    }

    #[test]
    fn indexes_are_created_with_names_and_a_write_concern() {
        let models = [
            IndexModel::new(doc! { "a": 1 }).unique(true),
            IndexModel::new(doc! { "b": -1 }).name("mine").bucket_size(5),
        ];
        let mut create = CreateIndexes::new(models).commit_quorum("votingMembers");
        let expected = rawdoc! {
            "createIndexes": "things",
            "indexes": [
                { "key": { "a": 1 }, "unique": true, "name": "a_1" },
                { "key": { "b": -1 }, "name": "mine", "bucketSize": 5 },
            ],
            "commitQuorum": "votingMembers",
            "writeConcern": { "w": "majority" },
        };
        assert_eq!(written_in(&mut create, &majority(), NEW).body, expected);
        let reply = ReplyDocument::from(rawdoc! { "ok": 1 });
        let names = vec!["a_1".to_owned(), "mine".to_owned()];
        assert_eq!(create.reply(&scope(), &reply).unwrap(), Progress::Done(names));
        // "Drivers MUST manually raise an error"
        let error = create.command(&scope(), &OLD).unwrap_err();
        assert_eq!(error.to_string(), "commitQuorum needs MongoDB 4.4");
        assert!(create.command(&scope(), &Facts::of_wire_version(MONGODB_4_4)).is_ok());
        assert!(CreateIndexes::new([]).command(&scope(), &NEW).is_err());
    }

    /// "If the string passed is '*', the driver MUST raise an error since more than one index would
    /// be dropped."
    #[test]
    fn one_index_is_dropped_or_all_but_not_all_by_the_name_of_one() {
        let mut one = DropIndexes::one("a_1");
        assert_eq!(
            written(&mut one, NEW).body,
            rawdoc! { "dropIndexes": "things", "index": "a_1" }
        );
        assert!(DropIndexes::one("*").command(&scope(), &NEW).is_err());
        let body = written(&mut DropIndexes::all(), NEW).body;
        assert_eq!(body, rawdoc! { "dropIndexes": "things", "index": "*" });
        let body = written(&mut DropIndexes::by_keys(doc! { "a": 1 }), NEW).body;
        assert_eq!(body, rawdoc! { "dropIndexes": "things", "index": { "a": 1 } });
    }

    #[test]
    fn indexes_are_listed_with_a_cursor() {
        let mut list = ListIndexes::new().batch_size(2).comment("why");
        let expected = rawdoc! {
            "listIndexes": "things", "cursor": { "batchSize": 2 }, "comment": "why",
        };
        assert_eq!(written(&mut list, NEW).body, expected);
        assert!(list.command(&scope(), &NEW).unwrap().retryable);
    }

    /// Index Management, "listIndexes": code 26 is an empty list.
    #[test]
    fn a_collection_that_is_not_there_has_no_indexes() {
        let failed = |code: i32| {
            let error = WriteError::of(0, &rawdoc! { "code": code });
            ListIndexes::new().failed(error.into())
        };
        let Ok(Progress::Done(mut cursor)) = failed(26) else { panic!("an error") };
        assert!(matches!(cursor.step(), Ok(CursorStep::Exhausted)));
        assert_eq!(failed(13).unwrap_err().code(), Some(13));
    }
}
