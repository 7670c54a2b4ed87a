//! Cursors that nobody reads any more, until they are closed at their servers.
//!
//! Implements, of Find, getMore and killCursors, that many cursors of a collection are closed by
//! one command.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};

use crate::config::ServerAddress;

/// The number of cursors that wait to be closed at most; those that come then are left to their
/// servers, which close what nobody has read for ten minutes.
pub const MAX_ABANDONED_CURSORS: usize = 65_536;

/// The number of cursors that one command closes at most.
pub const MAX_KILLED_CURSORS: usize = 1000;

/// A cursor that is open at its server, and that nobody reads any more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AbandonedCursor {
    /// The server that it is open at.
    pub server: ServerAddress,
    /// The database of its namespace.
    pub database: Arc<str>,
    /// The collection of its namespace.
    pub collection: Arc<str>,
    /// Its number.
    pub id: i64,
    /// The name of the application's session that it was opened in; `None` if it has none, or one
    /// of its own.
    pub session: Option<RawDocumentBuf>,
    /// `timeoutMS` of the operation that has opened it, if that is not the client's.
    pub timeout: Option<Duration>,
}

impl AbandonedCursor {
    /// Describes a cursor in no session of the application's.
    pub fn new(
        server: ServerAddress,
        (database, collection): (Arc<str>, Arc<str>),
        id: i64,
    ) -> Self {
        Self { server, database, collection, id, session: None, timeout: None }
    }

    /// Replaces [`session`](Self::session).
    #[must_use]
    pub fn with_session(mut self, session: Option<&RawDocument>) -> Self {
        self.session = session.map(ToOwned::to_owned);
        self
    }

    /// Replaces [`timeout`](Self::timeout).
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }
}

/// The command that closes cursors at their server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KillCursors {
    /// The database that it is run on.
    pub database: Arc<str>,
    /// Its document.
    pub body: RawDocumentBuf,
    /// True if the name of a session is in it.
    pub has_session: bool,
    /// `timeoutMS` of the operations that have opened the cursors, if that is not the client's.
    pub timeout: Option<Duration>,
}

/// The cursors that nobody reads any more, by server: whoever serves one takes one command after
/// the other until there is none.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::operation::{AbandonedCursor, AbandonedCursors};
///
/// let mut cursors = AbandonedCursors::default();
/// let of = |id| AbandonedCursor::new("a:1".parse().unwrap(), ("app".into(), "things".into()), id);
/// assert!(cursors.push(of(7)), "nobody serves that server yet");
/// assert!(!cursors.push(of(8)));
/// let command = cursors.next_command(&"a:1".parse()?).unwrap();
/// assert_eq!(command.body, rawdoc! { "killCursors": "things", "cursors": [7_i64, 8_i64] });
/// assert!(cursors.next_command(&"a:1".parse()?).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct AbandonedCursors {
    lanes: BTreeMap<ServerAddress, Lane>,
    count: usize,
}

/// The cursors of one server, while somebody serves it.
#[derive(Debug, Default)]
struct Lane {
    batches: BTreeMap<Arc<Likeness>, Vec<i64>>,
    /// The batches in the order in which they are closed.
    order: VecDeque<Arc<Likeness>>,
}

/// The facts that cursors have to share to be closed by one command.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    database: Arc<str>,
    collection: Arc<str>,
    /// The bytes of the session's name.
    session: Option<Vec<u8>>,
    timeout: Option<Duration>,
}

impl AbandonedCursors {
    /// Takes a cursor in; returns whether its server is to be served from now on, as nobody does.
    #[must_use = "somebody has to serve the server"]
    pub fn push(&mut self, cursor: AbandonedCursor) -> bool {
        if self.count == MAX_ABANDONED_CURSORS {
            return false;
        }
        self.count += 1;
        let AbandonedCursor { server, database, collection, id, session, timeout } = cursor;
        let session = session.map(RawDocumentBuf::into_bytes);
        let likeness = Likeness { database, collection, session, timeout };
        let is_new = !self.lanes.contains_key(&server);
        let Lane { batches, order } = self.lanes.entry(server).or_default();
        match batches.get_mut(&likeness) {
            Some(ids) => ids.push(id),
            None => {
                let likeness = Arc::new(likeness);
                order.push_back(Arc::clone(&likeness));
                batches.insert(likeness, vec![id]);
            }
        }
        is_new
    }

    /// Returns the next command for a server; `None` if there is none, with which the service of
    /// that server ends.
    pub fn next_command(&mut self, server: &ServerAddress) -> Option<KillCursors> {
        let command = self.lanes.get_mut(server).and_then(Lane::next_command);
        match command {
            Some((command, count)) => {
                self.count -= count;
                Some(command)
            }
            None => {
                self.lanes.remove(server);
                None
            }
        }
    }

    /// Forgets the cursors of a server, whose service has ended before its time.
    pub fn forget(&mut self, server: &ServerAddress) {
        if let Some(lane) = self.lanes.remove(server) {
            self.count -= lane.batches.values().map(Vec::len).sum::<usize>();
        }
    }

    /// Returns the servers that are served now.
    pub fn servers(&self) -> impl Iterator<Item = &ServerAddress> {
        self.lanes.keys()
    }
}

