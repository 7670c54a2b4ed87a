//! The chunks of one file, counted as they come in the order of their numbers: in a few numbers,
//! however many there are.

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{RawBson, RawBsonRef, RawDocument};

use crate::doctor::evidence::FileFault;

/// The number of runs of chunks of the same length that are kept: a file has two at most.
const MAX_RUNS: usize = 16;

/// The number of chunks that a file may have.
const MAX_CHUNKS: u64 = 1 << 31;

/// The bytes by which data of the old subtype are longer for servers than they are.
pub(super) const SECOND_LENGTH: u64 = 4;

/// The chunks of a file.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// The `_id` of the file.
    pub(super) id: RawBson,
    /// The number of documents.
    pub(super) chunks: u64,
    /// The number behind the last chunk.
    next: i64,
    missing: First,
    twice: First,
    no_data: First,
    no_number: u64,
    runs: Vec<Run>,
    /// The time of the newest chunk, in seconds since 1970.
    newest: u32,
    /// True if each chunk says when it was made.
    has_times: bool,
}

/// Chunks that follow each other and are equally long.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: i64,
    count: u64,
    length: u64,
}

/// The first chunk of which something is so, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
struct First {
    n: i64,
    count: u64,
}

impl First {
    const fn add(&mut self, n: i64, count: u64) {
        if self.count == 0 {
            self.n = n;
        }
        self.count = self.count.saturating_add(count);
    }

    fn fault(self, make: impl FnOnce(i64, u64) -> FileFault) -> Option<FileFault> {
        (self.count > 0).then(|| make(self.n, self.count))
    }
}

impl Tally {
    pub(super) const fn new(id: RawBson) -> Self {
        let none = First { n: 0, count: 0 };
        Self {
            id,
            chunks: 0,
            next: 0,
            missing: none,
            twice: none,
            no_data: none,
            no_number: 0,
            runs: Vec::new(),
            newest: 0,
            has_times: true,
        }
    }

    /// Counts a chunk: its `_id`, its number `n`, and the length of its data as `length`, which is
    /// -1 if it has none and null if the server does not know it.
    pub(super) fn add(&mut self, chunk: &RawDocument) {
        self.chunks += 1;
        match chunk.get("_id").ok().flatten() {
            Some(RawBsonRef::ObjectId(id)) => self.newest = self.newest.max(seconds(id)),
            _ => self.has_times = false,
        }
        let n = chunk.get("n").ok().flatten().and_then(whole);
        let Some(n) = n.filter(|n| (0..i64::MAX).contains(n)) else {
            return self.no_number += 1;
        };
        if n < self.next {
            return self.twice.add(n, 1);
        }
        if n > self.next {
            self.missing.add(self.next, n.abs_diff(self.next));
        }
        let is_next = n == self.next;
        self.next = n + 1;
        let length = chunk.get("length").ok().flatten();
        let Some(length) = length.and_then(whole) else { return };
        let Ok(length) = u64::try_from(length) else { return self.no_data.add(n, 1) };
        let has_room = self.runs.len() < MAX_RUNS;
        match self.runs.last_mut() {
            Some(run) if is_next && run.length == length && run.end() == n => run.count += 1,
            _ if has_room => self.runs.push(Run { first: n, count: 1, length }),
            _ => {}
        }
    }

    /// Returns the time of the newest chunk, in seconds since 1970, if each says when it was made.
    pub(super) fn newest(&self) -> Option<u32> {
        (self.has_times && self.chunks > 0).then_some(self.newest)
    }

    /// Returns what is wrong with the file, whose document this is.
    pub(super) fn faults(&self, file: &RawDocument) -> Vec<FileFault> {
        let described = match Described::read(file) {
            Ok(described) => described,
            Err(field) => return vec![FileFault::Field { field }],
        };
        if self.is_empty_chunk(described) {
            return Vec::new();
        }
        let expected = described.chunks();
        let (mut missing, mut extra) = (self.missing, First::default());
        if self.next < expected {
            missing.add(self.next, expected.abs_diff(self.next));
        }
        if self.next > expected {
            // What is missing behind the end is not missing.
            let behind = if missing.n >= expected { missing.count } else { 0 };
            extra.add(expected, (self.next.abs_diff(expected).saturating_sub(behind)).max(1));
            if behind > 0 {
                missing = First::default();
            }
        }
        let faults = [
            missing.fault(|n, count| FileFault::Missing { n, count }),
            self.twice.fault(|n, count| FileFault::Twice { n, count }),
            extra.fault(|n, count| FileFault::Extra { n, count }),
            self.wrong_length(described),
            self.no_data.fault(|n, count| FileFault::NoData { n, count }),
            (self.no_number > 0).then_some(FileFault::NoNumber { count: self.no_number }),
        ];
        faults.into_iter().flatten().collect()
    }

