//! Expressions: values that are computed from a document and from variables.

use std::cmp::Ordering;

use bson::{Bson, DateTime, Document};
use sdam_core::bson;

use super::{
    compare::{Collation, integer, number},
    error::StoreError,
    filter::type_name,
    path,
};

/// The circumstances of a command that filters and expressions depend on.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The values of `let`.
    pub(crate) variables: Document,
    pub(crate) collation: Collation,
    /// The value of `$rand`.
    pub(crate) random: f64,
    /// The value of `$$NOW`.
    pub(crate) now: DateTime,
}

impl Context {
    /// Returns the context of a command with these variables, whose values are expressions.
    ///
    /// # Errors
    ///
    /// Fails if one of them cannot be computed.
    pub(crate) fn with_variables(mut self, variables: &Document) -> Result<Self, StoreError> {
        for (name, value) in variables {
            let value = evaluate(value, &Document::new(), &self)?.unwrap_or(Bson::Null);
            // Each may have those before it within.
            if path::exceeds(&value, path::MAX_LEVELS) {
                return Err(StoreError::too_deep(path::MAX_LEVELS));
            }
            self.variables.insert(name, value);
        }
        Ok(self)
    }
}

/// The variables that there are besides those of `let`.
const KNOWN: [&str; 4] = ["ROOT", "CURRENT", "NOW", "REMOVE"];

/// The operators that are known.
const OPERATORS: [&str; 28] = [
    "$literal",
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$cmp",
    "$and",
    "$or",
    "$not",
    "$cond",
    "$ifNull",
    "$add",
    "$subtract",
    "$multiply",
    "$concat",
    "$setField",
    "$getField",
    "$type",
    "$size",
    "$rand",
    "$in",
    "$arrayElemAt",
    "$mergeObjects",
    "$toString",
    "$unsetField",
    "$binarySize",
];

/// Checks that operators and variables are known.
///
/// # Errors
///
/// Says which is not.
pub(crate) fn check(expression: &Bson, context: &Context) -> Result<(), StoreError> {
    match expression {
        Bson::String(text) => match text.strip_prefix("$$") {
            Some(variable) => {
                let name = variable.split('.').next().unwrap_or_default();
                match KNOWN.contains(&name) || context.variables.contains_key(name) {
                    true => Ok(()),
                    false => {
                        let reason = format!("Use of undefined variable: {name}");
                        Err(StoreError::new(17276, reason))
                    }
                }
            }
            None => Ok(()),
        },
        Bson::Array(list) => list.iter().try_for_each(|it| check(it, context)),
        Bson::Document(document) => document.iter().try_for_each(|(name, value)| {
            if name == "$literal" {
                return Ok(());
            }
            if name.starts_with('$') && !OPERATORS.contains(&name.as_str()) {
                let reason = format!("Unrecognized expression '{name}'");
                return Err(StoreError::new(168, reason));
            }
            check(value, context)
        }),
        _ => Ok(()),
    }
}

/// Returns whether a value counts as true.
pub(crate) fn is_true(value: Option<&Bson>) -> bool {
    match value {
        None | Some(Bson::Null | Bson::Undefined | Bson::Boolean(false)) => false,
        Some(value) => number(value).is_none_or(|it| it != 0.0),
    }
}

/// Computes an expression; `None` is a value that is missing.
///
/// # Errors
///
/// Fails if an operator or a variable is not known, or an argument is of the wrong type.
pub(crate) fn evaluate(
    expression: &Bson,
    document: &Document,
    context: &Context,
) -> Result<Option<Bson>, StoreError> {
    match expression {
        Bson::String(text) => match (text.strip_prefix("$$"), text.strip_prefix('$')) {
            (Some(variable), _) => self::variable(variable, document, context),
            (None, Some(path)) => Ok(path::value(document, path)),
            (None, None) => Ok(Some(expression.clone())),
        },
        Bson::Array(list) => {
            let values =
                list.iter().map(|it| Ok(evaluate(it, document, context)?.unwrap_or(Bson::Null)));
            Ok(Some(Bson::Array(values.collect::<Result<_, StoreError>>()?)))
        }
        Bson::Document(fields) => match fields.iter().next() {
            Some((name, argument)) if name.starts_with('$') => {
                if fields.len() > 1 {
                    let reason = "an expression has one operator";
                    return Err(StoreError::new(15983, reason));
                }
                operator(name, argument, document, context)
            }
            _ => {
                let mut computed = Document::new();
                for (name, value) in fields {
                    if let Some(value) = evaluate(value, document, context)? {
                        computed.insert(name, value);
                    }
                }
                Ok(Some(Bson::Document(computed)))
            }
        },
        value => Ok(Some(value.clone())),
    }
}

