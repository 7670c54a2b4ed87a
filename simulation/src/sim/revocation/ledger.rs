//! What responders and staples have said, what connections have done about it, and whether that is
//! right.

use std::collections::VecDeque;
use std::time::Duration;

use sdam_core::revocation::Status;

use super::wall;
use crate::sim::checks::{Finding, Violation, ensure};
use crate::sim::run::Statistics;

/// The time for which a response counts that does not say when there will be a newer one.
const WITHOUT_NEXT_UPDATE: u64 = 10;

/// The time, in seconds, for which a certificate is not asked about after no responder has answered.
const PAUSE: u64 = 60;

/// The time after which responders that have not answered count as silent.
const ENOUGH: Duration = Duration::from_secs(1);

/// The number of lines that are kept.
const LINES: usize = 60;

/// The end of a connection's check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The connection goes on.
    Goes,
    /// The certificate was revoked.
    Refused,
}

/// The facts about one certificate.
#[derive(Clone, Debug, Default)]
struct Certificate {
    /// The status that is known, and the second from which it is not any more.
    known: Option<(Status, u64)>,
    /// The connection that asks.
    asking: Option<usize>,
    /// When the last inquiry without any answer has ended, in seconds.
    silent_since: Option<u64>,
    /// When the last inquiry has ended that has decided nothing.
    undecided_at: Option<Duration>,
}

impl Certificate {
    fn in_force(&self, now: Duration) -> Option<&Status> {
        let (status, until) = self.known.as_ref()?;
        (wall(now).as_secs() < *until).then_some(status)
    }

    fn is_revoked(&self, now: Duration) -> bool {
        matches!(self.in_force(now), Some(Status::Revoked { .. }))
    }

    fn is_paused(&self, now: Duration) -> bool {
        self.silent_since.is_some_and(|since| wall(now).as_secs() - since < PAUSE)
    }
}

/// The facts about one connection.
#[derive(Clone, Debug)]
struct Connection {
    certificate: usize,
    deadline: Duration,
    limit: Duration,
    asked: usize,
    answered: usize,
    heard_unknown: bool,
    has_decided: bool,
    over: bool,
}

/// All that has happened.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    certificates: Vec<Certificate>,
    connections: Vec<Connection>,
    violation: Option<Violation>,
    lines: VecDeque<String>,
    requests: u64,
    decided: u64,
    ended: u64,
    pub(super) digest: u64,
}

impl Ledger {
    pub(super) fn new(certificates: usize) -> Self {
        Self { certificates: vec![Certificate::default(); certificates], ..Self::default() }
    }

    pub(super) fn finding(&self) -> Finding {
        self.violation.clone().map_or(Ok(()), Err)
    }