    /// Takes data for those of the old subtype of BSON, whose length servers count with the second
    /// one that they have.
    pub(super) fn take_for_old(&mut self) {
        self.runs.iter_mut().for_each(|run| run.length = run.length.saturating_sub(SECOND_LENGTH));
    }

    /// Returns whether it is the one empty chunk that some drivers give an empty file.
    fn is_empty_chunk(&self, file: Described) -> bool {
        let is_empty = self.runs.iter().all(|run| run.length == 0);
        file.length == 0 && self.chunks == 1 && self.next == 1 && is_empty
    }

    /// Finds the first chunk that is too short or too long, and counts the others.
    fn wrong_length(&self, file: Described) -> Option<FileFault> {
        let last = file.chunks() - 1;
        let mut found: Option<FileFault> = None;
        let mut note = |n: i64, actual: u64, expected: u64, wrong: u64| match &mut found {
            Some(FileFault::Length { count, .. }) => *count += wrong,
            _ => found = Some(FileFault::Length { n, actual, expected, count: wrong }),
        };
        for run in &self.runs {
            let whole = run.end().min(last).saturating_sub(run.first);
            if whole > 0 && run.length != file.chunk_size {
                note(run.first, run.length, file.chunk_size, whole.unsigned_abs());
            }
            if (run.first..run.end()).contains(&last) && run.length != file.last_length() {
                note(last, run.length, file.last_length(), 1);
            }
        }
        found
    }
}

impl Run {
    /// Returns the number behind its last chunk.
    const fn end(&self) -> i64 {
        self.first.saturating_add_unsigned(self.count)
    }
}

/// A file as its document describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Described {
    pub(super) length: u64,
    chunk_size: u64,
}

impl Described {
    /// Reads the document of a file; fails with the field that no file can have.
    pub(super) fn read(file: &RawDocument) -> Result<Self, &'static str> {
        let number = |name| file.get(name).ok().flatten().and_then(whole);
        let length = number("length").and_then(|it| u64::try_from(it).ok()).ok_or("length")?;
        let chunk_size = match number("chunkSize").and_then(|it| u64::try_from(it).ok()) {
            Some(size) if (1..=i32::MAX as u64).contains(&size) => size,
            _ if length == 0 => 1,
            _ => return Err("chunkSize"),
        };
        match length.div_ceil(chunk_size) > MAX_CHUNKS {
            true => Err("length"),
            false => Ok(Self { length, chunk_size }),
        }
    }

    fn chunks(self) -> i64 {
        i64::try_from(self.length.div_ceil(self.chunk_size)).unwrap_or(i64::MAX)
    }

    /// Returns the length of the last chunk.
    const fn last_length(self) -> u64 {
        match self.length % self.chunk_size {
            0 => self.chunk_size,
            rest => rest,
        }
    }
}

