//! Projections: which fields of a document are given, and which are computed.

use bson::{Bson, Document};
use sdam_core::bson;

use super::{
    error::StoreError,
    expression::{self, Context},
    path,
};

/// A projection that has been read.
#[derive(Clone, Debug)]
pub(crate) struct Projection {
    /// Named fields are given, and no others; or else the others.
    includes: bool,
    with_id: bool,
    paths: Vec<String>,
    /// Paths and the expressions that are computed for them.
    computed: Vec<(String, Bson)>,
}

impl Projection {
    /// Reads a projection.
    ///
    /// # Errors
    ///
    /// Fails if it includes fields and excludes others, or if an expression is not known.
    pub(crate) fn parse(projection: &Document, context: &Context) -> Result<Self, StoreError> {
        let mut read =
            Self { includes: false, with_id: true, paths: Vec::new(), computed: Vec::new() };
        let mut includes = None;
        for (name, value) in projection {
            let is_flag = matches!(value, Bson::Boolean(_))
                || expression::add(value, &Bson::Int32(0)).is_ok();
            let flag = is_flag.then(|| expression::is_true(Some(value)));
            match flag {
                Some(flag) if name == "_id" => {
                    read.with_id = flag;
                    if flag && projection.len() == 1 {
                        includes = Some(true);
                    }
                }
                Some(flag) if includes.is_some_and(|it| it != flag) => {
                    let (does, code, kind) = match flag {
                        true => ("inclusion", 31253, "exclusion"),
                        false => ("exclusion", 31254, "inclusion"),
                    };
                    let reason = format!("Cannot do {does} on field {name} in {kind} projection");
                    return Err(StoreError::new(code, reason));
                }
                Some(flag) => {
                    includes = Some(flag);
                    read.paths.push(name.clone());
                }
                None => {
                    includes = Some(true);
                    expression::check(value, context).map_err(|error| match error.code {
                        168 => StoreError { code: 31325, ..error },
                        _ => error,
                    })?;
                    read.computed.push((name.clone(), value.clone()));
                }
            }
        }
        read.includes = includes.unwrap_or(false);
        Ok(read)
    }

    /// Reads a projection of what is found.
    ///
    /// # Errors
    ///
    /// Fails also for what gives some elements of arrays, by its name.
    pub(crate) fn of_found(projection: &Document, context: &Context) -> Result<Self, StoreError> {
        const OPERATORS: [&str; 2] = ["$elemMatch", "$slice"];
        for (name, value) in projection {
            let operator = value.as_document().and_then(|it| it.keys().next());
            if name.ends_with(".$") || operator.is_some_and(|it| OPERATORS.contains(&it.as_str())) {
                let what = operator.map_or("the positional operator $", String::as_str);
                let reason = format!("{what} in the projection of {name}");
                return Err(StoreError::not_implemented(&reason));
            }
        }
        Self::parse(projection, context)
    }

    /// Returns what is given of a document.
    ///
    /// # Errors
    ///
    /// Fails if an expression does.
    pub(crate) fn apply(
        &self,
        document: &Document,
        context: &Context,
    ) -> Result<Document, StoreError> {
        let mut given = if self.includes {
            let mut paths: Vec<&str> = self.paths.iter().map(String::as_str).collect();
            if self.with_id {
                paths.push("_id");
            }
            included(document, &paths)
        } else {
            let mut rest = document.clone();
            self.paths.iter().for_each(|path| path::remove(&mut rest, path));
            if !self.with_id {
                rest.remove("_id");
            }
            rest
        };
        for (path, expression) in &self.computed {
            if let Some(value) = expression::evaluate(expression, document, context)? {
                path::set(&mut given, path, value);
            }
        }
        Ok(given)
    }
}

/// Returns the fields at these paths, in the document's order.
fn included(document: &Document, paths: &[&str]) -> Document {
    let mut given = Document::new();
    for (name, value) in document {
        if paths.contains(&name.as_str()) {
            given.insert(name, value.clone());
            continue;
        }
        let inner = |it: &&str| Some(it.strip_prefix(name.as_str())?.strip_prefix('.')?.to_owned());
        let inner: Vec<String> = paths.iter().filter_map(inner).collect();
        let inner: Vec<&str> = inner.iter().map(String::as_str).collect();
        if let Some(value) = (!inner.is_empty()).then(|| included_within(value, &inner)).flatten() {
            given.insert(name, value);
        }
    }
    given
}

fn included_within(value: &Bson, paths: &[&str]) -> Option<Bson> {
    match value {
        Bson::Document(inner) => Some(Bson::Document(included(inner, paths))),
        Bson::Array(list) => {
            Some(Bson::Array(list.iter().filter_map(|it| included_within(it, paths)).collect()))
        }
        _ => None,
    }
}
