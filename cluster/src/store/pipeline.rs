//! Stages of aggregations over documents.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{Bson, Document, doc};
use sdam_core::bson;

use super::{
    compare::{Key, number, whole},
    error::StoreError,
    expression::{self, Context},
    filter::Filter,
    path,
    projection::Projection,
    redact,
    sort::Sort,
};

/// Documents on their way through stages.
pub(crate) type Documents = Vec<Arc<Document>>;

/// The stages that are known here, besides those that documents come from and go to.
const STAGES: [&str; 13] = [
    "$match",
    "$redact",
    "$sort",
    "$skip",
    "$limit",
    "$count",
    "$project",
    "$addFields",
    "$set",
    "$unset",
    "$replaceRoot",
    "$replaceWith",
    "$group",
];

/// The stages that servers know, and this store does not.
const UNKNOWN_HERE: [&str; 22] = [
    "$bucket",
    "$bucketAuto",
    "$densify",
    "$facet",
    "$fill",
    "$geoNear",
    "$graphLookup",
    "$indexStats",
    "$lookup",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
    "$rankFusion",
    "$sample",
    "$search",
    "$searchMeta",
    "$setWindowFields",
    "$shardedDataDistribution",
    "$sortByCount",
    "$unionWith",
    "$unwind",
    "$vectorSearch",
];

/// The stages by which documents come and go.
const ENDS: [&str; 9] = [
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$out",
    "$merge",
    "$documents",
    "$listLocalSessions",
    "$listSessions",
    "$collStats",
    "$currentOp",
];

/// Reads stages: documents with one field each.
///
/// # Errors
///
/// Fails as servers do if a stage has another form, or is not known.
pub(crate) fn parse(stages: &[Bson]) -> Result<Vec<(String, Bson)>, StoreError> {
    let read = stages.iter().map(|stage| {
        let (name, value) = named(stage)?;
        if UNKNOWN_HERE.contains(&name.as_str()) {
            return Err(StoreError::not_implemented(name));
        }
        match is_known(name) {
            true => Ok((name.clone(), value.clone())),
            false => Err(unrecognized(name)),
        }
    });
    read.collect()
}

/// Reads the name of a stage, and what it is to do.
///
/// # Errors
///
/// Fails as servers do if it is no document, or one of several fields.
pub(crate) fn named(stage: &Bson) -> Result<(&String, &Bson), StoreError> {
    let wrong = || StoreError::new(14, "Each element of the 'pipeline' array must be an object");
    let mut fields = stage.as_document().ok_or_else(wrong)?.iter();
    match (fields.next(), fields.next()) {
        (Some(field), None) => Ok(field),
        _ => {
            let reason = "A pipeline stage specification object must contain exactly one field.";
            Err(StoreError::new(40323, reason))
        }
    }
}

/// Returns whether servers know a stage of that name.
pub(crate) fn is_known(name: &str) -> bool {
    STAGES.contains(&name) || ENDS.contains(&name) || UNKNOWN_HERE.contains(&name)
}

/// No server knows a stage of that name.
pub(crate) fn unrecognized(name: &str) -> StoreError {
    const LONGEST: usize = 64;
    let name: String = name.chars().take(LONGEST).collect();
    StoreError::new(40324, format!("Unrecognized pipeline stage name: '{name}'"))
}

/// Takes documents through a stage.
///
/// # Errors
///
/// Fails if the stage makes no sense, and if it makes documents that are nested too deeply.
pub(crate) fn through(
    documents: Documents,
    name: &str,
    value: &Bson,
    context: &Context,
) -> Result<Documents, StoreError> {
    let made = made_by(documents, name, value, context)?;
    match made.iter().any(|it| path::is_too_deep(it, path::MAX_LEVELS)) {
        true => Err(StoreError::too_deep(path::MAX_LEVELS)),
        false => Ok(made),
    }
}

fn made_by(
    documents: Documents,
    name: &str,
    value: &Bson,
    context: &Context,
) -> Result<Documents, StoreError> {
    match name {
        "$match" => {
            let wrong =
                || StoreError::new(15959, "the match filter must be an expression in an object");
            let filter = Filter::parse(value.as_document().ok_or_else(wrong)?, context)?;
            let mut found = Vec::new();
            for document in documents {
                if filter.matches(&document, context)? {
                    found.push(document);
                }
            }
            Ok(found)
        }
        "$redact" => {
            redact::check(value, context)?;
            let seen = documents.iter().map(|it| redact::redacted(it, value, context));
            seen.filter_map(|it| it.map(|it| it.map(Arc::new)).transpose()).collect()
        }
        "$sort" => {
            let wrong = || StoreError::new(15973, "the $sort key specification must be an object");
            let mut documents = documents;
            Sort::parse(value.as_document().ok_or_else(wrong)?)?
                .apply(&mut documents, context.collation);
            Ok(documents)
        }
        "$skip" => Ok(documents.into_iter().skip(amount(name, value)?).collect()),
        "$limit" => match amount(name, value)? {
            0 => Err(StoreError::new(15958, "the limit must be positive")),
            limit => Ok(documents.into_iter().take(limit).collect()),
        },
        "$count" => {
            let field =
                value.as_str().filter(|it| !it.is_empty() && !it.contains(['$', '.', '\0']));
            let wrong = || StoreError::new(40157, "$count is the name of a field");
            let field = field.ok_or_else(wrong)?;
            Ok(match documents.len() {
                0 => Vec::new(),
                count => vec![Arc::new(doc! { field: expression::count(count) })],
            })
        }
        "$group" => grouped(&documents, value, context),
        _ => {
            let shaped =
                documents.iter().map(|it| Ok(Arc::new(reshaped(name, value, it, context)?)));
            shaped.collect()
        }
    }
}