/// Returns the time in an `ObjectId`, in seconds since 1970.
fn seconds(id: ObjectId) -> u32 {
    let [a, b, c, d, ..] = id.bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Returns a whole number of any numeric type.
pub(super) fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    let of_double = |value: f64| (value.fract() == 0.0).then_some(value as i64);
    match value {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        RawBsonRef::Double(number) => of_double(number),
        RawBsonRef::Decimal128(number) => of_double(number.to_string().parse().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::oid::ObjectId;
    use sdam_core::bson::{RawBson, RawDocumentBuf, rawdoc};

    use super::{FileFault, Tally};

    /// Counts chunks, given by their numbers and lengths.
    fn tally(chunks: &[(i32, i32)]) -> Tally {
        let mut tally = Tally::new(RawBson::Int32(1));
        for (n, length) in chunks {
            tally.add(&rawdoc! { "_id": ObjectId::new(), "n": *n, "length": *length });
        }
        tally
    }

    /// The document of a file of ten bytes, four a chunk.
    fn file() -> RawDocumentBuf {
        rawdoc! { "_id": 1, "length": 10_i64, "chunkSize": 4 }
    }

    fn faults(chunks: &[(i32, i32)]) -> Vec<FileFault> {
        tally(chunks).faults(&file())
    }

    #[test]
    fn a_file_that_is_whole_has_no_fault() {
        assert_eq!(faults(&[(0, 4), (1, 4), (2, 2)]), []);
        let empty = rawdoc! { "length": 0, "chunkSize": 4 };
        assert_eq!(tally(&[]).faults(&empty), []);
        assert_eq!(tally(&[(0, 0)]).faults(&empty), [], "some drivers write such a chunk");
        let full = rawdoc! { "length": 8.0, "chunkSize": 4_i64 };
        assert_eq!(tally(&[(0, 4), (1, 4)]).faults(&full), []);
    }

    #[test]
    fn each_fault_names_its_first_chunk() {
        use FileFault::*;
        assert_eq!(faults(&[(0, 4), (2, 2)]), [Missing { n: 1, count: 1 }]);
        assert_eq!(faults(&[(0, 4)]), [Missing { n: 1, count: 2 }]);
        assert_eq!(faults(&[(2, 2)]), [Missing { n: 0, count: 2 }]);
        assert_eq!(faults(&[(0, 4), (1, 4), (1, 4), (2, 2)]), [Twice { n: 1, count: 1 }]);
        assert_eq!(faults(&[(0, 4), (1, 4), (2, 2), (3, 1)]), [Extra { n: 3, count: 1 }]);
        assert_eq!(faults(&[(0, 4), (1, 4), (2, 2), (9, 1)]), [Extra { n: 3, count: 1 }]);
        let length = |n, actual, expected, count| Length { n, actual, expected, count };
        assert_eq!(faults(&[(0, 4), (1, 3), (2, 2)]), [length(1, 3, 4, 1)]);
        assert_eq!(faults(&[(0, 5), (1, 5), (2, 2)]), [length(0, 5, 4, 2)]);
        assert_eq!(faults(&[(0, 4), (1, 4), (2, 4)]), [length(2, 4, 2, 1)]);
        assert_eq!(faults(&[(0, 2), (1, 2), (2, 2)]), [length(0, 2, 4, 2)]);
        assert_eq!(faults(&[(0, 4), (1, -1), (2, 2)]), [NoData { n: 1, count: 1 }]);
        assert_eq!(faults(&[(-1, 4), (0, 4), (1, 4), (2, 2)]), [NoNumber { count: 1 }]);
        let both = [Missing { n: 0, count: 1 }, length(1, 3, 4, 1)];
        assert_eq!(faults(&[(1, 3), (2, 2)]), both);
    }

    #[test]
    fn data_of_the_old_subtype_are_as_long_as_they_are() {
        let mut tally = tally(&[(0, 8), (1, 8), (2, 6)]);
        let fault = FileFault::Length { n: 0, actual: 8, expected: 4, count: 3 };
        assert_eq!(tally.faults(&file()), [fault]);
        tally.take_for_old();
        assert_eq!(tally.faults(&file()), []);
    }

    #[test]
    fn lengths_that_the_server_does_not_know_are_none() {
        let mut tally = Tally::new(RawBson::Int32(1));
        for n in 0..3 {
            tally.add(&rawdoc! { "_id": ObjectId::new(), "n": n, "length": RawBson::Null });
        }
        assert_eq!(tally.faults(&file()), []);
    }

    #[test]
    fn documents_that_no_file_can_have_name_their_field() {
        let of = |file: RawDocumentBuf| tally(&[(0, 4)]).faults(&file);
        let field = |field| [FileFault::Field { field }];
        assert_eq!(of(rawdoc! { "chunkSize": 4 }), field("length"));
        assert_eq!(of(rawdoc! { "length": -1, "chunkSize": 4 }), field("length"));
        assert_eq!(of(rawdoc! { "length": i64::MAX, "chunkSize": 4 }), field("length"));
        assert_eq!(of(rawdoc! { "length": 4, "chunkSize": 0 }), field("chunkSize"));
        assert_eq!(of(rawdoc! { "length": 4, "chunkSize": "4" }), field("chunkSize"));
    }

    #[test]
    fn a_thousand_lengths_are_kept_in_a_few_runs() {
        let chunks: Vec<(i32, i32)> = (0..1000).map(|n| (n, n % 3)).collect();
        let tally = tally(&chunks);
        assert!(tally.runs.len() <= super::MAX_RUNS);
        let file = rawdoc! { "length": 4000, "chunkSize": 4 };
        let first = FileFault::Length { n: 0, actual: 0, expected: 4, count: 16 };
        assert_eq!(tally.faults(&file), [first]);
    }

    #[test]
    fn the_age_of_a_file_is_known_if_each_chunk_says_its_own() {
        let id = |seconds: u32| {
            let mut bytes = [0; 12];
            bytes[..4].copy_from_slice(&seconds.to_be_bytes());
            ObjectId::from_bytes(bytes)
        };
        let mut tally = Tally::new(RawBson::Int32(1));
        assert_eq!(tally.newest(), None);
        tally.add(&rawdoc! { "_id": id(7), "n": 0 });
        tally.add(&rawdoc! { "_id": id(5), "n": 1 });
        assert_eq!(tally.newest(), Some(7));
        tally.add(&rawdoc! { "_id": 9, "n": 2 });
        assert_eq!(tally.newest(), None);
    }
}
