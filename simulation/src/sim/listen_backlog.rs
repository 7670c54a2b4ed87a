//! The listen backlog of a member: how many new connections and logins it takes, and what became of
//! those that came.
//!
//! The operating system of a member accepts connections and keeps them for the member, as many as
//! its listen backlog has room for; the packet of another one is lost, and sent again, as TCP does.
//! The member accepts them one after the other, the oldest first, also those whose clients have
//! given up meanwhile. Each login costs it time, too.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sdam_cluster::MemberId;
use sdam_core::time::Instant;

use super::network::StreamId;

/// The pause of a client's system before it sends the first packet of a connection again, which is
/// twice as long each time, and how often that is.
const RETRANSMISSION: Duration = Duration::from_secs(1);
const MAX_DOUBLINGS: u32 = 6;

/// The first field of a command's body in OP_MSG, behind the header, the flags, the kind of the
/// section, the length of the body and the type of that field.
const COMMAND_NAME: usize = 16 + 4 + 1 + 4 + 1;

/// The new connections that each member can bear.
///
/// ```
/// use sdam_simulation::sim::ListenBacklog;
/// use sdam_simulation::virtual_time::Simulation;
///
/// let mut simulation = Simulation::new(7);
/// simulation.set_listen_backlog(Some(ListenBacklog::new(100, 50).with_backlog(128)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenBacklog {
    /// The number of connections that a member accepts in a second; at least one is.
    pub accepts_per_second: u32,
    /// The number of logins that it goes on with in a second, after hello; at least one is.
    pub logins_per_second: u32,
    /// The number of connections that wait to be accepted: those that come beyond are lost, and
    /// wanted again by their systems after 1 s, 3 s, 7 s and so on.
    pub backlog: usize,
    /// The number of logins that wait.
    pub waiting_logins: usize,
    /// The consequence while so many wait.
    pub when_full: WhenFull,
}

/// The conduct of a member while as many logins wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// New connections are refused.
    RefuseConnections,
    /// Connections are accepted, and closed when they go on with a login.
    CloseLogins,
}

impl ListenBacklog {
    /// Describes a member that accepts so many connections and logs in so many in a second, of
    /// which any number can wait.
    pub const fn new(accepts_per_second: u32, logins_per_second: u32) -> Self {
        let (backlog, waiting_logins) = (usize::MAX, usize::MAX);
        let when_full = WhenFull::CloseLogins;
        Self { accepts_per_second, logins_per_second, backlog, waiting_logins, when_full }
    }

    /// Replaces [`backlog`](Self::backlog).
    #[must_use]
    pub const fn with_backlog(mut self, backlog: usize) -> Self {
        self.backlog = backlog;
        self
    }

    /// Replaces [`waiting_logins`](Self::waiting_logins) and [`when_full`](Self::when_full).
    #[must_use]
    pub const fn with_waiting_logins(mut self, waiting_logins: usize, when_full: WhenFull) -> Self {
        (self.waiting_logins, self.when_full) = (waiting_logins, when_full);
        self
    }
}

/// Counts of the connections that clients wanted, and of what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrivals {
    /// The connections that monitors wanted.
    pub of_monitors: u64,
    /// The connections that pools wanted.
    pub of_pools: u64,
    /// Those that were refused, because the member was down, or too many logins waited.
    pub refused: u64,
    /// The packets that were lost, because the listen queue was full.
    pub lost: u64,
    /// The connections that were accepted.
    pub accepted: u64,
    /// Those that were accepted after their clients had given up.
    pub abandoned: u64,
    /// The logins that the member went on with, after hello.
    pub logins: u64,
    /// Those whose connections were closed, because too many waited.
    pub refused_logins: u64,
    /// The connections that members closed otherwise: by their own limit of connections, or because
    /// they went down.
    pub closed: u64,
    /// The connections that were wanted in each second, counted from the beginning of time.
    pub each_second: BTreeMap<u64, u64>,
}

impl Arrivals {
    /// A client wants a connection.
    pub(super) fn wanted(&mut self, now: Instant, by_monitor: bool) {
        match by_monitor {
            true => self.of_monitors += 1,
            false => self.of_pools += 1,
        }
        *self.each_second.entry(now.since_origin().as_secs()).or_default() += 1;
    }

    /// Returns how many connections were wanted.
    pub const fn attempts(&self) -> u64 {
        self.of_monitors + self.of_pools
    }

    /// Returns how many were wanted in the second in which most were.
    pub fn peak(&self) -> u64 {
        self.each_second.values().copied().max().unwrap_or_default()
    }
}

/// The fate of a connection that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// There is room in the listen queue.
    Queued,
    /// The member wants no connection now.
    Refused,
    /// The packet is lost, and comes again after this time.
    Lost(Duration),
}

/// The fate of bytes that a client has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The member reads them.
    Now(Vec<u8>),
    /// They wait with their connection.
    Kept,
    /// They go on with a login, which waits; the next one is due then, if none was.
    LogsIn(Option<Instant>),
    /// They go on with one login too many.
    Refused,
}

