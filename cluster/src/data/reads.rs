//! `aggregate`, `count`, `distinct` and `explain` over what a member keeps.

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::arguments::{Arguments, count, document, flag};
use super::cursors::raw;
use super::{changes, search};
use crate::model::Cluster;
use crate::options::MemberId;
use crate::store::{
    Collation, Collection, Context, Cursor, Documents, Filter, Key, Source, Store, StoreError,
    parse_stages, through, values, whole,
};
use crate::wire::CommandError;

/// A state that is read, and what replies say of its time.
pub(super) struct View {
    pub(super) store: Store,
    pub(super) at: Option<bson::Timestamp>,
}

impl Cluster {
    pub(super) fn count_documents(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace("count")?;
        let context = self.context(now, arguments)?;
        let view = self.view(member, arguments);
        check_hint(view.store.collection(&namespace), arguments.body.get("hint"))?;
        let query = arguments.document("query")?.cloned().unwrap_or_default();
        let filter = Filter::parse(&query, &context)?;
        let limit = match arguments.body.get("limit") {
            None => None,
            Some(limit) => {
                let wrong = || CommandError::coded(14, "limit is not a whole number");
                Some(whole(limit).ok_or_else(wrong)?.unsigned_abs())
            }
        };
        let limit = limit.filter(|it| *it > 0).and_then(|it| usize::try_from(it).ok());
        let source = Source::new(&view.store, &arguments.database);
        let count = source.found(collection_of(&namespace), &filter, &context)?.len();
        let count = count.saturating_sub(arguments.count("skip")?.unwrap_or(0));
        let count = count.min(limit.unwrap_or(usize::MAX));
        // That of a view is another number on real servers, too: an aggregation's.
        let is_view = view.store.collection(&namespace).is_some_and(|it| it.kind() != "collection");
        let ok = if is_view { Bson::Int32(1) } else { Bson::Double(1.0) };
        raw(&doc! { "n": i32::try_from(count).unwrap_or(i32::MAX), "ok": ok })
    }

    pub(super) fn distinct(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace("distinct")?;
        let key = match arguments.body.get("key") {
            Some(Bson::String(key)) => key.as_str(),
            Some(_) => {
                return Err(CommandError::coded(14, "BSON field 'distinct.key' is the wrong type"));
            }
            None => {
                let reason = "BSON field 'distinct.key' is missing but a required field";
                return Err(CommandError::numbered(40414, reason));
            }
        };
        let context = self.context(now, arguments)?;
        let view = self.view(member, arguments);
        let query = arguments.document("query")?.cloned().unwrap_or_default();
        let filter = Filter::parse(&query, &context)?;
        let mut distinct: Vec<Bson> = Vec::new();
        let mut add = |value: &Bson| {
            if !distinct.iter().any(|it| context.collation.is_equal(it, value)) {
                distinct.push(value.clone());
            }
        };
        let source = Source::new(&view.store, &arguments.database);
        for document in source.found(collection_of(&namespace), &filter, &context)? {
            for value in values(&document, key).into_iter().flatten() {
                match value {
                    Bson::Array(list) => list.iter().for_each(&mut add),
                    value => add(value),
                }
            }
        }
        let mut reply = doc! { "values": distinct };
        if let Some(time) = view.at {
            reply.insert("atClusterTime", time);
        }
        let is_view = view.store.collection(&namespace).is_some_and(|it| it.kind() != "collection");
        reply.insert("ok", if is_view { Bson::Int32(1) } else { Bson::Double(1.0) });
        raw(&reply)
    }

