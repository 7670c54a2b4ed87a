//! The options that a collection is created with: what they may be, and what servers add to them.
//!
//! With the codes and defaults of 5.0.4 and 6.0.5.

use bson::{Bson, Document, doc};
use sdam_core::bson;

use crate::options::ServerVersion;
use crate::wire::CommandError;

/// The granularities of a time series, and the seconds that a bucket of each spans.
const GRANULARITIES: [(&str, i32); 3] =
    [("seconds", 3_600), ("minutes", 86_400), ("hours", 2_592_000)];

/// Checks the options of a new collection, and adds what they imply.
///
/// # Errors
///
/// Fails as servers do.
pub(super) fn complete(
    mut options: Document,
    version: ServerVersion,
) -> Result<Document, CommandError> {
    let is = |name: &str| options.contains_key(name);
    let (is_series, is_clustered) = (is("timeseries"), is("clusteredIndex"));
    if is("expireAfterSeconds") && !is_series && !is_clustered {
        let reason = "'expireAfterSeconds' is only supported on time-series collections or when \
                      the 'clusteredIndex' option is specified";
        return Err(CommandError::coded(72, reason));
    }
    if is_clustered && is("size") {
        let reason = "'size' field for capped collections is not allowed on clustered collections";
        return Err(CommandError::numbered(6_049_200, reason));
    }
    let combined = ["capped", "viewOn"].into_iter().find(|it| is_series && is(it));
    if let Some(other) = combined {
        let reason = format!("'timeseries' is not allowed with '{other}'");
        return Err(CommandError::coded(72, reason));
    }
    if is("capped") && crate::store::is_true(options.get("capped")) && !is("size") && !is_clustered
    {
        return Err(CommandError::coded(72, "the 'size' field is required when 'capped' is true"));
    }
    if is_clustered {
        let index = clustered(&options, version)?;
        options.insert("clusteredIndex", index);
    }
    if is_series {
        let series = series(&options, version)?;
        options.insert("timeseries", series);
    }
    Ok(options)
}

/// Returns the description of the index that a collection is clustered by.
fn clustered(options: &Document, version: ServerVersion) -> Result<Document, CommandError> {
    let given = match options.get_document("clusteredIndex") {
        Ok(given) if version >= ServerVersion::V6_0 => given,
        Err(_) if version >= ServerVersion::V6_0 => {
            let reason = "The 'clusteredIndex' legacy format {clusteredIndex: <bool>} is only \
                          supported for specific internal collections and vice versa";
            return Err(CommandError::numbered(5_979_703, reason));
        }
        _ => {
            let reason = "BSON field 'create.clusteredIndex' is the wrong type";
            return Err(CommandError::coded(14, reason));
        }
    };
    check_fields(given, "create", &["v", "key", "name", "unique"])?;
    let unique = given.get("unique").ok_or_else(|| missing("create.unique"))?;
    if given.get("key") != Some(&Bson::Document(doc! { "_id": 1 })) {
        let reason = "The clusteredIndex option is only supported for key: {_id: 1}";
        return Err(CommandError::coded(197, reason));
    }
    if !crate::store::is_true(Some(unique)) {
        let reason = "The clusteredIndex option requires unique: true to be specified";
        return Err(CommandError::numbered(5_979_700, reason));
    }
    let number = given.get("v").map_or(Some(2), crate::store::whole);
    if number != Some(2) {
        let reason = "Invalid clusteredIndex specification: its v is 2";
        return Err(CommandError::numbered(5_979_704, reason));
    }
    let name = given.get_str("name").unwrap_or("_id_");
    Ok(doc! { "v": 2, "key": { "_id": 1 }, "name": name, "unique": true })
}

/// Returns the description of a time series.
fn series(options: &Document, version: ServerVersion) -> Result<Document, CommandError> {
    if version < ServerVersion::V5_0 {
        let reason = "BSON field 'create.timeseries' is an unknown field.";
        return Err(CommandError::numbered(40415, reason));
    }
    let wrong = |_| CommandError::coded(14, "BSON field 'create.timeseries' is the wrong type");
    let mut series = options.get_document("timeseries").map_err(wrong)?.clone();
    let known = ["timeField", "metaField", "granularity", "bucketMaxSpanSeconds"];
    let rounding = (version >= ServerVersion::V7_0).then_some("bucketRoundingSeconds");
    let known: Vec<&str> = known.into_iter().chain(rounding).collect();
    check_fields(&series, "create.timeseries", &known)?;
    let time = series.get_str("timeField").map_err(|_| missing("create.timeseries.timeField"))?;
    let wrong = |reason: &str| Err(CommandError::coded(72, reason));
    if time.contains('.') {
        return wrong("'timeField' must be a top-level field and not contain a '.'");
    }
    match series.get_str("metaField") {
        Ok("_id") => return wrong("'metaField' cannot be \"_id\""),
        Ok(meta) if meta == time => return wrong("'metaField' cannot be the same as 'timeField'"),
        _ => {}
    }
    if series.contains_key("bucketRoundingSeconds") {
        let spans = ["bucketMaxSpanSeconds", "bucketRoundingSeconds"].map(|it| series.get(it));
        return match spans[0] == spans[1] && !series.contains_key("granularity") {
            true => Ok(series),
            false => wrong("'bucketRoundingSeconds' is that of 'bucketMaxSpanSeconds'"),
        };
    }
    let granularity = series.get_str("granularity").unwrap_or("seconds").to_owned();
    let Some((_, span)) = GRANULARITIES.iter().find(|(name, _)| *name == granularity) else {
        let reason = format!(
            "Enumeration value '{granularity}' for field 'create.timeseries.granularity' is not a \
             valid value."
        );
        return Err(CommandError::coded(2, reason));
    };
    let asked = series.get("bucketMaxSpanSeconds").and_then(crate::store::whole);
    if asked.is_some_and(|it| it != i64::from(*span)) {
        let reason = "Timeseries 'bucketMaxSpanSeconds' is that of the granularity";
        return Err(CommandError::numbered(5_510_500, reason));
    }
    series.insert("granularity", granularity);
    series.insert("bucketMaxSpanSeconds", *span);
    Ok(series)
}

fn missing(field: &str) -> CommandError {
    let reason = format!("BSON field '{field}' is missing but a required field");
    CommandError::numbered(40414, reason)
}

fn check_fields(document: &Document, of: &str, known: &[&str]) -> Result<(), CommandError> {
    match document.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            let reason = format!("BSON field '{of}.{name}' is an unknown field.");
            Err(CommandError::numbered(40415, reason))
        }
        None => Ok(()),
    }
}
