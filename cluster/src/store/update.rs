//! Updates: replacements, operators and pipelines.

use bson::{Bson, Document};
use sdam_core::bson;

use super::{
    catalog::{Act, Edit, Touched},
    compare::whole,
    error::StoreError,
    expression::{self, Context},
    filter::{Filter, Test},
    path::{MAX_LEVELS, is_too_deep, is_too_long},
    pipeline,
};

/// An update that has been read.
#[derive(Clone, Debug)]
pub(crate) enum Update {
    /// Another document with the same `_id`.
    Replacement(Document),
    /// Operators, each with its paths and arguments.
    Operators(Vec<(Operator, String, Bson)>, Filters),
    /// Stages that make another document of it.
    Pipeline(Vec<(String, Bson)>),
}

/// The filters of `arrayFilters` by the names of their elements.
pub(crate) type Filters = Vec<(String, Filter)>;

/// An operator of updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Set,
    SetOnInsert,
    Unset,
    Inc,
    Mul,
    Min,
    Max,
    Rename,
    Push,
    AddToSet,
    Pull,
    PullAll,
    Pop,
    CurrentDate,
}

impl Operator {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "$set" => Self::Set,
            "$setOnInsert" => Self::SetOnInsert,
            "$unset" => Self::Unset,
            "$inc" => Self::Inc,
            "$mul" => Self::Mul,
            "$min" => Self::Min,
            "$max" => Self::Max,
            "$rename" => Self::Rename,
            "$push" => Self::Push,
            "$addToSet" => Self::AddToSet,
            "$pull" => Self::Pull,
            "$pullAll" => Self::PullAll,
            "$pop" => Self::Pop,
            "$currentDate" => Self::CurrentDate,
            _ => return None,
        })
    }
}

/// The stages that an update may consist of.
const STAGES: [&str; 6] =
    ["$addFields", "$set", "$project", "$unset", "$replaceRoot", "$replaceWith"];

impl Update {
    /// Reads an update with the filters of its arrays.
    ///
    /// # Errors
    ///
    /// Fails as servers do if an operator is not known or an array filter makes no sense.
    pub(crate) fn parse(
        update: &Bson,
        array_filters: &[Bson],
        context: &Context,
    ) -> Result<Self, StoreError> {
        match update {
            Bson::Document(update)
                if update.keys().next().is_some_and(|it| it.starts_with('$')) =>
            {
                let filters = parse_filters(array_filters, context)?;
                Ok(Self::Operators(operators(update, &filters)?, filters))
            }
            Bson::Document(replacement) => Ok(Self::Replacement(replacement.clone())),
            Bson::Array(stages) => {
                let stages = pipeline::parse(stages)?;
                for (name, _) in &stages {
                    if !STAGES.contains(&name.as_str()) {
                        let reason = format!("{name} is not allowed to be used within an update");
                        return Err(StoreError::new(72, reason));
                    }
                }
                Ok(Self::Pipeline(stages))
            }
            _ => Err(StoreError::new(9, "Update argument must be either an object or an array")),
        }
    }

    /// Returns whether it changes documents by operators or stages, and so may change several.
    pub(crate) const fn is_replacement(&self) -> bool {
        matches!(self, Self::Replacement(_))
    }

    /// Returns how it makes another document of one.
    pub(crate) fn edit(&self) -> Edit {
        let operators = match self {
            Self::Replacement(_) => return Edit::Whole,
            Self::Pipeline(_) => return Edit::Stages,
            Self::Operators(operators, _) => operators,
        };
        let mut touched = Vec::new();
        for (operator, path, argument) in operators {
            let act = match operator {
                Operator::Push => Act::Append,
                Operator::Unset => Act::Remove,
                _ => Act::Other,
            };
            touched.push(Touched { path: path.clone(), act });
            if let (Operator::Rename, Bson::String(to)) = (operator, argument) {
                touched.push(Touched { path: to.clone(), act });
            }
        }
        Edit::At(touched)
    }

