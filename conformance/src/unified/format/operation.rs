//! Operations of a test, and what is expected of them (Unified Test Format, "operation").

use bson::{Bson, Document};

use super::error::FormatError;
use super::object::Node;

/// An operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The name of what is to be done.
    pub name: String,
    /// The entity that does it, or `testRunner`.
    pub object: String,
    /// The arguments, which depend on the operation.
    pub arguments: Document,
    /// The expectation of the result.
    pub expectation: Expectation,
    /// The name of the entity that the result becomes.
    pub save_result_as: Option<String>,
}

/// The expectation of an operation.
#[derive(Clone, Debug)]
pub enum Expectation {
    /// It succeeds, with this result if there is one.
    Success(Option<Bson>),
    /// It fails.
    Error(Box<ExpectedError>),
    /// Neither its result nor its error matters.
    Ignored,
}

/// An error that an operation is to end with (Unified Test Format, "expectedError").
#[derive(Clone, Debug, Default)]
pub struct ExpectedError {
    /// True if the error is to come from the client.
    pub is_client_error: Option<bool>,
    /// True if the error is to be a time-out of timeoutMS.
    pub is_timeout_error: Option<bool>,
    /// A part of the message.
    pub error_contains: Option<String>,
    /// The code in the server's reply.
    pub error_code: Option<i64>,
    /// The name of the code in the server's reply.
    pub error_code_name: Option<String>,
    /// Labels that it has.
    pub labels: Vec<String>,
    /// Labels that it does not have.
    pub omitted_labels: Vec<String>,
    /// The errors of single writes, by their place among the writes.
    pub write_errors: Option<Document>,
    /// The errors of write concerns.
    pub write_concern_errors: Option<Vec<Document>>,
    /// The server's reply.
    pub response: Option<Document>,
    /// The result that it has nevertheless.
    pub result: Option<Bson>,
}

impl Operation {
    /// Reads an operation.
    ///
    /// # Errors
    ///
    /// Fails if it breaks a rule of the format.
    pub fn read(node: Node) -> Result<Self, FormatError> {
        let mut object = node.object()?;
        let name = object.required("name", Node::string)?;
        let target = object.required("object", Node::string)?;
        let arguments = object.optional("arguments", Node::document)?.unwrap_or_default();
        let ignored = object.optional("ignoreResultAndError", Node::boolean)?.unwrap_or_default();
        let error = object.optional("expectError", expected_error)?;
        let result = object.optional("expectResult", Node::any)?;
        let save_result_as = object.optional("saveResultAsEntity", Node::string)?;
        if ignored && (error.is_some() || result.is_some() || save_result_as.is_some()) {
            return Err(object.broken(
                "has ignoreResultAndError, and must not have expectError, expectResult or \
                 saveResultAsEntity beside it",
            ));
        }
        if error.is_some() && (result.is_some() || save_result_as.is_some()) {
            return Err(object.broken(
                "has expectError, and must not have expectResult or saveResultAsEntity beside it",
            ));
        }
        object.finish()?;
        let expectation = match error {
            _ if ignored => Expectation::Ignored,
            Some(error) => Expectation::Error(Box::new(error)),
            None => Expectation::Success(result),
        };
        Ok(Self { name, object: target, arguments, expectation, save_result_as })
    }
}

fn expected_error(node: Node) -> Result<ExpectedError, FormatError> {
    let mut object = node.object()?;
    if object.is_empty() {
        return Err(object.broken("must have a field at least"));
    }
    if object.optional("isError", Node::boolean)? == Some(false) {
        return Err(object.broken("has isError: false, and an error must be expected"));
    }
    let labels = |node: Node| node.filled(Node::string);
    let documents = |node: Node| node.filled(Node::document);
    let error = ExpectedError {
        is_client_error: object.optional("isClientError", Node::boolean)?,
        is_timeout_error: object.optional("isTimeoutError", Node::boolean)?,
        error_contains: object.optional("errorContains", Node::string)?,
        error_code: object.optional("errorCode", Node::integer)?,
        error_code_name: object.optional("errorCodeName", Node::string)?,
        labels: object.optional("errorLabelsContain", labels)?.unwrap_or_default(),
        omitted_labels: object.optional("errorLabelsOmit", labels)?.unwrap_or_default(),
        write_errors: object.optional("writeErrors", Node::document)?,
        write_concern_errors: object.optional("writeConcernErrors", documents)?,
        response: object.optional("errorResponse", Node::document)?,
        result: object.optional("expectResult", Node::any)?,
    };
    object.finish()?;
    Ok(error)
}
