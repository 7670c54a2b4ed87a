//! The killing of cursors: the command, and the cursors that wait for it at each server.
//!
//! Implements killCursors of Find, getMore and killCursors: many cursors of a collection are killed
//! by one command.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};

use crate::config::ServerAddress;

/// The maximum number of cursors that wait to be killed; those that come then are left to their
/// servers, which close cursors that were not read for ten minutes.
pub const MAX_CURSORS_TO_KILL: usize = 65_536;

/// The number of cursors that one command kills at most.
pub const MAX_KILLED_CURSORS: usize = 1000;

/// A cursor that is open at its server, and is to be killed there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenCursor {
    /// The server that it is open at.
    pub server: ServerAddress,
    /// The database of its namespace.
    pub database: Arc<str>,
    /// The collection of its namespace.
    pub collection: Arc<str>,
    /// Its number.
    pub id: i64,
    /// The name of the application's session that it was opened in, which the command names;
    /// `None` if it has none, or one of its own.
    pub session: Option<RawDocumentBuf>,
    /// `timeoutMS` of the operation that has opened it, if that is not the client's.
    pub timeout: Option<Duration>,
}

impl OpenCursor {
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

/// The command that kills cursors at their server.
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

impl KillCursors {
    /// Writes the command that kills one cursor.
    pub fn of(cursor: &OpenCursor) -> Self {
        let OpenCursor { database, collection, id, session, timeout, .. } = cursor;
        Self::new(database, (collection, [*id]), session.as_deref(), *timeout)
    }

    /// Writes the command that kills these cursors of a collection, in the session of this name.
    pub fn new(
        database: &Arc<str>,
        (collection, ids): (&str, impl IntoIterator<Item = i64>),
        session: Option<&RawDocument>,
        timeout: Option<Duration>,
    ) -> Self {
        let mut body = RawDocumentBuf::new();
        body.append(cstr!("killCursors"), collection);
        body.append(cstr!("cursors"), RawArrayBuf::from_iter(ids));
        if let Some(session) = session {
            body.append(cstr!("lsid"), session);
        }
        Self { database: Arc::clone(database), body, has_session: session.is_some(), timeout }
    }
}

/// The cursors that are to be killed, by server: the task of a server takes one command after the
/// other until there is none.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::operation::{OpenCursor, CursorsToKill};
///
/// let mut cursors = CursorsToKill::default();
/// let of = |id| OpenCursor::new("a:1".parse().unwrap(), ("app".into(), "things".into()), id);
/// assert!(cursors.push(of(7)), "that server has no task yet");
/// assert!(!cursors.push(of(8)));
/// let command = cursors.next_command(&"a:1".parse()?).unwrap();
/// assert_eq!(command.body, rawdoc! { "killCursors": "things", "cursors": [7_i64, 8_i64] });
/// assert!(cursors.next_command(&"a:1".parse()?).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct CursorsToKill {
    lanes: BTreeMap<ServerAddress, Lane>,
    count: usize,
}

/// The cursors of one server, while it has a task.
#[derive(Debug, Default)]
struct Lane {
    batches: BTreeMap<Arc<Likeness>, Vec<i64>>,
    /// The batches in the order in which they are killed.
    order: VecDeque<Arc<Likeness>>,
}

/// The facts that cursors killed by one command have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    database: Arc<str>,
    collection: Arc<str>,
    /// The bytes of the session's name.
    session: Option<Vec<u8>>,
    timeout: Option<Duration>,
}

