//! Change streams as values: where each stands in the log of its member, and what it reports next
//! (Change Streams).
//!
//! A stream has no copy of the log. It knows the place from which on it has seen nothing, and
//! reports what a majority has from there.

mod description;
mod difference;
mod event;
mod options;
mod scope;
mod split;
mod stages;
mod token;

use std::collections::VecDeque;
use std::sync::Arc;

use bson::{Bson, Document, Timestamp};
use sdam_core::bson;

use self::event::Reporter;
pub(crate) use self::options::StreamOptions;
use self::options::{FullDocument, Start};
pub(crate) use self::scope::Scope;
use self::stages::Stages;
use self::token::Token;
use super::{
    Context, StoreError,
    catalog::{Change, Store},
    log::{Data, Entry, Place, Position},
};
use crate::options::ServerVersion;

/// The log of a member, as far as it may be reported.
#[derive(Clone, Debug)]
pub(crate) struct Past<'a> {
    pub(crate) data: &'a Data,
    /// The last entry that a majority has.
    pub(crate) committed: Position,
    /// The state up to there, if it is not the newest and is looked at.
    pub(crate) state: Option<Store>,
    pub(crate) version: ServerVersion,
}

impl Past<'_> {
    /// Returns the state that a majority has.
    fn current(&self) -> &Store {
        self.state.as_ref().unwrap_or(&self.data.store)
    }
}

/// A change stream.
#[derive(Clone, Debug)]
pub(crate) struct ChangeStream {
    scope: Scope,
    options: StreamOptions,
    stages: Arc<Stages>,
    context: Context,
    version: ServerVersion,
    /// The first place that it has not seen.
    next: Place,
    /// The token whose event must be the first one that it finds.
    wanted: Option<Token>,
    /// The token of all that it has seen.
    latest: Token,
    /// The token of the last event that was handed out.
    given: Document,
    /// It has begun: what it misses from now on, it has lost meanwhile.
    has_begun: bool,
    /// It has reported its last event: its collection or database is no more.
    is_over: bool,
    /// The bytes of the events that wait to be handed out.
    waiting: usize,
}

/// The bytes of events after which a stream has enough to hand out.
const MAX_WAITING: usize = 16 << 20;

impl ChangeStream {
    /// Opens a stream behind all that its member has, or where the options say.
    ///
    /// # Errors
    ///
    /// Fails as servers do if a stage makes no sense, or if the token needs another pipeline.
    pub(crate) fn open(
        scope: Scope,
        options: StreamOptions,
        pipeline: &[Bson],
        (now, version): (Timestamp, ServerVersion),
        context: Context,
    ) -> Result<Self, StoreError> {
        let stages = Arc::new(Stages::parse(pipeline, version, &context)?);
        let (latest, wanted) = match options.start {
            Start::Now => (Token::of_time(following(now)), None),
            Start::At(time) => (Token::of_time(time), None),
            Start::After(token) => (token, Some(token).filter(|it| it.is_event)),
        };
        if latest.fragment.is_some() && !stages.splits {
            let reason = "To resume from a split event, the $changeStream pipeline must include a \
                          $changeStreamSplitLargeEvent stage";
            return Err(StoreError::new(280, reason));
        }
        let given = latest.document();
        let next = latest.place;
        let (has_begun, is_over) = (false, false);
        let stream = Self {
            scope,
            options,
            stages,
            context,
            version,
            next,
            wanted,
            latest,
            given,
            has_begun,
            is_over,
            waiting: 0,
        };
        Ok(stream)
    }

    /// Returns whether events have the newest documents, which are looked up.
    pub(crate) fn looks_up(&self) -> bool {
        self.options.after == FullDocument::Lookup
    }

    /// Returns whether it has reported its last event.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the version of the server that it was opened on.
    pub(crate) const fn version(&self) -> ServerVersion {
        self.version
    }

    /// Checks that the log still has what the stream has not seen.
    ///
    /// # Errors
    ///
    /// Fails with `ChangeStreamHistoryLost`, or with `CappedPositionLost` if it was there when the
    /// stream began.
    pub(crate) fn check_history(&self, past: &Past<'_>) -> Result<(), StoreError> {
        match (past.data.reaches_back_to(self.next), self.has_begun) {
            (true, _) => Ok(()),
            (false, false) => {
                let reason = "Resume of change stream was not possible, as the resume point may no \
                              longer be in the oplog.";
                Err(StoreError::new(286, reason))
            }
            (false, true) => {
                let reason = "CollectionScan died due to position in capped collection being \
                              deleted.";
                Err(StoreError::new(136, reason))
            }
        }
    }

    /// Appends the next events to those that are to be handed out, until there are so many, or so
    /// many bytes as a batch has.
    ///
    /// # Errors
    ///
    /// Fails if the log does not have them any more, if a token belongs to none of them, or if one
    /// cannot be reported.
    pub(crate) fn advance(
        &mut self,
        past: &Past<'_>,
        rest: &mut VecDeque<Arc<Document>>,
        most: usize,
    ) -> Result<(), StoreError> {
        if self.is_over {
            return Ok(());
        }
        self.check_history(past)?;
        self.has_begun = true;
        for entry in past.data.since(self.next).take_while(|it| it.position <= past.committed) {
            for (place, change) in entry.reported() {
                if place < self.next {
                    continue;
                }
                if self.is_over || rest.len() >= most || self.waiting > MAX_WAITING {
                    return Ok(());
                }
                if self.concerns(change) {
                    self.report(past, entry, (place, change), rest)?;
                }
                self.next = Place { index: place.index + 1, ..place };
            }
            if self.is_over {
                return Ok(());
            }
            if self.latest.place.time < Place::at(entry.timestamp).time {
                self.latest = Token::of_time(entry.timestamp);
            }
            self.next = self.next.max(Place::at(following(entry.timestamp)));
        }
        Ok(())
    }

