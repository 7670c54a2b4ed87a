//! The search for chunks of a file.
//!
//! Implements "File Download" of GridFS.

use bson::raw::{CStr, cstr};
use bson::{RawDocumentBuf, rawdoc};
use bytes::Bytes;
use sdam_core::wire::ReplyDocument;

use super::chunks::{ChunkCheck, ChunkRange};
use super::file::StoredFile;
use crate::command::Scope;
use crate::command::single::{Body, Rules, SingleCommand};
use crate::cursor::Batch;
use crate::error::{Error, GridFsErrorKind};

/// A search for the chunks of a range, which are checked; the outcome is their data, where they lie
/// in the reply.
#[derive(Clone, Debug)]
pub(crate) struct FindChunks {
    file: StoredFile,
    range: ChunkRange,
}

impl FindChunks {
    pub(crate) const fn new(file: StoredFile, range: ChunkRange) -> Self {
        Self { file, range }
    }

    /// Writes the filter: "all chunks with files_id equal to id".
    fn filter(&self) -> RawDocumentBuf {
        let mut filter = RawDocumentBuf::new();
        let mut id = RawDocumentBuf::new();
        id.append(cstr!("$eq"), self.file.id.as_raw_bson_ref());
        filter.append(cstr!("files_id"), id);
        let ChunkRange { first, count, ends_file } = self.range;
        match ends_file {
            true if self.range.is_whole() => {}
            true => filter.append(cstr!("n"), rawdoc! { "$gte": first }),
            false => filter.append(cstr!("n"), rawdoc! { "$gte": first, "$lt": first + count }),
        }
        filter
    }
}

impl SingleCommand for FindChunks {
    type Output = Result<Vec<Bytes>, GridFsErrorKind>;

    const COMMAND: &'static CStr = cstr!("find");
    const RULES: Rules = Rules::READ;

    /// "sorted in ascending order on "n""
    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.append(cstr!("filter"), self.filter());
        // An `_id` of the file that is long would be in each of them.
        body.append(cstr!("projection"), rawdoc! { "_id": 0, "n": 1, "data": 1 });
        body.append(cstr!("sort"), rawdoc! { "n": 1 });
        // Without it, a first batch has 101 documents at most.
        body.append(cstr!("batchSize"), self.range.limit());
        body.append(cstr!("limit"), self.range.limit());
        body.append(cstr!("singleBatch"), true);
        Ok(())
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Self::Output, Error> {
        let mut batch = Batch::in_reply(Self::COMMAND.as_str(), "firstBatch", reply)?;
        let mut check = ChunkCheck::new(&self.file, self.range);
        let mut chunks = Vec::new();
        while let Some(document) = batch.next_document()? {
            match check.chunk(document) {
                Ok(data) => chunks.push(reply.share(data)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(check.end_of_range().map(|()| chunks))
    }
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;
    use bson::{Binary, RawDocumentBuf, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use crate::command::testing::{NEW, scope, written};
    use crate::command::{Operation as _, Progress};

    use super::{ChunkRange, FindChunks, GridFsErrorKind, StoredFile};

    fn find(first: i64, count: i64, ends_file: bool) -> FindChunks {
        let document = rawdoc! { "_id": { "a": 1 }, "length": 10, "chunkSize": 4 };
        let range = ChunkRange { first, count, ends_file };
        FindChunks::new(StoredFile::read(&document).unwrap(), range)
    }

    /// GridFS, "File Download" and "Partial File Retrieval"; an `_id` is never taken for operators.
    #[test]
    fn a_range_is_asked_for_by_the_numbers_of_its_chunks() {
        let id = || rawdoc! { "$eq": { "a": 1 } };
        for (mut find, filter, limit) in [
            (find(0, 3, true), rawdoc! { "files_id": id() }, 4_i64),
            (find(1, 2, true), rawdoc! { "files_id": id(), "n": { "$gte": 1_i64 } }, 3),
            (
                find(1, 1, false),
                rawdoc! { "files_id": id(), "n": { "$gte": 1_i64, "$lt": 2_i64 } },
                1,
            ),
        ] {
            let expected = rawdoc! {
                "find": "things", "filter": filter,
                "projection": { "_id": 0, "n": 1, "data": 1 }, "sort": { "n": 1 },
                "batchSize": limit, "limit": limit, "singleBatch": true,
            };
            assert_eq!(written(&mut find, NEW).body, expected);
        }
    }

    fn chunk(n: i32, bytes: &[u8]) -> RawDocumentBuf {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
        rawdoc! { "n": n, "data": data }
    }

    #[test]
    fn chunks_are_read_where_they_lie() {
        let reply = |chunks: [RawDocumentBuf; 2]| {
            let array: bson::RawArrayBuf = chunks.iter().map(AsRef::as_ref).collect();
            ReplyDocument::from(rawdoc! { "ok": 1, "cursor": { "firstBatch": array, "id": 0 } })
        };
        let read = |reply| match find(1, 2, true).reply(&scope(), &reply).unwrap() {
            Progress::Done(chunks) => chunks,
            Progress::Next => panic!("it has one command"),
        };
        let whole = reply([chunk(1, b"4567"), chunk(2, b"89")]);
        assert_eq!(read(whole).unwrap(), [&b"4567"[..], b"89"]);
        let missing = Err(GridFsErrorKind::MissingChunk { n: 1 });
        assert_eq!(read(reply([chunk(2, b"89"), chunk(3, b"")])), missing);
    }
}