impl CursorsToKill {
    /// Adds a cursor; returns whether a task is to begin for its server, which has none.
    #[must_use = "a task has to begin"]
    pub fn push(&mut self, cursor: OpenCursor) -> bool {
        if self.count == MAX_CURSORS_TO_KILL {
            return false;
        }
        self.count += 1;
        let OpenCursor { server, database, collection, id, session, timeout } = cursor;
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

    /// Returns the next command for a server; `None` if there is none, with which the task of that
    /// server ends.
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

    /// Leaves the cursors of a server to it, whose task has ended before its time.
    pub fn leave(&mut self, server: &ServerAddress) {
        if let Some(lane) = self.lanes.remove(server) {
            self.count -= lane.batches.values().map(Vec::len).sum::<usize>();
        }
    }

    /// Returns the servers that have a task now.
    pub fn servers(&self) -> impl Iterator<Item = &ServerAddress> {
        self.lanes.keys()
    }
}

impl Lane {
    /// Returns the next command, and how many cursors it kills.
    fn next_command(&mut self) -> Option<(KillCursors, usize)> {
        let likeness = self.order.pop_front()?;
        let ids = self.batches.get_mut(&likeness)?;
        let count = ids.len().min(MAX_KILLED_CURSORS);
        let session = likeness.session.as_deref().map(RawDocument::from_bytes);
        let session = session.and_then(Result::ok);
        let killed = (&*likeness.collection, ids.drain(..count));
        let command = KillCursors::new(&likeness.database, killed, session, likeness.timeout);
        match ids.is_empty() {
            true => drop(self.batches.remove(&likeness)),
            false => self.order.push_back(Arc::clone(&likeness)),
        }
        Some((command, count))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::rawdoc;

    use super::{CursorsToKill, MAX_CURSORS_TO_KILL, MAX_KILLED_CURSORS, OpenCursor};
    use crate::config::ServerAddress;

    fn server(name: &str) -> ServerAddress {
        name.parse().unwrap()
    }

    fn cursor(of: &str, collection: &str, id: i64) -> OpenCursor {
        OpenCursor::new(server(of), ("app".into(), collection.into()), id)
    }

    /// The commands that kill all cursors of a server: collections and numbers.
    fn commands(cursors: &mut CursorsToKill, of: &str) -> Vec<(String, Vec<i64>)> {
        let commands = std::iter::from_fn(|| cursors.next_command(&server(of)));
        let told = commands.map(|command| {
            let ids = command.body.get_array("cursors").unwrap().into_iter();
            let ids = ids.map(|id| id.unwrap().as_i64().unwrap()).collect();
            (command.body.get_str("killCursors").unwrap().to_owned(), ids)
        });
        told.collect()
    }

    #[test]
    fn cursors_of_a_collection_are_killed_together_and_servers_apart() {
        let mut cursors = CursorsToKill::default();
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
        assert!(cursors.push(cursor("a:1", "x", 5)), "its task has ended");
    }

    /// Driver Sessions, "When sending a killCursors command": the name may be left out, and that of
    /// an application's session is not.
    #[test]
    fn cursors_in_different_sessions_or_with_different_times_are_killed_one_by_one() {
        let mut cursors = CursorsToKill::default();
        let session = rawdoc! { "id": 7 };
        let second = Some(Duration::from_secs(1));
        let _ = cursors.push(cursor("a:1", "x", 1));
        let _ = cursors.push(cursor("a:1", "x", 2).with_session(Some(&session)));
        let _ = cursors.push(cursor("a:1", "x", 3).with_timeout(second));
        let next = |cursors: &mut CursorsToKill| cursors.next_command(&server("a:1")).unwrap();
        let first = next(&mut cursors);
        assert!(!first.has_session && first.body.get("lsid").unwrap().is_none());
        let in_session = next(&mut cursors);
        assert!(in_session.has_session);
        assert_eq!(in_session.body.get_document("lsid").unwrap(), &*session);
        assert_eq!(next(&mut cursors).timeout, second);
    }

    #[test]
    fn a_command_kills_a_thousand_and_collections_take_turns() {
        let mut cursors = CursorsToKill::default();
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
        let mut cursors = CursorsToKill::default();
        let most = i64::try_from(MAX_CURSORS_TO_KILL).unwrap();
        for id in 0..most {
            let _ = cursors.push(cursor("a:1", "x", id));
        }
        assert!(!cursors.push(cursor("b:1", "x", 1)), "it is left to its server");
        assert_eq!(cursors.servers().count(), 1);
        cursors.leave(&server("a:1"));
        cursors.leave(&server("a:1"));
        assert_eq!(cursors.count, 0);
        assert!(cursors.push(cursor("b:1", "x", 1)));
    }
}