    /// Returns whether a change is among those that it watches.
    fn concerns(&self, change: &Change) -> bool {
        match change {
            Change::Document { namespace, .. } => self.scope.has(namespace),
            Change::Definition(definition) => {
                self.scope.has_definition(definition)
                    && (self.options.is_expanded || !definition.is_expanded())
            }
            Change::Collection { .. } | Change::Session { .. } => false,
        }
    }

    /// Reports a change, unless the stream resumes after it.
    fn report(
        &mut self,
        past: &Past<'_>,
        entry: &Entry,
        (place, change): (Place, &Change),
        rest: &mut VecDeque<Arc<Document>>,
    ) -> Result<(), StoreError> {
        let (uuid, ends) = match change {
            Change::Document { note, .. } => (Some(note.uuid), false),
            Change::Definition(it) => (it.uuid, self.scope.is_ended_by(it)),
            Change::Collection { .. } | Change::Session { .. } => (None, false),
        };
        let token = Token {
            place,
            is_event: true,
            invalidates: false,
            uuid,
            splits: self.stages.splits,
            fragment: None,
        };
        let resumed = self.wanted;
        let (options, stages) = (self.options, Arc::clone(&self.stages));
        let reporter = Reporter { options: &options, past };
        let through = || {
            let event = reporter.event(entry, (place, change), token.document())?;
            stages.through(event, &self.context)
        };
        let behind_stages = self.looks_behind_stages().then(through).transpose()?;
        if behind_stages != Some(None) {
            if let Some(wanted) = resumed {
                let is_it = wanted.place == place && wanted.uuid == uuid;
                if !is_it || (wanted.invalidates && !ends) {
                    return Err(not_found());
                }
            }
            // Of an event that was cut, the fragments that follow are reported.
            let seen = match resumed {
                None => Some(0),
                Some(wanted) => wanted.fragment.map(|it| it + 1),
            };
            if let Some(seen) = seen
                && let Some(event) = behind_stages.map_or_else(through, Ok)?
            {
                self.push(event, (token, seen), rest)?;
            }
            self.wanted = None;
        }
        if ends && !resumed.is_some_and(|it| it.invalidates) {
            let token = Token { invalidates: true, ..token };
            let event = reporter.invalidate(entry, place, token.document());
            if let Some(event) = stages.through(event, &self.context)? {
                if self.wanted.is_some() {
                    return Err(not_found());
                }
                self.push(event, (token, 0), rest)?;
            }
            self.latest = token;
            self.is_over = true;
        }
        Ok(())
    }

    /// Returns whether the event of a token is looked for among those that the stages let through:
    /// servers since 6.0 have events go through the stages before, and fail where one does. That of
    /// an `invalidate` is found all the same.
    fn looks_behind_stages(&self) -> bool {
        let is_new = self.version >= ServerVersion::V6_0;
        is_new && self.wanted.is_some_and(|it| !it.invalidates)
    }

    /// Has an event handed out, whole or in fragments, of which so many were seen.
    fn push(
        &mut self,
        event: Document,
        (token, seen): (Token, u64),
        rest: &mut VecDeque<Arc<Document>>,
    ) -> Result<(), StoreError> {
        let length = split::length(&event);
        if !self.stages.splits {
            split::check(length)?;
            self.waiting += length;
            rest.push_back(Arc::new(event));
            self.latest = token;
            return Ok(());
        }
        let fragments = split::fragments((event, length), token, split::MAX_FRAGMENT_LEN)?;
        let count = fragments.len() as u64;
        let fragment = (count > 1).then(|| count - 1);
        let seen = usize::try_from(seen).unwrap_or(usize::MAX);
        for fragment in fragments.into_iter().skip(seen) {
            self.waiting += split::length(&fragment);
            rest.push_back(Arc::new(fragment));
        }
        self.latest = Token { fragment, ..token };
        Ok(())
    }

    /// Notes an event that was handed out, with its length.
    pub(crate) fn note_given(&mut self, event: &Document, length: usize) {
        self.waiting = self.waiting.saturating_sub(length);
        if let Ok(token) = event.get_document("_id") {
            self.given = token.clone();
        }
    }

    /// Returns `postBatchResumeToken`: the token of the event that was handed out last if others
    /// wait, or else the token of the latest time that was seen.
    pub(crate) fn post_batch_token(&self, has_more: bool) -> Document {
        if has_more { self.given.clone() } else { self.latest.document() }
    }
}

/// No event of the stream has the token behind which it was to begin.
fn not_found() -> StoreError {
    StoreError::new(280, "cannot resume stream; the resume token was not found.")
}

/// Returns the next time after one.
fn following(time: Timestamp) -> Timestamp {
    Timestamp { increment: time.increment.saturating_add(1), ..time }
}

/// Checks that a stream may be opened on a database, and on a collection of it.
///
/// # Errors
///
/// Fails with `InvalidNamespace` if it is one of the servers' own.
pub(crate) fn check_watchable(database: &str, collection: Option<&str>) -> Result<(), StoreError> {
    let what = match collection {
        _ if scope::is_internal(database) => format!("{database} database"),
        Some(name) if scope::is_system(name) => format!("{database}.{name} collection"),
        _ => return Ok(()),
    };
    let reason = format!("$changeStream may not be opened on the internal {what}");
    Err(StoreError::new(73, reason))
}
