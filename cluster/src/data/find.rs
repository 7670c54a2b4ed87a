//! `find` over what a member keeps: which documents, in which order, in which form.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::arguments::Arguments;
use super::cursors::is_tailable;
use super::reads::{check_hint, collection_of};
use crate::model::Cluster;
use crate::options::MemberId;
use crate::store::{
    Collation, Collection, Context, Cursor, Filter, Index, Projection, Sort, Source, StoreError,
    Tail, whole,
};
use crate::wire::CommandError;

/// A document that is found, with its number unless it is one of a view.
type Found = (Option<u64>, Arc<Document>);

impl Cluster {
    /// Answers a `find`.
    pub(super) fn find(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace("find")?;
        let body = &arguments.body;
        let context = self.context(now, arguments)?;
        let view = self.view(member, arguments);
        let collection = view.store.collection(&namespace).cloned();
        check_hint(collection.as_ref(), body.get("hint"))?;
        let filter = arguments.document("filter")?.cloned().unwrap_or_default();
        let filter = Filter::parse(&filter, &context)?;
        let form = Form::parse(arguments, collection.as_deref(), &context)?;
        let (tailable, awaits) = is_tailable(body);
        if tailable && collection.as_ref().is_some_and(|it| !it.is_capped()) {
            let reason = format!("tailable cursor requested on non capped collection {namespace}");
            return Err(CommandError::coded(2, reason));
        }
        let mut documents: Vec<Found> = match &collection {
            Some(collection) if collection.kind() != "view" => {
                let found = collection.find(&filter, &context)?;
                found.into_iter().map(|(record, it)| (Some(record), it)).collect()
            }
            _ => {
                let source = Source::new(&view.store, &arguments.database);
                let found = source.found(collection_of(&namespace), &filter, &context)?;
                found.into_iter().map(|it| (None, it)).collect()
            }
        };
        order(&mut documents, arguments, collection.as_deref(), context.collation)?;
        let skip = arguments.count("skip")?.unwrap_or(0);
        let limit = arguments.count("limit")?.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let mut rest = VecDeque::new();
        for found in documents.into_iter().skip(skip).take(limit) {
            rest.push_back(form.of(found, &context)?);
        }
        let projection = form.projection;
        let tail = collection.filter(|_| tailable).map(|collection| Tail {
            next: collection.next(),
            filter,
            projection,
            context,
            awaits,
        });
        let cursor = Cursor::over(namespace, rest, arguments.owner());
        let cursor = Cursor { tail, at_cluster_time: view.at, ..cursor };
        let single = arguments.flag("singleBatch");
        self.open(member, cursor, arguments.count("batchSize")?, single)
    }
}

/// The form in which documents are given.
struct Form {
    projection: Option<Projection>,
    /// The number of each document is given, too.
    shows_record: bool,
    /// Only the keys are given by which an index finds a document: none without an index.
    key: Option<Option<Index>>,
}

impl Form {
    fn parse(
        arguments: &Arguments,
        collection: Option<&Collection>,
        context: &Context,
    ) -> Result<Self, CommandError> {
        let projection = match arguments.document("projection")? {
            Some(it) if !it.is_empty() => Some(Projection::of_found(it, context)?),
            _ => None,
        };
        let flag = |name: &str| match arguments.body.get(name) {
            None => Ok(false),
            Some(Bson::Boolean(flag)) => Ok(*flag),
            Some(_) => {
                let reason = format!("Field '{name}' should be a boolean value");
                Err(CommandError::coded(14, reason))
            }
        };
        let (shows_record, shows_key) = (flag("showRecordId")?, flag("returnKey")?);
        if collection.is_some_and(|it| it.kind() != "collection") && (shows_record || shows_key) {
            let name = if shows_key { "returnKey" } else { "showRecordId" };
            let reason = format!("Option {name} not supported in aggregation.");
            return Err(CommandError::coded(168, reason));
        }
        let index = collection.and_then(|it| index(it, arguments)).cloned();
        Ok(Self { projection, shows_record, key: shows_key.then_some(index) })
    }

    fn of(
        &self,
        (record, document): Found,
        context: &Context,
    ) -> Result<Arc<Document>, StoreError> {
        if let Some(index) = &self.key {
            let keys = index.as_ref().and_then(|it| it.values(&document));
            return Ok(Arc::new(keys.unwrap_or_default()));
        }
        let given = match &self.projection {
            Some(projection) => Arc::new(projection.apply(&document, context)?),
            None => document,
        };
        let Some(record) = record.filter(|_| self.shows_record) else { return Ok(given) };
        let mut given = Document::clone(&given);
        // Servers begin with 1.
        given.insert("$recordId", i64::try_from(record + 1).unwrap_or(i64::MAX));
        Ok(Arc::new(given))
    }
}

