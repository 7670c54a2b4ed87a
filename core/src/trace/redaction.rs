//! The facts that a trace leaves out: messages of errors, which may quote documents, logins and the
//! names of files.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::failure::{Cause, Failure, Stage};
use crate::operation::{CommandError, OperationError, OperationFailure};

/// The number of messages that are distinguished; after that many, numbers go on, but forget what
/// they stood for.
const MAX_MESSAGES: usize = 1000;

/// The phrases that classify an error without a code, the longest first.
const PHRASES: [&str; 3] = ["not master or secondary", "node is recovering", "not master"];

/// Puts a number in the place of each message. The same message has the same number, because two
/// failures are the same if their messages are.
#[derive(Debug, Default)]
pub(super) struct Redaction {
    numbers: BTreeMap<Box<str>, u64>,
    next: u64,
}

impl Redaction {
    /// Returns the failure of an operation as a trace has it.
    pub(super) fn operation(&mut self, failure: &OperationFailure) -> OperationFailure {
        let error = match &failure.error {
            OperationError::Stream(failure) => OperationError::Stream(self.failure(failure)),
            OperationError::Reply { stage, error } => {
                OperationError::Reply { stage: *stage, error: self.error(error) }
            }
            // It says nothing of the server, and may say much of the command.
            OperationError::Invalid(_) => {
                OperationError::Invalid(crate::operation::InvalidCommand::Empty)
            }
        };
        OperationFailure { error, ..*failure }
    }

    /// Returns a failure as a trace has it.
    pub(super) fn failure(&mut self, failure: &Failure) -> Failure {
        match is_redacted(failure) {
            true => Failure { detail: self.number(&failure.detail).into(), ..failure.clone() },
            false => failure.clone(),
        }
    }

    fn error(&mut self, error: &CommandError) -> CommandError {
        let number = self.number(&error.message);
        let phrase = PHRASES.iter().find(|phrase| error.message.contains(**phrase));
        let message = match phrase.filter(|_| error.code.is_none()) {
            Some(phrase) => format!("{phrase} {number}"),
            None => number,
        };
        CommandError { message, ..error.clone() }
    }

    fn number(&mut self, message: &str) -> String {
        if message.is_empty() {
            return String::new();
        }
        if self.numbers.len() == MAX_MESSAGES {
            self.numbers.clear();
        }
        let next = &mut self.next;
        let number = *self.numbers.entry(message.into()).or_insert_with(|| {
            *next += 1;
            *next
        });
        format!("(message {number})")
    }
}

/// Returns whether the detail of a failure is another's words, or may name files of the options.
pub(super) fn is_redacted(failure: &Failure) -> bool {
    matches!(failure.cause, Cause::Command { .. } | Cause::Configuration)
        || matches!(failure.stage, Stage::Credentials | Stage::Authenticate)
}

/// Takes such details out of whatever was serialised.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let is = |name: &str, expected: &str| {
                object.get(name).and_then(Value::as_str) == Some(expected)
            };
            let has_detail = ["command", "configuration"].iter().any(|cause| is("cause", cause))
                || ["credentials", "authenticate"].iter().any(|stage| is("stage", stage));
            let has_reason = is("verdict", "certificatesUnavailable");
            if has_detail {
                object.remove("detail");
            }
            if has_reason {
                object.remove("reason");
            }
            object.values_mut().for_each(redact);
        }
        Value::Array(values) => values.iter_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
