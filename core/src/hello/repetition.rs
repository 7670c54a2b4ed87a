//! The recognition of a reply to hello that says what the last one said.
//!
//! Most heartbeats bring no news: such a reply has the bytes of the last one, but for times and
//! counters of a fixed length. Hashing the others takes a fraction of what reading fields does.

use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;

use bson::{DateTime, RawBsonRef, RawDocument};

use super::fields::{Field, ReplyError, last_write_date, topology_version};
use crate::description::TopologyVersion;

/// A reply that was read: its length, what changes, and a hash of all else.
///
/// The bytes are not kept, as there may be thousands of servers. Two replies of one server that
/// differ elsewhere, and have one length and one hash of 64 bits, are taken for the same.
#[derive(Clone, Debug)]
pub(crate) struct KnownReply {
    length: usize,
    hash: u64,
    changing: Box<[Changing]>,
    /// True if the server knows the hello command.
    pub(crate) hello_ok: bool,
}

/// A value that changes although the server stays what it is.
#[derive(Clone, Debug)]
struct Changing {
    kind: Kind,
    place: Range<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    TopologyVersion,
    LastWrite,
    OtherDocument,
    Number,
}

/// The part of a repeated reply that may differ and is of interest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repetition {
    pub(crate) topology_version: Option<TopologyVersion>,
    pub(crate) last_write_date: Option<DateTime>,
}

impl KnownReply {
    /// Takes note of a reply that could be read.
    pub(crate) fn new(reply: &RawDocument, hello_ok: bool) -> Self {
        let (mut changing, mut end) = (Vec::new(), 4);
        for element in reply.iter_elements().map_while(Result::ok) {
            let start = end + 1 + element.key().len() + 1;
            end = start + element.size();
            let kind =
                element.value().ok().and_then(|value| Kind::of(element.key().as_str(), value));
            if let (Some(kind), Ok(start), Ok(end)) = (kind, start.try_into(), end.try_into()) {
                changing.push(Changing { kind, place: start..end });
            }
        }
        let hash = hash(reply.as_bytes(), &changing);
        Self { length: reply.as_bytes().len(), hash, changing: changing.into(), hello_ok }
    }

    /// Reads a reply that says the same; `None` if it does not.
    ///
    /// # Errors
    ///
    /// Fails as reading the whole reply does.
    pub(crate) fn repeated(&self, reply: &RawDocument) -> Field<Option<Repetition>> {
        let bytes = reply.as_bytes();
        if bytes.len() != self.length || hash(bytes, &self.changing) != self.hash {
            return Ok(None);
        }
        let mut repetition = Repetition::default();
        for changing in &self.changing {
            let document = || match RawDocument::from_bytes(&bytes[changing.place()]) {
                Ok(document) => Ok(RawBsonRef::Document(document)),
                Err(error) => Err(ReplyError::Bson(error.to_string())),
            };
            match changing.kind {
                Kind::TopologyVersion => {
                    repetition.topology_version = Some(topology_version(document()?)?);
                }
                Kind::LastWrite => repetition.last_write_date = last_write_date(document()?)?,
                Kind::OtherDocument | Kind::Number => {}
            }
        }
        Ok(Some(repetition))
    }
}

impl Kind {
    /// Returns the kind of a field, if it is one that changes.
    fn of(name: &str, value: RawBsonRef<'_>) -> Option<Self> {
        match (name, value) {
            ("topologyVersion", RawBsonRef::Document(_)) => Some(Self::TopologyVersion),
            ("lastWrite", RawBsonRef::Document(_)) => Some(Self::LastWrite),
            ("$clusterTime", RawBsonRef::Document(_)) => Some(Self::OtherDocument),
            ("localTime", RawBsonRef::DateTime(_))
            | ("operationTime", RawBsonRef::Timestamp(_))
            | ("connectionId", RawBsonRef::Int32(_) | RawBsonRef::Int64(_)) => Some(Self::Number),
            _ => None,
        }
    }
}

impl Changing {
    fn place(&self) -> Range<usize> {
        self.place.start as usize..self.place.end as usize
    }

    /// Returns the place of what may differ: of a document, neither its length nor its end.
    fn differing(&self) -> Range<usize> {
        let place = self.place();
        match self.kind {
            Kind::Number => place,
            Kind::TopologyVersion | Kind::LastWrite | Kind::OtherDocument => {
                place.start + 4..place.end - 1
            }
        }
    }
}

