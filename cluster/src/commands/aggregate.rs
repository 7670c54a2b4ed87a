//! `aggregate`: the few stages that can be evaluated over documents that are everywhere the same.
//!
//! They are those by which drivers count documents, and what monitoring tools ask. A filter is
//! taken and means nothing, as in `find`; a stage that is not known here is an error.

use std::ops::Range;
use std::sync::Arc;

use bson::raw::{CStr, cstr};
use bson::{
    Bson, DateTime, Document, RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc,
};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::cursor;
use super::cursor::DOCUMENTS;
use crate::model::{Cluster, ConnectionId, Process};
use crate::options::MemberId;
use crate::store::{Collation, Context, through};
use crate::wire::{CommandError, Request, integer};

/// The stages that are known.
const STAGES: [&str; 8] =
    ["$match", "$project", "$skip", "$limit", "$count", "$group", "$collStats", "$currentOp"];

/// The result of the stages.
enum Documents {
    /// Some of those that `find` gives.
    Found(Range<i64>),
    /// Others.
    Made(Vec<RawDocumentBuf>),
}

/// A stage: its name, and what is said in it.
type Stage<'a> = (&'a str, RawBsonRef<'a>);

impl Cluster {
    /// Answers an `aggregate`.
    ///
    /// # Errors
    ///
    /// Fails as real servers do if the command makes no sense, and with their code for a stage that
    /// they do not know if it is not known here.
    pub(super) fn aggregate(
        &self,
        now: Instant,
        id: ConnectionId,
        process: &Process,
        request: &Request<'_>,
    ) -> Result<RawDocumentBuf, CommandError> {
        let (body, database) = (request.body, request.database.unwrap_or_default());
        let stages = stages(body)?;
        let Some(cursor) = body.get("cursor").ok().flatten() else {
            return Err(CommandError::coded(9, "the option 'cursor' is required"));
        };
        let cursor = cursor
            .as_document()
            .ok_or_else(|| CommandError::coded(14, "the option 'cursor' is a document"))?;
        if body.get_bool("explain").unwrap_or(false) {
            return Err(not_implemented("explain"));
        }
        let size = cursor::count(cursor, "batchSize")?;
        let name = match body.get("aggregate").ok().flatten() {
            Some(RawBsonRef::String(name)) => Some(name),
            Some(value) if integer(value) == Some(1) => None,
            _ => return Err(CommandError::coded(9, "aggregate is the name of a collection, or 1")),
        };
        check_source(name, database, &stages)?;
        process.role.check_readable(request)?;
        let namespace = cursor::joined(database, name.unwrap_or("$cmd.aggregate"))?;
        let mut documents = Documents::Found(0..DOCUMENTS);
        for (name, value) in stages {
            documents = match name {
                "$currentOp" => Documents::Made(self.operations(now, id, value)?),
                "$collStats" => {
                    let member = self.connections.get(&id).map(|it| it.member);
                    let stats = self.collection_stats(now, member, &namespace, value)?;
                    Documents::Made(vec![stats])
                }
                _ => documents.through(name, value)?,
            };
        }
        Ok(match documents {
            Documents::Found(which) => {
                cursor::open(process.process_id, &namespace, which, size, false)
            }
            Documents::Made(documents) => cursor::whole(&namespace, documents),
        })
    }

    /// Returns what the stage `$collStats` says of any collection.
    fn collection_stats(
        &self,
        now: Instant,
        member: Option<MemberId>,
        namespace: &str,
        value: RawBsonRef<'_>,
    ) -> Result<RawDocumentBuf, CommandError> {
        let wrong = || CommandError::coded(14, "$collStats is a document");
        let options = value.as_document().ok_or_else(wrong)?;
        let mut stats = rawdoc! { "ns": namespace };
        stats.append(cstr!("host"), member.map(|it| self.host(it)).unwrap_or_default());
        stats.append(cstr!("localTime"), DateTime::from_millis(self.wall_millis(now)));
        for (option, _) in options.iter().flatten() {
            match option.as_str() {
                "count" => stats.append(cstr!("count"), int32(DOCUMENTS)),
                _ => return Err(not_implemented("an option of $collStats other than count")),
            }
        }
        Ok(stats)
    }

