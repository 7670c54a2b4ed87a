//! The sessions of servers, and the pool that they are kept in between two uses.
//!
//! Implements Driver Sessions, "Server Session Pool".

use std::collections::VecDeque;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};

use crate::rng::Rng;
use crate::time::Instant;

/// The number of sessions that one `endSessions` ends ("it SHOULD be run multiple times to end
/// 10,000 sessions at a time").
const END_SESSIONS_BATCH: usize = 10_000;

/// The time that must be left to a session for it to be used.
const MARGIN: Duration = Duration::from_secs(60);

/// The name of a server's session: `{ id: <UUID> }`, which commands carry as `lsid`.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionId(RawDocumentBuf);

impl SessionId {
    /// Makes a UUID of version 4 of random bits (RFC 4122, section 4.4).
    fn new(bits: [u64; 2]) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&bits[0].to_be_bytes());
        bytes[8..].copy_from_slice(&bits[1].to_be_bytes());
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(rawdoc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: bytes.to_vec() } })
    }

    /// Returns the document.
    pub fn document(&self) -> &RawDocument {
        &self.0
    }
}

/// A session of the servers, used by one operation at a time.
#[derive(Debug)]
pub struct ServerSession {
    id: SessionId,
    last_use: Instant,
    transaction_number: i64,
    dirty: bool,
    /// True if it is kept from other operations for what servers know of it.
    retired: bool,
}

impl ServerSession {
    /// Returns the session's name.
    pub const fn id(&self) -> &SessionId {
        &self.id
    }

    /// Takes note that the session's name is sent to a server.
    pub const fn used(&mut self, now: Instant) {
        self.last_use = now;
    }

    /// Returns a transaction number that the session has never used: from 1 on.
    pub const fn next_transaction_number(&mut self) -> i64 {
        self.transaction_number += 1;
        self.transaction_number
    }

    /// Returns whether a network error came upon a command with this session.
    pub const fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Has the session not be used again once it is given back, nor ended: servers are to be asked
    /// later what became of its transaction.
    pub const fn retire(&mut self) {
        self.retired = true;
    }

    /// Makes the session of this name, for that question.
    pub(super) const fn retired(id: RawDocumentBuf, transaction_number: i64) -> Self {
        let (dirty, retired) = (false, true);
        Self { id: SessionId(id), last_use: Instant::ZERO, transaction_number, dirty, retired }
    }

    /// Marks the session dirty, for the rest of its life: it is not used again once it is given
    /// back.
    pub const fn mark_dirty(&mut self) {
        self.dirty = true;
    }
}

/// The time after which servers forget a session that is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionTimeout {
    /// After this time: `logicalSessionTimeoutMinutes` of the topology.
    After(Duration),
    /// It is not known, or does not count: behind a load balancer, sessions are used whatever
    /// their age (Load Balancer Support, "Session Expiration").
    Never,
}

impl SessionTimeout {
    /// Takes over `logicalSessionTimeoutMinutes`.
    pub fn of_minutes(minutes: Option<i64>) -> Self {
        let minutes = minutes.map(|minutes| u64::try_from(minutes).unwrap_or(0));
        minutes.map_or(Self::Never, |minutes| {
            Self::After(Duration::from_secs(minutes.saturating_mul(60)))
        })
    }

    /// Returns whether a session has less than one minute left.
    fn is_near(self, now: Instant, session: &ServerSession) -> bool {
        match self {
            Self::After(timeout) => session.last_use + timeout < now + MARGIN,
            Self::Never => false,
        }
    }
}

/// The server sessions of a client that are not in use: the last one given back is the first one
/// taken.
///
/// ```
/// use sdam_core::session::{SessionPool, SessionTimeout};
/// use sdam_core::time::Instant;
///
/// let (mut pool, timeout) = (SessionPool::new([1, 2]), SessionTimeout::of_minutes(Some(30)));
/// let session = pool.take(Instant::ZERO, timeout);
/// let id = session.id().clone();
/// pool.give_back(Instant::ZERO, timeout, session);
/// assert_eq!(pool.take(Instant::ZERO, timeout).id(), &id);
/// ```
#[derive(Debug)]
pub struct SessionPool {
    random: [Rng; 2],
    /// The one that was used last comes first.
    free: VecDeque<ServerSession>,
}