/// The backlogs of all members, and who waits there.
#[derive(Debug)]
pub(super) struct ListenBacklogs {
    limits: ListenBacklog,
    members: Vec<Waiting>,
    /// The bytes of those that wait to be accepted; `None` if they have given up.
    said: BTreeMap<StreamId, Option<Vec<u8>>>,
    /// The number of times that the first packet of a connection was lost.
    lost: BTreeMap<StreamId, u32>,
}

/// The connections that wait for one member.
#[derive(Debug, Default)]
struct Waiting {
    to_be_accepted: VecDeque<StreamId>,
    accepts_at: Option<Instant>,
    logins: VecDeque<(StreamId, Vec<u8>)>,
    logs_in_at: Option<Instant>,
}

impl ListenBacklogs {
    pub(super) fn new(limits: ListenBacklog, members: usize) -> Self {
        let members = (0..members).map(|_| Waiting::default()).collect();
        Self { limits, members, said: BTreeMap::new(), lost: BTreeMap::new() }
    }

    /// Returns the connections that wait, for whatever.
    pub(super) fn into_waiting(self) -> Vec<StreamId> {
        let logins = self.members.into_iter().flat_map(|it| it.logins);
        self.said.into_keys().chain(logins.map(|(stream, _)| stream)).collect()
    }

    /// A connection is wanted.
    pub(super) fn admit(&mut self, stream: StreamId, member: MemberId) -> Admission {
        let Waiting { to_be_accepted, logins, .. } = &self.members[member.0];
        let is_full = logins.len() >= self.limits.waiting_logins;
        if is_full && self.limits.when_full == WhenFull::RefuseConnections {
            self.lost.remove(&stream);
            return Admission::Refused;
        }
        if to_be_accepted.len() < self.limits.backlog {
            self.lost.remove(&stream);
            return Admission::Queued;
        }
        let times = self.lost.entry(stream).or_default();
        let wait = RETRANSMISSION * 2_u32.pow((*times).min(MAX_DOUBLINGS));
        *times += 1;
        Admission::Lost(wait)
    }

    /// A connection begins to wait; returns when the member accepts the next one, unless it knew.
    pub(super) fn queue(
        &mut self,
        now: Instant,
        stream: StreamId,
        member: MemberId,
    ) -> Option<Instant> {
        self.said.insert(stream, Some(Vec::new()));
        let (rate, waiting) = (self.limits.accepts_per_second, &mut self.members[member.0]);
        waiting.to_be_accepted.push_back(stream);
        let is_first = waiting.to_be_accepted.len() == 1;
        waiting.accepts_at = if is_first { Some(now + every(rate)) } else { waiting.accepts_at };
        waiting.accepts_at.filter(|_| is_first)
    }

    /// The member accepts the connection that has waited longest, if that is due; returns what that
    /// has said, `None` if its client is gone, and when the next one is accepted, if there is one.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        member: MemberId,
    ) -> Option<(StreamId, Option<Vec<u8>>, Option<Instant>)> {
        let (rate, waiting) = (self.limits.accepts_per_second, &mut self.members[member.0]);
        waiting.accepts_at.take_if(|at| *at == now)?;
        let stream = waiting.to_be_accepted.pop_front()?;
        waiting.accepts_at = waiting.to_be_accepted.front().map(|_| now + every(rate));
        Some((stream, self.said.remove(&stream).flatten(), waiting.accepts_at))
    }

    /// A client has sent bytes.
    pub(super) fn received(
        &mut self,
        now: Instant,
        stream: StreamId,
        member: MemberId,
        bytes: Vec<u8>,
    ) -> Delivery {
        if let Some(said) = self.said.get_mut(&stream) {
            said.iter_mut().for_each(|said| said.extend_from_slice(&bytes));
            return Delivery::Kept;
        }
        if !goes_on_with_login(&bytes) {
            return Delivery::Now(bytes);
        }
        let waiting = &mut self.members[member.0];
        let is_full = waiting.logins.len() >= self.limits.waiting_logins;
        if is_full && self.limits.when_full == WhenFull::CloseLogins {
            return Delivery::Refused;
        }
        waiting.logins.push_back((stream, bytes));
        if waiting.logins.len() > 1 {
            return Delivery::LogsIn(None);
        }
        waiting.logs_in_at = Some(now + every(self.limits.logins_per_second));
        Delivery::LogsIn(waiting.logs_in_at)
    }

    /// The member goes on with the login that has waited longest, if that is due; returns its
    /// message, and when the next one is, if there is one.
    pub(super) fn log_in(
        &mut self,
        now: Instant,
        member: MemberId,
    ) -> Option<(StreamId, Vec<u8>, Option<Instant>)> {
        let (rate, waiting) = (self.limits.logins_per_second, &mut self.members[member.0]);
        waiting.logs_in_at.take_if(|at| *at == now)?;
        let (stream, bytes) = waiting.logins.pop_front()?;
        waiting.logs_in_at = waiting.logins.front().map(|_| now + every(rate));
        Some((stream, bytes, waiting.logs_in_at))
    }

    /// A client gives a connection up; returns whether that still waits to be accepted.
    pub(super) fn leave(&mut self, stream: StreamId) -> bool {
        self.lost.remove(&stream);
        self.said.get_mut(&stream).map(Option::take).is_some()
    }
}