    /// Returns what the stage `$currentOp` says: which connections wait for a reply, and, if that
    /// is wanted, which do not.
    fn operations(
        &self,
        now: Instant,
        asking: ConnectionId,
        value: RawBsonRef<'_>,
    ) -> Result<Vec<RawDocumentBuf>, CommandError> {
        let wrong = || CommandError::coded(9, "$currentOp is a document");
        let options = value.as_document().ok_or_else(wrong)?;
        let with_idle = options.get_bool("idleConnections").unwrap_or(false);
        let member = self.connections.get(&asking).map(|it| it.member);
        let own = self.connections.iter().filter(|(_, it)| Some(it.member) == member);
        let operations = own.filter_map(|(id, connection)| {
            let active = connection.pending.is_some() || *id == asking;
            let mut operation = rawdoc! {
                "type": if active { "op" } else { "idleSession" },
                "host": self.host(connection.member),
                "desc": format!("conn{}", connection.number),
                "connectionId": connection.number,
                "active": active,
            };
            if let Some(peer) = connection.peer {
                operation.append(cstr!("client"), peer.to_string());
            }
            if let Some(name) = &connection.app_name {
                operation.append(cstr!("appName"), name.as_str());
            }
            operation.append(cstr!("op"), if active { "command" } else { "none" });
            (active || with_idle).then_some(operation)
        });
        let mut operations: Vec<RawDocumentBuf> = operations.collect();
        if let Some(member) = member.filter(|_| options.get_bool("idleSessions").unwrap_or(false)) {
            let open = self.open_transactions(now, member).into_iter().map(|mut transaction| {
                transaction.append(cstr!("host"), self.host(member));
                transaction
            });
            operations.extend(open);
        }
        Ok(operations)
    }
}

impl Documents {
    /// Takes the documents through a stage.
    fn through(self, name: &str, value: RawBsonRef<'_>) -> Result<Self, CommandError> {
        Ok(match (name, self) {
            ("$match", documents) => {
                let filter = value.as_document().ok_or_else(|| {
                    CommandError::numbered(15959, "the filter of $match is a document")
                })?;
                match documents {
                    Self::Made(made) if !filter.is_empty() => shaped(&made, name, filter)?,
                    documents => documents,
                }
            }
            ("$project", Self::Made(made)) => {
                let shape = value.as_document().ok_or_else(|| {
                    CommandError::numbered(15969, "$project specification must be an object")
                })?;
                shaped(&made, name, shape)?
            }
            ("$project", Self::Found(_)) => {
                return Err(not_implemented("$project of the documents of a collection"));
            }
            ("$skip", documents) => documents.part(Some(whole(name, value)?), None),
            ("$limit", documents) => match whole(name, value)? {
                0 => return Err(CommandError::numbered(15958, "the limit must be positive")),
                limit => documents.part(None, Some(limit)),
            },
            ("$count", documents) => {
                let field = value.as_str().filter(|it| !it.is_empty() && !it.contains(['$', '.']));
                let field = field.and_then(|it| <&CStr>::try_from(it).ok()).ok_or_else(|| {
                    CommandError::numbered(40157, "$count is the name of a field")
                })?;
                documents.counted(|count, made| made.append(field, int32(count)))
            }
            (_, documents) => documents.grouped(value)?,
        })
    }

    fn part(self, skipped: Option<i64>, limit: Option<i64>) -> Self {
        match self {
            Self::Found(which) => Self::Found(cursor::part(which, skipped, limit)),
            Self::Made(documents) => {
                let number = |it: i64| usize::try_from(it).unwrap_or(usize::MAX);
                let rest = documents.into_iter().skip(skipped.map_or(0, number));
                Self::Made(rest.take(limit.map_or(usize::MAX, number)).collect())
            }
        }
    }

    /// Makes one document of all, unless there is none.
    fn counted(self, fill: impl FnOnce(i64, &mut RawDocumentBuf)) -> Self {
        let count = match self {
            Self::Found(which) => which.end - which.start,
            Self::Made(documents) => i64::try_from(documents.len()).unwrap_or(i64::MAX),
        };
        let mut made = RawDocumentBuf::new();
        fill(count, &mut made);
        Self::Made(if count == 0 { Vec::new() } else { vec![made] })
    }

    /// Counts all in one group, which is what drivers do; no other groups are known.
    fn grouped(self, value: RawBsonRef<'_>) -> Result<Self, CommandError> {
        let wrong = || CommandError::numbered(15947, "$group is a document");
        let group = value.as_document().ok_or_else(wrong)?;
        let Some(id) = group.get("_id").ok().flatten() else {
            return Err(CommandError::numbered(15955, "$group says what _id is"));
        };
        let is_constant = matches!(id, RawBsonRef::Null) || integer(id).is_some();
        let counts = |value: RawBsonRef<'_>| {
            let sum = value.as_document().map(|it| it.iter().flatten().collect::<Vec<_>>());
            matches!(sum.as_deref(), Some([(name, one)])
                if *name == cstr!("$sum") && integer(*one) == Some(1))
        };
        let others = || group.iter().flatten().filter(|(name, _)| *name != cstr!("_id"));
        if !is_constant || !others().all(|(_, value)| counts(value)) {
            let known = "a $group other than {_id: null, <field>: {$sum: 1}}";
            return Err(not_implemented(known));
        }
        Ok(self.counted(|count, made| {
            made.append(cstr!("_id"), RawBson::from(id));
            others().for_each(|(name, _)| made.append(name, int32(count)));
        }))
    }
}

