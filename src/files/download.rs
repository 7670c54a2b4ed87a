//! A download as a value: the ranges of chunks that are to be asked for, and those that have come.
//!
//! Implements "File Download" and "Partial File Retrieval" of GridFS.

use std::collections::VecDeque;

use bytes::Bytes;

use super::chunks::ChunkRange;
use super::file::StoredFile;
use crate::error::GridFsErrorKind;

/// The length of a range, in bytes, once the file is read on and on.
const RANGE_LEN: u64 = 4 * 1024 * 1024;

/// The number of chunks in the first range.
const FIRST: i64 = 4;

/// The number of chunks in a range, however short they are.
const MOST: i64 = 1000;

/// The number of ranges after which a reader is taken to read on, once it has gone elsewhere.
const READS_ON: u32 = 2;

/// A file that is read.
#[derive(Debug)]
pub(crate) struct Download {
    file: StoredFile,
    /// The place of the next byte.
    position: u64,
    /// The place behind the last byte that may be read.
    end: u64,
    /// The chunks that have come, with their numbers, from that of the next byte on.
    held: VecDeque<(i64, Bytes)>,
    /// The number of the first chunk that is held or asked for.
    first: i64,
    /// The number of the chunk behind those that are asked for.
    next: i64,
    /// The number of chunks in the next range; ranges grow while the file is read on.
    ahead: i64,
    /// The number of ranges that were asked for since the reader has gone elsewhere.
    ranges: u32,
}

impl Download {
    /// Begins to read a whole file.
    pub(crate) fn new(file: StoredFile) -> Self {
        let end = file.length;
        let held = VecDeque::new();
        let ahead = FIRST.min(most(&file));
        Self { file, position: 0, end, held, first: 0, next: 0, ahead, ranges: READS_ON }
    }

    /// Reads a part alone, which is known to be read to its end: "drivers return the bytes of the
    /// file in `[start, end)`".
    ///
    /// # Errors
    ///
    /// Fails if the file has no such part: "greater than the file length, or if "start" is greater
    /// than "end"".
    pub(crate) fn limit(
        &mut self,
        start: Option<u64>,
        end: Option<u64>,
    ) -> Result<(), GridFsErrorKind> {
        let length = self.file.length;
        let (start, end) = (start.unwrap_or(0), end.unwrap_or(length));
        if start > end || end > length {
            return Err(GridFsErrorKind::InvalidRange { start, end, length });
        }
        (self.position, self.end) = (start, end);
        self.first = self.file.chunk_of(start);
        self.next = self.first;
        self.ahead = most(&self.file);
        Ok(())
    }

    pub(crate) const fn file(&self) -> &StoredFile {
        &self.file
    }

    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    /// Returns whether there is nothing more to read.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.position >= self.end
    }

    /// Goes on at another place; returns false if what is asked for is of no use there.
    ///
    /// One range of one chunk is asked for first: the next call may go on elsewhere.
    pub(crate) fn seek(&mut self, position: u64) -> bool {
        let n = self.file.chunk_of(position);
        self.position = position;
        if (self.first..self.next).contains(&n) {
            self.forget_before(n);
            return true;
        }
        self.begin_again();
        (self.ahead, self.ranges) = (1, 0);
        false
    }

    /// Forgets what was asked for and is not read yet: it is asked for again.
    pub(crate) fn begin_again(&mut self) {
        self.held.clear();
        self.first = self.file.chunk_of(self.position);
        self.next = self.first;
    }

    /// Returns whether ranges behind the one that is read are worth asking for.
    pub(crate) const fn reads_on(&self) -> bool {
        self.ranges >= READS_ON
    }

    /// Returns the next range that is to be asked for: "avoid reading unneeded documents".
    pub(crate) fn next_range(&mut self) -> Option<ChunkRange> {
        if self.is_at_end() {
            return None;
        }
        let (first, last) = (self.next, self.file.chunk_of(self.end - 1));
        let left = last + 1 - first;
        if left <= 0 {
            return None;
        }
        let count = self.ahead.min(left);
        self.ranges = self.ranges.saturating_add(1);
        self.next += count;
        self.ahead = self.ahead.saturating_mul(2).min(most(&self.file));
        Some(ChunkRange { first, count, ends_file: self.next == self.file.chunks() })
    }

    /// Takes the chunks of a range, in the order in which ranges were asked for.
    pub(crate) fn take(&mut self, range: ChunkRange, chunks: Vec<Bytes>) {
        let numbered = (range.first..).zip(chunks);
        self.held.extend(numbered.filter(|(n, _)| *n >= self.first));
    }

    /// Returns the bytes that can be read at once: those of one chunk at most.
    pub(crate) fn available(&self) -> Option<Bytes> {
        let (n, chunk) = self.held.front()?;
        let start = self.file.start_of(*n);
        // The first chunk that is held is that of the next byte.
        let from = usize::try_from(self.position.checked_sub(start)?).ok()?;
        let to = usize::try_from(self.end.saturating_sub(start)).unwrap_or(usize::MAX);
        let to = to.min(chunk.len());
        (from < to).then(|| chunk.slice(from..to))
    }

    /// Takes note that so many bytes of those are read.
    pub(crate) fn consume(&mut self, count: usize) {
        self.position += count as u64;
        self.forget_before(self.file.chunk_of(self.position));
    }

    fn forget_before(&mut self, n: i64) {
        while self.held.front().is_some_and(|(held, _)| *held < n) {
            self.held.pop_front();
        }
        self.first = self.first.max(n);
    }
}