fn variable(
    name: &str,
    document: &Document,
    context: &Context,
) -> Result<Option<Bson>, StoreError> {
    let (name, path) = name.split_once('.').map_or((name, None), |(a, b)| (a, Some(b)));
    let value = match (context.variables.get(name), name) {
        (Some(value), _) => Some(value.clone()),
        (None, "ROOT" | "CURRENT") => Some(Bson::Document(document.clone())),
        (None, "NOW") => Some(Bson::DateTime(context.now)),
        (None, "REMOVE") => None,
        _ => {
            let reason = format!("Use of undefined variable: {name}");
            return Err(StoreError::new(17276, reason));
        }
    };
    Ok(match (value, path) {
        (Some(value), Some(path)) => path::value_within(&value, path),
        (value, _) => value,
    })
}

fn operator(
    name: &str,
    argument: &Bson,
    document: &Document,
    context: &Context,
) -> Result<Option<Bson>, StoreError> {
    if name == "$literal" {
        return Ok(Some(argument.clone()));
    }
    if matches!(name, "$setField" | "$unsetField" | "$getField") {
        return field(name, argument, document, context);
    }
    let compute = |it: &Bson| evaluate(it, document, context);
    if let ("$cond", Bson::Document(parts)) = (name, argument) {
        let part = |name: &str| parts.get(name).map_or(Ok(None), compute);
        return part(if is_true(part("if")?.as_ref()) { "then" } else { "else" });
    }
    let arguments: Vec<Option<Bson>> = match argument {
        Bson::Array(list) => list.iter().map(compute).collect::<Result<_, _>>()?,
        single => vec![compute(single)?],
    };
    let comparison = || match &arguments[..] {
        [a, b] => {
            let value = |it: &Option<Bson>| it.clone().unwrap_or(Bson::Undefined);
            Ok(context.collation.compare(&value(a), &value(b)))
        }
        _ => Err(StoreError::new(16020, format!("Expression {name} takes exactly 2 arguments"))),
    };
    Ok(Some(match name {
        "$eq" => comparison()?.is_eq().into(),
        "$ne" => comparison()?.is_ne().into(),
        "$gt" => comparison()?.is_gt().into(),
        "$gte" => comparison()?.is_ge().into(),
        "$lt" => comparison()?.is_lt().into(),
        "$lte" => comparison()?.is_le().into(),
        "$cmp" => match comparison()? {
            Ordering::Less => Bson::Int32(-1),
            Ordering::Equal => Bson::Int32(0),
            Ordering::Greater => Bson::Int32(1),
        },
        "$and" => arguments.iter().all(|it| is_true(it.as_ref())).into(),
        "$or" => arguments.iter().any(|it| is_true(it.as_ref())).into(),
        "$not" => (!is_true(arguments.first().and_then(Option::as_ref))).into(),
        "$rand" => context.random.into(),
        "$cond" => match &arguments[..] {
            [condition, then, otherwise] => {
                let chosen = if is_true(condition.as_ref()) { then } else { otherwise };
                return Ok(chosen.clone());
            }
            _ => return Err(StoreError::new(16020, "$cond takes exactly 3 arguments")),
        },
        "$ifNull" => {
            let is_there =
                |it: &&Option<Bson>| !matches!(it, None | Some(Bson::Null | Bson::Undefined));
            let chosen = arguments.iter().find(is_there).or(arguments.last());
            return Ok(chosen.cloned().flatten());
        }
        _ => return value_of(name, &arguments).map(Some),
    }))
}

/// Computes the operators that need nothing but the values of their arguments.
fn value_of(name: &str, arguments: &[Option<Bson>]) -> Result<Bson, StoreError> {
    let first = arguments.first().and_then(Option::as_ref);
    let is_missing = |it: &Option<Bson>| matches!(it, None | Some(Bson::Null | Bson::Undefined));
    Ok(match name {
        "$add" | "$subtract" | "$multiply" | "$concat" if arguments.iter().any(is_missing) => {
            Bson::Null
        }
        "$add" => folded(arguments, &Bson::Int32(0), add)?,
        "$multiply" => folded(arguments, &Bson::Int32(1), multiply)?,
        "$subtract" => match arguments {
            [Some(a), Some(b)] => add(a, &multiply(b, &Bson::Int32(-1))?)?,
            _ => return Err(StoreError::new(16020, "$subtract takes exactly 2 arguments")),
        },
        "$concat" => {
            let wrong = || StoreError::new(16702, "$concat only supports strings");
            let texts =
                arguments.iter().map(|it| it.as_ref().and_then(Bson::as_str).ok_or_else(wrong));
            Bson::String(texts.collect::<Result<_, _>>()?)
        }
        "$type" => first.map_or("missing", type_name).into(),
        "$toString" => match first {
            None | Some(Bson::Null) => Bson::Null,
            Some(Bson::String(text)) => text.as_str().into(),
            Some(other) => other.to_string().into(),
        },
        "$size" => {
            let wrong = || StoreError::new(17124, "The argument to $size must be an array");
            count(first.and_then(Bson::as_array).ok_or_else(wrong)?.len())
        }
        "$binarySize" => match first {
            None | Some(Bson::Null | Bson::Undefined) => Bson::Null,
            Some(Bson::Binary(binary)) => count(length_of(binary)),
            Some(Bson::String(text)) => count(text.len()),
            Some(other) => {
                let kind = type_name(other);
                let reason =
                    format!("$binarySize requires a string or BinData argument, found: {kind}");
                return Err(StoreError::new(51276, reason));
            }
        },
        "$in" => match arguments {
            [value, Some(Bson::Array(list))] => {
                let value = value.clone().unwrap_or(Bson::Undefined);
                list.iter().any(|it| Collation::Simple.is_equal(it, &value)).into()
            }
            _ => return Err(StoreError::new(40081, "$in requires an array as a second argument")),
        },
        "$arrayElemAt" => match arguments {
            [Some(Bson::Array(list)), Some(index)] => {
                let index = integer(index).unwrap_or(0);
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let index = if index < 0 { index.saturating_add(length) } else { index };
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                list.get(index).cloned().unwrap_or(Bson::Null)
            }
            _ => Bson::Null,
        },
        "$mergeObjects" => {
            let mut merged = Document::new();
            for document in arguments.iter().flatten().filter_map(Bson::as_document) {
                merged.extend(document.clone());
            }
            Bson::Document(merged)
        }
        _ => {
            let reason = format!("Unrecognized expression '{name}'");
            return Err(StoreError::new(168, reason));
        }
    })
}