    pub(super) fn aggregate_data(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let body = &arguments.body;
        let namespace = match body.get("aggregate") {
            Some(Bson::String(_)) => arguments.namespace("aggregate")?,
            Some(number) if whole(number) == Some(1) => {
                format!("{}.$cmd.aggregate", arguments.database)
            }
            _ => {
                let reason = "Invalid command format: the 'aggregate' field must specify a \
                              collection name or 1";
                return Err(CommandError::coded(9, reason));
            }
        };
        let wrong = |_| CommandError::coded(14, "'pipeline' option must be specified as an array");
        let pipeline = body.get_array("pipeline").map_err(wrong)?;
        if let Some((stage, rest)) = changes::stream_of(pipeline) {
            return self.open_change_stream(now, member, (arguments, namespace), stage, rest);
        }
        let first = pipeline.first().and_then(Bson::as_document).and_then(|it| it.keys().next());
        search::check_stage(first.map(String::as_str), self.version_of(member))?;
        let stages = parse_stages(pipeline)?;
        check_places(&stages)?;
        if flag(body, "explain") {
            return explained(&namespace);
        }
        let cursor = cursor_option(body)?;
        check_written(&stages, body)?;
        let context = self.context(now, arguments)?;
        let view = self.view(member, arguments);
        let collection = view.store.collection(&namespace);
        check_hint(collection, body.get("hint"))?;
        let size = count(cursor, "batchSize")?;
        let source = Source::new(&view.store, &arguments.database);
        let mut documents = Self::beginning(source, &namespace, &stages, arguments, &context)?;
        for (name, value) in &stages {
            documents = match name.as_str() {
                "$out" | "$merge" => {
                    self.write_out(now, arguments, name, value, documents)?;
                    Vec::new()
                }
                "$documents" | "$listLocalSessions" | "$listSessions" | "$collStats" => documents,
                _ => through(documents, name, value, &context)?,
            };
        }
        let cursor = Cursor::over(namespace, documents.into(), arguments.owner());
        let cursor = Cursor { at_cluster_time: view.at, ..cursor };
        self.open(member, cursor, size, false)
    }

    /// Returns the documents that a pipeline begins with.
    fn beginning(
        source: Source<'_>,
        namespace: &str,
        stages: &[(String, Bson)],
        arguments: &Arguments,
        context: &Context,
    ) -> Result<Documents, CommandError> {
        let one = |document: Document| vec![Arc::new(document)];
        let is_of_database = namespace.ends_with(".$cmd.aggregate");
        Ok(match stages.first().map(|(name, value)| (name.as_str(), value)) {
            Some(("$documents", value)) => {
                let wrong = || CommandError::numbered(5_858_203, "$documents is an array");
                let documents = value.as_array().ok_or_else(wrong)?.iter();
                let documents = documents.map(|it| it.as_document().cloned().map(Arc::new));
                documents.collect::<Option<_>>().ok_or_else(wrong)?
            }
            Some(("$listLocalSessions" | "$listSessions", _)) => {
                let id = arguments.body.get_document("lsid").cloned().unwrap_or_default();
                one(doc! { "_id": id })
            }
            Some(("$collStats", _)) => {
                let Some(collection) = source.store.collection(namespace) else {
                    let reason = format!("Collection [{namespace}] not found.");
                    return Err(CommandError::coded(26, reason));
                };
                let count = i32::try_from(collection.len()).unwrap_or(i32::MAX);
                one(doc! { "ns": namespace, "count": count })
            }
            Some((name, _)) if is_of_database => {
                let reason = format!(
                    "{{aggregate: 1}} is not valid for '{name}'; a collection is required."
                );
                return Err(CommandError::coded(73, reason));
            }
            _ => source.all(collection_of(namespace), context)?,
        })
    }

    /// Answers an `explain`: everything is found by a scan.
    pub(super) fn explain(&self, arguments: &Arguments) -> Result<RawDocumentBuf, CommandError> {
        let wrong = |_| CommandError::coded(9, "explain needs a nested command");
        let command = arguments.body.get_document("explain").map_err(wrong)?;
        let (name, collection) = command
            .iter()
            .next()
            .ok_or_else(|| CommandError::coded(9, "explain needs a nested command"))?;
        let known = ["find", "aggregate", "count", "distinct", "update", "delete", "findAndModify"];
        if !known.contains(&name.as_str()) {
            let reason = format!("Explain failed due to unknown command: {name}");
            return Err(CommandError::coded(59, reason));
        }
        let collection = collection.as_str().unwrap_or_default();
        let namespace = format!("{}.{collection}", arguments.database);
        raw(&explanation(&namespace, "queryPlanner"))
    }
}

/// Returns the option of an aggregate that asks for a cursor.
pub(super) fn cursor_option(body: &Document) -> Result<&Document, CommandError> {
    let reason = "The 'cursor' option is required, except for aggregate with the explain argument";
    document(body, "cursor")?.ok_or_else(|| CommandError::coded(9, reason))
}

