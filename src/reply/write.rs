//! The reply to insert, update and delete.

use bson::raw::{CStr, cstr};
use bson::{Bson, RawArray, RawBsonRef, RawDocument};
use sdam_core::operation::error_labels;
use sdam_host::driver::documents::{number, to_bson, whole};

use crate::error::{Error, ReplyError, WriteConcernError, WriteError};
use crate::results::{DeleteResult, UpdateResult, WriteResult};

/// The kind of a statement, which decides about the command that it is sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Insert,
    Update,
    Delete,
}

impl Kind {
    /// Returns the name of the command.
    pub(crate) const fn command(self) -> &'static CStr {
        match self {
            Self::Insert => cstr!("insert"),
            Self::Update => cstr!("update"),
            Self::Delete => cstr!("delete"),
        }
    }
}

/// The reply to insert, update or delete; the default is what is known of an unacknowledged write.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteReply {
    /// The number of documents that were inserted, matched or deleted; those that an update
    /// inserted are among them.
    pub(crate) n: u64,
    /// The number of documents that updates changed.
    pub(crate) modified: u64,
    /// The documents that updates inserted: the index of the statement, and the `_id`.
    pub(crate) upserted: Vec<(usize, Bson)>,
    pub(crate) write_errors: Vec<WriteError>,
    pub(crate) write_concern_error: Option<WriteConcernError>,
    /// The labels of the errors.
    pub(crate) labels: Vec<String>,
}

/// The fields of a reply, which are read all at once: most of those that it has are of no use here.
#[derive(Default)]
struct Fields<'a> {
    n: Option<i64>,
    modified: Option<i64>,
    write_errors: Option<&'a RawArray>,
    upserted: Option<&'a RawArray>,
    has_concern_error: bool,
}

impl<'a> Fields<'a> {
    fn of(reply: &'a RawDocument) -> Self {
        let mut fields = Self::default();
        for element in reply.iter_elements().map_while(Result::ok) {
            let value = || element.value().ok();
            match element.key().as_str() {
                "n" => fields.n = value().and_then(whole),
                "nModified" => fields.modified = value().and_then(whole),
                "writeErrors" => fields.write_errors = value().and_then(RawBsonRef::as_array),
                "upserted" => fields.upserted = value().and_then(RawBsonRef::as_array),
                "writeConcernError" => fields.has_concern_error = true,
                _ => {}
            }
        }
        fields
    }
}

impl WriteReply {
    /// Reads the reply to a command of this kind with so many statements.
    ///
    /// Errors of the server count more than what is missing beside them. A reply
    /// about more statements than were sent is refused, so that it takes no more memory than they.
    pub(crate) fn read(kind: Kind, reply: &RawDocument, sent: usize) -> Result<Self, ReplyError> {
        let command = kind.command().as_str();
        let fields = Fields::of(reply);
        let mut write_errors = Vec::new();
        for element in elements(command, fields.write_errors, "writeErrors") {
            let (index, error) = element.and_then(|element| indexed(command, element, sent))?;
            if write_errors.len() == sent {
                return Err(ReplyError::new(command, "writeErrors"));
            }
            write_errors.push(WriteError::of(index, error));
        }
        let mut upserted = Vec::new();
        for element in elements(command, fields.upserted, "upserted") {
            let (index, element) = element.and_then(|element| indexed(command, element, sent))?;
            if upserted.len() == sent {
                return Err(ReplyError::new(command, "upserted"));
            }
            let id = element.get("_id").ok().flatten().and_then(|id| to_bson(id).ok());
            upserted.push((index, id.ok_or(ReplyError::new(command, "upserted._id"))?));
        }
        let of_concern = fields.has_concern_error.then(|| WriteConcernError::in_reply(reply));
        let write_concern_error = of_concern.flatten();
        let has_failed = !write_errors.is_empty() || write_concern_error.is_some();
        let number = |number: Option<i64>, field| match number.and_then(|it| u64::try_from(it).ok())
        {
            Some(number) => Ok(number),
            None if has_failed => Ok(0),
            None => Err(ReplyError::new(command, field)),
        };
        let n = number(fields.n, "n")?;
        // An insertion stores one document.
        if kind == Kind::Insert && n > sent as u64 {
            return Err(ReplyError::new(command, "n"));
        }
        let modified = if kind == Kind::Update { number(fields.modified, "nModified")? } else { 0 };
        let labels = if has_failed { error_labels(reply) } else { Vec::new() };
        Ok(Self { n, modified, upserted, write_errors, write_concern_error, labels })
    }

