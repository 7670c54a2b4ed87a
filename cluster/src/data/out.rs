//! The stages `$out` and `$merge`, by which documents go into a collection.

use std::sync::Arc;

use bson::{Bson, Document};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::arguments::Arguments;
use crate::model::Cluster;
use crate::options::MemberId;
use crate::store::{
    Context, Documents, Filter, Sort, StoreError, Update, UpdateStatement, Writer, check_namespace,
};
use crate::wire::CommandError;

/// The collection that documents go into, and what becomes of those that are there.
struct Target {
    namespace: String,
    when_matched: String,
    when_not_matched: String,
    /// The fields by which documents are the same.
    on: Vec<String>,
}

impl Target {
    fn parse(name: &str, value: &Bson, database: &str) -> Result<Self, CommandError> {
        let wrong = || CommandError::numbered(16990, format!("{name} names a collection"));
        let options = value.as_document();
        let into = match (name, options) {
            ("$merge", Some(options)) => options.get("into").ok_or_else(wrong)?,
            _ => value,
        };
        let namespace = match into {
            Bson::String(collection) => format!("{database}.{collection}"),
            Bson::Document(parts) => {
                let database = parts.get_str("db").unwrap_or(database);
                format!("{database}.{}", parts.get_str("coll").map_err(|_| wrong())?)
            }
            _ => return Err(wrong()),
        };
        check_namespace(&namespace)?;
        let option = |field: &str, implied: &str| {
            let given = options.and_then(|it| it.get_str(field).ok()).filter(|_| name == "$merge");
            given.unwrap_or(implied).to_owned()
        };
        let on = match options.and_then(|it| it.get("on")) {
            Some(Bson::String(field)) => vec![field.clone()],
            Some(Bson::Array(fields)) => {
                fields.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect()
            }
            _ => vec!["_id".to_owned()],
        };
        let when_matched = option("whenMatched", "merge");
        let when_not_matched = option("whenNotMatched", "insert");
        Ok(Self { namespace, when_matched, when_not_matched, on })
    }
}

impl Cluster {
    /// Has the primary, or this mongos, write documents into a collection.
    pub(super) fn write_out(
        &mut self,
        now: Instant,
        arguments: &Arguments,
        name: &str,
        value: &Bson,
        documents: Documents,
    ) -> Result<(), CommandError> {
        let target = Target::parse(name, value, &arguments.database)?;
        let own = (!self.options.deployment.has_set()).then_some(MemberId(0));
        let writes = own.or_else(|| self.primary());
        let writes = writes.ok_or_else(|| CommandError::coded(10107, "not primary"))?;
        let replaces = name == "$out";
        self.write(now, writes, arguments, |writer, context, _| match replaces {
            true => Ok(replace(writer, &target.namespace, documents, context)?),
            false => Ok(documents
                .iter()
                .try_for_each(|document| merge(writer, &target, document, context))?),
        })
    }
}

/// Puts documents into a new collection, which takes the place and the name of the old one.
fn replace(
    writer: &mut Writer<'_>,
    namespace: &str,
    documents: Documents,
    context: &Context,
) -> Result<(), StoreError> {
    let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
    let temporary = format!("{database}.tmp.agg_out.{collection}");
    writer.create(&temporary, Document::new())?;
    for document in documents {
        writer.insert(&temporary, Arc::unwrap_or_clone(document), context)?;
    }
    writer.rename(&temporary, namespace, true)
}

fn merge(
    writer: &mut Writer<'_>,
    target: &Target,
    document: &Arc<Document>,
    context: &Context,
) -> Result<(), StoreError> {
    let value = |path: &String| document.get(path).cloned().unwrap_or(Bson::Null);
    let same: Document = target.on.iter().map(|it| (it.clone(), value(it))).collect();
    let filter = Filter::parse(&same, context)?;
    let existing = writer.store().collection(&target.namespace);
    let exists = match existing {
        Some(collection) => !collection.find(&filter, context)?.is_empty(),
        None => false,
    };
    let update = match (exists, target.when_matched.as_str()) {
        (false, _) if target.when_not_matched == "discard" => return Ok(()),
        (false, _) if target.when_not_matched == "fail" => {
            let reason = "$merge could not find a matching document in the target collection";
            return Err(StoreError::new(13113, reason));
        }
        (true, "keepExisting") => return Ok(()),
        (false, _) | (true, "fail") => {
            return writer.insert(&target.namespace, Document::clone(document), context);
        }
        (true, "replace") => Bson::Document(Document::clone(document)),
        (true, _) => bson::bson!({ "$set": Document::clone(document) }),
    };
    let update = Update::parse(&update, &[], context)?;
    let (multi, upsert, sort) = (false, false, Sort::default());
    let statement = UpdateStatement { filter, update, multi, upsert, sort };
    writer.update(&target.namespace, &statement, context).map(drop)
}
