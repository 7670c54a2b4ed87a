//! Failures as JSON, and back.

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use serde::{Deserialize, Serialize};

use super::LineError;
use crate::description::TopologyVersion;
use crate::dns::srv::SrvRecord;
use crate::dns::{DnsCause, DnsError, Question, RecordType};
use crate::failure::{Failure, Stage};
use crate::id::Generation;
use crate::operation::{CommandError, InvalidCommand, OperationError, OperationFailure};

/// The failure of an operation.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Operation {
    generation: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    max_wire_version: i32,
    #[serde(flatten)]
    error: Error,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Error {
    Stream(Failure),
    Reply {
        stage: Stage,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        code_name: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        topology_version: Option<Version>,
    },
    Invalid,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    process_id: String,
    counter: i64,
}

impl From<&OperationFailure> for Operation {
    fn from(failure: &OperationFailure) -> Self {
        let error = match &failure.error {
            OperationError::Stream(failure) => Error::Stream(failure.clone()),
            OperationError::Reply { stage, error } => Error::Reply {
                stage: *stage,
                code: error.code,
                code_name: error.code_name.clone(),
                message: error.message.clone(),
                labels: error.labels.clone(),
                topology_version: error.topology_version.map(|version| Version {
                    process_id: version.process_id.to_hex(),
                    counter: version.counter,
                }),
            },
            OperationError::Invalid(_) => Error::Invalid,
        };
        Self {
            generation: failure.generation.number(),
            service: failure.service.map(ObjectId::to_hex),
            max_wire_version: failure.max_wire_version,
            error,
        }
    }
}

impl TryFrom<Operation> for OperationFailure {
    type Error = LineError;

    fn try_from(operation: Operation) -> Result<Self, LineError> {
        let error = match operation.error {
            Error::Stream(failure) => OperationError::Stream(failure),
            Error::Reply { stage, code, code_name, message, labels, topology_version } => {
                let topology_version = topology_version.map(TopologyVersion::try_from);
                let topology_version = topology_version.transpose()?;
                let error = CommandError { code, code_name, message, labels, topology_version };
                OperationError::Reply { stage, error }
            }
            Error::Invalid => OperationError::Invalid(InvalidCommand::Empty),
        };
        Ok(Self {
            generation: Generation::new(operation.generation),
            service: operation.service.as_deref().map(object_id).transpose()?,
            max_wire_version: operation.max_wire_version,
            error,
        })
    }
}

impl TryFrom<Version> for TopologyVersion {
    type Error = LineError;

    fn try_from(version: Version) -> Result<Self, LineError> {
        Ok(Self { process_id: object_id(&version.process_id)?, counter: version.counter })
    }
}

fn object_id(text: &str) -> Result<ObjectId, LineError> {
    ObjectId::parse_str(text).map_err(|error| LineError::malformed("an ObjectId", &error))
}

/// The result of a lookup. An error comes back as one of a resolver, with the same words.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Resolved {
    Records(Vec<Record>),
    Error { name: Arc<str>, txt: bool, reason: Arc<str> },
}

#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    host: Arc<str>,
    port: u16,
    ttl: Duration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<Arc<str>>,
}

impl From<&Result<Vec<SrvRecord>, DnsError>> for Resolved {
    fn from(records: &Result<Vec<SrvRecord>, DnsError>) -> Self {
        match records {
            Ok(records) => {
                let record = |record: &SrvRecord| {
                    let SrvRecord { host, port, ttl, refused } = record.clone();
                    Record { host, port, ttl, refused }
                };
                Self::Records(records.iter().map(record).collect())
            }
            Err(error) => Self::Error {
                name: Arc::clone(&error.question.name),
                txt: error.question.record_type == RecordType::Txt,
                reason: error.cause.to_string().into(),
            },
        }
    }
}

impl From<Resolved> for Result<Vec<SrvRecord>, DnsError> {
    fn from(resolved: Resolved) -> Self {
        match resolved {
            Resolved::Records(records) => {
                let record = |Record { host, port, ttl, refused }| SrvRecord {
                    refused,
                    ..SrvRecord::new(host, port, ttl)
                };
                Ok(records.into_iter().map(record).collect())
            }
            Resolved::Error { name, txt, reason } => {
                let record_type = if txt { RecordType::Txt } else { RecordType::Srv };
                let question = Question { name, record_type };
                Err(DnsError::new(question, DnsCause::Resolver(reason)))
            }
        }
    }
}
