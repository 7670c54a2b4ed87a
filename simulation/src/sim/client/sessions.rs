//! The sessions of servers, as the network sees them: no two holders use one at a time, and one
//! whose command may still be carried out belongs to no other holder any more.

use std::collections::BTreeMap;

use bson::raw::{CStr, cstr};
use sdam_core::bson;
use sdam_core::wire::Frames;

use crate::sim::network::StreamId;

/// The length of what comes first in a message, its own length.
const LENGTH: usize = 4;

/// The use of a session of the servers.
#[derive(Debug)]
struct Use {
    /// The last holder.
    holder: i64,
    /// The stream on which its last command has no reply yet.
    unanswered: Option<StreamId>,
    /// True if a command was left without a reply.
    is_abandoned: bool,
}

/// A command that has no reply yet, or not all of it.
#[derive(Debug)]
struct Unanswered {
    session: Vec<u8>,
    /// The first bytes of the reply, which are its length.
    length: Vec<u8>,
    /// The number of bytes that have come.
    come: usize,
}

impl Unanswered {
    /// Returns whether the reply is whole with these bytes.
    fn is_whole_with(&mut self, bytes: &[u8]) -> bool {
        self.come += bytes.len();
        let missing = LENGTH - self.length.len();
        self.length.extend(bytes.iter().take(missing));
        let length = <[u8; LENGTH]>::try_from(&*self.length).map(i32::from_le_bytes);
        length.is_ok_and(|length| usize::try_from(length).is_ok_and(|it| it <= self.come))
    }
}

/// The sessions that a client has named to servers.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    uses: BTreeMap<Vec<u8>, Use>,
    unanswered: BTreeMap<StreamId, Unanswered>,
}

/// The field in which the holder of a session says so: one that servers of every version take, and
/// that no client attaches itself. A `comment` is refused by those before 4.4.
pub(super) const HOLDER: &CStr = cstr!("$audit");

/// Returns the session that a message names, and its holder.
fn named(message: &[u8]) -> Option<(Vec<u8>, i64)> {
    let mut frames = Frames::new();
    frames.extend(message);
    let message = frames.next().ok()??;
    let body = message.op_msg().ok()?.body;
    let session = body.get_document("lsid").and_then(|it| it.get_binary("id")).ok()?;
    Some((session.bytes.to_vec(), body.get_i64("$audit").ok()?))
}

impl Sessions {
    /// Notes what is sent.
    ///
    /// # Errors
    ///
    /// Says who else has the session.
    pub(super) fn sent(&mut self, stream: StreamId, message: &[u8]) -> Result<(), String> {
        let Some((session, holder)) = named(message) else { return Ok(()) };
        let new = Use { holder, unanswered: None, is_abandoned: false };
        let used = self.uses.entry(session.clone()).or_insert(new);
        let before = used.holder;
        if used.unanswered.is_some() || (before != holder && used.is_abandoned) {
            return Err(format!("{holder:#x} names that of {before:#x}, as of {used:?}"));
        }
        (used.holder, used.unanswered) = (holder, Some(stream));
        self.unanswered.insert(stream, Unanswered { session, length: Vec::new(), come: 0 });
        Ok(())
    }

    /// Notes what has come on a stream.
    pub(super) fn received(&mut self, stream: StreamId, bytes: &[u8]) {
        if self.unanswered.get_mut(&stream).is_some_and(|it| it.is_whole_with(bytes)) {
            self.end(stream, false);
        }
    }

    /// Notes that the client has closed a stream.
    pub(super) fn closed(&mut self, stream: StreamId) {
        self.end(stream, true);
    }

    fn end(&mut self, stream: StreamId, is_abandoned: bool) {
        let ended = self.unanswered.remove(&stream);
        if let Some(used) = ended.and_then(|ended| self.uses.get_mut(&ended.session)) {
            used.unanswered = None;
            used.is_abandoned |= is_abandoned;
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;
    use bson::{Binary, rawdoc};
    use sdam_core::bson;

    use super::{Sessions, StreamId};
    use crate::sim::request::message;

    fn write(session: u8, holder: i64) -> Vec<u8> {
        let id = Binary { subtype: BinarySubtype::Uuid, bytes: vec![session; 16] };
        message(7, &rawdoc! { "insert": "w", "lsid": { "id": id }, "$audit": holder })
    }

    const FIRST: StreamId = StreamId(1);
    const SECOND: StreamId = StreamId(2);

    #[test]
    fn a_session_has_one_command_at_a_time() {
        let mut sessions = Sessions::default();
        sessions.sent(FIRST, &write(1, 5)).unwrap();
        sessions.sent(SECOND, &write(2, 5)).unwrap();
        let reply = message(8, &rawdoc! { "ok": 1 });
        let (head, tail) = reply.split_at(3);
        sessions.received(FIRST, head);
        sessions.sent(StreamId(3), &write(1, 6)).unwrap_err();
        sessions.received(FIRST, tail);
        sessions.sent(StreamId(3), &write(1, 6)).unwrap();
    }

    #[test]
    fn a_session_whose_command_was_given_up_stays_with_its_holder() {
        let mut sessions = Sessions::default();
        sessions.sent(FIRST, &write(1, 5)).unwrap();
        sessions.closed(FIRST);
        sessions.sent(SECOND, &write(1, 5)).unwrap();
        sessions.received(SECOND, &message(8, &rawdoc! { "ok": 1 }));
        sessions.sent(FIRST, &write(1, 6)).unwrap_err();
    }
}
