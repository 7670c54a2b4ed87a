//! Schemas: what `$jsonSchema` demands of documents.

use bson::{Bson, Document, doc};
use sdam_core::bson;

use super::{
    compare::{Collation, integer, number, whole},
    error::StoreError,
    filter::{is_of_type, types},
    pattern::Pattern,
};

/// A schema: what is demanded of a value.
#[derive(Clone, Debug)]
pub(crate) struct Schema(Vec<Rule>);

/// A demand, by its keyword.
#[derive(Clone, Debug)]
struct Rule {
    keyword: String,
    specified: Bson,
    check: Check,
}

/// A demand; one that is about another type is met.
#[derive(Clone, Debug)]
enum Check {
    Type(Vec<Option<i64>>),
    Enum(Vec<Bson>),
    Minimum(Bson, Exclusive),
    Maximum(Bson, Exclusive),
    MultipleOf(Bson),
    MinLength(usize),
    MaxLength(usize),
    Pattern(Pattern),
    Required(Vec<String>),
    Properties(Vec<(String, Schema)>),
    PatternProperties(Vec<(Pattern, Schema)>),
    AdditionalProperties(Vec<String>, Vec<Pattern>, Others),
    MinProperties(usize),
    MaxProperties(usize),
    Dependencies(Vec<(String, Dependency)>),
    Items(Schema),
    ItemsInOrder(Vec<Schema>),
    AdditionalItems(usize, Others),
    MinItems(usize),
    MaxItems(usize),
    UniqueItems,
    AllOf(Vec<Schema>),
    AnyOf(Vec<Schema>),
    OneOf(Vec<Schema>),
    Not(Schema),
}

/// The limit itself is no longer allowed.
type Exclusive = bool;

/// The demand on fields or elements that are not named.
#[derive(Clone, Debug)]
enum Others {
    Allowed(bool),
    Like(Schema),
}

/// The demand on documents that have a field.
#[derive(Clone, Debug)]
enum Dependency {
    On(Vec<String>),
    Schema(Schema),
}

/// The names of types in JSON Schema, by their numbers; none is any number.
const JSON_TYPES: [(&str, Option<i64>); 6] = [
    ("string", Some(2)),
    ("object", Some(3)),
    ("array", Some(4)),
    ("boolean", Some(8)),
    ("null", Some(10)),
    ("number", None),
];

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    ///
    /// Fails with the codes of servers if a keyword is not known, or its argument is none.
    pub(crate) fn parse(schema: &Document) -> Result<Self, StoreError> {
        if schema.contains_key("type") && schema.contains_key("bsonType") {
            let reason = "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'";
            return Err(StoreError::new(9, reason));
        }
        let mut rules = Vec::new();
        for (keyword, value) in schema {
            if let Some(check) = Check::parse(keyword, value, schema)? {
                let (keyword, specified) = (keyword.clone(), value.clone());
                rules.push(Rule { keyword, specified, check });
            }
        }
        Ok(Self(rules))
    }

    /// Returns whether a document is as it should be.
    pub(crate) fn is_met_by(&self, document: &Document) -> bool {
        self.is_met(&Bson::Document(document.clone()))
    }

    fn is_met(&self, value: &Bson) -> bool {
        self.0.iter().all(|rule| rule.check.is_met(value))
    }

    /// Returns which rules a document breaks, in the form of the errors of servers.
    pub(crate) fn broken_by(&self, document: &Document) -> Vec<Document> {
        self.broken(&Bson::Document(document.clone()))
    }

    fn broken(&self, value: &Bson) -> Vec<Document> {
        let broken = self.0.iter().filter(|rule| !rule.check.is_met(value));
        broken.map(|rule| rule.report(value)).collect()
    }
}

impl Rule {
    fn report(&self, value: &Bson) -> Document {
        let mut report = doc! { "operatorName": self.keyword.as_str() };
        if let (Check::Properties(properties), Bson::Document(document)) = (&self.check, value) {
            let broken = properties.iter().filter_map(|(name, schema)| {
                let details = schema.broken(document.get(name)?);
                (!details.is_empty())
                    .then(|| doc! { "propertyName": name.as_str(), "details": details })
            });
            report.insert("propertiesNotSatisfied", broken.collect::<Vec<_>>());
            return report;
        }
        report.insert("specifiedAs", doc! { self.keyword.as_str(): self.specified.clone() });
        match (&self.check, value) {
            (Check::Required(names), Bson::Document(document)) => {
                let missing = names.iter().filter(|it| !document.contains_key(it)).cloned();
                report.insert("missingProperties", missing.collect::<Vec<_>>());
            }
            (_, Bson::Document(_) | Bson::Array(_)) => {}
            (_, value) => drop(report.insert("consideredValue", value.clone())),
        }
        report
    }
}