    /// Returns the error of a single write: "Only one of writeConcernError or writeError will be
    /// populated at a time". That of a write concern has the result of the write.
    pub(crate) fn single(
        mut self,
        result: impl FnOnce(Self) -> WriteResult,
    ) -> Result<Self, Error> {
        if !self.write_errors.is_empty() {
            let mut error = self.write_errors.swap_remove(0);
            error.labels = self.labels;
            return Err(error.into());
        }
        match self.write_concern_error.take() {
            Some(error) => Err(error.with(result(self)).into()),
            None => Ok(self),
        }
    }

    /// Returns the number of documents that updates matched.
    pub(crate) fn matched(&self) -> u64 {
        self.n.saturating_sub(self.upserted.len() as u64)
    }

    /// Returns the result of a single deletion.
    pub(crate) fn delete_result(&self) -> DeleteResult {
        let mut result = DeleteResult::default();
        (result.acknowledged, result.deleted_count) = (true, self.n);
        result
    }

    /// Returns the result of a single update.
    pub(crate) fn into_update_result(self) -> UpdateResult {
        let mut result = UpdateResult::default();
        result.acknowledged = true;
        result.matched_count = self.matched();
        result.modified_count = self.modified;
        result.upserted_count = self.upserted.len() as u64;
        result.upserted_id = self.upserted.into_iter().next().map(|(_, id)| id);
        result
    }
}

/// Returns the documents of an array, none if there is no such array.
fn elements<'a>(
    command: &'static str,
    array: Option<&'a RawArray>,
    field: &'static str,
) -> impl Iterator<Item = Result<&'a RawDocument, ReplyError>> {
    array.into_iter().flatten().map(move |element| {
        let document = element.ok().and_then(RawBsonRef::as_document);
        document.ok_or(ReplyError::new(command, field))
    })
}

/// Returns the index of the statement that an element is about; of a single statement, there is
/// but one.
fn indexed<'a>(
    command: &'static str,
    element: &'a RawDocument,
    sent: usize,
) -> Result<(usize, &'a RawDocument), ReplyError> {
    let index = number(element, "index").and_then(|index| usize::try_from(index).ok());
    match index.filter(|index| *index < sent) {
        Some(index) => Ok((index, element)),
        None if sent == 1 => Ok((0, element)),
        None => Err(ReplyError::new(command, "index")),
    }
}

/// Reads a number of documents.
pub(crate) fn count(
    command: &'static str,
    reply: &RawDocument,
    field: &'static str,
) -> Result<u64, ReplyError> {
    let count = number(reply, field).and_then(|count| u64::try_from(count).ok());
    count.ok_or(ReplyError::new(command, field))
}

/// Adds a count that a server has sent, which may have any value.
pub(crate) const fn add(total: &mut u64, count: u64) {
    *total = total.saturating_add(count);
}

#[cfg(test)]
mod tests {
    use bson::{Bson, RawArrayBuf, RawDocumentBuf, rawdoc};

    use super::{Kind, WriteReply};

    /// CRUD, "WriteError" and "WriteConcernError": code, message and details, which are not parsed.
    #[test]
    fn errors_of_writes_keep_their_details_and_their_index() {
        let reply = rawdoc! {
            "ok": 1,
            "n": 0,
            "writeErrors": [{ "index": 2, "code": 121, "errmsg": "no", "errInfo": { "a": 1 } }],
            "writeConcernError": { "code": 64, "codeName": "WriteConcernFailed", "errmsg": "late" },
        };
        let read = WriteReply::read(Kind::Insert, &reply, 3).unwrap();
        let error = &read.write_errors[0];
        assert_eq!((error.index, error.code, &*error.message), (2, 121, "no"));
        assert_eq!(error.details, Some(rawdoc! { "a": 1 }));
        let concern = read.write_concern_error.as_ref().unwrap();
        assert_eq!((concern.code, &*concern.code_name), (64, "WriteConcernFailed"));
        // The error of the write is the offending one.
        let single = read.single(|_| panic!("there is no result"));
        assert_eq!(single.unwrap_err().as_write().map(|error| error.code), Some(121));
    }