/// Returns the length of binary data as servers count it: the old subtype has it a second time.
fn length_of(binary: &bson::Binary) -> usize {
    match binary.subtype {
        bson::spec::BinarySubtype::BinaryOld => binary.bytes.len() + 4,
        _ => binary.bytes.len(),
    }
}

/// Computes `$setField`, `$unsetField` and `$getField`, by which a field of any name is reached.
fn field(
    operator: &str,
    argument: &Bson,
    document: &Document,
    context: &Context,
) -> Result<Option<Bson>, StoreError> {
    let parts = match argument {
        Bson::Document(parts) if !parts.keys().any(|name| name.starts_with('$')) => parts.clone(),
        name => bson::doc! { "field": name.clone(), "input": "$$CURRENT" },
    };
    let part = |name: &str| match parts.get(name) {
        Some(part) => evaluate(part, document, context),
        None => Ok(None),
    };
    let Some(Bson::String(name)) = part("field")? else {
        let reason = format!("{operator} requires 'field' to evaluate to type String");
        return Err(StoreError::new(4_161_107, reason));
    };
    let mut input = match part("input")? {
        Some(Bson::Document(input)) => input,
        None | Some(Bson::Null | Bson::Undefined) => return Ok(Some(Bson::Null)),
        Some(_) if operator == "$getField" => return Ok(None),
        Some(_) => {
            let reason = format!("{operator} requires 'input' to evaluate to type Object");
            return Err(StoreError::new(4_161_105, reason));
        }
    };
    match (operator, part("value")?) {
        ("$getField", _) => return Ok(input.remove(&name)),
        ("$setField", Some(value)) => drop(input.insert(name, value)),
        _ => drop(input.remove(&name)),
    }
    Ok(Some(Bson::Document(input)))
}

fn folded(
    arguments: &[Option<Bson>],
    start: &Bson,
    fold: fn(&Bson, &Bson) -> Result<Bson, StoreError>,
) -> Result<Bson, StoreError> {
    arguments.iter().flatten().try_fold(start.clone(), |sum, it| fold(&sum, it))
}

/// Adds two numbers: the sum has the wider of both types.
///
/// # Errors
///
/// Fails if one of them is none.
pub(crate) fn add(a: &Bson, b: &Bson) -> Result<Bson, StoreError> {
    calculated(a, b, i64::checked_add, |a, b| a + b)
}

/// Multiplies two numbers: the product has the wider of both types.
///
/// # Errors
///
/// Fails if one of them is none.
pub(crate) fn multiply(a: &Bson, b: &Bson) -> Result<Bson, StoreError> {
    calculated(a, b, i64::checked_mul, |a, b| a * b)
}

fn calculated(
    a: &Bson,
    b: &Bson,
    exact: fn(i64, i64) -> Option<i64>,
    rough: fn(f64, f64) -> f64,
) -> Result<Bson, StoreError> {
    if let (Some(left), Some(right)) = (integer(a), integer(b)) {
        let result = exact(left, right)
            .ok_or_else(|| StoreError::bad_value("the result does not fit into 64 bits"))?;
        let narrow = i32::try_from(result).ok();
        let is_narrow = matches!((a, b), (Bson::Int32(_), Bson::Int32(_)));
        return Ok(narrow.filter(|_| is_narrow).map_or(Bson::Int64(result), Bson::Int32));
    }
    match (number(a), number(b)) {
        (Some(a), Some(b)) => Ok(Bson::Double(rough(a, b))),
        _ => Err(StoreError::new(14, "only numbers can be calculated with")),
    }
}

/// Returns a number of things.
pub(crate) fn count(count: usize) -> Bson {
    i32::try_from(count).map_or(Bson::Int64(i64::MAX), Bson::Int32)
}