    /// Returns whether a document that is the same afterwards counts as not modified: servers see
    /// it of a replacement only if that has an `_id`.
    pub(crate) fn may_change_nothing(&self) -> bool {
        match self {
            Self::Replacement(replacement) => replacement.contains_key("_id"),
            Self::Operators(..) | Self::Pipeline(_) => true,
        }
    }

    /// Returns what becomes of a document; `inserts` says that it is new.
    ///
    /// # Errors
    ///
    /// Fails if an operator cannot be applied, or if `_id` would change.
    pub(crate) fn apply(
        &self,
        document: &Document,
        inserts: bool,
        context: &Context,
    ) -> Result<Document, StoreError> {
        let changed = match self {
            Self::Replacement(replacement) => {
                let mut changed = Document::new();
                if let Some(id) = replacement.get("_id").or_else(|| document.get("_id")) {
                    changed.insert("_id", id.clone());
                }
                let rest = replacement.iter().filter(|(name, _)| *name != "_id");
                changed.extend(rest.map(|(name, value)| (name.clone(), value.clone())));
                changed
            }
            Self::Operators(operators, filters) => {
                let mut changed = document.clone();
                for (operator, path, argument) in operators {
                    if *operator == Operator::SetOnInsert && !inserts {
                        continue;
                    }
                    let change = Change { operator: *operator, argument, path, filters, context };
                    change.apply(&mut changed)?;
                }
                changed
            }
            Self::Pipeline(stages) => {
                let mut changed = document.clone();
                for (name, value) in stages {
                    changed = pipeline::reshaped(name, value, &changed, context)?;
                    if is_too_deep(&changed, MAX_LEVELS) {
                        return Err(StoreError::too_deep(MAX_LEVELS));
                    }
                }
                if let (None, Some(id)) = (changed.get("_id"), document.get("_id")) {
                    let mut with_id = bson::doc! { "_id": id.clone() };
                    with_id.extend(changed);
                    changed = with_id;
                }
                changed
            }
        };
        if let Some(id) = document.get("_id")
            && changed.get("_id").is_none_or(|it| !context.collation.is_equal(it, id))
        {
            let reason = match (self, changed.get("_id")) {
                (Self::Operators(..), _) | (_, None) => {
                    "Performing an update on the path '_id' would modify the immutable field '_id'"
                        .to_owned()
                }
                (_, Some(new)) => format!(
                    "After applying the update, the (immutable) field '_id' was found to have been \
                     altered to _id: {new}"
                ),
            };
            return Err(StoreError::new(66, reason));
        }
        if let Some(Bson::Array(_)) = changed.get("_id") {
            return Err(StoreError::new(53, "The '_id' value cannot be of type array"));
        }
        Ok(changed)
    }
}

fn operators(
    update: &Document,
    filters: &Filters,
) -> Result<Vec<(Operator, String, Bson)>, StoreError> {
    let mut read: Vec<(Operator, String, Bson)> = Vec::new();
    for (name, arguments) in update {
        if name == "$bit" {
            return Err(StoreError::not_implemented(name));
        }
        let Some(operator) = Operator::parse(name) else {
            let reason = format!(
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style \
                 update specified as an array"
            );
            return Err(StoreError::new(9, reason));
        };
        let Some(arguments) = arguments.as_document() else {
            let reason = "Modifiers operate on fields but we found another type instead";
            return Err(StoreError::new(9, reason));
        };
        for (path, argument) in arguments {
            if read.iter().any(|(_, known, _)| conflicts(known, path)) {
                let reason =
                    format!("Updating the path '{path}' would create a conflict at '{path}'");
                return Err(StoreError::new(40, reason));
            }
            check_path(path, filters)?;
            check_argument(operator, path, argument)?;
            read.push((operator, path.clone(), argument.clone()));
        }
    }
    Ok(read)
}

