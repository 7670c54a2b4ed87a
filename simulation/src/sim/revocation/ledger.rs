//! The statements of responders and staples, what connections have done about them, and whether
//! that is right.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sdam_core::revocation::Status;

use super::{FULL, wall};
use crate::sim::checks::{Finding, Violation, ensure};
use crate::sim::run::Statistics;

/// The time for which a response counts that does not say when there will be a newer one.
const WITHOUT_NEXT_UPDATE: u64 = 10;

/// The time, in seconds, for which a certificate is not asked about after no responder has
/// answered, and after one has that does not know it.
const PAUSE: u64 = 60;
const PAUSE_AFTER_UNKNOWN: u64 = 10;

/// The time, in seconds, after which an inquiry counts as given up.
const MAX_INQUIRY: u64 = 8;

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

/// A status, the second since when it is so, and the one from which it is not known any more.
pub(super) type Known = (Status, u64, u64);

/// The facts about one certificate.
#[derive(Clone, Debug, Default)]
struct Certificate {
    /// The status that is known.
    known: Option<Known>,
    /// The inquiry that is under way, and since which second.
    asking: Option<(u64, u64)>,
    /// The second before which none asks again.
    paused_until: u64,
    /// The end of the last inquiry that has decided nothing.
    undecided_at: Option<Duration>,
    /// The times at which inquiries were given up.
    given_up: Vec<Duration>,
}

impl Certificate {
    fn in_force(&self, now: Duration) -> Option<&Status> {
        let (status, _, until) = self.known.as_ref()?;
        (wall(now).as_secs() < *until).then_some(status)
    }

    fn is_revoked(&self, now: Duration) -> bool {
        matches!(self.in_force(now), Some(Status::Revoked { .. }))
    }

    fn is_paused(&self, now: Duration) -> bool {
        wall(now).as_secs() < self.paused_until
    }
}

/// The facts about one connection.
#[derive(Clone, Debug)]
struct Connection {
    certificate: usize,
    begun: Duration,
    deadline: Duration,
    over: bool,
}

/// The facts about one inquiry.
#[derive(Clone, Debug)]
struct Inquiry {
    certificate: usize,
    begun: Duration,
    asked: usize,
    answered: usize,
    heard_unknown: bool,
    has_decided: bool,
}

