//! Requests and their replies on one connection: which number a request has, and which message is
//! the reply to it.

use serde::Serialize;

use super::{Flags, Message, ReplyDocument, WireError, op_code};

/// The numbers of the requests on one connection: from 1, and from there again after the greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct RequestIds(i32);

impl RequestIds {
    /// Numbers the next request.
    pub const fn next_id(&mut self) -> i32 {
        self.0 = if self.0 == i32::MAX { 1 } else { self.0 + 1 };
        self.0
    }

    /// Returns the number of the last request, 0 before the first.
    pub const fn last(self) -> i32 {
        self.0
    }
}

/// The reply that is due on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Awaited {
    response_to: i32,
    op_code: i32,
    exhaust_allowed: bool,
}

impl Awaited {
    /// Awaits the one reply to an OP_MSG.
    pub const fn op_msg(request: i32) -> Self {
        Self { response_to: request, op_code: op_code::OP_MSG, exhaust_allowed: false }
    }

    /// Awaits the reply to an OP_MSG that allows several, or the next of these, which answers the
    /// one before it (OP_MSG, "exhaustAllowed").
    pub const fn stream(request: i32) -> Self {
        Self { response_to: request, op_code: op_code::OP_MSG, exhaust_allowed: true }
    }

    /// Awaits the reply to an OP_QUERY.
    pub const fn op_reply(request: i32) -> Self {
        Self { response_to: request, op_code: op_code::OP_REPLY, exhaust_allowed: false }
    }

    /// Returns the number of the message that it answers.
    pub const fn request(self) -> i32 {
        self.response_to
    }

    /// Reads a message that has come as this reply.
    ///
    /// # Errors
    ///
    /// The message answers another request, has another opcode, is malformed, or announces a reply
    /// that nothing asked for.
    pub fn read(&self, message: &Message) -> Result<Reply, WireError> {
        let (header, expected) = (message.header(), self.response_to);
        if header.response_to != expected {
            return Err(WireError::ResponseTo { expected, found: header.response_to });
        }
        let (document, more_to_come) = match self.op_code {
            op_code::OP_REPLY => (message.op_reply()?.document, false),
            _ => {
                let reply = message.op_msg()?;
                if reply.trace_context().is_some() {
                    // "it MUST NOT appear in server replies"
                    return Err(WireError::SectionKind(3));
                }
                (reply.body, reply.flags.contains(Flags::MORE_TO_COME))
            }
        };
        // "The server MUST NOT set" it then (OP_MSG, "exhaustAllowed").
        if more_to_come && !self.exhaust_allowed {
            return Err(WireError::MoreToCome);
        }
        Ok(Reply {
            document: ReplyDocument::new(message.bytes(), document),
            next: more_to_come.then(|| Self::stream(header.request_id)),
        })
    }
}

/// A reply that was due.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The reply.
    pub document: ReplyDocument,
    /// The reply that follows without a request, if one does.
    pub next: Option<Awaited>,
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::super::{Frames, write_op_msg, write_op_reply};
    use super::{Awaited, Flags, Message, RequestIds, WireError};
    use crate::wire::ReplyFlags;

    fn message(write: impl FnOnce(&mut Vec<u8>)) -> Message {
        let (mut bytes, mut frames) = (Vec::new(), Frames::default());
        write(&mut bytes);
        frames.extend(&bytes);
        frames.next().unwrap().unwrap()
    }

    #[test]
    fn numbers_begin_again_after_the_greatest() {
        let mut ids = RequestIds::default();
        assert_eq!((ids.last(), ids.next_id(), ids.next_id(), ids.last()), (0, 1, 2, 2));
        let mut ids = RequestIds(i32::MAX);
        assert_eq!((ids.next_id(), ids.next_id()), (1, 2));
    }

    #[test]
    fn a_reply_is_the_one_that_is_due() {
        let body = rawdoc! { "ok": 1 };
        let reply = message(|out| write_op_msg(out, 9, 7, Flags::NONE, &body));
        assert_eq!(Awaited::op_msg(7).read(&reply).unwrap().document.as_bytes(), body.as_bytes());
        let other = WireError::ResponseTo { expected: 8, found: 7 };
        assert_eq!(Awaited::op_msg(8).read(&reply), Err(other));
        let code = WireError::OpCode { expected: 1, found: 2013 };
        assert_eq!(Awaited::op_reply(7).read(&reply), Err(code));
        let old = message(|out| write_op_reply(out, 9, 7, ReplyFlags::NONE, &body));
        assert_eq!(Awaited::op_reply(7).read(&old).unwrap().next, None);
    }

    #[test]
    fn a_stream_of_replies_has_to_be_allowed_and_each_answers_the_one_before_it() {
        let more = message(|out| write_op_msg(out, 9, 7, Flags::MORE_TO_COME, &rawdoc! {}));
        assert_eq!(Awaited::op_msg(7).read(&more), Err(WireError::MoreToCome));
        let next = Awaited::stream(7).read(&more).unwrap().next.unwrap();
        assert_eq!(next, Awaited::stream(9));
        let last = message(|out| write_op_msg(out, 10, 9, Flags::NONE, &rawdoc! {}));
        assert_eq!(next.read(&last).unwrap().next, None);
    }
}
