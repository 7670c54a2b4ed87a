//! Stages with pipelines of their own, or over other collections: `$lookup`, `$unionWith`,
//! `$facet`.

use std::sync::Arc;

use bson::{Bson, Document};
use sdam_core::bson;

use super::{
    error::StoreError,
    expression::{self, Context},
    filter::{Filter, Test, type_name},
    path,
    pipeline::{self, Documents},
    view::Source,
};
use crate::options::ServerVersion;

/// A `$lookup`: which documents of which collection belong to one.
struct Lookup<'a> {
    from: &'a str,
    into: &'a str,
    /// The field of the document, and that of the other collection which is equal to it.
    fields: Option<(&'a str, &'a str)>,
    variables: Document,
    /// The stages, unless fields alone are compared.
    stages: Vec<(String, Bson)>,
}

impl<'a> Lookup<'a> {
    fn parse(value: &'a Bson, version: ServerVersion) -> Result<Self, StoreError> {
        let wrong = |reason: String| StoreError::new(9, reason);
        let Bson::Document(options) = value else {
            let found = type_name(value);
            let reason =
                format!("the $lookup stage specification must be an object, but found {found}");
            return Err(wrong(reason));
        };
        for (name, value) in options {
            match (name.as_str(), value) {
                ("let", Bson::Document(_)) | ("pipeline", Bson::Array(_)) => {}
                ("let", _) => return Err(wrong("$lookup argument 'let' must be an object".into())),
                ("pipeline", _) => {
                    return Err(wrong("'pipeline' option must be specified as an array".into()));
                }
                ("from" | "as" | "localField" | "foreignField", Bson::String(_)) => {}
                (_, Bson::String(_)) => {
                    return Err(wrong(format!("unknown argument to $lookup: {name}")));
                }
                (_, value) => {
                    let found = type_name(value);
                    let reason =
                        format!("$lookup argument '{name}' must be a string, found {found}");
                    return Err(wrong(reason));
                }
            }
        }
        let text = |name: &str| options.get_str(name).ok();
        let into =
            text("as").ok_or_else(|| wrong("must specify 'as' field for a $lookup".into()))?;
        let from = text("from").ok_or_else(|| {
            wrong("must specify 'from' field for a $lookup, or documents, not known here".into())
        })?;
        let pipeline = options.get_array("pipeline").ok();
        let fields = match (text("localField"), text("foreignField"), pipeline) {
            (Some(_), _, Some(_)) | (_, Some(_), Some(_)) if version < ServerVersion::V5_0 => {
                let reason =
                    "$lookup with 'pipeline' may not specify 'localField' or 'foreignField'";
                return Err(wrong(reason.into()));
            }
            (Some(local), Some(foreign), _) => Some((local, foreign)),
            (None, None, Some(_)) => None,
            _ => {
                let reason = "$lookup requires either 'pipeline' or both 'localField' and \
                              'foreignField' to be specified";
                return Err(wrong(reason.into()));
            }
        };
        let paths = fields.into_iter().flat_map(|(local, foreign)| [local, foreign]);
        for path in paths.chain([into]) {
            if path.split('.').any(|part| part.starts_with('$')) {
                let reason = "FieldPath field names may not start with '$'. Consider using \
                              $getField or $setField.";
                return Err(StoreError::new(16410, reason));
            }
        }
        if path::is_too_long(into) {
            return Err(StoreError::too_deep(path::MAX_LEVELS));
        }
        let stages = inner_stages(pipeline.map_or(&[][..], |it| it), "$lookup")?;
        let variables = options.get_document("let").cloned().unwrap_or_default();
        check_variables(&variables)?;
        Ok(Self { from, into, fields, variables, stages })
    }

    /// Returns the documents of the other collection that belong to one.
    fn found(
        &self,
        document: &Document,
        source: Source<'_>,
        context: &Context,
    ) -> Result<Documents, StoreError> {
        let filter = match self.fields {
            None => Filter::All(Vec::new()),
            Some((local, foreign)) => {
                let values = path::values(document, local).into_iter();
                let values = values.flat_map(|value| match value {
                    Some(Bson::Array(list)) if !list.is_empty() => list.clone(),
                    Some(Bson::Array(_)) | None => vec![Bson::Null],
                    Some(value) => vec![value.clone()],
                });
                Filter::Field(foreign.to_owned(), Test::In(values.collect(), Vec::new()))
            }
        };
        let mut own = context.clone();
        for (name, value) in &self.variables {
            let value = expression::evaluate(value, document, context)?.unwrap_or(Bson::Undefined);
            own.variables.insert(name, value);
        }
        let documents = source.found(self.from, &filter, &own)?;
        source.through(documents, &self.stages, &own)
    }
}

