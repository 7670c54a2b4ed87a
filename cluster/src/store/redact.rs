//! `$redact`: the levels of a document that may be seen, as an expression judges each.

use bson::{Bson, Document};
use sdam_core::bson;

use super::error::StoreError;
use super::expression::{self, Context};

/// The values of the variables by which a level is judged.
const KEEP: &str = "keep";
const PRUNE: &str = "prune";
const DESCEND: &str = "descend";

/// Checks that operators and variables are known.
///
/// # Errors
///
/// Says which is not.
pub(crate) fn check(expression: &Bson, context: &Context) -> Result<(), StoreError> {
    expression::check(expression, &judging(&Document::new(), context))
}

/// Returns what may be seen of a document; none if nothing may be.
///
/// # Errors
///
/// Fails if the expression does, or has another value than these variables.
pub(crate) fn redacted(
    document: &Document,
    expression: &Bson,
    context: &Context,
) -> Result<Option<Document>, StoreError> {
    level(document, expression, &judging(document, context))
}

/// Returns the context in which the levels of a document are judged.
fn judging(root: &Document, context: &Context) -> Context {
    let mut context = context.clone();
    for (name, value) in [("KEEP", KEEP), ("PRUNE", PRUNE), ("DESCEND", DESCEND)] {
        context.variables.insert(name, value);
    }
    context.variables.insert("ROOT", root.clone());
    context
}

fn level(
    document: &Document,
    expression: &Bson,
    context: &Context,
) -> Result<Option<Document>, StoreError> {
    let verdict = expression::evaluate(expression, document, context)?;
    match verdict.as_ref().and_then(Bson::as_str) {
        Some(KEEP) => Ok(Some(document.clone())),
        Some(PRUNE) => Ok(None),
        Some(DESCEND) => {
            let mut seen = Document::new();
            for (name, value) in document {
                if let Some(value) = within(value, expression, context)? {
                    seen.insert(name, value);
                }
            }
            Ok(Some(seen))
        }
        _ => {
            let returned = verdict.map_or("MISSING".to_owned(), |it| it.to_string());
            let reason = format!(
                "$redact's expression should not return anything aside from the variables $$KEEP, \
                 $$DESCEND, and $$PRUNE, but returned {returned}"
            );
            Err(StoreError::new(17053, reason))
        }
    }
}

/// Returns what may be seen of a value: documents are judged, also those within arrays.
fn within(value: &Bson, expression: &Bson, context: &Context) -> Result<Option<Bson>, StoreError> {
    match value {
        Bson::Document(document) => Ok(level(document, expression, context)?.map(Bson::Document)),
        Bson::Array(list) => {
            let seen = list.iter().filter_map(|it| within(it, expression, context).transpose());
            Ok(Some(Bson::Array(seen.collect::<Result<_, _>>()?)))
        }
        value => Ok(Some(value.clone())),
    }
}