impl SessionPool {
    /// Creates an empty pool, whose sessions are named by streams that these seeds begin: together
    /// they must never be used by another client.
    pub fn new(seeds: [u64; 2]) -> Self {
        Self { random: seeds.map(Rng::new), free: VecDeque::new() }
    }

    /// Takes the session that was used last, or a new one; those with less than one minute left
    /// are discarded.
    pub fn take(&mut self, now: Instant, timeout: SessionTimeout) -> ServerSession {
        while let Some(session) = self.free.pop_front() {
            if !timeout.is_near(now, &session) {
                return session;
            }
        }
        let id = SessionId::new(self.random.each_mut().map(Rng::next_u64));
        let (dirty, retired) = (false, false);
        ServerSession { id, last_use: now, transaction_number: 0, dirty, retired }
    }

    /// Takes a session back, unless it is dirty, retired or has less than one minute left; those at
    /// the other end that have less than that are discarded, too.
    pub fn give_back(&mut self, now: Instant, timeout: SessionTimeout, session: ServerSession) {
        while self.free.back().is_some_and(|oldest| timeout.is_near(now, oldest)) {
            self.free.pop_back();
        }
        if !session.dirty && !session.retired && !timeout.is_near(now, &session) {
            self.free.push_front(session);
        }
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Empties the pool, and returns the `endSessions` commands for the servers, for the database
    /// `admin`: one for each 10,000 sessions.
    pub fn end_all(&mut self) -> Vec<RawDocumentBuf> {
        let ended: Vec<ServerSession> = std::mem::take(&mut self.free).into();
        let command = |batch: &[ServerSession]| {
            let mut ids = RawArrayBuf::new();
            batch.iter().for_each(|session| ids.push(session.id.0.clone()));
            rawdoc! { "endSessions": ids }
        };
        ended.chunks(END_SESSIONS_BATCH).map(command).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use bson::spec::BinarySubtype;

    use super::{END_SESSIONS_BATCH, ServerSession, SessionId, SessionPool, SessionTimeout};
    use crate::time::Instant;

    const HALF_AN_HOUR: SessionTimeout = SessionTimeout::After(Duration::from_secs(1800));

    fn minutes(count: u64) -> Instant {
        Instant::from_millis(count * 60_000)
    }

    fn taken(pool: &mut SessionPool, count: usize) -> Vec<ServerSession> {
        (0..count).map(|_| pool.take(Instant::ZERO, HALF_AN_HOUR)).collect()
    }

    fn ids(sessions: &[ServerSession]) -> Vec<SessionId> {
        sessions.iter().map(|session| session.id().clone()).collect()
    }

    /// "The id field of the session ID is a version 4 UUID".
    #[test]
    fn a_session_is_named_by_a_uuid_of_version_4() {
        let mut pool = SessionPool::new([1, 2]);
        let names: Vec<_> = ids(&taken(&mut pool, 1000));
        let bytes = |id: &SessionId| {
            let id = id.document().get_binary("id").unwrap();
            assert_eq!((id.subtype, id.bytes.len()), (BinarySubtype::Uuid, 16));
            id.bytes.to_vec()
        };
        for id in &names {
            let bytes = bytes(id);
            assert_eq!((bytes[6] >> 4, bytes[8] >> 6), (4, 0b10), "{bytes:?}");
        }
        assert_eq!(names.iter().map(bytes).collect::<BTreeSet<_>>().len(), 1000);
        assert_ne!(ids(&taken(&mut SessionPool::new([1, 3]), 1))[0], names[0]);
        assert_ne!(ids(&taken(&mut SessionPool::new([3, 2]), 1))[0], names[0]);
    }

    /// Prose test 1 of Driver Sessions: "the pool is LIFO".
    #[test]
    fn sess_p1_the_session_that_was_given_back_last_is_taken_first() {
        let mut pool = SessionPool::new([1, 2]);
        let sessions = taken(&mut pool, 2);
        let [a, b] = &ids(&sessions)[..] else { unreachable!() };
        sessions.into_iter().for_each(|it| pool.give_back(Instant::ZERO, HALF_AN_HOUR, it));
        assert_eq!(ids(&taken(&mut pool, 2)), [b.clone(), a.clone()]);
    }

    /// "If it has less than one minute left before becoming stale discard it", and "Algorithm to
    /// return a ServerSession instance".
    #[test]
    fn a_session_with_less_than_a_minute_left_is_discarded() {
        let (at_29, later) = (minutes(29), minutes(29) + Duration::from_nanos(1));
        for (now, is_kept) in [(at_29, true), (later, false)] {
            let mut pool = SessionPool::new([1, 2]);
            let session = pool.take(Instant::ZERO, HALF_AN_HOUR);
            let id = session.id().clone();
            pool.give_back(Instant::ZERO, HALF_AN_HOUR, session);
            assert_eq!(pool.take(now, HALF_AN_HOUR).id() == &id, is_kept, "when it is taken");
            let session = pool.take(Instant::ZERO, HALF_AN_HOUR);
            pool.give_back(now, HALF_AN_HOUR, session);
            assert_eq!(!pool.is_empty(), is_kept, "when it is given back");
        }
        let mut pool = SessionPool::new([1, 2]);
        let mut sessions = taken(&mut pool, 3);
        let mut newest = sessions.remove(0);
        sessions.into_iter().for_each(|it| pool.give_back(Instant::ZERO, HALF_AN_HOUR, it));
        newest.used(later);
        pool.give_back(later, HALF_AN_HOUR, newest);
        assert_eq!(pool.free.len(), 1, "those at the other end are gone");
    }

    /// Load Balancer Support, "Session Expiration": sessions do not expire in the client.
    #[test]
    fn sessions_without_a_time_out_are_kept_for_ever() {
        let mut pool = SessionPool::new([1, 2]);
        let session = pool.take(Instant::ZERO, SessionTimeout::Never);
        let id = session.id().clone();
        pool.give_back(minutes(1_000_000), SessionTimeout::Never, session);
        assert_eq!(pool.take(minutes(2_000_000), SessionTimeout::Never).id(), &id);
        assert_eq!(SessionTimeout::of_minutes(None), SessionTimeout::Never);
        assert_eq!(SessionTimeout::of_minutes(Some(30)), HALF_AN_HOUR);
    }

    /// "Dirty server sessions are discarded when returned to the server session pool".
    #[test]
    fn a_dirty_session_is_discarded_when_it_is_given_back() {
        let mut pool = SessionPool::new([1, 2]);
        let mut session = pool.take(Instant::ZERO, HALF_AN_HOUR);
        assert!(!session.is_dirty());
        session.mark_dirty();
        assert!(session.is_dirty());
        pool.give_back(Instant::ZERO, HALF_AN_HOUR, session);
        assert!(pool.is_empty());
    }

    /// One of which servers are to say later what became of its transaction is not ended, either.
    #[test]
    fn a_retired_session_is_discarded_when_it_is_given_back() {
        let mut pool = SessionPool::new([1, 2]);
        let mut session = pool.take(Instant::ZERO, HALF_AN_HOUR);
        session.retire();
        assert!(!session.is_dirty());
        pool.give_back(Instant::ZERO, HALF_AN_HOUR, session);
        assert!(pool.is_empty() && pool.end_all().is_empty());
    }

    /// Retryable Writes, "Generating Transaction IDs": they go on when a session is used again.
    #[test]
    fn transaction_numbers_begin_with_1_and_survive_the_pool() {
        let mut pool = SessionPool::new([1, 2]);
        let mut session = pool.take(Instant::ZERO, HALF_AN_HOUR);
        assert_eq!([session.next_transaction_number(), session.next_transaction_number()], [1, 2]);
        pool.give_back(Instant::ZERO, HALF_AN_HOUR, session);
        assert_eq!(pool.take(Instant::ZERO, HALF_AN_HOUR).next_transaction_number(), 3);
    }

    /// "end 10,000 sessions at a time".
    #[test]
    fn sessions_are_ended_in_batches() {
        for (count, batches) in [(0, vec![]), (1, vec![1]), (10_001, vec![END_SESSIONS_BATCH, 1])] {
            let mut pool = SessionPool::new([1, 2]);
            let sessions = taken(&mut pool, count);
            sessions.into_iter().for_each(|it| pool.give_back(Instant::ZERO, HALF_AN_HOUR, it));
            let ended = pool.end_all();
            let lengths = ended.iter().map(|it| it.get_array("endSessions").unwrap());
            assert_eq!(lengths.map(|ids| ids.into_iter().count()).collect::<Vec<_>>(), batches);
            assert!(pool.is_empty());
        }
    }
}