/// Returns the time of each of so many in a second.
fn every(per_second: u32) -> Duration {
    Duration::from_secs(1) / per_second.max(1)
}

/// Returns whether a message is the step of a login behind hello, which begins it.
fn goes_on_with_login(message: &[u8]) -> bool {
    message.get(COMMAND_NAME..).is_some_and(|name| name.starts_with(b"saslContinue\0"))
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::rawdoc;
    use sdam_core::wire::{Flags, write_op_msg};

    use super::*;

    const MEMBER: MemberId = MemberId(0);

    fn message(command: &sdam_core::bson::RawDocument) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_op_msg(&mut bytes, 1, 0, Flags::NONE, command);
        bytes
    }

    const NOW: Instant = Instant::from_millis(1000);

    #[test]
    fn a_full_listen_queue_loses_packets_and_the_oldest_connection_is_accepted_first() {
        let mut backlogs = ListenBacklogs::new(ListenBacklog::new(10, 1).with_backlog(2), 1);
        let (first, second) = (Instant::from_millis(1100), Instant::from_millis(1200));
        let [a, b, c] = [1, 2, 3].map(StreamId);
        assert_eq!(backlogs.admit(a, MEMBER), Admission::Queued);
        assert_eq!(backlogs.queue(NOW, a, MEMBER), Some(first));
        assert_eq!(backlogs.admit(b, MEMBER), Admission::Queued);
        assert_eq!(backlogs.queue(NOW, b, MEMBER), None, "it is known when one is accepted");
        for seconds in [1, 2, 4] {
            assert_eq!(backlogs.admit(c, MEMBER), Admission::Lost(Duration::from_secs(seconds)));
        }
        assert_eq!(backlogs.received(NOW, a, MEMBER, vec![7]), Delivery::Kept);
        assert!(backlogs.leave(b), "it gives up while it waits");
        assert_eq!(backlogs.accept(NOW, MEMBER), None, "none is due");
        assert_eq!(backlogs.accept(first, MEMBER), Some((a, Some(vec![7]), Some(second))));
        assert_eq!(backlogs.admit(c, MEMBER), Admission::Queued);
        assert_eq!(backlogs.accept(second, MEMBER), Some((b, None, None)));
        assert_eq!(backlogs.accept(second, MEMBER), None);
        assert!(!backlogs.leave(a), "it was accepted");
    }

    #[test]
    fn steps_of_logins_wait_and_all_else_does_not() {
        let limits = ListenBacklog::new(1, 4).with_waiting_logins(1, WhenFull::CloseLogins);
        let mut backlogs = ListenBacklogs::new(limits, 1);
        let (hello, step) =
            (message(&rawdoc! { "hello": 1 }), message(&rawdoc! { "saslContinue": 1 }));
        let then = Instant::from_millis(1250);
        let answer = backlogs.received(NOW, StreamId(1), MEMBER, hello.clone());
        assert_eq!(answer, Delivery::Now(hello));
        let waits = backlogs.received(NOW, StreamId(1), MEMBER, step.clone());
        assert_eq!(waits, Delivery::LogsIn(Some(then)));
        assert_eq!(backlogs.received(NOW, StreamId(2), MEMBER, step.clone()), Delivery::Refused);
        assert_eq!(backlogs.log_in(NOW, MEMBER), None, "none is due");
        assert_eq!(backlogs.log_in(then, MEMBER), Some((StreamId(1), step.clone(), None)));
        assert_eq!(backlogs.log_in(then, MEMBER), None);
        let waits = backlogs.received(then, StreamId(2), MEMBER, step);
        assert_eq!(waits, Delivery::LogsIn(Some(Instant::from_millis(1500))));
    }

    #[test]
    fn while_logins_wait_connections_can_be_refused_in_place_of_logins() {
        let limits = ListenBacklog::new(1, 1).with_waiting_logins(1, WhenFull::RefuseConnections);
        let mut backlogs = ListenBacklogs::new(limits, 1);
        let step = message(&rawdoc! { "saslContinue": 1 });
        assert_eq!(backlogs.admit(StreamId(1), MEMBER), Admission::Queued);
        let waits = backlogs.received(NOW, StreamId(1), MEMBER, step.clone());
        assert_eq!(waits, Delivery::LogsIn(Some(Instant::from_millis(2000))));
        assert_eq!(backlogs.admit(StreamId(3), MEMBER), Admission::Refused);
        let waits = backlogs.received(NOW, StreamId(2), MEMBER, step);
        assert_eq!(waits, Delivery::LogsIn(None), "it is inside");
        assert!(backlogs.log_in(Instant::from_millis(2000), MEMBER).is_some());
        assert!(backlogs.log_in(Instant::from_millis(3000), MEMBER).is_some());
        assert_eq!(backlogs.admit(StreamId(3), MEMBER), Admission::Queued);
    }
}
