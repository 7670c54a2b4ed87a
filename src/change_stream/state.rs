//! The state of a change stream: the token that it goes on from, and how it begins again.
//!
//! Implements "Resume Process" and "Exposing All Resume Tokens" of Change Streams.

use std::time::Duration;

use bson::{RawDocument, Timestamp};

use super::ResumeToken;
use crate::cursor::CursorState;
use crate::error::ArgumentError;

/// The place where a stream begins.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) enum Start {
    /// As its options say.
    #[default]
    Given,
    /// Behind this token.
    Resume(ResumeToken),
    /// Behind this token, which may be that of an `invalidate`.
    After(ResumeToken),
    /// At this time.
    At(Timestamp),
}

/// A change stream without its cursor.
#[derive(Clone, Debug)]
pub(crate) struct ChangeStreamState {
    token: Option<ResumeToken>,
    /// True if it was begun by `startAfter`, and has handed out nothing since.
    starts_after: bool,
    /// True if the options say where it begins.
    is_placed: bool,
    /// The time of the first command, if nothing else says where to go on.
    operation_time: Option<Timestamp>,
    /// True once an `invalidate` was handed out, behind which there is nothing.
    is_invalidated: bool,
}

impl ChangeStreamState {
    /// Takes where the options have it begin.
    pub(crate) fn new(
        start_after: Option<ResumeToken>,
        resume_after: Option<ResumeToken>,
        has_time: bool,
    ) -> Self {
        let starts_after = start_after.is_some();
        let token = start_after.or(resume_after);
        let is_placed = has_time || token.is_some();
        Self { token, starts_after, is_placed, operation_time: None, is_invalidated: false }
    }

    /// Takes note of the first cursor, and of the `operationTime` of its reply: it counts "if the
    /// first batch is empty", there is no `postBatchResumeToken`, and no option says where to
    /// begin.
    pub(crate) fn opened(&mut self, cursor: &CursorState, operation_time: Option<Timestamp>) {
        let is_told = cursor.has_documents() || cursor.post_batch_resume_token().is_some();
        if !self.is_placed && !is_told {
            self.operation_time = operation_time;
        }
        self.heard(cursor);
    }

    /// Takes note that the documents of a batch are all handed out, if they are: the token is that
    /// of the batch then, if it has one.
    pub(crate) fn heard(&mut self, cursor: &CursorState) {
        if let Some(token) = cursor.post_batch_resume_token()
            && !cursor.has_documents()
            && self.token.as_ref().is_none_or(|known| known.document() != token)
        {
            self.token = Some(ResumeToken::from(token));
        }
    }

    /// Takes note that an event is handed out.
    ///
    /// # Errors
    ///
    /// Fails if it has no token: "Cannot provide resume functionality when the resume token is
    /// missing".
    pub(crate) fn hands_out(&mut self, event: &RawDocument) -> Result<(), ArgumentError> {
        let token = event.get_document("_id").map_err(|_| ArgumentError::NoResumeToken)?;
        self.token = Some(ResumeToken::from(token));
        self.starts_after = false;
        self.is_invalidated = event.get_str("operationType").is_ok_and(|kind| kind == "invalidate");
        Ok(())
    }

    /// Returns whether the event that was handed out last is an `invalidate`: the server closes the
    /// cursor, if not with the same batch, and the stream may not be resumed after that.
    pub(crate) const fn is_invalidated(&self) -> bool {
        self.is_invalidated
    }

    /// Returns the token that another stream would go on from.
    pub(crate) const fn token(&self) -> Option<&ResumeToken> {
        self.token.as_ref()
    }

    /// Returns the time between the change that it has come to and the last one that its server has
    /// reported, if both are known.
    pub(crate) fn lag(&self, cursor: &CursorState) -> Option<Duration> {
        let (read, last) = (self.token.as_ref()?.cluster_time()?, cursor.operation_time()?);
        Some(Duration::from_secs(last.time.saturating_sub(read.time).into()))
    }

