//! A cursor without its connection: what it has, and what it asks for next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp, rawdoc};
use sdam_core::operation::KillCursors;
use sdam_core::wire::ReplyDocument;
use sdam_host::driver::documents::number;

use super::batch::Batch;
use super::pace::DEFAULT_AWAIT_TIME;
use crate::error::ReplyError;
use crate::value::{begin_command, whole_millis};

/// The options that every getMore of a cursor has; printed, they are without the comment.
#[derive(Clone, Default)]
#[non_exhaustive]
pub(crate) struct Settings {
    /// The number of documents of a batch; zero leaves it to the server.
    pub batch_size: u32,
    /// The number of documents in all; zero for every document.
    pub limit: i64,
    /// The comment of the command that opened the cursor, for servers that take one (CRUD: 4.4 and
    /// later).
    pub comment: Option<RawBson>,
    /// The time that the server waits for new documents (`maxAwaitTimeMS`).
    pub max_await_time: Option<Duration>,
    /// True if an empty batch does not end the cursor.
    pub tailable: bool,
    /// True if the server waits for new documents.
    pub await_data: bool,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("batch_size", &self.batch_size)
            .field("limit", &self.limit)
            .field("max_await_time", &self.max_await_time)
            .field("tailable", &self.tailable)
            .field("await_data", &self.await_data)
            .finish_non_exhaustive()
    }
}

/// A cursor as a value: the documents that have come, and what is needed for more. Printed, it is
/// without them.
#[derive(Clone)]
pub struct CursorState {
    id: i64,
    database: Arc<str>,
    collection: Arc<str>,
    batch: Batch,
    settings: Settings,
    /// The number of documents that were handed out.
    returned: i64,
    /// True once a batch could not be read to its end.
    is_broken: bool,
    post_batch_resume_token: Option<RawDocumentBuf>,
    /// The time of the server's history at which the last batch was made, of tailable cursors.
    operation_time: Option<Timestamp>,
}

impl fmt::Debug for CursorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CursorState")
            .field("id", &self.id)
            .field("database", &self.database)
            .field("collection", &self.collection)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The next document of a cursor, or what is to be done for it.
#[derive(Debug)]
#[non_exhaustive]
pub enum CursorStep<'a> {
    /// Nothing: there it is.
    Document(&'a RawDocument),
    /// This getMore is to be sent to the server that the cursor is of, on its database.
    GetMore(RawDocumentBuf),
    /// There is none, and there will be none; a cursor that is still open is to be killed.
    Exhausted,
}

impl CursorState {
    /// Takes a cursor from the reply of the command that has opened it.
    ///
    /// # Errors
    ///
    /// Fails if the reply has no cursor with a number, a namespace and a batch.
    pub(crate) fn open(
        command: &'static str,
        reply: &ReplyDocument,
        settings: Settings,
    ) -> Result<Self, ReplyError> {
        Self::open_on(<(Arc<str>, Arc<str>)>::default(), command, reply, settings)
    }

    /// As [`open`](Self::open), and shares the names of the database and the collection if the
    /// cursor is one of theirs.
    ///
    /// # Errors
    ///
    /// Fails as [`open`](Self::open) does.
    pub(crate) fn open_on(
        (database, collection): (Arc<str>, Arc<str>),
        command: &'static str,
        reply: &ReplyDocument,
        settings: Settings,
    ) -> Result<Self, ReplyError> {
        let batch = Batch::in_reply(command, "firstBatch", reply)?;
        let mut state = Self {
            id: 0,
            database,
            collection,
            batch,
            settings,
            returned: 0,
            is_broken: false,
            post_batch_resume_token: None,
            operation_time: None,
        };
        state.read(command, reply)?;
        Ok(state)
    }

