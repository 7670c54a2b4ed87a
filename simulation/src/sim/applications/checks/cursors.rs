//! A cursor is continued and closed at the server that has it, and none is left open.

use std::collections::{BTreeMap, BTreeSet};

use super::super::conversation::{Command, Reply};
use super::super::operations::Operations;
use super::{Finding, ensure};

/// A cursor that is open at its server, as far as its client knows.
#[derive(Clone, Copy, Debug)]
struct Place {
    client: usize,
    member: usize,
}

/// The cursors that were opened.
#[derive(Debug, Default)]
pub(in crate::sim::applications) struct Cursors {
    places: BTreeMap<i64, Place>,
    open: BTreeMap<i64, usize>,
    /// Those of operations with a limit, which `killCursors` has, too: it may be over before there
    /// is a connection.
    limited: BTreeSet<i64>,
}

impl Cursors {
    /// A client says something of cursors.
    ///
    /// "the driver MUST send [getMore] to the same server" (Find, getMore and killCursors).
    pub(super) fn sent(&self, command: &Command) -> Finding {
        for cursor in command.cursors() {
            let Some(place) = self.places.get(&cursor) else { continue };
            let is_there =
                (place.client, place.member) == (command.line.client, command.line.member);
            ensure(is_there, "a cursor is known where it was opened", || {
                let (name, place) = (&command.name, place.member);
                format!("{name} of {cursor} goes to {:?}, and {place} has it", command.line)
            })?;
        }
        Ok(())
    }

    pub(super) fn replied(&mut self, command: &Command, reply: &Reply, operations: &Operations) {
        match reply.cursor() {
            Some(0) | None => {
                if command.name == "getMore" && (reply.cursor() == Some(0) || is_unknown(reply)) {
                    self.forget(command);
                }
            }
            Some(cursor) => {
                let (client, member) = (command.line.client, command.line.member);
                self.places.insert(cursor, Place { client, member });
                self.open.insert(cursor, client);
                let operation = command.operation.and_then(|it| operations.get(it));
                if operation.is_some_and(|it| it.timeout.is_some()) {
                    self.limited.insert(cursor);
                }
            }
        }
        if command.name == "killCursors" && reply.is_ok() {
            self.forget(command);
        }
    }

    /// A reply that opens a cursor may not have been read.
    pub(super) fn unread(&mut self, reply: &Reply) {
        if let Some(cursor) = reply.cursor() {
            self.open.remove(&cursor);
        }
    }

    /// A loss of its connection may have ended it.
    pub(super) fn lost(&mut self, command: &Command) {
        self.forget(command);
    }

    fn forget(&mut self, command: &Command) {
        for cursor in command.cursors() {
            self.open.remove(&cursor);
        }
    }

    /// Judges what is left when a client of servers that were always there has been closed.
    pub(in crate::sim::applications) fn closed(&self, client: usize) -> Finding {
        let is_left =
            |(cursor, owner): &(&i64, &usize)| **owner == client && !self.limited.contains(cursor);
        let left = self.open.iter().find(is_left);
        ensure(left.is_none(), "cursors are closed with their client", || {
            format!("{left:?} is open at its server")
        })
    }
}

/// Returns whether a server has said that it does not know the cursor.
fn is_unknown(reply: &Reply) -> bool {
    reply.body.get_i32("code").is_ok_and(|code| [43, 175, 237].contains(&code))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use sdam_core::bson;

    use super::super::super::operations::Operations;
    use super::super::testing::{begin, begin_limited, command, reply};
    use super::Cursors;

    fn opened_by(operation: i64, operations: &Operations) -> Cursors {
        let mut cursors = Cursors::default();
        let find = command((0, 1, 1), Some(operation), Some(1), rawdoc! { "find": "a" });
        let cursor = rawdoc! { "ok": 1.0, "cursor": { "id": 7_i64 } };
        cursors.replied(&find, &reply(1, cursor), operations);
        cursors
    }

    fn opened() -> Cursors {
        let mut operations = Operations::default();
        let [operation] = begin(&mut operations, [None]);
        opened_by(operation, &operations)
    }

    #[test]
    fn a_cursor_that_is_continued_or_closed_elsewhere_is_found() {
        let cursors = opened();
        let more = rawdoc! { "getMore": 7_i64, "collection": "a" };
        let kill = rawdoc! { "killCursors": "a", "cursors": [3_i64, 7_i64] };
        for body in [more, kill] {
            cursors.sent(&command((2, 1, 2), Some(1), Some(1), body.clone())).unwrap();
            cursors.sent(&command((2, 0, 2), Some(1), Some(1), body)).unwrap_err();
        }
    }

    #[test]
    fn a_cursor_that_is_left_open_is_found() {
        let mut cursors = opened();
        cursors.closed(0).unwrap_err();
        cursors.closed(1).unwrap();
        let kill = rawdoc! { "killCursors": "a", "cursors": [7_i64] };
        let kill = command((2, 1, 2), None, Some(1), kill);
        cursors.replied(&kill, &reply(3, rawdoc! { "ok": 1.0 }), &Operations::default());
        cursors.closed(0).unwrap();
    }

    #[test]
    fn a_cursor_of_an_operation_with_a_limit_may_be_left_open() {
        let mut operations = Operations::default();
        let operation = begin_limited(&mut operations);
        opened_by(operation, &operations).closed(0).unwrap();
    }
}
