//! A change stream begins where its application says, goes on where it has come to, in one session,
//! and once for each error.

use std::collections::BTreeMap;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};
use sdam_core::bson;
use sdam_core::operation::SYSTEM_OVERLOADED;

use super::super::conversation::{Command, Reply, SessionName, text_of};
use super::{Finding, ensure};

/// The label of errors after which a stream goes on, and the code of another one.
const RESUMABLE: &str = "ResumableChangeStreamError";
const CURSOR_NOT_FOUND: i32 = 43;

/// The place where an application has a stream begin.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::sim::applications) enum Beginning {
    /// At the present of the servers.
    Now,
    ResumeAfter(RawDocumentBuf),
    StartAfter(RawDocumentBuf),
    At(Timestamp),
    /// Behind the token that a store has, if there is one.
    Stored,
}

/// A stream, as its commands show it.
#[derive(Clone, Debug)]
struct Known {
    beginning: Beginning,
    /// True if its calls have a limit of time.
    is_limited: bool,
    /// The cursor that was opened last.
    cursor: Option<i64>,
    session: Option<SessionName>,
    has_handed_out: bool,
    /// The last token that it has gone on from.
    token: String,
    /// The token of the last batch, if that had no event.
    of_batch: Option<String>,
    /// True if its server has said that it cannot go on.
    is_refused: bool,
    /// The number of times that it was not opened since a call, or a getMore, has begun.
    attempts: u32,
    is_overloaded: bool,
}

/// The streams of all clients, by their operations.
#[derive(Clone, Debug)]
pub(in crate::sim::applications) struct Streams {
    /// `maxAdaptiveRetries`.
    most: u32,
    known: BTreeMap<i64, Known>,
}

impl Streams {
    pub(super) const fn new(most: u32) -> Self {
        Self { most, known: BTreeMap::new() }
    }

    /// An application opens a stream.
    pub(in crate::sim::applications) fn begin(
        &mut self,
        operation: i64,
        beginning: Beginning,
        is_limited: bool,
    ) {
        let known = Known {
            beginning,
            is_limited,
            cursor: None,
            session: None,
            has_handed_out: false,
            token: String::new(),
            of_batch: None,
            is_refused: false,
            attempts: 0,
            is_overloaded: false,
        };
        self.known.insert(operation, known);
    }

    /// An application asks for the next event.
    pub(in crate::sim::applications) fn calls(&mut self, operation: i64) {
        if let Some(known) = self.known.get_mut(&operation) {
            (known.attempts, known.is_overloaded) = (0, false);
        }
    }

    /// A stream has handed out an event.
    pub(in crate::sim::applications) fn handed_out(&mut self, operation: i64) {
        self.known.entry(operation).and_modify(|known| known.has_handed_out = true);
    }

    /// A stream has returned that there is no event, and has come to a token.
    ///
    /// "the cached resumeToken MUST be updated to the postBatchResumeToken" after an empty batch
    /// ("Updating the Cached Resume Token").
    pub(in crate::sim::applications) fn finds_nothing(
        &self,
        operation: i64,
        token: Option<&str>,
    ) -> Finding {
        let of_batch = self.known.get(&operation).and_then(|known| known.of_batch.as_deref());
        ensure(of_batch.is_none() || token >= of_batch, "tokens advance without events", || {
            format!("{token:?} is kept, and {of_batch:?} was that of the batch")
        })
    }

    /// A command is sent.
    pub(super) fn sent(&mut self, command: &Command) -> Finding {
        let most = self.most;
        let known = command.operation.and_then(|operation| self.known.get_mut(&operation));
        let Some(known) = known else { return Ok(()) };
        match command.name.as_str() {
            "aggregate" => known.opens(command, most),
            "getMore" => known.reads(command),
            _ => Ok(()),
        }
    }

    pub(super) fn replied(&mut self, command: &Command, reply: &Reply) {
        let known = command.operation.and_then(|operation| self.known.get_mut(&operation));
        let Some(known) = known else { return };
        let is_opened = command.name == "aggregate";
        if reply.is_ok() {
            known.of_batch = token_of_empty_batch(reply);
        }
        if is_opened {
            known.is_overloaded |= reply.has_label(SYSTEM_OVERLOADED);
        } else {
            let code = reply.body.get_i32("code").unwrap_or_default();
            let is_resumable = reply.has_label(RESUMABLE) || code == CURSOR_NOT_FOUND;
            // What a server was too busy for is asked for again.
            known.is_refused |=
                !reply.is_ok() && !is_resumable && !reply.has_label(SYSTEM_OVERLOADED);
        }
        if is_opened && reply.is_ok() {
            (known.attempts, known.is_overloaded) = (0, false);
            (known.cursor, known.session) = (reply.cursor(), command.session.clone());
        }
    }
}