    /// A cursor that has ended, without a document.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn empty() -> Self {
        let cursor = rawdoc! { "id": 0_i64, "ns": "none.none", "firstBatch": [] };
        let reply = rawdoc! { "ok": 1, "cursor": cursor }.into();
        Self::open("none", &reply, Settings::default()).expect("it is a reply with a cursor")
    }

    /// Takes the next documents from the reply to getMore.
    ///
    /// # Errors
    ///
    /// Fails if the reply has no cursor.
    pub fn more(&mut self, reply: &ReplyDocument) -> Result<(), ReplyError> {
        self.batch = Batch::in_reply("getMore", "nextBatch", reply)?;
        self.read("getMore", reply)
    }

    /// "The driver's local cursor MUST update its id and ns ... from every getMore response."
    fn read(&mut self, command: &'static str, reply: &RawDocument) -> Result<(), ReplyError> {
        let missing = |field| ReplyError::new(command, field);
        let cursor = reply.get_document("cursor").map_err(|_| missing("cursor"))?;
        self.id = number(cursor, "id").ok_or(missing("id"))?;
        let namespace = cursor.get_str("ns").ok().and_then(|namespace| namespace.split_once('.'));
        let (database, collection) = namespace.ok_or(missing("ns"))?;
        if *self.database != *database {
            self.database = database.into();
        }
        if *self.collection != *collection {
            self.collection = collection.into();
        }
        // Where there is none, as in most replies, this makes no error.
        let token = cursor.get("postBatchResumeToken").ok().flatten();
        let token = token.and_then(RawBsonRef::as_document);
        self.post_batch_resume_token = token.map(ToOwned::to_owned);
        if self.settings.tailable {
            self.operation_time = reply.get_timestamp("operationTime").ok();
        }
        Ok(())
    }

    /// Returns the cursor's number at the server; 0 if the server has closed it.
    pub const fn id(&self) -> i64 {
        self.id
    }

    /// Returns the names of its database and its collection.
    pub const fn namespace(&self) -> (&Arc<str>, &Arc<str>) {
        (&self.database, &self.collection)
    }

    /// Returns what a change stream goes on from after the last batch, if the server has said.
    pub fn post_batch_resume_token(&self) -> Option<&RawDocument> {
        self.post_batch_resume_token.as_deref()
    }

    /// Returns the time of the server's history at which the last batch was made, of a tailable
    /// cursor, if the server has said it.
    pub const fn operation_time(&self) -> Option<Timestamp> {
        self.operation_time
    }

    /// Changes how many documents the next batches have.
    pub const fn set_batch_size(&mut self, batch_size: u32) {
        self.settings.batch_size = batch_size;
    }

    /// Returns whether there are documents that have come and were not handed out.
    pub fn has_documents(&self) -> bool {
        !self.is_over() && !self.batch.is_empty()
    }

    /// Returns the document that the last [`step`](Self::step) has handed out, if it has.
    pub fn current(&self) -> Option<&RawDocument> {
        self.batch.current()
    }

    /// Returns what is to be done for the next document.
    ///
    /// # Errors
    ///
    /// Fails if what is next in the batch is no document; there is nothing further then.
    pub fn step(&mut self) -> Result<CursorStep<'_>, ReplyError> {
        self.batch.leave();
        if self.is_over() {
            return Ok(CursorStep::Exhausted);
        }
        if self.batch.is_empty() {
            return Ok(match self.get_more() {
                Some(command) => CursorStep::GetMore(command),
                None => CursorStep::Exhausted,
            });
        }
        let next = self.batch.next_document();
        match next {
            Ok(_) => self.returned += 1,
            Err(_) => self.is_broken = true,
        }
        Ok(next?.map_or(CursorStep::Exhausted, CursorStep::Document))
    }

    fn is_over(&self) -> bool {
        self.is_broken || self.settings.limit != 0 && self.returned >= self.settings.limit
    }

    /// Returns whether an empty batch is no end, as with tailable cursors.
    pub const fn is_tailable(&self) -> bool {
        self.settings.tailable
    }

    /// Returns the time that the server may wait for new documents, which every getMore says;
    /// `None` if the cursor awaits none, or leaves it to the server.
    pub fn max_await_time(&self) -> Option<Duration> {
        self.settings.max_await_time.filter(|_| self.settings.await_data)
    }

    /// Returns the time that the server waits for new documents: its own, where the cursor leaves
    /// it to the server.
    pub(crate) fn await_time(&self) -> Duration {
        self.settings.max_await_time.unwrap_or(DEFAULT_AWAIT_TIME)
    }

    fn get_more(&self) -> Option<RawDocumentBuf> {
        if self.id == 0 {
            return None;
        }
        let mut body = begin_command();
        body.append(cstr!("getMore"), self.id);
        body.append(cstr!("collection"), &*self.collection);
        // "the value of batchSize MUST be based on the cursor limit calculations"
        let Settings { batch_size, limit, .. } = self.settings;
        let left = limit - self.returned;
        match i64::from(batch_size) {
            0 => {}
            size if limit > 0 => body.append(cstr!("batchSize"), size.min(left)),
            size => body.append(cstr!("batchSize"), size),
        }
        // "a tailable cursor with awaitData == true": no other getMore says maxTimeMS.
        if let Some(time) = self.max_await_time() {
            body.append(cstr!("maxTimeMS"), whole_millis(time));
        }
        if let Some(comment) = &self.settings.comment {
            body.append(cstr!("comment"), comment.as_raw_bson_ref());
        }
        Some(body)
    }

    /// Marks the cursor closed; returns the command that kills it at the server, if it is open
    /// there.
    pub fn kill(&mut self) -> Option<KillCursors> {
        let id = self.close()?;
        Some(KillCursors::new(&self.database, (&self.collection, [id]), None, None))
    }

    /// Marks the cursor closed; returns its number at the server, if it is open there.
    pub const fn close(&mut self) -> Option<i64> {
        match std::mem::replace(&mut self.id, 0) {
            0 => None,
            id => Some(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{RawBson, RawDocumentBuf, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::{CursorState, CursorStep, Settings};

    fn open(reply: RawDocumentBuf, settings: Settings) -> CursorState {
        CursorState::open("find", &ReplyDocument::from(reply), settings).unwrap()
    }

    fn first(id: i64, ids: impl IntoIterator<Item = i32>) -> RawDocumentBuf {
        let batch: bson::RawArrayBuf = ids.into_iter().map(|id| rawdoc! { "_id": id }).collect();
        rawdoc! { "ok": 1, "cursor": { "id": id, "ns": "app.a.b", "firstBatch": batch } }
    }

    fn next(id: i64, ids: impl IntoIterator<Item = i32>) -> ReplyDocument {
        let batch: bson::RawArrayBuf = ids.into_iter().map(|id| rawdoc! { "_id": id }).collect();
        rawdoc! { "ok": 1, "cursor": { "id": id, "ns": "app.a.b", "nextBatch": batch } }.into()
    }

    fn document(state: &mut CursorState) -> i32 {
        match state.step().unwrap() {
            CursorStep::Document(document) => document.get_i32("_id").unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn get_more(state: &mut CursorState) -> RawDocumentBuf {
        match state.step().unwrap() {
            CursorStep::GetMore(command) => command,
            other => panic!("{other:?}"),
        }
    }

    /// find, getMore, killCursors, "getMore": the collection is the namespace without its
    /// database, dots and all.
    #[test]
    fn batches_follow_one_another_until_the_server_has_closed_the_cursor() {
        let mut state = open(first(7, [1, 2]), Settings::default());
        assert_eq!((document(&mut state), document(&mut state)), (1, 2));
        assert_eq!(get_more(&mut state), rawdoc! { "getMore": 7_i64, "collection": "a.b" });
        state.more(&next(0, [3])).unwrap();
        assert_eq!(document(&mut state), 3);
        assert!(matches!(state.step(), Ok(CursorStep::Exhausted)));
        assert_eq!(state.kill(), None);
    }

    /// "Behavior of Limit, skip and batchSize": the example with limit 4 and batchSize 3.
    #[test]
    fn the_last_batch_is_as_long_as_the_limit_leaves_and_the_cursor_is_killed() {
        let settings = Settings { batch_size: 3, limit: 4, ..Settings::default() };
        let mut state = open(first(7, [1, 2, 3]), settings);
        for id in 1..=3 {
            assert_eq!(document(&mut state), id);
        }
        let command = get_more(&mut state);
        assert_eq!(command.get_i64("batchSize").ok(), Some(1));
        state.more(&next(7, [4])).unwrap();
        assert_eq!(document(&mut state), 4);
        assert!(matches!(state.step(), Ok(CursorStep::Exhausted)));
        let kill = state.kill().unwrap();
        assert_eq!(&*kill.database, "app");
        assert_eq!(kill.body, rawdoc! { "killCursors": "a.b", "cursors": [7_i64] });
        assert_eq!(state.kill(), None);
    }

    /// CRUD: "drivers MUST attach this comment to all subsequent getMore commands"; "Semantics of
    /// maxTimeMS for a Driver".
    #[test]
    fn every_get_more_has_the_comment_and_only_awaiting_ones_a_time() {
        let comment = Some(RawBson::String("why".to_owned()));
        let max_await_time = Some(Duration::from_millis(50));
        let settings = Settings { comment, max_await_time, ..Settings::default() };
        let command = get_more(&mut open(first(7, []), settings.clone()));
        let expected = rawdoc! { "getMore": 7_i64, "collection": "a.b", "comment": "why" };
        assert_eq!(command, expected);
        let awaiting = Settings { tailable: true, await_data: true, ..settings };
        let command = get_more(&mut open(first(7, []), awaiting.clone()));
        assert_eq!(command.get_i64("maxTimeMS").ok(), Some(50));
        // Zero would leave the time to the server.
        let max_await_time = Some(Duration::from_micros(1));
        let mut short = open(first(7, []), Settings { max_await_time, ..awaiting });
        assert_eq!(get_more(&mut short).get_i64("maxTimeMS").ok(), Some(1));
        assert_eq!((short.is_tailable(), short.max_await_time()), (true, max_await_time));
    }

    /// find, getMore, killCursors, "getMore": the reply has `id`, `ns` and `nextBatch`, and without
    /// a namespace there is nothing to ask for more of.
    #[test]
    fn a_cursor_without_number_or_namespace_is_an_error() {
        for (field, cursor) in [
            ("id", rawdoc! { "ns": "app.a", "firstBatch": [] }),
            ("ns", rawdoc! { "id": 7_i64, "firstBatch": [] }),
            ("ns", rawdoc! { "id": 7_i64, "ns": "app", "firstBatch": [] }),
        ] {
            let reply = ReplyDocument::from(rawdoc! { "ok": 1, "cursor": cursor });
            let error = CursorState::open("find", &reply, Settings::default()).unwrap_err();
            assert_eq!((error.command, error.field), ("find", field));
        }
    }

    #[test]
    fn an_empty_batch_of_an_open_cursor_asks_for_more() {
        let mut state = open(first(7, []), Settings::default());
        get_more(&mut state);
        state.more(&next(7, [])).unwrap();
        get_more(&mut state);
        state.more(&next(0, [])).unwrap();
        assert!(matches!(state.step(), Ok(CursorStep::Exhausted)));
    }

    /// Neither what is left of the batch, nor the next one.
    #[test]
    fn nothing_follows_a_batch_that_cannot_be_read() {
        let batch = rawdoc! { "id": 7_i64, "ns": "app.a", "firstBatch": [{ "_id": 1 }, 1, {}] };
        let mut state = open(rawdoc! { "ok": 1, "cursor": batch }, Settings::default());
        assert_eq!(document(&mut state), 1);
        state.step().unwrap_err();
        assert!(!state.has_documents());
        for _ in 0..2 {
            assert!(matches!(state.step(), Ok(CursorStep::Exhausted)));
        }
        assert!(state.kill().is_some() && state.kill().is_none());
    }

    /// find, getMore and killCursors, "Behavior of Limit, skip and batchSize": the limit counts if
    /// there is one, and batches are as long as is left of it.
    #[test]
    fn batches_are_as_long_as_they_were_asked_for_within_the_limit() {
        for (batch_size, limit, expected) in [
            (3, 0, Some(3)),
            (u32::MAX, 0, Some(4_294_967_295)),
            (3, 9, Some(3)),
            (3, 4, Some(2)),
            (0, 0, None),
            (0, 9, None),
        ] {
            let settings = Settings { batch_size, limit, ..Settings::default() };
            let mut state = open(first(7, [1, 2]), settings);
            assert_eq!((document(&mut state), document(&mut state)), (1, 2));
            let size = get_more(&mut state).get_i64("batchSize").ok();
            assert_eq!(size, expected, "{batch_size} of {limit}");
        }
    }

    #[test]
    fn documents_are_at_hand_until_the_batch_or_the_limit_is_at_its_end() {
        let settings = Settings { limit: 2, ..Settings::default() };
        for (settings, count) in [(settings, 2), (Settings::default(), 3)] {
            let mut state = open(first(7, [1, 2, 3]), settings);
            assert!(!state.is_tailable());
            for _ in 0..count {
                assert!(state.has_documents());
                document(&mut state);
            }
            assert!(!state.has_documents());
        }
        assert!(!CursorState::empty().has_documents());
    }
}
