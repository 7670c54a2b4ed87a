//! Ranges of chunks, and the check of each chunk.
//!
//! Implements "File Download" of GridFS.

use bson::{RawBinaryRef, RawBsonRef, RawDocument};

use super::file::{StoredFile, whole};
use crate::error::GridFsErrorKind;

/// Chunks that are asked for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkRange {
    /// The number of the first one.
    pub(crate) first: i64,
    /// The number of them.
    pub(crate) count: i64,
    /// True if the last one is the last of the file, so that none may be behind it.
    pub(crate) ends_file: bool,
}

impl ChunkRange {
    /// Returns whether these are all chunks of the file.
    pub(crate) const fn is_whole(&self) -> bool {
        self.first == 0 && self.ends_file
    }

    /// Returns how many documents may come: one more, if none may be behind the last.
    pub(crate) const fn limit(&self) -> i64 {
        self.count + self.ends_file as i64
    }
}

/// The check of chunks, one after the other.
#[derive(Debug)]
pub(crate) struct ChunkCheck<'a> {
    file: &'a StoredFile,
    range: ChunkRange,
    /// The number of the chunk that comes next.
    next: i64,
}

impl<'a> ChunkCheck<'a> {
    pub(crate) const fn new(file: &'a StoredFile, range: ChunkRange) -> Self {
        Self { file, range, next: range.first }
    }

    /// Checks a document, and returns the data in it: "they MUST check that each chunk received is
    /// the next expected chunk (i.e. it has the expected "n" value) and that the data field is of
    /// the expected length".
    ///
    /// # Errors
    ///
    /// Fails if it is not the next chunk, or not of its length, or if there is none.
    pub(crate) fn chunk<'d>(
        &mut self,
        document: &'d RawDocument,
    ) -> Result<&'d [u8], GridFsErrorKind> {
        let expected = self.next;
        let invalid = |field| GridFsErrorKind::InvalidChunk { n: expected, field };
        let field = |name| document.get(name).ok().flatten();
        let n = field("n").and_then(whole).ok_or(invalid("n"))?;
        if n < expected {
            return Err(GridFsErrorKind::UnexpectedChunk { expected, found: n });
        }
        if expected == self.end() {
            return Err(GridFsErrorKind::ExtraChunk { n });
        }
        if n > expected {
            return Err(GridFsErrorKind::MissingChunk { n: expected });
        }
        let Some(RawBsonRef::Binary(RawBinaryRef { bytes: data, .. })) = field("data") else {
            return Err(invalid("data"));
        };
        let (actual, expected) = (data.len() as u64, self.file.length_of(n));
        if actual != expected {
            return Err(GridFsErrorKind::WrongSizeChunk { n, actual, expected });
        }
        self.next += 1;
        Ok(data)
    }

    /// Checks that all have come.
    ///
    /// # Errors
    ///
    /// Fails if one is missing.
    pub(crate) fn end_of_range(&self) -> Result<(), GridFsErrorKind> {
        match self.next < self.end() {
            true => Err(GridFsErrorKind::MissingChunk { n: self.next }),
            false => Ok(()),
        }
    }

    const fn end(&self) -> i64 {
        self.range.first + self.range.count
    }
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;
    use bson::{Binary, RawDocumentBuf, rawdoc};

    use super::{ChunkCheck, ChunkRange, GridFsErrorKind, StoredFile};

    fn chunk(n: i32, length: usize) -> RawDocumentBuf {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: vec![7; length] };
        rawdoc! { "_id": 1, "files_id": 1, "n": n, "data": data }
    }

    /// Checks the chunks of a file of ten bytes, four a chunk.
    fn check(chunks: &[RawDocumentBuf]) -> Result<usize, GridFsErrorKind> {
        let document = rawdoc! { "_id": 1, "length": 10, "chunkSize": 4 };
        let file = StoredFile::read(&document).unwrap();
        let range = ChunkRange { first: 0, count: 3, ends_file: true };
        let mut check = ChunkCheck::new(&file, range);
        let mut length = 0;
        for chunk in chunks {
            length += check.chunk(chunk)?.len();
        }
        check.end_of_range().map(|()| length)
    }

    #[test]
    fn chunks_that_are_what_the_document_says_are_taken() {
        assert_eq!(check(&[chunk(0, 4), chunk(1, 4), chunk(2, 2)]), Ok(10));
        let mut of_double = rawdoc! { "n": 0.0 };
        of_double.append(bson::raw::cstr!("data"), chunk(0, 4).get("data").unwrap().unwrap());
        assert_eq!(check(&[of_double, chunk(1, 4), chunk(2, 2)]), Ok(10));
    }

    /// BSON, "Binary": the old subtype has its length a second time, which is none of its bytes.
    #[test]
    fn data_of_the_old_subtype_are_read_without_their_second_length() {
        let old = |n: i32, length: usize| {
            let data = Binary { subtype: BinarySubtype::BinaryOld, bytes: vec![7; length] };
            rawdoc! { "n": n, "data": data }
        };
        assert_eq!(check(&[old(0, 4), old(1, 4), old(2, 2)]), Ok(10));
        let wrong = GridFsErrorKind::WrongSizeChunk { n: 0, actual: 8, expected: 4 };
        assert_eq!(check(&[old(0, 8)]), Err(wrong));
    }

    /// GridFS, "File Download": each chunk is the next expected one, and of the expected length.
    #[test]
    fn chunks_that_lie_are_errors_that_name_them() {
        use GridFsErrorKind::*;
        let whole = [chunk(0, 4), chunk(1, 4), chunk(2, 2)];
        let with = |chunk: RawDocumentBuf| [&whole[..], &[chunk]].concat();
        assert_eq!(check(&[]), Err(MissingChunk { n: 0 }));
        assert_eq!(check(&whole[..2]), Err(MissingChunk { n: 2 }));
        assert_eq!(check(&[chunk(0, 4), chunk(2, 2)]), Err(MissingChunk { n: 1 }));
        assert_eq!(check(&with(chunk(3, 1))), Err(ExtraChunk { n: 3 }));
        assert_eq!(check(&with(chunk(2, 2))), Err(UnexpectedChunk { expected: 3, found: 2 }));
        let twice = [chunk(0, 4), chunk(0, 4)];
        assert_eq!(check(&twice), Err(UnexpectedChunk { expected: 1, found: 0 }));
        let negative = [chunk(-1, 4)];
        assert_eq!(check(&negative), Err(UnexpectedChunk { expected: 0, found: -1 }));
        for length in [0, 3, 5] {
            let wrong = WrongSizeChunk { n: 0, actual: length as u64, expected: 4 };
            assert_eq!(check(&[chunk(0, length)]), Err(wrong));
        }
        let last = [chunk(0, 4), chunk(1, 4), chunk(2, 4)];
        assert_eq!(check(&last), Err(WrongSizeChunk { n: 2, actual: 4, expected: 2 }));
        let no_n = rawdoc! { "n": "0" };
        assert_eq!(check(&[no_n]), Err(InvalidChunk { n: 0, field: "n" }));
        let no_data = rawdoc! { "n": 0, "data": "four" };
        assert_eq!(check(&[no_data]), Err(InvalidChunk { n: 0, field: "data" }));
    }
}