/// Returns how many chunks a range has at most.
fn most(file: &StoredFile) -> i64 {
    i64::try_from(RANGE_LEN / file.chunk_size).unwrap_or(1).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use bytes::Bytes;

    use super::{ChunkRange, Download, GridFsErrorKind, StoredFile};

    fn download(length: i64, chunk_size: i32) -> Download {
        let document = rawdoc! { "_id": 1, "length": length, "chunkSize": chunk_size };
        Download::new(StoredFile::read(&document).unwrap())
    }

    const fn range(first: i64, count: i64, ends_file: bool) -> ChunkRange {
        ChunkRange { first, count, ends_file }
    }

    /// Gives a range its chunks, each byte of which is the number of the chunk.
    fn serve(download: &mut Download, range: ChunkRange) {
        let chunks = range.first..range.first + range.count;
        let chunks = chunks.map(|n| {
            let length = usize::try_from(download.file.length_of(n)).unwrap();
            Bytes::from(vec![u8::try_from(n).unwrap(); length])
        });
        let chunks = chunks.collect();
        download.take(range, chunks);
    }

    /// Reads to the end, and returns the bytes, and the ranges that were asked for.
    fn read(download: &mut Download) -> (Vec<u8>, Vec<ChunkRange>) {
        let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
        while !download.is_at_end() {
            if let Some(chunk) = download.available() {
                bytes.extend_from_slice(&chunk);
                download.consume(chunk.len());
                continue;
            }
            let range = download.next_range().unwrap();
            ranges.push(range);
            serve(download, range);
        }
        assert_eq!(download.next_range(), None);
        (bytes, ranges)
    }

    /// GridFS, "File Download": "when downloading a zero length stored file the driver MUST NOT
    /// issue a query against the chunks collection".
    #[test]
    fn an_empty_file_asks_for_nothing() {
        let mut empty = download(0, 4);
        assert!(empty.is_at_end());
        assert_eq!((empty.next_range(), empty.available()), (None, None));
    }

    #[test]
    fn a_file_is_read_in_ranges_that_grow() {
        let (bytes, ranges) = read(&mut download(10, 4));
        assert_eq!((bytes, ranges), (vec![0, 0, 0, 0, 1, 1, 1, 1, 2, 2], vec![range(0, 3, true)]));
        let (bytes, ranges) = read(&mut download(59, 4));
        assert_eq!(bytes.len(), 59);
        assert_eq!(ranges, [range(0, 4, false), range(4, 8, false), range(12, 3, true)]);
        let mut large = download(1 << 32, 255 * 1024);
        let counts: Vec<_> = (0..5).map(|_| large.next_range().map(|range| range.count)).collect();
        assert_eq!(counts, [4, 8, 16, 16, 16].map(Some), "4 MiB at most");
        assert_eq!(download(1 << 32, 1 << 30).next_range(), Some(range(0, 1, false)));
    }

    /// GridFS, "Partial File Retrieval": the bytes in `[start, end)`, and no chunk besides.
    #[test]
    fn a_part_asks_for_its_chunks_alone() {
        for (start, end, expected, asked) in [
            (5, 9, vec![1, 1, 1, 2], vec![range(1, 2, true)]),
            (0, 4, vec![0; 4], vec![range(0, 1, false)]),
            (4, 5, vec![1], vec![range(1, 1, false)]),
            (4, 4, vec![], vec![]),
            (10, 10, vec![], vec![]),
        ] {
            let mut part = download(10, 4);
            part.limit(Some(start), Some(end)).unwrap();
            assert_eq!(read(&mut part), (expected, asked), "{start}..{end}");
        }
        let mut open = download(10, 4);
        open.limit(Some(8), None).unwrap();
        assert_eq!(read(&mut open), (vec![2, 2], vec![range(2, 1, true)]));
    }

    /// The same: "These values are considered invalid if they are [..] greater than the file
    /// length, or if "start" is greater than "end"."
    #[test]
    fn a_part_that_the_file_does_not_have_is_an_error() {
        for (start, end) in [(0, 11), (11, 11), (3, 2)] {
            let error = GridFsErrorKind::InvalidRange { start, end, length: 10 };
            assert_eq!(download(10, 4).limit(Some(start), Some(end)), Err(error));
        }
    }

    /// The same: "using the standard stream methods of its language for seeking".
    #[test]
    fn a_place_elsewhere_asks_for_one_chunk_first() {
        let mut file = download(100, 4);
        assert!(!file.seek(50) && !file.reads_on());
        assert_eq!(file.next_range(), Some(range(12, 1, false)));
        serve(&mut file, range(12, 1, false));
        assert_eq!(file.available().unwrap(), [12, 12][..]);
        file.consume(2);
        assert_eq!((file.available(), file.reads_on()), (None, false));
        assert_eq!(file.next_range(), Some(range(13, 2, false)));
        assert!(file.reads_on(), "the reader has read one chunk and asks for the next");
        serve(&mut file, range(13, 2, false));
        assert!(file.seek(58), "within what is at hand");
        assert_eq!(file.available().unwrap(), [14, 14][..]);
        assert!(!file.seek(3));
        assert_eq!(file.next_range(), Some(range(0, 1, false)));
        assert!(!file.seek(1000));
        assert_eq!((file.is_at_end(), file.next_range(), file.available()), (true, None, None));
    }

    /// Chunks that come after the reader has gone on are not read.
    #[test]
    fn chunks_before_the_place_are_dropped() {
        let mut file = download(100, 4);
        let first = file.next_range().unwrap();
        assert_eq!(first, range(0, 4, false));
        assert!(file.seek(9), "it is asked for");
        serve(&mut file, first);
        assert_eq!(file.available().unwrap(), [2, 2, 2][..]);
        assert_eq!(file.held.len(), 2);
    }
}
