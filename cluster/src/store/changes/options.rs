//! The options of `$changeStream` (Change Streams, "Server Specification", "Change stream
//! options").

use bson::{Bson, Timestamp};
use sdam_core::bson;

use super::token::Token;
use crate::options::ServerVersion;
use crate::store::{StoreError, filter::type_name};

/// The event of which time on, or after which, a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Now.
    Now,
    /// The first event after a token.
    After(Token),
    /// The first event of a time.
    At(Timestamp),
}

/// The documents that an event has, besides what has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullDocument {
    /// None that need not be.
    Off,
    /// The one that is there when the event is reported.
    Lookup,
    /// The image of that time, if it is kept.
    WhenAvailable,
    /// The same, and an error if it is not.
    Required,
}

/// The options of a change stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamOptions {
    pub(super) start: Start,
    pub(super) after: FullDocument,
    pub(super) before: FullDocument,
    pub(super) is_expanded: bool,
    pub(crate) is_of_cluster: bool,
}

impl StreamOptions {
    /// Reads the specification of the stage.
    ///
    /// # Errors
    ///
    /// Fails as servers of that version do if it makes no sense.
    pub(crate) fn parse(stage: &Bson, version: ServerVersion) -> Result<Self, StoreError> {
        let Bson::Document(fields) = stage else {
            let code = if version < ServerVersion::V6_0 { 50808 } else { 6_188_500 };
            let reason = format!("$changeStream must take a nested object but found: {stage}");
            return Err(StoreError::new(code, reason));
        };
        let mut options = Self {
            start: Start::Now,
            after: FullDocument::Off,
            before: FullDocument::Off,
            is_expanded: false,
            is_of_cluster: false,
        };
        let (mut resume, mut start_after, mut at) = (None, None, None);
        for (name, value) in fields {
            match name.as_str() {
                "resumeAfter" => resume = Some(token(name, value)?),
                "startAfter" => start_after = Some(token(name, value)?),
                "startAtOperationTime" => match value {
                    Bson::Timestamp(time) => at = Some(*time),
                    _ => return Err(wrong_type(name, value, "timestamp")),
                },
                "fullDocument" => options.after = images(name, value, version)?,
                "allChangesForCluster" => options.is_of_cluster = flag(name, value)?,
                "fullDocumentBeforeChange" if version >= ServerVersion::V4_4 => {
                    options.before = images(name, value, version)?;
                }
                "showExpandedEvents" if version >= ServerVersion::V6_0 => {
                    options.is_expanded = flag(name, value)?;
                }
                _ => {
                    let reason = format!("BSON field '$changeStream.{name}' is an unknown field.");
                    return Err(StoreError::new(40415, reason));
                }
            }
        }
        options.start = start(resume, start_after, at)?;
        Ok(options)
    }
}

/// Chooses the one way in which a stream begins.
fn start(
    resume: Option<Token>,
    start_after: Option<Token>,
    at: Option<Timestamp>,
) -> Result<Start, StoreError> {
    if resume.is_some_and(|it| it.invalidates) {
        let reason = "Attempting to resume a change stream using 'resumeAfter' is not allowed from \
                      an invalidate notification";
        return Err(StoreError::new(260, reason));
    }
    match (resume, start_after, at) {
        (Some(_), Some(_), _) => {
            let reason =
                "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage";
            Err(StoreError::new(50865, reason))
        }
        (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
            let reason = "Only one type of resume option is allowed, but multiple were found";
            Err(StoreError::new(40674, reason))
        }
        (Some(token), ..) | (_, Some(token), _) => Ok(Start::After(token)),
        (None, None, Some(time)) => Ok(Start::At(time)),
        (None, None, None) => Ok(Start::Now),
    }
}

fn wrong_type(name: &str, value: &Bson, expected: &str) -> StoreError {
    let reason = format!(
        "BSON field '$changeStream.{name}' is the wrong type '{}', expected type '{expected}'",
        type_name(value)
    );
    StoreError::new(14, reason)
}

fn token(name: &str, value: &Bson) -> Result<Token, StoreError> {
    let document = value.as_document().ok_or_else(|| wrong_type(name, value, "object"))?;
    Token::parse(document)
}

fn flag(name: &str, value: &Bson) -> Result<bool, StoreError> {
    value.as_bool().ok_or_else(|| wrong_type(name, value, "bool"))
}

/// Reads `fullDocument`, or the same of documents before their changes.
fn images(name: &str, value: &Bson, version: ServerVersion) -> Result<FullDocument, StoreError> {
    let text = value.as_str().ok_or_else(|| wrong_type(name, value, "string"))?;
    let is_before = name == "fullDocumentBeforeChange";
    let has_images = is_before || version >= ServerVersion::V6_0;
    match text {
        "default" if !is_before => Ok(FullDocument::Off),
        "off" if is_before => Ok(FullDocument::Off),
        "updateLookup" if !is_before => Ok(FullDocument::Lookup),
        "whenAvailable" if has_images => Ok(FullDocument::WhenAvailable),
        "required" if has_images => Ok(FullDocument::Required),
        _ => {
            let code = if version < ServerVersion::V5_0 && !is_before { 40575 } else { 2 };
            let reason = format!(
                "Enumeration value '{text}' for field '$changeStream.{name}' is not a valid value."
            );
            Err(StoreError::new(code, reason))
        }
    }
}