/// Takes documents that a stage has made through another one, as those of a collection go through
/// it where members keep data.
fn shaped(
    made: &[RawDocumentBuf],
    name: &str,
    value: &RawDocument,
) -> Result<Documents, CommandError> {
    let wrong = |_| CommandError::coded(22, "a stage that is no valid BSON");
    let value = Bson::Document(Document::try_from(value).map_err(wrong)?);
    let whole = made.iter().map(|it| Ok(Arc::new(Document::try_from(it.clone()).map_err(wrong)?)));
    let documents = whole.collect::<Result<_, CommandError>>()?;
    let context = Context {
        variables: Document::new(),
        collation: Collation::default(),
        random: 0.0,
        now: DateTime::from_millis(0),
    };
    let shaped = through(documents, name, &value, &context)?;
    let raw = shaped.iter().map(|it| RawDocumentBuf::try_from(&**it).map_err(wrong));
    Ok(Documents::Made(raw.collect::<Result<_, _>>()?))
}

/// Reads the pipeline, of which every stage must be one that is known.
fn stages(command: &RawDocument) -> Result<Vec<Stage<'_>>, CommandError> {
    let pipeline: &RawArray = match command.get("pipeline").ok().flatten() {
        Some(RawBsonRef::Array(pipeline)) => pipeline,
        Some(_) => return Err(CommandError::coded(14, "the option 'pipeline' is an array")),
        None => return Err(CommandError::numbered(40414, "the option 'pipeline' is required")),
    };
    let mut stages = Vec::new();
    for stage in pipeline.into_iter().flatten() {
        let wrong = || CommandError::coded(14, "each stage of a pipeline is a document");
        let mut fields = stage.as_document().ok_or_else(wrong)?.iter().flatten();
        let (Some((name, value)), None) = (fields.next(), fields.next()) else {
            return Err(CommandError::numbered(40323, "a stage of a pipeline has one field"));
        };
        if !STAGES.contains(&name.as_str()) {
            const LONGEST: usize = 64;
            let name: String = name.as_str().chars().take(LONGEST).collect();
            let known = STAGES.join(", ");
            let reason = format!("Unrecognized pipeline stage name: '{name}'; known are {known}");
            return Err(CommandError::numbered(40324, reason));
        }
        stages.push((name.as_str(), value));
    }
    Ok(stages)
}

/// Checks that the stages begin with what the documents come from, and only there.
fn check_source(
    collection: Option<&str>,
    database: &str,
    stages: &[Stage<'_>],
) -> Result<(), CommandError> {
    let wrong = |reason: String| Err(CommandError::coded(73, reason));
    let first = stages.first().map(|(name, _)| *name);
    match (collection, first) {
        (None, Some("$currentOp")) if database == "admin" => {}
        (_, Some("$currentOp")) => {
            return wrong("$currentOp needs the database 'admin' and {aggregate: 1}".to_owned());
        }
        (None, None) => return wrong("{aggregate: 1} needs a stage".to_owned()),
        (None, Some(name)) => return wrong(format!("'{name}' needs a collection")),
        (Some(_), _) => {}
    }
    let late = stages.iter().skip(1).find(|(name, _)| ["$collStats", "$currentOp"].contains(name));
    match late {
        None => Ok(()),
        Some((name, _)) => {
            Err(CommandError::numbered(40602, format!("{name} is only valid as the first stage")))
        }
    }
}

/// Reads how many documents a stage means.
fn whole(name: &str, value: RawBsonRef<'_>) -> Result<i64, CommandError> {
    let code = if name == "$limit" { 5_107_201 } else { 5_107_200 };
    let wrong = || CommandError::numbered(code, format!("{name} is a whole number from 0 on"));
    integer(value).filter(|it| *it >= 0).ok_or_else(wrong)
}

fn not_implemented(what: &str) -> CommandError {
    CommandError::coded(238, format!("{what} is not known here"))
}

/// Returns a number of documents, of which there are few.
fn int32(count: i64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