    /// Servers cut values in their messages within a character, which takes nothing else along.
    #[test]
    fn a_message_that_is_no_utf8_is_read_as_far_as_it_is() {
        let info = rawdoc! { "keyValue": { "name": "?" } };
        let refused = rawdoc! { "index": 0, "errmsg": "dup: ä?", "errInfo": info, "code": 11000 };
        let late = rawdoc! { "errmsg": "late?", "codeName": "?", "code": 64 };
        let reply = rawdoc! {
            "n": 0, "writeErrors": [refused], "writeConcernError": late,
            "errorLabels": ["?", "A"], "ok": 1,
        };
        let mut bytes = reply.into_bytes();
        bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xe8);
        let reply = RawDocumentBuf::from_bytes(bytes).unwrap();
        let read = WriteReply::read(Kind::Insert, &reply, 1).unwrap();
        let concern = read.write_concern_error.clone().unwrap();
        assert_eq!(
            (concern.code, &*concern.code_name, &*concern.message),
            (64, "\u{fffd}", "late\u{fffd}")
        );
        // Both errors are in one reply, and its labels are those of either.
        let error = read.single(|_| panic!("there is no result")).unwrap_err();
        assert_eq!((error.code(), error.labels()), (Some(11000), vec!["A"]));
        let text = "the write at index 0 was refused: dup: ä\u{fffd} (code 11000)";
        assert_eq!(error.to_string(), text);
        assert!(error.as_write().is_some_and(|error| error.details.is_some()));
    }

    /// No reply is about more than was asked for: neither in memory nor in numbers.
    #[test]
    fn a_reply_that_tells_of_more_statements_than_were_sent_is_refused() {
        let refusal = |kind, reply: RawDocumentBuf, sent| {
            WriteReply::read(kind, &reply, sent).err().map(|error| error.field)
        };
        let twice = |element: RawDocumentBuf| RawArrayBuf::from_iter([element.clone(), element]);
        let errors = || twice(rawdoc! { "index": 0, "code": 1 });
        let reply = || rawdoc! { "n": 0, "writeErrors": errors() };
        assert_eq!(refusal(Kind::Insert, reply(), 1), Some("writeErrors"));
        assert_eq!(refusal(Kind::Insert, reply(), 2), None);
        let upserted = || twice(rawdoc! { "index": 0, "_id": 1 });
        let reply = || rawdoc! { "n": 2, "nModified": 0, "upserted": upserted() };
        assert_eq!(refusal(Kind::Update, reply(), 1), Some("upserted"));
        assert_eq!(refusal(Kind::Update, reply(), 2), None);
        for n in [Bson::Int64(3), Bson::Int64(i64::MAX), f64::NAN.into(), 1.5.into()] {
            let reply = rawdoc! { "n": bson::RawBson::try_from(n).unwrap() };
            assert_eq!(refusal(Kind::Insert, reply.clone(), 2), Some("n"), "{reply:?}");
        }
        assert_eq!(refusal(Kind::Insert, rawdoc! { "n": 2.0 }, 2), None);
        // A deletion or an update may be about any number of documents.
        assert_eq!(refusal(Kind::Delete, rawdoc! { "n": i64::MAX }, 1), None);
    }

    #[test]
    fn what_was_upserted_does_not_count_as_matched() {
        let reply =
            rawdoc! { "ok": 1, "n": 1, "nModified": 0, "upserted": [{ "index": 0, "_id": null }] };
        let read = WriteReply::read(Kind::Update, &reply, 1).unwrap();
        let result = read.into_update_result();
        assert_eq!((result.matched_count, result.upserted_count), (0, 1));
        assert_eq!(result.upserted_id, Some(Bson::Null));
    }

    /// CRUD, "Write Results": no count is made up, unless an error says more than it would.
    #[test]
    fn a_reply_without_its_counts_or_indexes_is_an_error() {
        let refusal = |kind, reply: RawDocumentBuf, sent| {
            WriteReply::read(kind, &reply, sent).err().map(|error| (error.command, error.field))
        };
        assert_eq!(refusal(Kind::Insert, rawdoc! { "ok": 1 }, 1), Some(("insert", "n")));
        assert_eq!(refusal(Kind::Delete, rawdoc! { "n": -1 }, 1), Some(("delete", "n")));
        assert_eq!(refusal(Kind::Update, rawdoc! { "n": 1 }, 1), Some(("update", "nModified")));
        let upserted = rawdoc! { "n": 1, "nModified": 0, "upserted": [{ "index": 0 }] };
        assert_eq!(refusal(Kind::Update, upserted, 1), Some(("update", "upserted._id")));
        for errors in [rawdoc! { "code": 1 }, rawdoc! { "code": 1, "index": 2 }] {
            let reply = || rawdoc! { "ok": 1, "writeErrors": [errors.clone()] };
            assert_eq!(refusal(Kind::Insert, reply(), 2), Some(("insert", "index")));
            assert_eq!(refusal(Kind::Insert, reply(), 1), None);
        }
        let elements = rawdoc! { "n": 0, "writeErrors": [1] };
        assert_eq!(refusal(Kind::Insert, elements, 1), Some(("insert", "writeErrors")));
        let late = rawdoc! { "writeConcernError": { "code": 64 } };
        assert_eq!(refusal(Kind::Update, late, 1), None);
    }
}
