//! Filters: what a document must be like to be found.

use std::cmp::Ordering;

use bson::{Bson, Document};
use sdam_core::bson;

use super::{
    compare::{rank, whole},
    error::StoreError,
    expression::{self, Context},
    path,
};

/// A filter that has been read.
#[derive(Clone, Debug)]
pub(crate) enum Filter {
    /// All of these.
    All(Vec<Filter>),
    /// At least one of these.
    Any(Vec<Filter>),
    /// None of these.
    Nor(Vec<Filter>),
    /// An expression that is true.
    Expression(Bson),
    /// A test of the values at a path.
    Field(String, Test),
}

/// A test of a value.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Equals(Bson),
    /// Less, equal or greater: one of these orderings, among values of one type.
    Ordered(&'static [Ordering], Bson),
    In(Vec<Bson>),
    Exists(bool),
    /// The numbers of types, 0 for any number.
    Type(Vec<Option<i64>>),
    Size(i64),
    Modulo(i64, i64),
    /// Every one of these tests.
    Each(Vec<Test>),
    Not(Box<Test>),
    /// One element of an array is a document that this finds.
    Element(Box<Filter>),
    /// One element of an array passes all of these.
    ElementValue(Vec<Test>),
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    ///
    /// Fails as servers do if an operator is not known, or its argument is none.
    pub(crate) fn parse(filter: &Document, context: &Context) -> Result<Self, StoreError> {
        let parts = filter.iter().map(|(name, value)| {
            let list = || {
                let wrong = || StoreError::bad_value(format!("{name} must be an array"));
                let list = value.as_array().ok_or_else(wrong)?;
                if list.is_empty() {
                    return Err(StoreError::bad_value("$and/$or/$nor must be a nonempty array"));
                }
                let parse = |it: &Bson| match it {
                    Bson::Document(filter) => Self::parse(filter, context),
                    _ => {
                        let reason = "$or/$and/$nor entries need to be full objects";
                        Err(StoreError::bad_value(reason))
                    }
                };
                list.iter().map(parse).collect()
            };
            Ok(match name.as_str() {
                "$and" => Self::All(list()?),
                "$or" => Self::Any(list()?),
                "$nor" => Self::Nor(list()?),
                "$expr" => {
                    expression::check(value, context)?;
                    Self::Expression(value.clone())
                }
                "$comment" => Self::All(Vec::new()),
                "$jsonSchema" | "$where" | "$text" | "$sampleRate" | "$alwaysTrue"
                | "$alwaysFalse" => {
                    return Err(StoreError::not_implemented(name));
                }
                _ if name.starts_with('$') => {
                    let reason = format!("unknown top level operator: {name}");
                    return Err(StoreError::bad_value(reason));
                }
                _ => Self::Field(name.clone(), Test::parse(value, context)?),
            })
        });
        Ok(Self::All(parts.collect::<Result<_, StoreError>>()?))
    }

    /// Returns whether a document is found.
    ///
    /// # Errors
    ///
    /// Fails if an expression does.
    pub(crate) fn matches(
        &self,
        document: &Document,
        context: &Context,
    ) -> Result<bool, StoreError> {
        let any = |filters: &[Self]| {
            for filter in filters {
                if filter.matches(document, context)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        match self {
            Self::All(filters) => {
                for filter in filters {
                    if !filter.matches(document, context)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(filters) => any(filters),
            Self::Nor(filters) => Ok(!any(filters)?),
            Self::Expression(expression) => {
                let value = expression::evaluate(expression, document, context)?;
                Ok(expression::is_true(value.as_ref()))
            }
            Self::Field(path, test) => test.passes(&path::values(document, path), context),
        }
    }

    /// Returns the `_id` that every document that is found has, if there is one only.
    pub(crate) fn single_id(&self) -> Option<&Bson> {
        match self {
            Self::All(filters) => filters.iter().find_map(Self::single_id),
            Self::Field(path, Test::Equals(id)) if path == "_id" => {
                let is_scalar = !matches!(id, Bson::Array(_) | Bson::Null);
                is_scalar.then_some(id)
            }
            Self::Field(path, Test::Each(tests)) if path == "_id" => match &tests[..] {
                [Test::Equals(id)] if !matches!(id, Bson::Array(_) | Bson::Null) => Some(id),
                _ => None,
            },
            _ => None,
        }
    }

    /// Adds the values that an upsert takes over from the filter.
    pub(crate) fn seed(&self, document: &mut Document) {
        match self {
            Self::All(filters) => filters.iter().for_each(|it| it.seed(document)),
            Self::Any(filters) if filters.len() == 1 => filters[0].seed(document),
            Self::Field(name, Test::Equals(value)) => path::set(document, name, value.clone()),
            Self::Field(name, Test::Each(tests)) => {
                for test in tests {
                    match test {
                        Test::Equals(value) => path::set(document, name, value.clone()),
                        Test::In(values) if values.len() == 1 => {
                            path::set(document, name, values[0].clone());
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

impl Test {
    /// Reads what is said of a field: an operator or several, or a value.
    fn parse(value: &Bson, context: &Context) -> Result<Self, StoreError> {
        if let Bson::RegularExpression(_) = value {
            return Err(StoreError::not_implemented("a regular expression"));
        }
        let operators = value.as_document().filter(|it| {
            let first = it.keys().next();
            first.is_some_and(|name| name.starts_with('$') && name != "$ref" && name != "$id")
        });
        match operators {
            Some(operators) => Ok(Self::Each(Self::parse_all(operators, context)?)),
            None => Ok(Self::Equals(value.clone())),
        }
    }

    fn parse_all(operators: &Document, context: &Context) -> Result<Vec<Self>, StoreError> {
        operators.iter().map(|(name, value)| Self::parse_one(name, value, context)).collect()
    }

    fn parse_one(name: &str, value: &Bson, context: &Context) -> Result<Self, StoreError> {
        let list = || {
            let wrong = || StoreError::bad_value(format!("{name} needs an array"));
            value.as_array().cloned().ok_or_else(wrong)
        };
        let number = || {
            let wrong = || StoreError::bad_value(format!("{name} needs a number"));
            whole(value).ok_or_else(wrong)
        };
        let is_regex = matches!(value, Bson::RegularExpression(_));
        Ok(match name {
            "$ne" | "$gt" | "$gte" | "$lt" | "$lte" if is_regex => {
                let reason = format!("Can't have regex as arg to {name}.");
                return Err(StoreError::bad_value(reason));
            }
            "$eq" => Self::Equals(value.clone()),
            "$ne" => Self::Not(Box::new(Self::Equals(value.clone()))),
            "$gt" => Self::Ordered(&[Ordering::Greater], value.clone()),
            "$gte" => Self::Ordered(&[Ordering::Greater, Ordering::Equal], value.clone()),
            "$lt" => Self::Ordered(&[Ordering::Less], value.clone()),
            "$lte" => Self::Ordered(&[Ordering::Less, Ordering::Equal], value.clone()),
            "$in" => Self::among(list()?)?,
            "$nin" => Self::Not(Box::new(Self::among(list()?)?)),
            "$exists" => Self::Exists(expression::is_true(Some(value))),
            "$size" => Self::Size(number()?),
            "$type" => Self::Type(types(value)?),
            "$mod" => match &list()?[..] {
                [divisor, rest] => match (whole(divisor), whole(rest)) {
                    (Some(0), _) => return Err(StoreError::bad_value("divisor cannot be 0")),
                    (Some(divisor), Some(rest)) => Self::Modulo(divisor, rest),
                    _ => return Err(StoreError::bad_value("malformed mod")),
                },
                _ => return Err(StoreError::bad_value("malformed mod, two numbers needed")),
            },
            "$all" => {
                let tests = list()?.into_iter().map(|it| Self::parse(&it, context));
                let tests: Vec<Self> = tests.collect::<Result<_, _>>()?;
                match tests.is_empty() {
                    true => Self::In(Vec::new()),
                    false => Self::Each(tests),
                }
            }
            "$not" => match value {
                Bson::Document(_) => Self::Not(Box::new(Self::parse(value, context)?)),
                Bson::RegularExpression(_) => {
                    return Err(StoreError::not_implemented("a regular expression"));
                }
                _ => return Err(StoreError::bad_value("$not needs a regex or a document")),
            },
            "$elemMatch" => {
                let wrong = || StoreError::bad_value("$elemMatch needs an Object");
                let inner = value.as_document().ok_or_else(wrong)?;
                let by_value = inner.keys().next().is_some_and(|it| {
                    it.starts_with('$') && !["$and", "$or", "$nor", "$expr"].contains(&it.as_str())
                });
                match by_value {
                    true => Self::ElementValue(Self::parse_all(inner, context)?),
                    false => Self::Element(Box::new(Filter::parse(inner, context)?)),
                }
            }
            name if UNKNOWN_HERE.contains(&name) => {
                return Err(StoreError::not_implemented(name));
            }
            _ => return Err(StoreError::bad_value(format!("unknown operator: {name}"))),
        })
    }

    /// Returns whether values of a path pass; those of arrays among them count one by one, too.
    fn passes(&self, values: &[Option<&Bson>], context: &Context) -> Result<bool, StoreError> {
        let any = |passes: &dyn Fn(Option<&Bson>) -> bool| {
            values.iter().any(|value| {
                let elements = value.and_then(Bson::as_array).into_iter().flatten();
                passes(*value) || elements.into_iter().any(|it| passes(Some(it)))
            })
        };
        let equals = |value: Option<&Bson>, wanted: &Bson| match value {
            Some(value) => context.collation.is_equal(value, wanted),
            None => matches!(wanted, Bson::Null),
        };
        let arrays = || values.iter().filter_map(|value| value.and_then(Bson::as_array));
        Ok(match self {
            Self::Equals(wanted) => any(&|value| equals(value, wanted)),
            Self::In(list) => any(&|value| list.iter().any(|wanted| equals(value, wanted))),
            Self::Ordered(orderings, limit) => any(&|value| {
                let value = value.unwrap_or(&Bson::Null);
                let is_alike =
                    rank(value) == rank(limit) || matches!(limit, Bson::MinKey | Bson::MaxKey);
                is_alike && orderings.contains(&context.collation.compare(value, limit))
            }),
            Self::Exists(wanted) => values.iter().any(Option::is_some) == *wanted,
            Self::Type(types) => any(&|value| {
                value.is_some_and(|it| types.iter().any(|wanted| is_of_type(it, *wanted)))
            }),
            Self::Size(size) => {
                arrays().any(|array| i64::try_from(array.len()).is_ok_and(|it| it == *size))
            }
            Self::Modulo(divisor, rest) => any(&|value| {
                value.and_then(whole).is_some_and(|it| it.wrapping_rem(*divisor) == *rest)
            }),
            Self::Each(tests) => {
                for test in tests {
                    if !test.passes(values, context)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Not(test) => !test.passes(values, context)?,
            Self::Element(filter) => {
                for element in arrays().flatten().filter_map(Bson::as_document) {
                    if filter.matches(element, context)? {
                        return Ok(true);
                    }
                }
                false
            }
            Self::ElementValue(tests) => {
                for element in arrays().flatten() {
                    let mut all = true;
                    for test in tests {
                        all &= test.passes(&[Some(element)], context)?;
                    }
                    if all {
                        return Ok(true);
                    }
                }
                false
            }
        })
    }

    /// Reads the list of `$in`.
    fn among(list: Vec<Bson>) -> Result<Self, StoreError> {
        for value in &list {
            match value {
                Bson::RegularExpression(_) => {
                    return Err(StoreError::not_implemented("a regular expression"));
                }
                Bson::Document(operators)
                    if operators.keys().next().is_some_and(|it| it.starts_with('$')) =>
                {
                    return Err(StoreError::bad_value("cannot nest $ under $in"));
                }
                _ => {}
            }
        }
        Ok(Self::In(list))
    }

    /// Returns whether one value passes on its own.
    pub(crate) fn passes_one(&self, value: &Bson, context: &Context) -> Result<bool, StoreError> {
        self.passes(&[Some(value)], context)
    }

    /// Reads what is said of an element of an array, as `$pull` does.
    pub(crate) fn of_element(value: &Bson, context: &Context) -> Result<Self, StoreError> {
        Self::parse(value, context)
    }
}

/// The operators that servers know, and this store does not.
const UNKNOWN_HERE: [&str; 15] = [
    "$regex",
    "$options",
    "$bitsAllSet",
    "$bitsAllClear",
    "$bitsAnySet",
    "$bitsAnyClear",
    "$near",
    "$nearSphere",
    "$geoWithin",
    "$geoIntersects",
    "$within",
    "$geoNear",
    "$center",
    "$box",
    "$polygon",
];

/// Reads the types that `$type` names, by number or by alias; none stands for all numbers.
fn types(value: &Bson) -> Result<Vec<Option<i64>>, StoreError> {
    let one = |value: &Bson| match value {
        Bson::String(name) if name == "number" => Ok(None),
        Bson::String(name) => match TYPES.iter().find(|(known, _)| known == name) {
            Some((_, number)) => Ok(Some(*number)),
            None => Err(StoreError::bad_value(format!("Unknown type name alias: {name}"))),
        },
        number => match whole(number) {
            Some(number) => Ok(Some(number)),
            None => Err(StoreError::new(14, "type must be represented as a number or a string")),
        },
    };
    match value {
        Bson::Array(list) => list.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}

/// The names of types and their numbers.
const TYPES: [(&str, i64); 21] = [
    ("double", 1),
    ("string", 2),
    ("object", 3),
    ("array", 4),
    ("binData", 5),
    ("undefined", 6),
    ("objectId", 7),
    ("bool", 8),
    ("date", 9),
    ("null", 10),
    ("regex", 11),
    ("dbPointer", 12),
    ("javascript", 13),
    ("symbol", 14),
    ("javascriptWithScope", 15),
    ("int", 16),
    ("timestamp", 17),
    ("long", 18),
    ("decimal", 19),
    ("minKey", -1),
    ("maxKey", 127),
];

fn is_of_type(value: &Bson, wanted: Option<i64>) -> bool {
    match wanted {
        None => rank(value) == rank(&Bson::Int32(0)),
        Some(wanted) => {
            let number = value.element_type() as u8;
            let number = i64::from(number);
            // Servers number it -1.
            let number = if matches!(value, Bson::MinKey) { -1 } else { number };
            number == wanted
        }
    }
}

/// Returns the name that servers have for the type of a value.
pub(crate) fn type_name(value: &Bson) -> &'static str {
    let number = i64::from(value.element_type() as u8);
    let known = TYPES.iter().find(|(_, it)| *it == number);
    known.map_or("minKey", |(name, _)| name)
}
