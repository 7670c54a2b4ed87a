//! The operations that the command `find` is for (CRUD, "Read").

use std::time::Duration;

use bson::raw::{CStr, cstr};
use bson::{RawBson, RawBsonRef, RawDocumentBuf};
use sdam_core::wire::ReplyDocument;
use serde::Serialize;

use super::fields::{Fields, get};
use super::single::{Body, Rules, SingleCommand};
use super::{Facts, MONGODB_4_4, Scope};
use crate::cursor::{Batch, CursorState, Settings, TimeoutMode, Timing};
use crate::error::{ArgumentError, Error};

operation! {
    /// A search for documents, with its options.
    ///
    /// ```
    /// use bson::doc;
    /// use sdam::operation::Find;
    ///
    /// let newest = Find::new(doc! { "kind": "book" }).sort(doc! { "year": -1 }).limit(10);
    /// # let _ = newest;
    /// ```
    ///
    /// As other operations, it may be part of a configuration, whole or as options:
    ///
    /// ```
    /// use bson::{self, doc};
    /// use sdam::operation::Find;
    /// use sdam::options::FindOptions;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize)]
    /// struct Configuration {
    ///     newest: Find,
    ///     paging: FindOptions,
    /// }
    ///
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let configuration: Configuration = bson::deserialize_from_document(doc! {
    ///     "newest": { "filter": { "kind": "book" }, "sort": { "year": -1 } },
    ///     "paging": { "limit": 10, "maxTimeMS": 500 },
    /// })?;
    /// let page = configuration.newest.with_options(configuration.paging);
    /// # let _ = page;
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    #[derive(Clone, Debug)]
    pub struct Find as FindOptions {
        cursor_type: CursorType,
        max_await_time: Option<Duration>,
        timeout_mode: Option<TimeoutMode>,
        settings: Settings,
    }

    arguments {
        /// Looks for the documents that a filter matches.
        new(filter: document = "filter");
    }

    options {
        /// Lets the server write temporary files.
        allow_disk_use: bool = "allowDiskUse";
        /// Takes partial results from mongos if shards are down.
        allow_partial_results: bool = "allowPartialResults";
        /// Sets how many documents a batch has.
        batch_size: u32 = "batchSize";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs; it is sent with each getMore, too.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Sets how many documents there may be in all; a negative number asks for a single batch.
        limit: long = "limit";
        /// Sets the upper bounds of the index, exclusive.
        max: document = "max";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Sets the lower bounds of the index, inclusive.
        min: document = "min";
        /// Keeps the server from closing the cursor after ten minutes without a request.
        no_cursor_timeout: bool = "noCursorTimeout";
        /// Sets which fields there are in the documents.
        projection: document = "projection";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
        /// Returns the keys of the index alone.
        return_key: bool = "returnKey";
        /// Adds the number of the record to each document.
        show_record_id: bool = "showRecordId";
        /// Sets how many documents are left out at the beginning.
        skip: u64 = "skip";
        /// Sets the order of the documents.
        sort: document = "sort";
        /// Sets the kind of the cursor.
        cursor_type: CursorType = "cursorType" in cursor_type;
        /// Sets how long the server waits for new documents of a cursor that awaits them
        /// (`maxAwaitTimeMS`).
        max_await_time: millis = "maxAwaitTimeMS" in max_await_time;
        /// Sets what `timeoutMS` limits.
        timeout_mode: TimeoutMode = "timeoutMode" in timeout_mode;
    }
}

/// The kind of a cursor (CRUD, `cursorType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum CursorType {
    /// It ends with its last document.
    #[default]
    NonTailable,
    /// It stays open at the end of a capped collection, for documents that come later.
    Tailable,
    /// As [`Tailable`](Self::Tailable); the server waits a while for documents.
    ///
    /// In an empty collection, either kind ends at once, and
    /// [`is_alive`](crate::generic::Cursor::is_alive) is false: open another after a pause. It
    /// ends, too, with the error CappedPositionLost (136), if the collection has wrapped around
    /// what the cursor was to read next.
    TailableAwait,
    /// It ends with its last document, and its server sends one batch after the other without being
    /// asked: each is there sooner, and nothing waits for the ways there and back.
    ///
    /// The cursor has a connection for itself for so long. Dropped or closed before its end, it
    /// closes the connection besides. It cannot have a limit. Mongos, and
    /// what is behind a load balancer, are asked for each batch, as for any other cursor.
    Exhaust,
}

impl CursorType {
    const fn is_tailable(self) -> bool {
        matches!(self, Self::Tailable | Self::TailableAwait)
    }
}

impl Find {
    /// Writes limit, batchSize and singleBatch by the rules of "Behavior of Limit, skip and
    /// batchSize", and "Setting limit and batchSize options for find commands" of CRUD.
    fn write_sizes(&self, body: &mut Body<'_>) {
        let size = |name| self.options.integer(name).unwrap_or(0);
        let (limit, batch_size) = (size(cstr!("limit")), size(cstr!("batchSize")));
        let single_batch = limit < 0;
        let limit = limit.saturating_abs();
        let batch_size = match single_batch {
            true => limit,
            // "drivers MUST send a value of limit + 1", which leaves no open cursor.
            false if limit != 0 && limit == batch_size => limit + 1,
            false => batch_size,
        };
        if limit != 0 {
            body.append(cstr!("limit"), limit);
        }
        if batch_size != 0 {
            body.append(cstr!("batchSize"), batch_size);
        }
        if single_batch {
            body.append(cstr!("singleBatch"), true);
        }
    }

    fn settings(&self, facts: &Facts) -> Settings {
        let Timing { tailable, await_data, max_await_time, .. } = self.cursor_timing();
        let limit = self.options.integer(cstr!("limit")).unwrap_or(0).saturating_abs();
        Settings { limit, tailable, await_data, max_await_time, ..settings(&self.options, facts) }
    }
}

/// Returns how many documents a batch has that is asked for with these options; 0 for the
/// server's number.
pub(crate) fn batch_size(options: &Fields) -> u32 {
    let size = options.integer(cstr!("batchSize"));
    size.and_then(|size| u32::try_from(size).ok()).unwrap_or_default()
}

/// Returns what getMore says for a cursor that was opened with these options.
pub(crate) fn settings(options: &Fields, facts: &Facts) -> Settings {
    let comment = options.get(cstr!("comment"));
    Settings {
        batch_size: batch_size(options),
        // "For server versions below 4.4 drivers MUST NOT attach a comment to getMore commands."
        comment: comment.filter(|_| facts.max_wire_version >= MONGODB_4_4).map(RawBson::from),
        ..Settings::default()
    }
}

impl SingleCommand for Find {
    type Output = CursorState;

    const COMMAND: &'static CStr = cstr!("find");
    const RULES: Rules = Rules::READ.opening();

    fn rules(&self) -> Rules {
        let exhausts_cursor = self.cursor_type == CursorType::Exhaust;
        Rules { exhausts_cursor, ..Self::RULES }
    }

    fn cursor_timing(&self) -> Timing {
        Timing {
            mode: self.timeout_mode,
            tailable: self.cursor_type.is_tailable(),
            await_data: self.cursor_type == CursorType::TailableAwait,
            max_await_time: self.max_await_time,
            writes: false,
        }
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        self.settings = self.settings(body.facts);
        if self.cursor_type == CursorType::Exhaust && self.settings.limit != 0 {
            return Err(ArgumentError::ExhaustWithLimit.into());
        }
        body.append(cstr!("filter"), get(&self.filter)?);
        body.options(&self.options, &[cstr!("limit"), cstr!("batchSize")])?;
        self.write_sizes(body);
        if self.settings.tailable {
            body.append(cstr!("tailable"), true);
        }
        if self.settings.await_data {
            body.append(cstr!("awaitData"), true);
        }
        Ok(())
    }

    fn read(&mut self, scope: &Scope, reply: &ReplyDocument) -> Result<CursorState, Error> {
        let settings = std::mem::take(&mut self.settings);
        Ok(CursorState::open_on(scope.namespace(), Self::COMMAND.as_str(), reply, settings)?)
    }
}

operation! {
    /// `findOne`: the first document that a filter matches.
    #[derive(Clone, Debug)]
    pub struct FindOne as FindOneOptions {}

    arguments {
        /// Looks for the first document that a filter matches.
        new(filter: document = "filter");
    }

    options {
        /// Lets the server write temporary files.
        allow_disk_use: bool = "allowDiskUse";
        /// Takes partial results from mongos if shards are down.
        allow_partial_results: bool = "allowPartialResults";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Sets the upper bounds of the index, exclusive.
        max: document = "max";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Sets the lower bounds of the index, inclusive.
        min: document = "min";
        /// Sets which fields there are in the document.
        projection: document = "projection";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
        /// Returns the keys of the index alone.
        return_key: bool = "returnKey";
        /// Adds the number of the record.
        show_record_id: bool = "showRecordId";
        /// Sets how many documents are left out at the beginning.
        skip: u64 = "skip";
        /// Sets the order of the documents, the first of which is returned.
        sort: document = "sort";
    }
}

impl SingleCommand for FindOne {
    type Output = Option<RawDocumentBuf>;

    const COMMAND: &'static CStr = cstr!("find");
    const RULES: Rules = Rules::READ;

    /// "drivers MUST set limit to 1", "MUST also set singleBatch: true"
    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.append(cstr!("filter"), get(&self.filter)?);
        body.options(&self.options, &[])?;
        body.append(cstr!("limit"), RawBsonRef::Int64(1));
        body.append(cstr!("singleBatch"), true);
        Ok(())
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Self::Output, Error> {
        let mut batch = Batch::in_reply(Self::COMMAND.as_str(), "firstBatch", reply)?;
        Ok(batch.next_document()?.map(ToOwned::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{RawDocumentBuf, doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::collections::CreateCollection;
    use super::super::testing::{NEW, OLD, scope, written, written_in};
    use super::super::{Facts, MONGODB_4_4, Operation, Progress, Route, Scope};
    use super::{CursorType, Find, FindOne};
    use crate::cursor::CursorStep;

    fn command(mut find: Find) -> RawDocumentBuf {
        written(&mut find, NEW).body
    }

    #[test]
    fn find_has_its_options_in_the_order_in_which_they_were_set() {
        let find = Find::new(doc! { "a": 1 })
            .sort(doc! { "a": -1 })
            .skip(2)
            .comment("why")
            .sort(doc! { "b": 1 });
        let expected = rawdoc! {
            "find": "things",
            "filter": { "a": 1 },
            "sort": { "b": 1 },
            "skip": 2_i64,
            "comment": "why",
        };
        assert_eq!(command(find), expected);
        let mut operation = Find::new(doc! {});
        assert_eq!(operation.route(), Route::Read);
        let command = operation.command(&scope(), &NEW).unwrap();
        assert!(command.retryable && command.takes_read_concern && command.opens_cursor);
    }

    /// find, getMore, killCursors, "Behavior of Limit, skip and batchSize"; CRUD, "Setting limit
    /// and batchSize options for find commands".
    #[test]
    fn limit_and_batch_size_become_what_the_command_wants() {
        for (limit, batch_size, expected) in [
            (0, 0, rawdoc! {}),
            (5, 0, rawdoc! { "limit": 5_i64 }),
            (0, 3, rawdoc! { "batchSize": 3_i64 }),
            (4, 3, rawdoc! { "limit": 4_i64, "batchSize": 3_i64 }),
            (4, 4, rawdoc! { "limit": 4_i64, "batchSize": 5_i64 }),
            (-4, 0, rawdoc! { "limit": 4_i64, "batchSize": 4_i64, "singleBatch": true }),
            (-4, 2, rawdoc! { "limit": 4_i64, "batchSize": 4_i64, "singleBatch": true }),
        ] {
            let find = Find::new(doc! {}).limit(limit).batch_size(batch_size);
            let mut all = rawdoc! { "find": "things", "filter": {} };
            for (name, value) in expected.iter().map(Result::unwrap) {
                all.append(name, value);
            }
            assert_eq!(command(find), all);
        }
    }

    #[test]
    fn tailable_cursors_say_so_and_wait_if_they_are_to() {
        let tailable = command(Find::new(doc! {}).cursor_type(CursorType::Tailable));
        assert_eq!(tailable, rawdoc! { "find": "things", "filter": {}, "tailable": true });
        let find = Find::new(doc! {}).cursor_type(CursorType::TailableAwait);
        let mut operation = find.max_await_time(Duration::from_millis(9));
        let body = written(&mut operation, NEW).body;
        assert_eq!(body.get_bool("awaitData").ok(), Some(true));
        assert_eq!(body.get("maxTimeMS").unwrap(), None);
        let reply = rawdoc! { "cursor": { "id": 7_i64, "ns": "app.things", "firstBatch": [] } };
        let Ok(Progress::Done(mut cursor)) = operation.reply(&scope(), &ReplyDocument::from(reply))
        else {
            panic!()
        };
        let Ok(CursorStep::GetMore(more)) = cursor.step() else { panic!() };
        assert_eq!(more.get_i64("maxTimeMS").ok(), Some(9));
    }

    /// find, getMore and killCursors, "Exhaust"; OP_MSG, "exhaustAllowed": getMore alone allows it,
    /// so that find says nothing of it.
    #[test]
    fn a_cursor_that_is_streamed_is_opened_as_any_other_and_has_no_limit() {
        let exhaust = || Find::new(doc! {}).cursor_type(CursorType::Exhaust).batch_size(2);
        let mut operation = exhaust();
        let command = operation.command(&scope(), &NEW).unwrap();
        assert!(command.opens_cursor && command.exhausts_cursor && command.retryable);
        let expected = rawdoc! { "find": "things", "filter": {}, "batchSize": 2_i64 };
        assert_eq!(command.body, expected);
        assert!(!operation.timing().tailable);
        for limit in [1, -1] {
            let mut limited = exhaust().limit(limit);
            let error = limited.command(&scope(), &NEW).unwrap_err();
            assert!(error.to_string().contains("limit"), "{error}");
        }
        assert!(!Find::new(doc! {}).command(&scope(), &NEW).unwrap().exhausts_cursor);
    }

    /// CSOT, "timeoutMS overrides deprecated timeout options"; not even where nothing is sent in
    /// its place, as with a time-out of zero.
    #[test]
    fn max_time_gives_way_to_a_timeout() {
        let mut find = Find::new(doc! {}).max_time(Duration::from_micros(1));
        assert_eq!(written(&mut find, NEW).body.get_i64("maxTimeMS").ok(), Some(1));
        let timed = Scope { has_timeout: true, ..scope() };
        assert_eq!(written_in(&mut find, &timed, NEW).body.get("maxTimeMS").unwrap(), None);
        let mut create = CreateCollection::new("new").max_time(Duration::from_secs(1));
        assert_eq!(written_in(&mut create, &timed, NEW).body, rawdoc! { "create": "new" });
    }

    /// CRUD: comments of getMore are for 4.4 and later, rawData for 8.2 and later.
    #[test]
    fn old_servers_are_not_sent_what_they_do_not_know() {
        let find = Find::new(doc! {}).comment("why").raw_data(true);
        assert!(command(find.clone()).get("rawData").unwrap().is_some());
        let mut operation = find;
        assert_eq!(written(&mut operation, OLD).body.get("rawData").unwrap(), None);
        assert_eq!(operation.settings.comment, None);
    }

    /// CRUD, "findOne API details".
    #[test]
    fn find_one_asks_for_a_single_batch_of_one() {
        let mut one = FindOne::new(doc! { "a": 1 }).skip(1);
        let expected = rawdoc! {
            "find": "things",
            "filter": { "a": 1 },
            "skip": 1_i64,
            "limit": 1_i64,
            "singleBatch": true,
        };
        assert_eq!(written(&mut one, NEW).body, expected);
        let reply = |batch: bson::RawArrayBuf| {
            ReplyDocument::from(rawdoc! { "cursor": { "id": 0, "ns": "a.b", "firstBatch": batch } })
        };
        let found = reply(bson::RawArrayBuf::from_iter([rawdoc! { "a": 1 }]));
        assert_eq!(one.reply(&scope(), &found).unwrap(), Progress::Done(Some(rawdoc! { "a": 1 })));
        let nothing = reply(bson::RawArrayBuf::new());
        assert_eq!(one.reply(&scope(), &nothing).unwrap(), Progress::Done(None));
    }

    #[test]
    fn a_filter_that_is_no_bson_is_told_when_the_command_is_written() {
        let mut one = FindOne::new(doc! { "a\0": 1 });
        assert!(one.command(&scope(), &NEW).is_err());
        let mut one = FindOne::new(doc! {}).sort(doc! { "a\0": 1 });
        assert!(one.command(&scope(), &NEW).is_err());
    }

    /// find, getMore and killCursors, "getMore": its options are those of the command that opened
    /// the cursor; a comment for servers from 4.4 on.
    #[test]
    fn get_more_has_the_options_of_its_find() {
        let reply = || {
            let cursor = rawdoc! { "id": 7_i64, "ns": "app.things", "firstBatch": [] };
            ReplyDocument::from(rawdoc! { "ok": 1, "cursor": cursor })
        };
        let since = Facts::of_wire_version(MONGODB_4_4);
        for (facts, comment) in [(NEW, Some("why")), (since, Some("why")), (OLD, None)] {
            for (size, expected) in [(3, Some(3)), (u32::MAX, Some(4_294_967_295)), (0, None)] {
                let mut find = Find::new(doc! {}).batch_size(size).comment("why");
                written(&mut find, facts);
                let opened = find.reply(&scope(), &reply()).unwrap();
                let Progress::Done(mut cursor) = opened else { panic!("it is open") };
                let step = cursor.step().unwrap();
                let CursorStep::GetMore(body) = step else { panic!("{step:?}") };
                assert_eq!(body.get_i64("batchSize").ok(), expected);
                assert_eq!(body.get_str("comment").ok(), comment);
            }
        }
    }
}