/// All that has happened.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    certificates: Vec<Certificate>,
    connections: Vec<Connection>,
    /// By certificate and number.
    inquiries: BTreeMap<(usize, u64), Inquiry>,
    violation: Option<Violation>,
    lines: VecDeque<String>,
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

    pub(super) fn count(&self, statistics: &mut Statistics) {
        statistics.begun = self.connections.len() as u64;
        statistics.operations = self.ended;
        statistics.documents = self.decided;
        statistics.verdicts = self.inquiries.len() as u64;
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
        let nanos = u64::try_from(now.as_nanos()).unwrap_or_default();
        self.digest = self.digest.rotate_left(7) ^ nanos;
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:.6} s: {line}", now.as_secs_f64()));
    }

    /// A connection begins; connections begin in the order of their numbers.
    pub(super) fn begin(&mut self, id: usize, certificate: usize, limit: Duration, now: Duration) {
        self.note(now, &format!("{id} begins, with certificate {certificate} and {limit:?}"));
        let (begun, deadline) = (now, now + limit);
        self.connections.push(Connection { certificate, begun, deadline, over: false });
    }

    /// A staple says something of a certificate.
    pub(super) fn stapled(&mut self, certificate: usize, says: Known, now: Duration) {
        self.note(now, &format!("a staple says of {certificate}: {says:?}"));
        self.learn(certificate, says, now);
    }

    fn learn(&mut self, certificate: usize, says: Known, now: Duration) {
        let of = &mut self.certificates[certificate];
        let is_better = match (of.in_force(now), &of.known, &says) {
            (Some(Status::Good), _, (Status::Revoked { .. }, ..)) => true,
            (Some(Status::Revoked { .. }), Some((_, known, _)), (Status::Good, since, _)) => {
                known < since
            }
            (Some(_), Some((.., known)), (.., until)) => known < until,
            _ => true,
        };
        if is_better {
            of.known = Some(says);
            self.decided += 1;
        }
    }

    /// An inquiry begins.
    pub(super) fn inquires(&mut self, certificate: usize, number: u64, now: Duration) {
        self.note(now, &format!("inquiry {number} about {certificate} begins"));
        let (of, second) = (self.certificates[certificate].clone(), wall(now).as_secs());
        self.check(of.in_force(now).is_none(), "what is known is not asked", || {
            format!("{number} asks about {certificate}, of which is known {:?}", of.known)
        });
        let is_alone = of.asking.is_none_or(|(_, since)| second - since >= MAX_INQUIRY);
        self.check(is_alone, "one at a time asks about a certificate", || {
            format!("{number} asks about {certificate} while {:?} does", of.asking)
        });
        self.check(
            !of.is_paused(now),
            "a responder that is silent is left alone for a while",
            || format!("{number} asks about {certificate}, not before {}", of.paused_until),
        );
        self.certificates[certificate].asking = Some((number, second));
        let (asked, answered) = (0, 0);
        let (heard_unknown, has_decided) = (false, false);
        let inquiry =
            Inquiry { certificate, begun: now, asked, answered, heard_unknown, has_decided };
        self.inquiries.insert((certificate, number), inquiry);
    }

    fn inquiry(&mut self, certificate: usize, number: u64) -> &mut Inquiry {
        self.inquiries.get_mut(&(certificate, number)).expect("it has begun")
    }

    /// An inquiry asks a responder.
    pub(super) fn asked(
        &mut self,
        certificate: usize,
        number: u64,
        responder: usize,
        now: Duration,
    ) {
        self.note(now, &format!("{number} asks responder {responder} about {certificate}"));
        self.inquiry(certificate, number).asked += 1;
    }

    /// A responder has answered an inquiry, which may believe what it says until a second.
    pub(super) fn answered(
        &mut self,
        certificate: usize,
        number: u64,
        says: Option<Known>,
        now: Duration,
    ) {
        self.note(now, &format!("{number} is answered about {certificate}: {says:?}"));
        let inquiry = self.inquiry(certificate, number);
        inquiry.answered += 1;
        match says {
            None => {}
            Some((Status::Unknown, ..)) => inquiry.heard_unknown = true,
            // Once one has decided, the others are not heard any more.
            Some(_) if inquiry.has_decided => {}
            Some((status, since, until)) => {
                inquiry.has_decided = true;
                let soon = wall(now).as_secs() + WITHOUT_NEXT_UPDATE;
                let until = if until == u64::MAX { soon } else { until };
                self.learn(certificate, (status, since, until), now);
            }
        }
    }

    /// An inquiry has ended by itself.
    pub(super) fn concludes(&mut self, certificate: usize, number: u64, now: Duration) {
        self.note(now, &format!("inquiry {number} about {certificate} ends"));
        let inquiry = self.inquiry(certificate, number).clone();
        let is_silent = inquiry.asked == inquiry.answered;
        let is_late = now >= inquiry.begun + FULL;
        let is_heard = inquiry.has_decided || is_silent || is_late;
        self.check(is_heard, "all responders are heard", || format!("{number}: {inquiry:?}"));
        let of = &mut self.certificates[inquiry.certificate];
        let is_current = of.asking.is_some_and(|(current, _)| current == number);
        of.asking = of.asking.filter(|_| !is_current);
        if inquiry.has_decided {
            of.paused_until = 0;
        } else if is_current {
            let knows_not = is_silent && inquiry.heard_unknown;
            let pause = if knows_not { PAUSE_AFTER_UNKNOWN } else { PAUSE };
            of.paused_until = wall(now).as_secs() + pause;
            of.undecided_at = Some(now);
        }
    }

    /// An inquiry has ended before its end, with what makes it.
    pub(super) fn abandoned(&mut self, certificate: usize, number: u64, now: Duration) {
        self.note(now, &format!("inquiry {number} about {certificate} is given up"));
        let of = &mut self.certificates[certificate];
        of.asking = of.asking.filter(|(current, _)| *current != number);
        of.given_up.push(now);
    }

    /// A connection has ended its check.
    pub(super) fn end(&mut self, id: usize, ended: Ended, now: Duration) {
        self.note(now, &format!("{id} ends: {ended:?}"));
        let Connection { certificate, begun, deadline, .. } = self.connections[id];
        let of = self.certificates[certificate].clone();
        self.ended += 1;
        self.connections[id].over = true;
        self.check(now <= deadline, "no check takes longer than it may", || {
            format!("{id} ends after {deadline:?}")
        });
        let is_right = (ended == Ended::Refused) == of.is_revoked(now);
        self.check(is_right, "the verdict is what is known", || {
            format!("{id} ends {ended:?}, and known is {:?}", of.known)
        });
        let is_undecided = of.undecided_at == Some(now) || of.is_paused(now);
        // A connection begins two inquiries at most.
        let is_let_down = of.given_up.iter().filter(|at| **at >= begun).count() >= 2;
        let is_justified =
            of.in_force(now).is_some() || is_undecided || is_let_down || now == deadline;
        self.check(is_justified, "none goes on without asking", || {
            format!("{id} goes on, of which is known {of:?}")
        });
    }

    /// A connection was given up.
    pub(super) fn given_up(&mut self, id: usize, now: Duration) {
        self.note(now, &format!("{id} is given up"));
        self.connections[id].over = true;
    }

    /// Nothing is ready any more.
    pub(super) fn settled(&mut self, now: Duration) {
        for id in 0..self.connections.len() {
            let Connection { certificate, deadline, over, .. } = self.connections[id];
            if over {
                continue;
            }
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