impl Lane {
    /// Returns the next command, and how many cursors it closes.
    fn next_command(&mut self) -> Option<(KillCursors, usize)> {
        let likeness = self.order.pop_front()?;
        let ids = self.batches.get_mut(&likeness)?;
        let count = ids.len().min(MAX_KILLED_CURSORS);
        let cursors = RawArrayBuf::from_iter(ids.drain(..count));
        match ids.is_empty() {
            true => drop(self.batches.remove(&likeness)),
            false => self.order.push_back(Arc::clone(&likeness)),
        }
        let mut body = RawDocumentBuf::new();
        body.append(cstr!("killCursors"), &*likeness.collection);
        body.append(cstr!("cursors"), cursors);
        let session = likeness.session.as_deref().map(RawDocument::from_bytes);
        let session = session.and_then(Result::ok);
        if let Some(session) = session {
            body.append(cstr!("lsid"), session);
        }
        let (database, timeout) = (Arc::clone(&likeness.database), likeness.timeout);
        Some((KillCursors { database, body, has_session: session.is_some(), timeout }, count))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::rawdoc;

    use super::{AbandonedCursor, AbandonedCursors, MAX_ABANDONED_CURSORS, MAX_KILLED_CURSORS};
    use crate::config::ServerAddress;

    fn server(name: &str) -> ServerAddress {
        name.parse().unwrap()
    }

    fn cursor(of: &str, collection: &str, id: i64) -> AbandonedCursor {
        AbandonedCursor::new(server(of), ("app".into(), collection.into()), id)
    }

    /// The commands that close all cursors of a server: collections and numbers.
    fn commands(cursors: &mut AbandonedCursors, of: &str) -> Vec<(String, Vec<i64>)> {
        let commands = std::iter::from_fn(|| cursors.next_command(&server(of)));
        let told = commands.map(|command| {
            let ids = command.body.get_array("cursors").unwrap().into_iter();
            let ids = ids.map(|id| id.unwrap().as_i64().unwrap()).collect();
            (command.body.get_str("killCursors").unwrap().to_owned(), ids)
        });
        told.collect()
    }

    #[test]
    fn cursors_of_a_collection_are_closed_together_and_servers_apart() {
        let mut cursors = AbandonedCursors::default();
        assert!(cursors.push(cursor("a:1", "x", 1)) && cursors.push(cursor("b:1", "x", 2)));
        for id in 3..5 {
            assert!(
                !cursors.push(cursor("a:1", "y", id)) && !cursors.push(cursor("a:1", "x", -id))
            );
        }
        assert_eq!(cursors.servers().count(), 2);
        let of_a = [("x".to_owned(), vec![1, -3, -4]), ("y".to_owned(), vec![3, 4])];
        assert_eq!(commands(&mut cursors, "a:1"), of_a);
        assert_eq!(commands(&mut cursors, "b:1"), [("x".to_owned(), vec![2])]);
        assert_eq!((cursors.servers().count(), cursors.count), (0, 0));
        assert!(cursors.push(cursor("a:1", "x", 5)), "its service has ended");
    }

    /// Driver Sessions, "When sending a killCursors command": the name may be left out, and that of
    /// an application's session is not.
    #[test]
    fn cursors_in_different_sessions_or_with_different_times_are_closed_one_by_one() {
        let mut cursors = AbandonedCursors::default();
        let session = rawdoc! { "id": 7 };
        let second = Some(Duration::from_secs(1));
        let _ = cursors.push(cursor("a:1", "x", 1));
        let _ = cursors.push(cursor("a:1", "x", 2).with_session(Some(&session)));
        let _ = cursors.push(cursor("a:1", "x", 3).with_timeout(second));
        let next = |cursors: &mut AbandonedCursors| cursors.next_command(&server("a:1")).unwrap();
        let first = next(&mut cursors);
        assert!(!first.has_session && first.body.get("lsid").unwrap().is_none());
        let in_session = next(&mut cursors);
        assert!(in_session.has_session);
        assert_eq!(in_session.body.get_document("lsid").unwrap(), &*session);
        assert_eq!(next(&mut cursors).timeout, second);
    }

    #[test]
    fn a_command_closes_a_thousand_and_collections_take_turns() {
        let mut cursors = AbandonedCursors::default();
        let many = i64::try_from(MAX_KILLED_CURSORS).unwrap() + 1;
        for id in 0..many {
            let _ = cursors.push(cursor("a:1", "x", id));
        }
        let _ = cursors.push(cursor("a:1", "y", 7));
        let told = commands(&mut cursors, "a:1");
        let lengths: Vec<_> = told.iter().map(|(name, ids)| (name.as_str(), ids.len())).collect();
        assert_eq!(lengths, [("x", MAX_KILLED_CURSORS), ("y", 1), ("x", 1)]);
    }

    #[test]
    fn there_is_a_most_of_cursors_that_wait() {
        let mut cursors = AbandonedCursors::default();
        let most = i64::try_from(MAX_ABANDONED_CURSORS).unwrap();
        for id in 0..most {
            let _ = cursors.push(cursor("a:1", "x", id));
        }
        assert!(!cursors.push(cursor("b:1", "x", 1)), "it is left to its server");
        assert_eq!(cursors.servers().count(), 1);
        cursors.forget(&server("a:1"));
        cursors.forget(&server("a:1"));
        assert_eq!(cursors.count, 0);
        assert!(cursors.push(cursor("b:1", "x", 1)));
    }
}