/// Returns the index that a `find` names.
fn hinted<'a>(collection: &'a Collection, hint: &Bson) -> Option<&'a Index> {
    let mut indexes = collection.indexes.iter();
    indexes.find(|index| match hint {
        Bson::String(name) => index.name() == name,
        Bson::Document(keys) => index.keys() == *keys,
        _ => false,
    })
}

/// Returns the index that a server would use: the one that is named, else the first that begins
/// with a field of the filter, else one that begins with that of the sort.
fn index<'a>(collection: &'a Collection, arguments: &Arguments) -> Option<&'a Index> {
    if let Some(hint) = arguments.body.get("hint") {
        return hinted(collection, hint);
    }
    let first = |index: &Index| index.keys().keys().next().cloned().unwrap_or_default();
    let fields = |name: &str| arguments.body.get_document(name).ok();
    let is_filtered = |it: &&Index| fields("filter").is_some_and(|of| of.contains_key(first(it)));
    let is_sorted =
        |it: &&Index| fields("sort").is_some_and(|of| of.keys().next() == Some(&first(it)));
    let mut indexes = collection.indexes.iter();
    indexes.clone().find(is_filtered).or_else(|| indexes.find(is_sorted))
}

/// Puts documents in order: that of `sort`, else that of the index that is named; and leaves out
/// those beyond `min` and `max`.
fn order(
    documents: &mut Vec<Found>,
    arguments: &Arguments,
    collection: Option<&Collection>,
    collation: Collation,
) -> Result<(), CommandError> {
    let hint = arguments.body.get("hint");
    let index = collection.and_then(|it| hinted(it, hint?));
    let (min, max) = (bound(arguments, "min")?, bound(arguments, "max")?);
    if min.is_some() || max.is_some() {
        keep_between(documents, (min, max), hint, index)?;
    }
    match arguments.document("sort")? {
        Some(sort) if !sort.is_empty() => {
            Sort::parse(sort)?.apply_to(documents, |(_, it)| it, collation);
        }
        _ => {
            if let Some(index) = index {
                let keys = Sort::parse(&directions(index))?;
                keys.apply_to(documents, |(_, it)| it, collation);
            }
            let natural = hint.and_then(Bson::as_document).and_then(|it| it.get("$natural"));
            if natural.and_then(whole) == Some(-1) {
                documents.reverse();
            }
        }
    }
    Ok(())
}

fn bound<'a>(arguments: &'a Arguments, name: &str) -> Result<Option<&'a Document>, CommandError> {
    Ok(arguments.document(name)?.filter(|it| !it.is_empty()))
}

/// Returns the keys of an index as a sort: those without a direction are in ascending order.
fn directions(index: &Index) -> Document {
    let keys = index.keys();
    let sign = |it: &Bson| if whole(it).is_some_and(|it| it < 0) { -1 } else { 1 };
    keys.iter().map(|(name, it)| (name.clone(), sign(it).into())).collect()
}

/// Leaves out what an index has before `min`, and from `max` on.
fn keep_between(
    documents: &mut Vec<Found>,
    (min, max): (Option<&Document>, Option<&Document>),
    hint: Option<&Bson>,
    index: Option<&Index>,
) -> Result<(), CommandError> {
    let wrong = |code, reason: &str| Err(CommandError::numbered(code, reason));
    let Some(index) = index else {
        return match hint {
            Some(Bson::Document(keys)) if keys.contains_key("$natural") => {
                Err(CommandError::coded(291, "min and max are incompatible with $natural"))
            }
            _ => {
                let reason = "When using min()/max() a hint of which index to use must be provided";
                wrong(51173, reason)
            }
        };
    };
    let directions = directions(index);
    let fits = |bound: &&Document| bound.keys().eq(directions.keys());
    if ![min, max].iter().flatten().all(fits) {
        return wrong(51174, "The index chosen is not compatible with min/max");
    }
    let compare = |a: &Document, b: &Document| {
        let keys = directions.iter().map(|(name, direction)| {
            let value = |of: &Document| of.get(name).cloned().unwrap_or(Bson::Null);
            let order = Collation::Simple.compare(&value(a), &value(b));
            if whole(direction) == Some(-1) { order.reverse() } else { order }
        });
        keys.fold(Ordering::Equal, Ordering::then)
    };
    if let (Some(min), Some(max)) = (min, max)
        && compare(min, max).is_ge()
    {
        let reason = "The value provided for min() does not come before the value provided for \
                      max() in the hinted index";
        return wrong(51175, reason);
    }
    documents.retain(|(_, document)| {
        let keys = index.values(document).unwrap_or_else(|| doc! {});
        min.is_none_or(|it| compare(&keys, it).is_ge())
            && max.is_none_or(|it| compare(&keys, it).is_lt())
    });
    Ok(())
}