impl Check {
    /// Reads a keyword; none is said by those that only describe, or belong to another one.
    fn parse(keyword: &str, value: &Bson, schema: &Document) -> Result<Option<Self>, StoreError> {
        Ok(Some(match keyword {
            "title" | "description" => {
                text(keyword, value)?;
                return Ok(None);
            }
            "exclusiveMinimum" | "exclusiveMaximum" => {
                let other = if keyword == "exclusiveMinimum" { "minimum" } else { "maximum" };
                if !schema.contains_key(other) {
                    let reason = format!(
                        "$jsonSchema keyword '{other}' must be a present if {keyword} is present"
                    );
                    return Err(StoreError::new(9, reason));
                }
                return Ok(None);
            }
            "type" => Self::Type(json_types(value)?),
            "bsonType" => Self::Type(types(value)?),
            "enum" => Self::Enum(distinct(keyword, value)?),
            "minimum" => Self::Minimum(
                a_number(keyword, value)?,
                a_flag("exclusiveMinimum", schema.get("exclusiveMinimum"))?,
            ),
            "maximum" => Self::Maximum(
                a_number(keyword, value)?,
                a_flag("exclusiveMaximum", schema.get("exclusiveMaximum"))?,
            ),
            "multipleOf" => {
                let divisor = a_number(keyword, value)?;
                if number(&divisor).is_none_or(|it| it <= 0.0) {
                    let reason = "$jsonSchema keyword 'multipleOf' must have a positive value";
                    return Err(StoreError::new(9, reason));
                }
                Self::MultipleOf(divisor)
            }
            "minLength" => Self::MinLength(a_count(keyword, value)?),
            "maxLength" => Self::MaxLength(a_count(keyword, value)?),
            "pattern" => Self::Pattern(pattern(text(keyword, value)?)?),
            "required" => Self::Required(names(keyword, value)?),
            "minProperties" => Self::MinProperties(a_count(keyword, value)?),
            "maxProperties" => Self::MaxProperties(a_count(keyword, value)?),
            "minItems" => Self::MinItems(a_count(keyword, value)?),
            "maxItems" => Self::MaxItems(a_count(keyword, value)?),
            "uniqueItems" => match a_flag(keyword, Some(value))? {
                true => Self::UniqueItems,
                false => return Ok(None),
            },
            "allOf" => Self::AllOf(alternatives(keyword, value)?),
            "anyOf" => Self::AnyOf(alternatives(keyword, value)?),
            "oneOf" => Self::OneOf(alternatives(keyword, value)?),
            "not" => Self::Not(Schema::parse(object(keyword, value)?)?),
            _ => return Self::parse_nested(keyword, value, schema),
        }))
    }

    /// Reads the keywords about fields and elements.
    fn parse_nested(
        keyword: &str,
        value: &Bson,
        schema: &Document,
    ) -> Result<Option<Self>, StoreError> {
        let fields = |of: &str| match schema.get(of) {
            Some(value) => object(of, value).map(|it| it.keys().cloned().collect::<Vec<_>>()),
            None => Ok(Vec::new()),
        };
        Ok(Some(match keyword {
            "properties" => {
                let properties = object(keyword, value)?.iter().map(|(name, schema)| {
                    Ok((name.clone(), Schema::parse(object(name, schema)?)?))
                });
                Self::Properties(properties.collect::<Result<_, StoreError>>()?)
            }
            "patternProperties" => {
                let properties = object(keyword, value)?.iter().map(|(name, schema)| {
                    Ok((pattern(name)?, Schema::parse(object(name, schema)?)?))
                });
                Self::PatternProperties(properties.collect::<Result<_, StoreError>>()?)
            }
            "additionalProperties" => {
                let patterns = fields("patternProperties")?;
                let patterns = patterns.iter().map(|it| pattern(it)).collect::<Result<_, _>>()?;
                Self::AdditionalProperties(fields("properties")?, patterns, others(keyword, value)?)
            }
            "dependencies" => {
                let all = object(keyword, value)?.iter().map(|(name, value)| {
                    Ok((
                        name.clone(),
                        match value {
                            Bson::Document(schema) => Dependency::Schema(Schema::parse(schema)?),
                            value => Dependency::On(names(keyword, value)?),
                        },
                    ))
                });
                Self::Dependencies(all.collect::<Result<_, StoreError>>()?)
            }
            "items" => match value {
                Bson::Array(schemas) => {
                    let schemas = schemas.iter().map(|it| Schema::parse(object(keyword, it)?));
                    Self::ItemsInOrder(schemas.collect::<Result<_, _>>()?)
                }
                value => Self::Items(Schema::parse(object(keyword, value)?)?),
            },
            "additionalItems" => {
                let others = others(keyword, value)?;
                match schema.get("items") {
                    Some(Bson::Array(schemas)) => Self::AdditionalItems(schemas.len(), others),
                    // Without places there is nothing beside them.
                    _ => return Ok(None),
                }
            }
            "$ref" | "$schema" | "default" | "definitions" | "format" | "id" => {
                let reason = format!("$jsonSchema keyword '{keyword}' is not currently supported");
                return Err(StoreError::new(9, reason));
            }
            "encrypt" | "encryptMetadata" => {
                let what = format!("the $jsonSchema keyword '{keyword}'");
                return Err(StoreError::not_implemented(&what));
            }
            _ => {
                let reason = format!("Unknown $jsonSchema keyword: {keyword}");
                return Err(StoreError::new(9, reason));
            }
        }))
    }