/// Explains an `aggregate`.
pub(super) fn explained(namespace: &str) -> Result<RawDocumentBuf, CommandError> {
    raw(&explanation(namespace, "stages"))
}

fn explanation(namespace: &str, kind: &str) -> Document {
    let plan = doc! { "namespace": namespace, "winningPlan": { "stage": "COLLSCAN" } };
    let mut reply = doc! { "queryPlanner": plan.clone(), "executionStats": {}, "ok": 1.0 };
    if kind == "stages" {
        reply.insert("stages", vec![doc! { "$cursor": { "queryPlanner": plan } }]);
    }
    reply
}

/// Returns the name of a namespace's collection.
pub(super) fn collection_of(namespace: &str) -> &str {
    namespace.split_once('.').map_or("", |(_, collection)| collection)
}

/// Checks that what must be the first stage, or the last, is that.
fn check_places(stages: &[(String, Bson)]) -> Result<(), CommandError> {
    const FIRST: [&str; 5] =
        ["$changeStream", "$documents", "$listLocalSessions", "$listSessions", "$collStats"];
    let late = stages.iter().skip(1).find(|(name, _)| FIRST.contains(&name.as_str()));
    if let Some((name, _)) = late {
        let reason = format!("{name} is only valid as the first stage in a pipeline");
        return Err(CommandError::numbered(40602, reason));
    }
    let mut before_last = stages.iter().rev().skip(1);
    match before_last.find(|(name, _)| matches!(name.as_str(), "$out" | "$merge")) {
        Some((name, _)) => {
            let reason = format!("{name} can only be the final stage in the pipeline");
            Err(CommandError::numbered(40601, reason))
        }
        None => Ok(()),
    }
}

/// Checks that what writes reads nothing that must be the newest.
fn check_written(stages: &[(String, Bson)], body: &Document) -> Result<(), CommandError> {
    let concern = body.get_document("readConcern").and_then(|it| it.get_str("level"));
    let is_linearizable = concern.is_ok_and(|it| it == "linearizable");
    let mut writing = stages.iter().filter(|(it, _)| matches!(it.as_str(), "$out" | "$merge"));
    match writing.next().filter(|_| is_linearizable) {
        Some((name, _)) => {
            let reason = format!("{name} cannot be used with a 'linearizable' read concern level");
            Err(CommandError::coded(72, reason))
        }
        None => Ok(()),
    }
}

/// Checks that an index that is named exists.
pub(super) fn check_hint(
    collection: Option<&Arc<Collection>>,
    hint: Option<&Bson>,
) -> Result<(), StoreError> {
    let indexes = collection.map(|it| &it.indexes[..]).unwrap_or_default();
    let exists = match hint {
        None => true,
        Some(Bson::String(name)) => indexes.iter().any(|it| it.name() == name),
        Some(Bson::Document(keys)) if keys.is_empty() || keys.contains_key("$natural") => true,
        Some(Bson::Document(keys)) => {
            let key = Key(keys.clone().into());
            indexes.iter().any(|it| Key(it.keys().into()) == key)
        }
        Some(_) => false,
    };
    match exists || collection.is_none() {
        true => Ok(()),
        false => {
            let reason = "planner returned error :: caused by :: hint provided does not correspond \
                          to an existing index";
            Err(StoreError::bad_value(reason))
        }
    }
}

impl Cluster {
    /// Returns the context that filters and expressions of a command are computed in.
    pub(super) fn context(
        &mut self,
        now: Instant,
        arguments: &Arguments,
    ) -> Result<Context, CommandError> {
        #[allow(clippy::cast_precision_loss, reason = "half of the bits are enough")]
        let random = (self.data_rng.next_u64() >> 32) as f64 / f64::from(u32::MAX);
        let context = Context {
            variables: Document::new(),
            collation: Collation::parse(arguments.document("collation")?),
            random,
            now: bson::DateTime::from_millis(self.wall_millis(now)),
        };
        match arguments.document("let")? {
            Some(variables) => Ok(context.with_variables(variables)?),
            None => Ok(context),
        }
    }
}