/// Reads the stages of a pipeline within another.
fn inner_stages(stages: &[Bson], of: &str) -> Result<Vec<(String, Bson)>, StoreError> {
    let stages = pipeline::parse(stages)?;
    match stages.iter().find(|(name, _)| pipeline::ENDS.contains(&name.as_str())) {
        Some((name, _)) => {
            let code = if of == "$facet" { 40600 } else { 51047 };
            let reason = format!("{name} is not allowed within a {of}'s sub-pipeline");
            Err(StoreError::new(code, reason))
        }
        None => Ok(stages),
    }
}

fn check_variables(variables: &Document) -> Result<(), StoreError> {
    let is_name =
        |it: &&String| it.starts_with(|it: char| it.is_ascii_lowercase() || !it.is_ascii());
    match variables.keys().find(|it| !is_name(it)) {
        Some(name) => {
            let reason =
                format!("'{name}' starts with an invalid character for a user variable name");
            Err(StoreError::new(16867, reason))
        }
        None => Ok(()),
    }
}

/// Puts into each document those of another collection that belong to it.
pub(super) fn looked_up(
    documents: &Documents,
    value: &Bson,
    source: Source<'_>,
    context: &Context,
) -> Result<Documents, StoreError> {
    let lookup = Lookup::parse(value, source.version)?;
    let within = source.within()?;
    let joined = documents.iter().map(|document| {
        let found = lookup.found(document, within, context)?;
        let found = found.iter().map(|it| Bson::Document(Document::clone(it))).collect();
        let mut made = Document::clone(document);
        path::set(&mut made, lookup.into, Bson::Array(found));
        Ok(Arc::new(made))
    });
    joined.collect()
}

/// Adds the documents of another collection.
pub(super) fn united(
    mut documents: Documents,
    value: &Bson,
    source: Source<'_>,
    context: &Context,
) -> Result<Documents, StoreError> {
    let wrong =
        || StoreError::new(9, "the $unionWith stage specification must be an object or string");
    let (collection, stages) = match value {
        Bson::String(collection) => (collection.as_str(), Vec::new()),
        Bson::Document(options) => {
            if let Some(name) =
                options.keys().find(|it| !["coll", "pipeline"].contains(&it.as_str()))
            {
                let reason = format!("BSON field '$unionWith.{name}' is an unknown field.");
                return Err(StoreError::new(40415, reason));
            }
            let stages = options.get_array("pipeline").map_or(&[][..], |it| it);
            let stages = inner_stages(stages, "$unionWith")?;
            (options.get_str("coll").map_err(|_| wrong())?, stages)
        }
        _ => return Err(wrong()),
    };
    let within = source.within()?;
    let others = within.all(collection, context)?;
    documents.extend(within.through(others, &stages, context)?);
    Ok(documents)
}

/// Makes one document of what several pipelines make of the same documents.
pub(super) fn faceted(
    documents: &Documents,
    value: &Bson,
    source: Source<'_>,
    context: &Context,
) -> Result<Documents, StoreError> {
    let wrong = || StoreError::new(40169, "the $facet specification must be a non-empty object");
    let facets = value.as_document().filter(|it| !it.is_empty()).ok_or_else(wrong)?;
    let within = source.within()?;
    let mut made = Document::new();
    for (name, stages) in facets {
        let wrong =
            || StoreError::new(40170, format!("arguments to $facet must be arrays: {name}"));
        let stages = inner_stages(stages.as_array().ok_or_else(wrong)?, "$facet")?;
        let found = within.through(documents.clone(), &stages, context)?;
        let found = found.iter().map(|it| Bson::Document(Document::clone(it))).collect();
        made.insert(name, Bson::Array(found));
    }
    Ok(vec![Arc::new(made)])
}
