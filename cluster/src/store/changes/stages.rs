//! The stages behind `$changeStream`: those that look at each event on its own.

use std::sync::Arc;

use bson::{Bson, Document};
use sdam_core::bson;

use crate::options::ServerVersion;
use crate::store::pipeline::{self, named};
use crate::store::{Context, Projection, StoreError, expression, redact};

/// The stage that cuts events which are too large into several.
const SPLIT: &str = "$changeStreamSplitLargeEvent";

/// The stages that a stream may have.
const ALLOWED: [&str; 8] = [
    "$match",
    "$project",
    "$addFields",
    "$set",
    "$unset",
    "$replaceRoot",
    "$replaceWith",
    "$redact",
];

/// The stages of an application, which each event goes through.
#[derive(Clone, Debug, Default)]
pub(super) struct Stages {
    stages: Vec<(String, Bson)>,
    /// They end with the one that cuts large events.
    pub(super) splits: bool,
}

impl Stages {
    /// Reads the stages that follow `$changeStream`.
    ///
    /// # Errors
    ///
    /// Fails as servers do with those that are not allowed or make no sense, and by name with those
    /// that are not known here.
    pub(super) fn parse(
        pipeline: &[Bson],
        version: ServerVersion,
        context: &Context,
    ) -> Result<Self, StoreError> {
        let mut read = Self::default();
        for (index, stage) in pipeline.iter().enumerate() {
            let (name, value) = named(stage)?;
            if name == SPLIT && version >= ServerVersion::V6_0 {
                check_split(value, index + 1 == pipeline.len())?;
                read.splits = true;
                continue;
            }
            check_allowed(name, version)?;
            check(name, value, context)?;
            read.stages.push((name.clone(), value.clone()));
        }
        Ok(read)
    }

    /// Returns what becomes of an event; none if it is left out.
    ///
    /// # Errors
    ///
    /// Fails if a stage does, or with `ChangeStreamFatalError` if the token is not in it any more.
    pub(super) fn through(
        &self,
        event: Document,
        context: &Context,
    ) -> Result<Option<Document>, StoreError> {
        let token = event.get("_id").cloned();
        let mut events = vec![Arc::new(event)];
        for (name, value) in &self.stages {
            events = pipeline::through(events, name, value, context)?;
        }
        match events.pop().map(Arc::unwrap_or_clone) {
            Some(event) if event.get("_id") != token.as_ref() => Err(StoreError::new(
                280,
                "Encountered an event whose _id field, which contains the resume token, was \
                 modified by the pipeline. Modifying the _id field of an event makes it impossible \
                 to resume the stream from that point. Only transformations that retain the \
                 unmodified _id field are allowed.",
            )),
            event => Ok(event),
        }
    }
}

fn check_split(value: &Bson, is_last: bool) -> Result<(), StoreError> {
    let (code, reason) = match value {
        Bson::Document(options) if options.is_empty() && is_last => return Ok(()),
        Bson::Document(options) if options.is_empty() => {
            (7_182_802, "must be the last stage in the pipeline")
        }
        Bson::Document(_) => (7_182_800, "spec should be an empty object"),
        _ => (7_182_899, "must take a nested object"),
    };
    Err(StoreError::new(code, format!("{SPLIT} {reason}")))
}

fn check_allowed(name: &str, version: ServerVersion) -> Result<(), StoreError> {
    if ALLOWED.contains(&name) {
        return Ok(());
    }
    if name == "$changeStream" {
        let reason = format!("{name} is only valid as the first stage in a pipeline");
        return Err(StoreError::new(40602, reason));
    }
    if name == SPLIT && version < ServerVersion::V6_0 || !pipeline::is_known(name) {
        return Err(pipeline::unrecognized(name));
    }
    // What they consist of is named.
    let name = if matches!(name, "$count" | "$sortByCount") { "$group" } else { name };
    Err(StoreError::new(20, format!("{name} is not permitted in a $changeStream pipeline")))
}

/// Checks a stage as far as that does not depend on events.
fn check(name: &str, value: &Bson, context: &Context) -> Result<(), StoreError> {
    match (name, value) {
        ("$redact", _) => redact::check(value, context),
        ("$match", _) => pipeline::through(Vec::new(), name, value, context).map(drop),
        ("$project", Bson::Document(projection)) => {
            Projection::parse(projection, context).map(drop)
        }
        ("$addFields" | "$set", Bson::Document(fields)) => {
            fields.values().try_for_each(|it| expression::check(it, context))
        }
        _ => Ok(()),
    }
}