/// Returns the token of a batch that has no event.
fn token_of_empty_batch(reply: &Reply) -> Option<String> {
    let cursor = reply.body.get_document("cursor").ok()?;
    let batch = cursor.get_array("nextBatch").or_else(|_| cursor.get_array("firstBatch")).ok()?;
    let token = cursor.get_document("postBatchResumeToken").and_then(|it| it.get_str("_data"));
    let is_empty = batch.into_iter().next().is_none();
    token.ok().filter(|_| is_empty).map(str::to_owned)
}

impl Known {
    /// It is opened, for the first time or again.
    ///
    /// "The resume process": `startAfter` if it was begun so and has handed out nothing, else
    /// `resumeAfter`, or the operation time; one of them; in the same session.
    fn opens(&mut self, command: &Command, most: u32) -> Finding {
        let said = || format!("{}, after {self:?}", text_of(&command.body));
        let stage = stage(command);
        let token = |name| stage.and_then(|it| it.get_document(name).ok());
        let (resumes, starts) = (token("resumeAfter"), token("startAfter"));
        let at = stage.and_then(|it| it.get_timestamp("startAtOperationTime").ok());
        let count = [resumes.is_some(), starts.is_some(), at.is_some()];
        let count = count.into_iter().filter(|is_there| *is_there).count();
        ensure(count <= 1, "a stream says once where it begins", said)?;
        ensure(!self.is_refused, "a stream goes on after errors that say so", said)?;
        if self.cursor.is_none() {
            let is_as_said = match &self.beginning {
                Beginning::Now => count == 0,
                Beginning::ResumeAfter(token) => resumes == Some(&**token),
                Beginning::StartAfter(token) => starts == Some(&**token),
                Beginning::At(time) => at == Some(*time),
                Beginning::Stored => count == 0 || starts.is_some(),
            };
            ensure(is_as_said, "a stream begins where it is to begin", said)?;
        } else {
            ensure(count == 1, "a stream goes on where it has come to", said)?;
            let starts_after = match self.beginning {
                Beginning::StartAfter(_) => !self.has_handed_out,
                Beginning::Stored => starts.is_some() && !self.has_handed_out,
                _ => false,
            };
            ensure(starts.is_some() == starts_after, "a stream goes on as it has begun", said)?;
            let is_same = self.session == command.session;
            ensure(is_same, "a stream has one session", said)?;
        }
        let text = resumes.or(starts).and_then(|it| it.get_str("_data").ok());
        if let Some(text) = text {
            ensure(text >= &*self.token, "tokens only advance", said)?;
            text.clone_into(&mut self.token);
        }
        let retry = self.attempts;
        self.attempts += 1;
        let limit = match (self.is_overloaded, self.is_limited) {
            (true, _) => Some(most),
            (false, true) => None,
            (false, false) => Some(most.saturating_sub(1).max(1)),
        };
        let is_allowed = limit.is_none_or(|limit| retry <= limit);
        ensure(is_allowed, "a stream goes on once for each error", || {
            format!("{}, after {self:?}", text_of(&command.body))
        })
    }

    /// "getMore [...] MUST" be of the cursor that was opened, and of its session.
    fn reads(&mut self, command: &Command) -> Finding {
        (self.attempts, self.is_overloaded) = (0, false);
        let is_its = self.cursor.is_some() && command.body.get_i64("getMore").ok() == self.cursor;
        let is_same = self.session == command.session;
        ensure(is_its && is_same, "a stream reads the cursor that it has opened", || {
            format!("{}, after {self:?}", text_of(&command.body))
        })
    }
}

/// Returns the stage that makes an aggregation a change stream.
fn stage(command: &Command) -> Option<&RawDocument> {
    let first = command.body.get_array("pipeline").ok()?.into_iter().next()?.ok()?;
    let RawBsonRef::Document(first) = first else { return None };
    first.get_document("$changeStream").ok()
}

#[cfg(test)]
mod tests;