/// Hashes what is to be the same.
fn hash(bytes: &[u8], changing: &[Changing]) -> u64 {
    let (mut hasher, mut at) = (DefaultHasher::new(), 0);
    for changing in changing {
        let differing = changing.differing();
        hasher.write(&bytes[at..differing.start]);
        at = differing.end;
    }
    hasher.write(&bytes[at..]);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, RawDocument, RawDocumentBuf, Timestamp, rawdoc};

    use super::{KnownReply, Repetition};
    use crate::description::TopologyVersion;
    use crate::hello::HelloReply;

    /// A reply of a member of a replica set, which has all that changes.
    fn reply(counter: i64, date: i64) -> RawDocumentBuf {
        let (process, time) = (ObjectId::from_bytes([7; 12]), Timestamp { time: 9, increment: 1 });
        rawdoc! {
            "helloOk": true, "topologyVersion": { "processId": process, "counter": counter },
            "hosts": ["a:27017", "b:27017"], "setName": "rs0", "setVersion": 3,
            "isWritablePrimary": true, "secondary": false, "primary": "a:27017", "me": "a:27017",
            "electionId": ObjectId::from_bytes([1; 12]),
            "lastWrite": {
                "opTime": { "ts": time, "t": 1_i64 },
                "lastWriteDate": DateTime::from_millis(date),
            },
            "localTime": DateTime::from_millis(date + 5), "logicalSessionTimeoutMinutes": 30,
            "connectionId": 12, "minWireVersion": 0, "maxWireVersion": 17, "readOnly": false,
            "ok": 1.0, "operationTime": time,
            "$clusterTime": { "clusterTime": time, "signature": { "keyId": counter } },
        }
    }

    fn known() -> KnownReply {
        KnownReply::new(&reply(6, 1_700_000_000_000), true)
    }

    #[test]
    fn a_reply_in_which_times_and_counters_alone_differ_is_a_repetition() {
        let again = known().repeated(&reply(7, 1_700_000_010_000));
        let version = TopologyVersion::new(ObjectId::from_bytes([7; 12]), 7);
        let repetition = Repetition {
            topology_version: Some(version),
            last_write_date: Some(DateTime::from_millis(1_700_000_010_000)),
        };
        assert_eq!(again, Ok(Some(repetition)));
    }

    #[test]
    fn a_reply_of_another_length_or_with_other_news_is_no_repetition() {
        let mut longer = reply(6, 1_700_000_000_000);
        longer.append(bson::cstr!("hidden"), true);
        assert_eq!(known().repeated(&longer), Ok(None));
        let text = |old: &[u8], new: &[u8]| {
            let mut bytes = reply(6, 1_700_000_000_000).into_bytes();
            let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
            bytes[at..at + new.len()].copy_from_slice(new);
            RawDocumentBuf::from_bytes(bytes).unwrap()
        };
        for (old, new) in [("rs0", "rs1"), ("secondary", "secondarx"), ("b:27017", "c:27017")] {
            let other = text(old.as_bytes(), new.as_bytes());
            assert_eq!(known().repeated(&other), Ok(None), "{new}");
        }
    }

    /// A repetition, read as a whole, says what the known reply has said.
    #[test]
    fn a_repetition_in_which_any_bit_differs_is_read_as_the_whole_reply_is() {
        let (base, known) = (reply(6, 1_700_000_000_000), known());
        let said = HelloReply::parse(&base, None).unwrap();
        let (mut repetitions, mut errors) = (0, 0);
        for bit in 0..base.as_bytes().len() * 8 {
            let mut bytes = base.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(other) = RawDocument::from_bytes(&bytes) else { continue };
            let whole = HelloReply::parse(other, None);
            match known.repeated(other) {
                Ok(None) => {}
                Ok(Some(repetition)) => {
                    repetitions += 1;
                    assert_eq!(whole.unwrap(), said.clone().again(repetition), "bit {bit}");
                }
                Err(error) => {
                    errors += 1;
                    assert_eq!(whole.unwrap_err(), error, "bit {bit}");
                }
            }
        }
        let places = known.changing.iter().map(|changing| changing.differing().len() * 8);
        assert_eq!(repetitions + errors, places.sum::<usize>(), "{errors} errors");
        assert!(repetitions > errors && errors > 0, "{repetitions} repetitions, {errors} errors");
    }
}