fn amount(name: &str, value: &Bson) -> Result<usize, StoreError> {
    let code = match name {
        "$limit" => 5_107_201,
        _ => 5_107_200,
    };
    let wrong = || StoreError::new(code, format!("invalid argument to {name} stage"));
    let amount = whole(value).filter(|it| *it >= 0).ok_or_else(wrong)?;
    Ok(usize::try_from(amount).unwrap_or(usize::MAX))
}

/// Makes another document of one, by a stage that looks at each on its own.
///
/// # Errors
///
/// Fails if the stage makes no sense.
pub(crate) fn reshaped(
    name: &str,
    value: &Bson,
    document: &Document,
    context: &Context,
) -> Result<Document, StoreError> {
    match (name, value) {
        ("$project", Bson::Document(projection)) => {
            if projection.is_empty() {
                let reason = "projection specification must have at least one field";
                return Err(StoreError::new(51272, reason));
            }
            Projection::parse(projection, context)?.apply(document, context)
        }
        ("$addFields" | "$set", Bson::Document(fields)) => {
            let mut made = document.clone();
            for (path, expression) in fields {
                expression::check(expression, context)?;
                match expression::evaluate(expression, document, context)? {
                    Some(value) => path::set(&mut made, path, value),
                    None => path::remove(&mut made, path),
                }
            }
            Ok(made)
        }
        ("$unset", Bson::String(path)) => {
            let mut made = document.clone();
            path::remove(&mut made, path);
            Ok(made)
        }
        ("$unset", Bson::Array(paths)) => {
            let mut made = document.clone();
            paths.iter().filter_map(Bson::as_str).for_each(|it| path::remove(&mut made, it));
            Ok(made)
        }
        ("$replaceRoot" | "$replaceWith", value) => {
            let root = match (name, value) {
                ("$replaceRoot", Bson::Document(options)) => options.get("newRoot"),
                (_, value) => Some(value),
            };
            let wrong =
                || StoreError::new(40228, "'newRoot' expression must evaluate to an object");
            let root = root.ok_or_else(wrong)?;
            expression::check(root, context)?;
            match expression::evaluate(root, document, context)? {
                Some(Bson::Document(made)) => Ok(made),
                _ => Err(wrong()),
            }
        }
        _ => Err(StoreError::new(40272, format!("{name} specification stage must be an object"))),
    }
}

fn grouped(
    documents: &Documents,
    value: &Bson,
    context: &Context,
) -> Result<Documents, StoreError> {
    let wrong = || StoreError::new(15947, "a group's fields must be specified in an object");
    let group = value.as_document().ok_or_else(wrong)?;
    for (name, accumulator) in group.iter().filter(|(name, _)| *name != "_id") {
        let fields = accumulator.as_document().map(Document::len);
        if fields != Some(1) {
            let reason = format!("The field '{name}' must be an accumulator object");
            return Err(StoreError::new(40234, reason));
        }
    }
    let Some(id) = group.get("_id") else {
        return Err(StoreError::new(15955, "a group specification must include an _id"));
    };
    expression::check(id, context)?;
    let mut groups: BTreeMap<Key, Vec<&Document>> = BTreeMap::new();
    for document in documents {
        let key = expression::evaluate(id, document, context)?.unwrap_or(Bson::Null);
        groups.entry(Key(key)).or_default().push(document);
    }
    let mut made = Vec::new();
    for (key, members) in groups {
        let mut result = doc! { "_id": key.0 };
        for (name, accumulator) in group.iter().filter(|(name, _)| *name != "_id") {
            let accumulator = accumulator.as_document().and_then(|it| it.iter().next());
            let Some((operator, argument)) = accumulator else { continue };
            expression::check(argument, context)?;
            let values = members.iter().map(|it| expression::evaluate(argument, it, context));
            let values: Vec<Option<Bson>> = values.collect::<Result<_, _>>()?;
            result.insert(name, accumulated(operator, values, context)?);
        }
        made.push(Arc::new(result));
    }
    Ok(made)
}

fn accumulated(
    operator: &str,
    values: Vec<Option<Bson>>,
    context: &Context,
) -> Result<Bson, StoreError> {
    let present = || values.iter().flatten();
    let numbers = || present().filter(|it| number(it).is_some());
    Ok(match operator {
        "$sum" => numbers().try_fold(Bson::Int32(0), |sum, value| expression::add(&sum, value))?,
        "$count" => expression::count(values.len()),
        "$avg" => match numbers().count() {
            0 => Bson::Null,
            #[allow(clippy::cast_precision_loss, reason = "as servers do")]
            count => Bson::Double(numbers().filter_map(number).sum::<f64>() / count as f64),
        },
        "$min" => {
            let least = present().min_by(|a, b| context.collation.compare(a, b));
            least.cloned().unwrap_or(Bson::Null)
        }
        "$max" => {
            let greatest = present().max_by(|a, b| context.collation.compare(a, b));
            greatest.cloned().unwrap_or(Bson::Null)
        }
        "$first" => values.into_iter().next().flatten().unwrap_or(Bson::Null),
        "$last" => values.into_iter().next_back().flatten().unwrap_or(Bson::Null),
        "$push" => Bson::Array(values.into_iter().flatten().collect()),
        "$addToSet" => {
            let mut set: Vec<Bson> = Vec::new();
            for value in values.into_iter().flatten() {
                if !set.iter().any(|it| context.collation.is_equal(it, &value)) {
                    set.push(value);
                }
            }
            Bson::Array(set)
        }
        _ => return Err(StoreError::new(15952, format!("unknown group operator '{operator}'"))),
    })
}