/// Returns whether one path is the other, or leads to it.
fn conflicts(a: &str, b: &str) -> bool {
    let leads = |a: &str, b: &str| b.strip_prefix(a).is_some_and(|it| it.starts_with('.'));
    a == b || leads(a, b) || leads(b, a)
}

fn check_path(path: &str, filters: &Filters) -> Result<(), StoreError> {
    if path.split('.').any(|part| part == "$") {
        return Err(StoreError::not_implemented("the positional operator $"));
    }
    for part in path.split('.') {
        let identifier = part.strip_prefix("$[").and_then(|it| it.strip_suffix(']'));
        if let Some(identifier) = identifier.filter(|it| !it.is_empty())
            && !filters.iter().any(|(known, _)| known == identifier)
        {
            let reason =
                format!("No array filter found for identifier '{identifier}' in path '{path}'");
            return Err(StoreError::bad_value(reason));
        }
    }
    Ok(())
}

/// Checks the argument of an operator, as far as that does not depend on the document.
fn check_argument(operator: Operator, path: &str, argument: &Bson) -> Result<(), StoreError> {
    let wrong = |reason: String| Err(StoreError::bad_value(reason));
    match (operator, argument) {
        (Operator::Rename, Bson::String(to)) => {
            let is_dynamic = |it: &str| it.split('.').any(|part| part.starts_with('$'));
            match (is_dynamic(path), is_dynamic(to)) {
                (true, _) => {
                    wrong(format!("The source field for $rename may not be dynamic: {path}"))
                }
                (_, true) => {
                    wrong(format!("The destination field for $rename may not be dynamic: {to}"))
                }
                _ if is_too_long(to) => Err(StoreError::too_deep(MAX_LEVELS)),
                _ => Ok(()),
            }
        }
        (Operator::Push | Operator::AddToSet, Bson::Document(clauses))
            if clauses.contains_key("$each") =>
        {
            let name = if operator == Operator::Push { "$push" } else { "$addToSet" };
            match clauses.keys().find(|it| *it != "$each") {
                Some(clause) => Err(StoreError::not_implemented(&format!("{clause} of {name}"))),
                None if clauses.get_array("$each").is_err() => {
                    wrong(format!("The argument to $each in {name} must be an array"))
                }
                None => Ok(()),
            }
        }
        (Operator::CurrentDate, Bson::Boolean(_)) => Ok(()),
        (Operator::CurrentDate, argument) => {
            let kind = argument.as_document().and_then(|it| it.get_str("$type").ok());
            match kind {
                Some("date" | "timestamp") => Ok(()),
                _ => wrong(
                    "The '$type' string field is required to be 'date' or 'timestamp'".to_owned(),
                ),
            }
        }
        _ => Ok(()),
    }
}

fn parse_filters(filters: &[Bson], context: &Context) -> Result<Filters, StoreError> {
    let mut read = Vec::new();
    for filter in filters {
        let wrong = || StoreError::new(14, "an array filter is a document");
        let filter = filter.as_document().ok_or_else(wrong)?;
        let Some(name) = filter.keys().next().and_then(|it| it.split('.').next()) else {
            let reason = "Cannot use an expression without a top-level field name in arrayFilters";
            return Err(StoreError::new(9, reason));
        };
        read.push((name.to_owned(), Filter::parse(filter, context)?));
    }
    Ok(read)
}

/// One operator that is applied at one path.
struct Change<'a> {
    operator: Operator,
    argument: &'a Bson,
    path: &'a str,
    filters: &'a Filters,
    context: &'a Context,
}