    pub(super) fn trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines).into()
    }

    pub(super) const fn count(&self, statistics: &mut Statistics) {
        statistics.begun = self.connections.len() as u64;
        statistics.operations = self.ended;
        statistics.documents = self.decided;
        statistics.verdicts = self.requests;
    }

    fn check(&mut self, holds: bool, check: &'static str, detail: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = ensure(holds, check, detail).err();
        }
    }

    fn note(&mut self, now: Duration, line: &str) {
        for byte in line.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.digest =
            self.digest.rotate_left(7) ^ u64::try_from(now.as_nanos()).unwrap_or_default();
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:.6} s: {line}", now.as_secs_f64()));
    }

    /// A connection begins; connections begin in the order of their numbers.
    pub(super) fn begin(&mut self, id: usize, certificate: usize, limit: Duration, now: Duration) {
        self.note(now, &format!("{id} begins, with certificate {certificate} and {limit:?}"));
        let (deadline, over) = (now + limit, false);
        self.connections.push(Connection {
            certificate,
            deadline,
            limit,
            asked: 0,
            answered: 0,
            heard_unknown: false,
            has_decided: false,
            over,
        });
    }

    /// A staple says something of a certificate.
    pub(super) fn stapled(
        &mut self,
        certificate: usize,
        status: &Status,
        until: u64,
        now: Duration,
    ) {
        self.note(now, &format!("a staple says that {certificate} is {status} until {until}"));
        self.learn(certificate, status, until, now);
    }

    fn learn(&mut self, certificate: usize, status: &Status, until: u64, now: Duration) {
        let of = &mut self.certificates[certificate];
        let is_revocation = matches!(status, Status::Revoked { .. });
        let is_fresher = match (of.in_force(now), &of.known) {
            (Some(Status::Revoked { .. }), Some((_, known))) => is_revocation && *known < until,
            (Some(_), Some((_, known))) => is_revocation || *known < until,
            _ => true,
        };
        if is_fresher {
            of.known = Some((status.clone(), until));
            self.decided += 1;
        }
    }

    /// A connection asks a responder.
    pub(super) fn asked(&mut self, id: usize, responder: usize, now: Duration) {
        self.note(now, &format!("{id} asks responder {responder}"));
        self.requests += 1;
        let certificate = self.connections[id].certificate;
        let of = self.certificates[certificate].clone();
        let is_first = self.connections[id].asked == 0;
        self.connections[id].asked += 1;
        self.check(of.in_force(now).is_none(), "what is known is not asked", || {
            format!("{id} asks about {certificate}, of which is known {:?}", of.known)
        });
        let is_alone = of.asking.is_none_or(|other| other == id && !is_first);
        self.check(is_alone, "one at a time asks about a certificate", || {
            format!("{id} asks about {certificate} while {:?} does", of.asking)
        });
        self.check(
            !of.is_paused(now),
            "a responder that is silent is left alone for a minute",
            || format!("{id} asks about {certificate}, silent since {:?}", of.silent_since),
        );
        self.certificates[certificate].asking = Some(id);
    }

    /// A responder has answered a connection, which may believe what it says until a second.
    pub(super) fn answered(
        &mut self,
        id: usize,
        responder: usize,
        says: Option<(Status, u64)>,
        now: Duration,
    ) {
        self.note(now, &format!("responder {responder} answers {id}: {says:?}"));
        let certificate = self.connections[id].certificate;
        self.connections[id].answered += 1;
        match says {
            None => {}
            Some((Status::Unknown, _)) => self.connections[id].heard_unknown = true,
            // Once one has decided, the others are not heard any more.
            Some(_) if self.connections[id].has_decided => {}
            Some((status, until)) => {
                self.connections[id].has_decided = true;
                let soon = wall(now).as_secs() + WITHOUT_NEXT_UPDATE;
                let until = if until == u64::MAX { soon } else { until };
                self.learn(certificate, &status, until, now);
            }
        }
    }

    /// A connection has ended its check.
    pub(super) fn end(&mut self, id: usize, ended: Ended, now: Duration) {
        self.note(now, &format!("{id} ends: {ended:?}"));
        let connection = self.connections[id].clone();
        let of = self.certificates[connection.certificate].clone();
        let is_known = of.in_force(now).is_some();
        let is_late = now >= connection.deadline;
        self.ended += 1;
        self.connections[id].over = true;
        self.check(now <= connection.deadline, "no check takes longer than it may", || {
            format!("{id} ends after {:?}", connection.deadline)
        });
        let is_right = (ended == Ended::Refused) == of.is_revoked(now);
        self.check(is_right, "the verdict is what is known", || {
            format!("{id} ends {ended:?}, and known is {:?}", of.known)
        });
        if of.asking == Some(id) {
            let is_silent = connection.asked == connection.answered;
            self.check(is_known || is_silent || is_late, "all responders are heard", || {
                format!("{id} goes on while {connection:?}")
            });
            self.inquiry_ended(id, is_silent, is_late, now);
        } else {
            let is_undecided = of.undecided_at == Some(now) || of.is_paused(now);
            self.check(is_known || is_undecided || is_late, "none goes on without asking", || {
                format!("{id} goes on, of which is known {of:?}")
            });
        }
    }

    fn inquiry_ended(&mut self, id: usize, is_silent: bool, is_late: bool, now: Duration) {
        let connection = &self.connections[id];
        let of = &mut self.certificates[connection.certificate];
        of.asking = None;
        if of.in_force(now).is_some() {
            of.silent_since = None;
            return;
        }
        let is_unanswered = match is_silent {
            true => !connection.heard_unknown,
            // One with less time leaves it to others to ask.
            false => is_late && connection.limit >= ENOUGH,
        };
        if is_unanswered {
            of.silent_since = Some(wall(now).as_secs());
        } else if is_silent {
            of.silent_since = None;
        }
        if is_silent || is_unanswered {
            of.undecided_at = Some(now);
        }
    }

    /// A connection was given up.
    pub(super) fn given_up(&mut self, id: usize, now: Duration) {
        self.note(now, &format!("{id} is given up"));
        let certificate = self.connections[id].certificate;
        let of = &mut self.certificates[certificate];
        of.asking = of.asking.filter(|asking| *asking != id);
        self.connections[id].over = true;
    }

    /// Nothing is ready any more.
    pub(super) fn settled(&mut self, now: Duration) {
        for id in 0..self.connections.len() {
            let connection = &self.connections[id];
            if connection.over {
                continue;
            }
            let (certificate, deadline) = (connection.certificate, connection.deadline);
            let asking = self.certificates[certificate].asking;
            self.check(asking.is_some(), "none waits for what none asks", || {
                format!("{id} waits, and nothing asks about {certificate}")
            });
            self.check(now < deadline, "no check takes longer than it may", || {
                format!("{id} waits after {deadline:?}")
            });
        }
    }

    /// All is over.
    pub(super) fn finish(&mut self) -> Finding {
        let left = self.connections.iter().position(|it| !it.over);
        self.check(left.is_none(), "every check ends", || format!("{left:?} does not"));
        self.finding()
    }
}
