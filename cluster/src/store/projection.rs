//! Projections: which fields of a document are given, and which are computed.

use bson::{Bson, Document};
use sdam_core::bson;

use super::{
    compare::whole,
    error::StoreError,
    expression::{self, Context},
    filter::{Filter, Test},
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
    /// Paths of arrays, and which of their elements are given.
    elements: Vec<(String, Elements)>,
}

/// The elements of an array that are given.
#[derive(Clone, Debug)]
enum Elements {
    /// The one by which the document was found (`$`).
    Found,
    /// The first one that passes (`$elemMatch`).
    First(Box<Test>),
    /// Those from a place on, the end if it is negative, up to a number (`$slice`).
    Slice(i64, usize),
}

impl Projection {
    /// Reads a projection.
    ///
    /// # Errors
    ///
    /// Fails if it includes fields and excludes others, or if an expression is not known.
    pub(crate) fn parse(projection: &Document, context: &Context) -> Result<Self, StoreError> {
        let mut read = Self {
            includes: false,
            with_id: true,
            paths: Vec::new(),
            computed: Vec::new(),
            elements: Vec::new(),
        };
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

    /// Reads a projection of what is found, which may have some elements of arrays given.
    ///
    /// # Errors
    ///
    /// Fails if it includes fields and excludes others, or if an expression is not known.
    pub(crate) fn of_found(projection: &Document, context: &Context) -> Result<Self, StoreError> {
        let (mut rest, mut elements) = (Document::new(), Vec::new());
        for (name, value) in projection {
            if let Some(path) = name.strip_suffix(".$") {
                if elements.iter().any(|(_, it)| matches!(it, Elements::Found)) {
                    let reason = "Cannot specify more than one positional projection per query.";
                    return Err(StoreError::new(31276, reason));
                }
                elements.push((path.to_owned(), Elements::Found));
                rest.insert(path, 1);
                continue;
            }
            let operator = value.as_document().filter(|it| it.len() == 1);
            match operator.and_then(|it| it.iter().next()).map(|(name, it)| (name.as_str(), it)) {
                Some(("$elemMatch", _)) => {
                    let test = Box::new(Test::of_element(value, context)?);
                    elements.push((name.clone(), Elements::First(test)));
                    rest.insert(name, 1);
                }
                Some(("$slice", argument)) => {
                    elements.push((name.clone(), Elements::slice(argument)?));
                }
                _ => drop(rest.insert(name, value.clone())),
            }
        }
        let mut read = Self::parse(&rest, context)?;
        if read.includes {
            let more = elements.iter().map(|(path, _)| path.clone());
            let more: Vec<String> = more.filter(|it| !read.paths.contains(it)).collect();
            read.paths.extend(more);
        }
        read.elements = elements;
        Ok(read)
    }

    /// Returns what is given of a document that a filter has found.
    ///
    /// # Errors
    ///
    /// Fails if an expression does, or if no element of an array was found.
    pub(crate) fn apply_to(
        &self,
        document: &Document,
        filter: &Filter,
        context: &Context,
    ) -> Result<Document, StoreError> {
        let mut given = self.apply(document, context)?;
        for (path, elements) in &self.elements {
            let position = match elements {
                Elements::Found => filter.position(document, context)?,
                _ => None,
            };
            path::change(&mut given, path, &|value| elements.of(value, position, context))?;
        }
        Ok(given)
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

impl Elements {
    /// Reads the argument of `$slice`.
    fn slice(argument: &Bson) -> Result<Self, StoreError> {
        let count = |it: i64| usize::try_from(it.unsigned_abs()).unwrap_or(usize::MAX);
        let wrong = || {
            let reason = "$slice needs a number, or an array of a number and a positive one";
            StoreError::new(28724, reason)
        };
        match argument {
            Bson::Array(pair) => match &pair[..] {
                [skip, limit] => match (whole(skip), whole(limit)) {
                    (Some(skip), Some(limit @ 1..)) => Ok(Self::Slice(skip, count(limit))),
                    _ => Err(wrong()),
                },
                _ => Err(wrong()),
            },
            number => match whole(number).ok_or_else(wrong)? {
                last @ ..0 => Ok(Self::Slice(last, count(last))),
                first => Ok(Self::Slice(0, count(first))),
            },
        }
    }

    /// Returns what is given in the place of a value.
    fn of(
        &self,
        value: Bson,
        position: Option<usize>,
        context: &Context,
    ) -> Result<Option<Bson>, StoreError> {
        let Bson::Array(list) = value else {
            return Ok(Some(value).filter(|_| !matches!(self, Self::First(_))));
        };
        match self {
            Self::Found => {
                let found = position.and_then(|at| list.into_iter().nth(at));
                let wrong = || {
                    let reason = "Executor error during find command :: caused by :: positional \
                                  operator '.$' couldn't find a matching element in the array";
                    StoreError::new(51246, reason)
                };
                Ok(Some(Bson::Array(vec![found.ok_or_else(wrong)?])))
            }
            Self::First(test) => {
                for element in list {
                    let alone = Bson::Array(vec![element.clone()]);
                    if test.passes_one(&alone, context)? {
                        return Ok(Some(Bson::Array(vec![element])));
                    }
                }
                Ok(None)
            }
            Self::Slice(from, count) => {
                let distance = usize::try_from(from.unsigned_abs()).unwrap_or(usize::MAX);
                let skip = if *from < 0 { list.len().saturating_sub(distance) } else { distance };
                Ok(Some(Bson::Array(list.into_iter().skip(skip).take(*count).collect())))
            }
        }
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