impl Change<'_> {
    fn apply(&self, document: &mut Document) -> Result<(), StoreError> {
        if self.operator == Operator::Rename {
            let wrong = || StoreError::bad_value("The 'to' field for $rename must be a string");
            let to = self.argument.as_str().ok_or_else(wrong)?;
            if let Some(value) = super::path::value(document, self.path) {
                super::path::remove(document, self.path);
                super::path::set(document, to, value);
            }
            return Ok(());
        }
        let parts: Vec<&str> = self.path.split('.').collect();
        self.within_document(document, &parts)
    }

    /// Returns whether the operator makes a field that is missing.
    const fn creates(&self) -> bool {
        !matches!(
            self.operator,
            Operator::Unset | Operator::Pull | Operator::PullAll | Operator::Pop
        )
    }

    fn within_document(&self, document: &mut Document, parts: &[&str]) -> Result<(), StoreError> {
        let Some((first, rest)) = parts.split_first() else { return Ok(()) };
        if first.starts_with("$[") {
            let reason = format!("Cannot apply array updates to non-array element {first}");
            return Err(StoreError::bad_value(reason));
        }
        if rest.is_empty() {
            let before = document.get(first).cloned();
            match self.value(before)? {
                Some(value) => drop(document.insert(*first, value)),
                None => drop(document.remove(first)),
            }
            return Ok(());
        }
        if !document.contains_key(first) {
            if !self.creates() {
                return Ok(());
            }
            if rest[0].starts_with("$[") {
                let reason = format!(
                    "The path '{first}' must exist in the document in order to apply array updates."
                );
                return Err(StoreError::bad_value(reason));
            }
            document.insert(*first, Document::new());
        }
        match document.get_mut(first) {
            Some(value) => self.within(value, rest, first),
            None => Ok(()),
        }
    }

    fn within(&self, value: &mut Bson, parts: &[&str], name: &str) -> Result<(), StoreError> {
        match value {
            Bson::Document(inner) => self.within_document(inner, parts),
            Bson::Array(list) => self.within_array(list, parts),
            _ if self.creates() => {
                let reason = format!("Cannot create field '{}' in element {name}", parts[0]);
                Err(StoreError::new(28, reason))
            }
            _ => Ok(()),
        }
    }

    fn within_array(&self, list: &mut Vec<Bson>, parts: &[&str]) -> Result<(), StoreError> {
        let Some((first, rest)) = parts.split_first() else { return Ok(()) };
        if let Some(identifier) = first.strip_prefix("$[").and_then(|it| it.strip_suffix(']')) {
            for element in list.iter_mut() {
                if self.is_meant(identifier, element)? {
                    self.element(element, rest, first)?;
                }
            }
            return Ok(());
        }
        let Ok(index) = first.parse::<usize>() else {
            let reason = format!("Cannot create field '{first}' in an array");
            return if self.creates() { Err(StoreError::new(28, reason)) } else { Ok(()) };
        };
        if index >= list.len() {
            const MAX_PADDING: usize = 1_500_000;
            if !self.creates() {
                return Ok(());
            }
            if index > MAX_PADDING {
                return Err(StoreError::bad_value("the array would be padded too far"));
            }
            list.resize(index + 1, Bson::Null);
            list[index] = if rest.is_empty() { Bson::Null } else { Document::new().into() };
        }
        self.element(&mut list[index], rest, first)
    }

    fn element(&self, element: &mut Bson, rest: &[&str], name: &str) -> Result<(), StoreError> {
        if rest.is_empty() {
            *element = self.value(Some(element.clone()))?.unwrap_or(Bson::Null);
            return Ok(());
        }
        self.within(element, rest, name)
    }

    fn is_meant(&self, identifier: &str, element: &Bson) -> Result<bool, StoreError> {
        if identifier.is_empty() {
            return Ok(true);
        }
        let named = bson::doc! { identifier: element.clone() };
        for (name, filter) in self.filters {
            if name == identifier && !filter.matches(&named, self.context)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the new value of a field, or none if it goes.
    fn value(&self, before: Option<Bson>) -> Result<Option<Bson>, StoreError> {
        let argument = self.argument;
        let compare = |before: &Bson| self.context.collation.compare(argument, before);
        Ok(Some(match (self.operator, before) {
            (Operator::Unset, _) => return Ok(None),
            (Operator::CurrentDate, _) => self.now(),
            (Operator::Inc, Some(before)) => self.calculated(&before, "$inc", expression::add)?,
            (Operator::Mul, Some(before)) => {
                self.calculated(&before, "$mul", expression::multiply)?
            }
            (Operator::Inc, None) => self.calculated(&Bson::Int32(0), "$inc", expression::add)?,
            (Operator::Mul, None) => {
                self.calculated(&Bson::Int32(0), "$mul", expression::multiply)?
            }
            (Operator::Min, Some(before)) if !compare(&before).is_lt() => before,
            (Operator::Max, Some(before)) if !compare(&before).is_gt() => before,
            (Operator::Push | Operator::AddToSet, before) => self.extended(before)?,
            (Operator::Pull | Operator::PullAll, Some(Bson::Array(list))) => self.pulled(list)?,
            (Operator::Pop, Some(Bson::Array(mut list))) => {
                match whole(argument) {
                    Some(-1) if !list.is_empty() => drop(list.remove(0)),
                    _ => drop(list.pop()),
                }
                Bson::Array(list)
            }
            (Operator::Pull | Operator::PullAll | Operator::Pop, Some(_)) => {
                return Err(StoreError::bad_value("Cannot apply $pull to a non-array value"));
            }
            (Operator::Pull | Operator::PullAll | Operator::Pop, None) => return Ok(None),
            _ => argument.clone(),
        }))
    }

    fn calculated(
        &self,
        before: &Bson,
        name: &str,
        calculate: fn(&Bson, &Bson) -> Result<Bson, StoreError>,
    ) -> Result<Bson, StoreError> {
        calculate(before, self.argument).map_err(|error| match error.code {
            14 => {
                let reason = format!(
                    "Cannot apply {name} to a value of non-numeric type: the field '{}'",
                    self.path
                );
                StoreError::new(14, reason)
            }
            _ => error,
        })
    }

    fn extended(&self, before: Option<Bson>) -> Result<Bson, StoreError> {
        let mut list = match before {
            None => Vec::new(),
            Some(Bson::Array(list)) => list,
            Some(_) => {
                let reason = format!("The field '{}' must be an array", self.path);
                return Err(StoreError::bad_value(reason));
            }
        };
        let each = self.argument.as_document().and_then(|it| it.get_array("$each").ok());
        let new = each.cloned().unwrap_or_else(|| vec![self.argument.clone()]);
        for value in new {
            let is_there = |it: &Bson| self.context.collation.is_equal(it, &value);
            if self.operator == Operator::Push || !list.iter().any(is_there) {
                list.push(value);
            }
        }
        Ok(Bson::Array(list))
    }

    fn now(&self) -> Bson {
        let now = self.context.now;
        let kind = self.argument.as_document().and_then(|it| it.get_str("$type").ok());
        match kind {
            Some("timestamp") => {
                let seconds = now.timestamp_millis().div_euclid(1000);
                let time = u32::try_from(seconds).unwrap_or(u32::MAX);
                Bson::Timestamp(bson::Timestamp { time, increment: 1 })
            }
            _ => Bson::DateTime(now),
        }
    }

    fn pulled(&self, list: Vec<Bson>) -> Result<Bson, StoreError> {
        let mut kept = Vec::new();
        for element in list {
            let goes = match (self.operator, self.argument, &element) {
                (Operator::PullAll, Bson::Array(all), element) => {
                    all.iter().any(|it| self.context.collation.is_equal(it, element))
                }
                (_, Bson::Document(filter), Bson::Document(document))
                    if !filter.keys().any(|it| it.starts_with('$')) =>
                {
                    Filter::parse(filter, self.context)?.matches(document, self.context)?
                }
                (_, test, element) => {
                    Test::of_element(test, self.context)?.passes_one(element, self.context)?
                }
            };
            if !goes {
                kept.push(element);
            }
        }
        Ok(Bson::Array(kept))
    }
}