    fn is_met(&self, value: &Bson) -> bool {
        match (self, value) {
            (Self::Type(types), value) => types.iter().any(|it| is_of_type(value, *it)),
            (Self::Enum(values), value) => {
                values.iter().any(|it| Collation::Simple.is_equal(it, value))
            }
            (Self::AllOf(schemas), value) => schemas.iter().all(|it| it.is_met(value)),
            (Self::AnyOf(schemas), value) => schemas.iter().any(|it| it.is_met(value)),
            (Self::OneOf(schemas), value) => {
                schemas.iter().filter(|it| it.is_met(value)).count() == 1
            }
            (Self::Not(schema), value) => !schema.is_met(value),
            (_, Bson::String(text)) => self.is_met_by_text(text, value),
            (_, Bson::Document(document)) => self.is_met_by_document(document),
            (_, Bson::Array(elements)) => self.is_met_by_elements(elements),
            (_, value) if number(value).is_some() => self.is_met_by_number(value),
            _ => true,
        }
    }

    fn is_met_by_text(&self, text: &str, value: &Bson) -> bool {
        match self {
            Self::MinLength(least) => text.chars().count() >= *least,
            Self::MaxLength(most) => text.chars().count() <= *most,
            Self::Pattern(pattern) => pattern.finds(value),
            _ => true,
        }
    }

    fn is_met_by_number(&self, value: &Bson) -> bool {
        let compare = |limit: &Bson| Collation::Simple.compare(value, limit);
        match self {
            Self::Minimum(limit, true) => compare(limit).is_gt(),
            Self::Minimum(limit, false) => compare(limit).is_ge(),
            Self::Maximum(limit, true) => compare(limit).is_lt(),
            Self::Maximum(limit, false) => compare(limit).is_le(),
            Self::MultipleOf(divisor) => match (integer(value), integer(divisor)) {
                (Some(value), Some(divisor)) => value.wrapping_rem(divisor) == 0,
                _ => match (number(value), number(divisor)) {
                    (Some(value), Some(divisor)) => value % divisor == 0.0,
                    _ => true,
                },
            },
            _ => true,
        }
    }

    fn is_met_by_document(&self, document: &Document) -> bool {
        let has = |names: &[String]| names.iter().all(|it| document.contains_key(it));
        match self {
            Self::Required(names) => has(names),
            Self::MinProperties(least) => document.len() >= *least,
            Self::MaxProperties(most) => document.len() <= *most,
            Self::Properties(properties) => properties
                .iter()
                .all(|(name, schema)| document.get(name).is_none_or(|value| schema.is_met(value))),
            Self::PatternProperties(properties) => document.iter().all(|(name, value)| {
                let mut meant = properties.iter().filter(|(it, _)| it.finds(&name.as_str().into()));
                meant.all(|(_, schema)| schema.is_met(value))
            }),
            Self::AdditionalProperties(names, patterns, others) => {
                let mut rest = document.iter().filter(|(name, _)| {
                    let matches = || patterns.iter().any(|it| it.finds(&name.as_str().into()));
                    !names.contains(name) && !matches()
                });
                rest.all(|(_, value)| others.allow(value))
            }
            Self::Dependencies(all) => {
                let mut meant = all.iter().filter(|(name, _)| document.contains_key(name));
                meant.all(|(_, dependency)| match dependency {
                    Dependency::On(names) => has(names),
                    Dependency::Schema(schema) => schema.is_met_by(document),
                })
            }
            _ => true,
        }
    }

