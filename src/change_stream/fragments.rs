//! The parts of events that `$changeStreamSplitLargeEvent` has split, put together again.
//!
//! A part has some of the fields of its event, each whole, a token of its own, and `splitEvent`
//! with its number and how many there are.

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::error::ReplyError;

/// The field by which a part says that it is one.
const SPLIT_EVENT: &str = "splitEvent";

/// The most that the parts of one event have together: a document before and after its change, and
/// the change, each as large as a document can be, and what stands around them.
const MAX_EVENT_LEN: usize = 64 << 20;

/// The parts of an event that have come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fragments {
    parts: Vec<RawDocumentBuf>,
    length: usize,
}

/// The state of an event after a document of its stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Assembly {
    /// The document is the event.
    Whole,
    /// The document was the last part of this one.
    Joined(RawDocumentBuf),
    /// Further parts follow.
    Incomplete,
}

impl Fragments {
    /// Takes the next document of the stream.
    ///
    /// # Errors
    ///
    /// Fails if it is not the part that comes next, or if the parts are too long together; there is
    /// nothing further then.
    pub(crate) fn take(&mut self, document: &RawDocument) -> Result<Assembly, ReplyError> {
        let malformed = ReplyError::new("getMore", SPLIT_EVENT);
        let place = document.get(SPLIT_EVENT).ok().flatten();
        let Some(place) = place.and_then(RawBsonRef::as_document) else {
            return if self.is_empty() { Ok(Assembly::Whole) } else { Err(malformed) };
        };
        let number = |name| place.get_i32(name).ok().and_then(|it| usize::try_from(it).ok());
        let (Some(fragment), Some(of)) = (number("fragment"), number("of")) else {
            return Err(malformed);
        };
        let length = self.length + document.as_bytes().len();
        if fragment != self.parts.len() + 1 || fragment > of || length > MAX_EVENT_LEN {
            return Err(malformed);
        }
        self.length = length;
        self.parts.push(document.to_owned());
        match fragment == of {
            true => Ok(Assembly::Joined(std::mem::take(self).join())),
            false => Ok(Assembly::Incomplete),
        }
    }

    /// Returns whether no part has come of an event that is not complete.
    pub(crate) const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Forgets the parts that have come, which will come again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Puts the parts together: the token is that of the last, behind which a stream goes on, and
    /// any other field is in one of them.
    fn join(self) -> RawDocumentBuf {
        let mut event = RawDocumentBuf::new();
        if let Some(Ok(Some(token))) = self.parts.last().map(|last| last.get("_id")) {
            event.append(cstr!("_id"), token);
        }
        let fields = self.parts.iter().flat_map(|part| part.iter().filter_map(Result::ok));
        for (name, value) in fields {
            if !["_id", SPLIT_EVENT].contains(&name.as_str()) {
                event.append(name, value);
            }
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::{Assembly, Fragments};

    fn part(token: i32, fragment: i32, of: i32, field: &str) -> RawDocumentBuf {
        let mut part = rawdoc! { "_id": token, "splitEvent": { "fragment": fragment, "of": of } };
        part.append(bson::raw::CString::try_from(field).unwrap(), token);
        part
    }

    /// CS-P19: the parts of an event come one after another, numbered from 1.
    #[test]
    fn parts_make_one_event_with_the_token_of_the_last() {
        let mut fragments = Fragments::default();
        let whole = rawdoc! { "_id": 1, "operationType": "insert" };
        assert_eq!(fragments.take(&whole), Ok(Assembly::Whole));
        assert_eq!(fragments.take(&part(2, 1, 3, "a")), Ok(Assembly::Incomplete));
        assert!(!fragments.is_empty());
        assert_eq!(fragments.take(&part(3, 2, 3, "b")), Ok(Assembly::Incomplete));
        let joined = rawdoc! { "_id": 4, "a": 2, "b": 3, "c": 4 };
        assert_eq!(fragments.take(&part(4, 3, 3, "c")), Ok(Assembly::Joined(joined)));
        assert!(fragments.is_empty());
        let alone = rawdoc! { "_id": 5, "a": 5 };
        assert_eq!(fragments.take(&part(5, 1, 1, "a")), Ok(Assembly::Joined(alone)));
    }

    /// A stream that begins again receives an event from its first part on.
    #[test]
    fn parts_that_were_forgotten_come_again() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.take(&part(2, 1, 2, "a")), Ok(Assembly::Incomplete));
        fragments.clear();
        assert_eq!(fragments.take(&part(2, 1, 2, "a")), Ok(Assembly::Incomplete));
        let joined = rawdoc! { "_id": 3, "a": 2, "b": 3 };
        assert_eq!(fragments.take(&part(3, 2, 2, "b")), Ok(Assembly::Joined(joined)));
    }

    #[test]
    fn parts_that_are_missing_or_have_no_number_or_no_end_are_errors() {
        for wrong in [
            part(1, 2, 2, "a"),
            part(1, 0, 2, "a"),
            part(1, -1, 2, "a"),
            part(1, 1, 0, "a"),
            rawdoc! { "_id": 1, "splitEvent": { "fragment": 1 } },
            rawdoc! { "_id": 1, "splitEvent": { "fragment": "1", "of": 2 } },
        ] {
            let error = Fragments::default().take(&wrong).unwrap_err();
            assert_eq!(error.field, "splitEvent", "{wrong:?}");
        }
        let mut fragments = Fragments::default();
        fragments.take(&part(1, 1, 2, "a")).unwrap();
        assert!(fragments.take(&rawdoc! { "_id": 2 }).is_err(), "another event");
        let mut fragments = Fragments::default();
        let long = "x".repeat(16 << 20);
        let taken = (1..=5).map(|fragment| {
            let place = rawdoc! { "fragment": fragment, "of": 9 };
            fragments.take(&rawdoc! { "_id": 1, "splitEvent": place, "a": &*long }).is_ok()
        });
        assert_eq!(taken.collect::<Vec<_>>(), [true, true, true, false, false]);
    }
}
