//! The naive model: what may come of a file whose documents were sent.

use sdam::error::GridFsErrorKind;

use super::member::Asked;
use super::stored::Stored;

/// The most chunks that may be asked for at once, and the document behind the last of a file.
const MAX_ASKED: i64 = 1001;

/// The bytes that were read, and then the error, if there is one.
pub(super) type Read = (Vec<u8>, Option<GridFsErrorKind>);

/// A file as its document describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) length: u64,
    pub(super) size: u64,
}

impl Facts {
    /// Reads what is stored: no file is taken for one that has no length or no chunks of a size.
    pub(super) fn of(stored: &Stored) -> Result<Self, GridFsErrorKind> {
        let invalid = |field| Err(GridFsErrorKind::InvalidFile { field });
        if stored.document.is_none() {
            return Err(GridFsErrorKind::FileNotFound);
        }
        if !stored.has_id {
            return invalid("_id");
        }
        let Some(length) = stored.length.filter(|it| *it >= 0) else { return invalid("length") };
        let is_size = |size: &i64| *size >= 1 && *size <= i64::from(i32::MAX);
        let size = match stored.chunk_size.filter(is_size) {
            Some(size) => size,
            None if length == 0 => 1,
            None => return invalid("chunkSize"),
        };
        // The number of a chunk is an Int32.
        if length > 0 && (length - 1) / size > i64::from(i32::MAX) {
            return invalid("length");
        }
        Ok(Self { length: length.unsigned_abs(), size: size.unsigned_abs() })
    }

    fn chunks(self) -> i64 {
        i64::try_from(self.length.div_ceil(self.size)).expect("an Int32 numbers them")
    }

    fn chunk_of(self, place: u64) -> i64 {
        i64::try_from(place / self.size).expect("places lie within the file")
    }

    /// Returns the places of the bytes of a chunk.
    fn places(self, n: i64) -> std::ops::Range<u64> {
        let from = n.unsigned_abs() * self.size;
        from..self.length.min(from + self.size)
    }
}

/// Judges what was sent: each document has to be the next chunk, of its length, and all have to be
/// there.
pub(super) fn judged<'s>(
    facts: Facts,
    asked: &Asked,
    stored: &'s Stored,
) -> Result<Vec<&'s [u8]>, GridFsErrorKind> {
    let end = end_of(facts, asked);
    let mut taken = Vec::new();
    for (next, at) in (asked.first..).zip(&asked.sent) {
        let chunk = &stored.chunks[*at];
        let found = chunk.n.ok_or(GridFsErrorKind::InvalidChunk { n: next, field: "n" })?;
        if found < next {
            return Err(GridFsErrorKind::UnexpectedChunk { expected: next, found });
        }
        if next == end {
            return Err(GridFsErrorKind::ExtraChunk { n: found });
        }
        if found > next {
            return Err(GridFsErrorKind::MissingChunk { n: next });
        }
        let no_data = GridFsErrorKind::InvalidChunk { n: next, field: "data" };
        let data = chunk.data.as_deref().ok_or(no_data)?;
        let places = facts.places(next);
        let (actual, expected) = (data.len() as u64, places.end - places.start);
        if actual != expected {
            return Err(GridFsErrorKind::WrongSizeChunk { n: next, actual, expected });
        }
        taken.push(data);
    }
    let next = asked.first + taken.len() as i64;
    if next < end {
        return Err(GridFsErrorKind::MissingChunk { n: next });
    }
    Ok(taken)
}

/// Returns the number behind the last chunk that is asked for.
fn end_of(facts: Facts, asked: &Asked) -> i64 {
    let end = asked.end.unwrap_or(facts.chunks());
    let behind = i64::from(asked.end.is_none());
    assert_eq!(asked.limit, end - asked.first + behind, "as many may come as are asked for");
    assert!(asked.first < end && end <= facts.chunks(), "chunks of the file: {asked:?}");
    assert!(asked.limit <= MAX_ASKED, "no length makes a search larger: {asked:?}");
    end
}

/// Returns what has to come of reading a part from its beginning to its end.
pub(super) fn read(stored: &Stored, part: (Option<u64>, Option<u64>), asked: &[Asked]) -> Read {
    let facts = match Facts::of(stored) {
        Ok(facts) => facts,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (start, end) = (part.0.unwrap_or(0), part.1.unwrap_or(facts.length));
    if start > end || end > facts.length {
        let error = GridFsErrorKind::InvalidRange { start, end, length: facts.length };
        return (Vec::new(), Some(error));
    }
    let mut asked = asked.to_vec();
    asked.sort_by_key(|it| it.first);
    let (mut bytes, mut asked) = (Vec::new(), asked.into_iter());
    let mut next = facts.chunk_of(start);
    while start < end && next <= facts.chunk_of(end - 1) {
        let range = asked.next().expect("what is not asked for cannot be read");
        assert_eq!(range.first, next, "one range follows the other");
        let chunks = match judged(facts, &range, stored) {
            Ok(chunks) => chunks,
            Err(error) => return (bytes, Some(error)),
        };
        for chunk in chunks {
            let places = facts.places(next);
            let wanted = places.zip(chunk).filter(|(place, _)| (start..end).contains(place));
            bytes.extend(wanted.map(|(_, byte)| byte));
            next += 1;
        }
    }
    assert_eq!(asked.count(), 0, "no chunk is asked for that is not needed");
    (bytes, None)
}

/// Checks bytes that were read at a place: a search has brought each of them.
pub(super) fn are_sent(
    stored: &Stored,
    facts: Facts,
    asked: &[Asked],
    (place, bytes): (u64, &[u8]),
) {
    // Without bytes, the place may be the last that numbers can say.
    for (index, byte) in bytes.iter().enumerate() {
        let place = place + index as u64;
        let n = facts.chunk_of(place);
        let offset = usize::try_from(place - facts.places(n).start).expect("chunks are short");
        let is_sent = asked.iter().any(|asked| {
            let at = usize::try_from(n - asked.first).ok();
            let chunks = judged(facts, asked, stored).unwrap_or_default();
            at.and_then(|at| chunks.get(at)?.get(offset)).is_some_and(|sent| sent == byte)
        });
        assert!(is_sent, "the byte at {place} is none that was sent for it");
    }
}

/// Checks an error of a part that was read: what a search has brought makes it.
pub(super) fn is_deserved(stored: &Stored, facts: Facts, asked: &[Asked], error: &GridFsErrorKind) {
    let is_it = |asked: &Asked| judged(facts, asked, stored).is_err_and(|it| it == *error);
    assert!(asked.iter().any(is_it), "nothing that was sent makes {error:?}");
}