    /// Returns where it begins again.
    pub(crate) fn start(&self) -> Start {
        match (&self.token, self.operation_time) {
            (Some(token), _) if self.starts_after => Start::After(token.clone()),
            (Some(token), _) => Start::Resume(token.clone()),
            (None, Some(time)) => Start::At(time),
            (None, None) => Start::Given,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{RawArrayBuf, RawDocumentBuf, Timestamp, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::{ChangeStreamState, ResumeToken, Start};
    use crate::cursor::{CursorState, CursorStep, Settings};

    const TIME: Option<Timestamp> = Some(Timestamp { time: 7, increment: 1 });

    fn token(n: i32) -> ResumeToken {
        ResumeToken::new(rawdoc! { "_data": n })
    }

    fn cursor(events: &[i32], post_batch: Option<i32>) -> CursorState {
        let mut batch = RawArrayBuf::new();
        events.iter().for_each(|&n| batch.push(rawdoc! { "_id": { "_data": n } }));
        let mut cursor = rawdoc! { "id": 7_i64, "ns": "app.things", "firstBatch": batch };
        if let Some(n) = post_batch {
            cursor.append(bson::raw::cstr!("postBatchResumeToken"), rawdoc! { "_data": n });
        }
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "cursor": cursor });
        let settings = Settings { tailable: true, ..Settings::default() };
        CursorState::open("aggregate", &reply, settings).unwrap()
    }

    /// Hands out the next event, as a stream does.
    fn next(state: &mut ChangeStreamState, cursor: &mut CursorState) {
        let Ok(CursorStep::Document(event)) = cursor.step() else { panic!("there is an event") };
        let event: RawDocumentBuf = event.to_owned();
        state.hands_out(&event).unwrap();
        state.heard(cursor);
    }

    fn unplaced() -> ChangeStreamState {
        ChangeStreamState::new(None, None, false)
    }

    /// CS-P1, P11, P13 and P14: "the resume token of the last document", that of the batch behind
    /// its last one and where it is empty, and that of the options before.
    #[test]
    fn the_token_is_that_of_what_was_handed_out() {
        let mut state = unplaced();
        let mut batch = cursor(&[1, 2], Some(5));
        state.opened(&batch, TIME);
        assert_eq!(state.token(), None, "nothing was handed out");
        next(&mut state, &mut batch);
        assert_eq!(state.token(), Some(&token(1)));
        next(&mut state, &mut batch);
        assert_eq!(state.token(), Some(&token(5)), "the last of its batch");
        state.heard(&cursor(&[], Some(6)));
        assert_eq!(state.token(), Some(&token(6)), "an empty batch");
        let mut batch = cursor(&[8], None);
        state.heard(&batch);
        assert_eq!(state.token(), Some(&token(6)), "it was not handed out yet");
        next(&mut state, &mut batch);
        assert_eq!(state.token(), Some(&token(8)), "a server without tokens of batches");
        let placed = ChangeStreamState::new(Some(token(1)), Some(token(2)), false);
        assert_eq!(placed.token(), Some(&token(1)));
        let placed = ChangeStreamState::new(None, Some(token(2)), false);
        assert_eq!(placed.token(), Some(&token(2)));
    }

    #[test]
    fn it_lags_by_what_its_server_has_told_of_and_it_has_not_handed_out() {
        let reply = |seconds, token: &str| {
            let token = rawdoc! { "_data": token };
            let cursor = rawdoc! {
                "id": 7_i64, "ns": "app.a", "firstBatch": [], "postBatchResumeToken": token,
            };
            let time = Timestamp { time: seconds, increment: 1 };
            let reply = rawdoc! { "ok": 1, "operationTime": time, "cursor": cursor };
            let settings = Settings { tailable: true, ..Settings::default() };
            CursorState::open("aggregate", &ReplyDocument::from(reply), settings).unwrap()
        };
        let mut state = unplaced();
        let cursor = reply(0x0f, "820000000A00000001");
        assert_eq!(state.lag(&cursor), None, "no token is known");
        state.opened(&cursor, None);
        assert_eq!(state.lag(&cursor), Some(Duration::from_secs(5)));
        assert_eq!(state.lag(&reply(3, "")), Some(Duration::ZERO), "clocks differ");
    }

    /// CS-P2: an event without a token is an error.
    #[test]
    fn an_event_without_a_token_is_refused() {
        let error = unplaced().hands_out(&rawdoc! { "operationType": "insert" }).unwrap_err();
        let text = "Cannot provide resume functionality when the resume token is missing";
        assert!(error.to_string().starts_with(text), "{error}");
    }

    /// "Resume Process": the table of where a stream begins again; CS-P7, P8, P17 and P18.
    #[test]
    fn a_stream_begins_again_where_it_was() {
        let empty = cursor(&[], None);
        let mut state = unplaced();
        state.opened(&empty, TIME);
        assert_eq!(state.start(), Start::At(TIME.unwrap()), "P7");
        let mut state = unplaced();
        state.opened(&cursor(&[1], None), TIME);
        assert_eq!(state.start(), Start::Given, "it is not empty");
        let mut state = unplaced();
        state.opened(&cursor(&[], Some(3)), TIME);
        assert_eq!(state.start(), Start::Resume(token(3)));
        let mut state = ChangeStreamState::new(None, None, true);
        state.opened(&empty, TIME);
        assert_eq!(state.start(), Start::Given, "the options have a time");
        let mut state = ChangeStreamState::new(Some(token(1)), None, false);
        state.opened(&empty, TIME);
        assert_eq!(state.start(), Start::After(token(1)), "P17: nothing was handed out");
        state.heard(&cursor(&[], Some(2)));
        assert_eq!(state.start(), Start::After(token(2)));
        next(&mut state, &mut cursor(&[4, 5], None));
        assert_eq!(state.start(), Start::Resume(token(4)), "P18");
    }
}