    fn is_met_by_elements(&self, elements: &[Bson]) -> bool {
        match self {
            Self::Items(schema) => elements.iter().all(|it| schema.is_met(it)),
            Self::ItemsInOrder(schemas) => {
                elements.iter().zip(schemas).all(|(it, schema)| schema.is_met(it))
            }
            Self::AdditionalItems(named, others) => {
                elements.iter().skip(*named).all(|it| others.allow(it))
            }
            Self::MinItems(least) => elements.len() >= *least,
            Self::MaxItems(most) => elements.len() <= *most,
            Self::UniqueItems => !has_twice(elements),
            _ => true,
        }
    }
}

impl Others {
    fn allow(&self, value: &Bson) -> bool {
        match self {
            Self::Allowed(allowed) => *allowed,
            Self::Like(schema) => schema.is_met(value),
        }
    }
}

fn has_twice(values: &[Bson]) -> bool {
    let mut sorted: Vec<&Bson> = values.iter().collect();
    sorted.sort_by(|a, b| Collation::Simple.compare(a, b));
    sorted.windows(2).any(|pair| Collation::Simple.is_equal(pair[0], pair[1]))
}

fn mismatch(keyword: &str, wanted: &str) -> StoreError {
    StoreError::new(14, format!("$jsonSchema keyword '{keyword}' must be {wanted}"))
}

fn text<'a>(keyword: &str, value: &'a Bson) -> Result<&'a str, StoreError> {
    value.as_str().ok_or_else(|| mismatch(keyword, "of type string"))
}

fn object<'a>(keyword: &str, value: &'a Bson) -> Result<&'a Document, StoreError> {
    value.as_document().ok_or_else(|| mismatch(keyword, "an object"))
}

fn a_number(keyword: &str, value: &Bson) -> Result<Bson, StoreError> {
    match number(value) {
        Some(_) => Ok(value.clone()),
        None => Err(mismatch(keyword, "a number")),
    }
}

fn a_flag(keyword: &str, value: Option<&Bson>) -> Result<bool, StoreError> {
    match value {
        None => Ok(false),
        Some(Bson::Boolean(flag)) => Ok(*flag),
        Some(_) => Err(mismatch(keyword, "a boolean")),
    }
}

fn a_count(keyword: &str, value: &Bson) -> Result<usize, StoreError> {
    a_number(keyword, value)?;
    let count = whole(value).and_then(|it| usize::try_from(it).ok());
    count.ok_or_else(|| {
        StoreError::new(9, format!("Expected a non-negative number in: {keyword}: {value}"))
    })
}

/// Reads an array whose values are not empty and differ.
fn distinct(keyword: &str, value: &Bson) -> Result<Vec<Bson>, StoreError> {
    let values = value.as_array().ok_or_else(|| mismatch(keyword, "an array"))?;
    let wrong =
        |what: &str| Err(StoreError::new(9, format!("$jsonSchema keyword '{keyword}' {what}")));
    match () {
        () if values.is_empty() => wrong("cannot be an empty array"),
        () if has_twice(values) => wrong("array cannot contain duplicate values"),
        () => Ok(values.clone()),
    }
}

fn names(keyword: &str, value: &Bson) -> Result<Vec<String>, StoreError> {
    let values = distinct(keyword, value)?;
    values.iter().map(|it| Ok(text(keyword, it)?.to_owned())).collect()
}

fn alternatives(keyword: &str, value: &Bson) -> Result<Vec<Schema>, StoreError> {
    let schemas = value.as_array().ok_or_else(|| mismatch(keyword, "an array"))?;
    if schemas.is_empty() {
        let reason = format!("$jsonSchema keyword '{keyword}' must be a non-empty array");
        return Err(StoreError::bad_value(reason));
    }
    schemas.iter().map(|it| Schema::parse(object(keyword, it)?)).collect()
}

fn others(keyword: &str, value: &Bson) -> Result<Others, StoreError> {
    match value {
        Bson::Boolean(allowed) => Ok(Others::Allowed(*allowed)),
        Bson::Document(schema) => Ok(Others::Like(Schema::parse(schema)?)),
        _ => Err(mismatch(keyword, "an object or a boolean")),
    }
}

fn pattern(text: &str) -> Result<Pattern, StoreError> {
    Pattern::of_operators(&Bson::from(text), None)
}

fn json_types(value: &Bson) -> Result<Vec<Option<i64>>, StoreError> {
    let one = |value: &Bson| {
        let name = text("type", value)?;
        let known = JSON_TYPES.iter().find(|(known, _)| *known == name);
        match known {
            Some((_, number)) => Ok(*number),
            None if name == "integer" => {
                let reason = "$jsonSchema type 'integer' is not currently supported.";
                Err(StoreError::new(9, reason))
            }
            None => Err(StoreError::bad_value(format!("Unknown type name alias: {name}"))),
        }
    };
    match value {
        Bson::Array(list) => list.iter().map(one).collect(),
        value => Ok(vec![one(value)?]),
    }
}
