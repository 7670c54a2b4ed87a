//! The statuses that are known, and whose turn it is to ask for others: for a whole process.

use std::collections::BTreeMap;
use std::time::Duration;

use rustls::pki_types::UnixTime;

use super::{CertificateId, Status, Verdict};

/// The number of certificates that are remembered; a process has several registers.
pub(super) const MAX_CERTIFICATES: usize = 500;

/// The time for which a certificate is not asked about again after no responder has answered: each
/// connection would be held up by it.
const PAUSE: Duration = Duration::from_secs(60);

/// The same after one has answered that it does not know the certificate. Nothing is cached of
/// that, but not every connection has to hear it.
const PAUSE_AFTER_UNKNOWN: Duration = Duration::from_secs(10);

/// The time after which an inquiry counts as given up, if nothing is heard of it: what drives it
/// may have come to a standstill. It ends by itself before that.
const MAX_INQUIRY: Duration = Duration::from_secs(8);

/// The statuses of certificates that are known, and the inquiries that are under way.
///
/// One for a process spares connections from asking what another one has found out ("Suggested OCSP
/// Caching Behavior"), and has one at a time ask about a certificate, however many servers show it.
#[derive(Debug, Default)]
pub struct Register {
    known: BTreeMap<CertificateId, Verdict>,
    asking: BTreeMap<CertificateId, Asking>,
    /// The last inquiry about a certificate that came to nothing.
    without_answer: BTreeMap<CertificateId, WithoutAnswer>,
    /// The number of the last inquiry.
    last: u64,
}

/// An inquiry that is under way.
#[derive(Clone, Copy, Debug)]
struct Asking {
    inquiry: u64,
    since: UnixTime,
}

/// An inquiry that has come to nothing.
#[derive(Clone, Copy, Debug)]
struct WithoutAnswer {
    inquiry: u64,
    at: UnixTime,
    pause: Duration,
}

/// The step to take for a connection whose certificate is to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Turn {
    /// The status is known.
    Known(Status),
    /// An inquiry of this number begins: the responders are to be asked, and [`Register::end`]
    /// called with what they said.
    Ask(u64),
    /// An inquiry is under way, and to be waited for.
    Wait(u64),
    /// No responder has answered, so that the connection goes on without.
    Unanswered,
}

/// The end of an inquiry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// A responder has given a valid response.
    Answered(Verdict),
    /// None has, in the time that there was.
    Unanswered,
}

/// Returns whether so much time has passed; also if the clock was set back meanwhile.
fn has_passed(time: Duration, since: UnixTime, now: UnixTime) -> bool {
    now.as_secs().checked_sub(since.as_secs()).is_none_or(|passed| passed >= time.as_secs())
}

impl Register {
    /// Returns the status of a certificate, if it is known.
    pub fn status(&self, id: &CertificateId, now: UnixTime) -> Option<&Status> {
        let known = self.known.get(id)?;
        (now < known.until).then_some(&known.status)
    }

    /// Keeps what a response says of a certificate, unless what is known of it is good for longer;
    /// returns whether somebody waits for that.
    ///
    /// "An unknown certificate status SHOULD NOT be considered conclusive, and the corresponding
    /// OCSP response SHOULD NOT be cached." A revocation counts at once, however long what is known
    /// is good for, and is undone only by a response that is younger.
    pub fn learn(&mut self, id: &CertificateId, verdict: Verdict, now: UnixTime) -> bool {
        if !verdict.status.is_conclusive() {
            return false;
        }
        if let Some(known) = self.known.get(id)
            && now < known.until
        {
            let is_better = match (&known.status, &verdict.status) {
                (Status::Good, Status::Revoked { .. }) => true,
                // One that is older was signed before.
                (Status::Revoked { .. }, Status::Good) => known.since < verdict.since,
                _ => known.until < verdict.until,
            };
            if !is_better {
                return false;
            }
        }
        self.make_room(now);
        self.known.insert(id.clone(), verdict);
        self.asking.contains_key(id)
    }

    /// Returns what a connection does about a certificate; `waited` is the inquiry that it has
    /// waited for, if any.
    pub fn turn(&mut self, id: &CertificateId, now: UnixTime, waited: Option<u64>) -> Turn {
        if let Some(status) = self.status(id, now) {
            return Turn::Known(status.clone());
        }
        if let Some(asking) = self.asking.get(id)
            && !has_passed(MAX_INQUIRY, asking.since, now)
        {
            return Turn::Wait(asking.inquiry);
        }
        if let Some(last) = self.without_answer.get(id)
            && (waited == Some(last.inquiry) || !has_passed(last.pause, last.at, now))
        {
            return Turn::Unanswered;
        }
        self.last += 1;
        self.asking.insert(id.clone(), Asking { inquiry: self.last, since: now });
        Turn::Ask(self.last)
    }

    /// Ends the inquiry about a certificate that [`Turn::Ask`] began; what is heard of one that
    /// counts as given up is kept, too.
    pub fn end(&mut self, id: &CertificateId, inquiry: u64, outcome: Outcome, now: UnixTime) {
        let is_current = self.give_up(id, inquiry);
        let pause = match outcome {
            Outcome::Answered(verdict) if verdict.status.is_conclusive() => {
                self.without_answer.remove(id);
                self.learn(id, verdict, now);
                return;
            }
            Outcome::Answered(_) => PAUSE_AFTER_UNKNOWN,
            Outcome::Unanswered => PAUSE,
        };
        if !is_current {
            return;
        }
        if self.without_answer.len() >= MAX_CERTIFICATES {
            self.without_answer.clear();
        }
        self.without_answer.insert(id.clone(), WithoutAnswer { inquiry, at: now, pause });
    }

    /// Returns whether an inquiry about a certificate is under way.
    pub fn is_asking(&self, id: &CertificateId) -> bool {
        self.asking.contains_key(id)
    }

    /// Ends an inquiry before its end, so that another connection is to ask; returns whether it was
    /// under way.
    pub fn give_up(&mut self, id: &CertificateId, inquiry: u64) -> bool {
        let is_current = self.asking.get(id).is_some_and(|asking| asking.inquiry == inquiry);
        if is_current {
            self.asking.remove(id);
        }
        is_current
    }

    /// Forgets what is out of date if there is too much, and if that is not enough, what will be so
    /// first.
    fn make_room(&mut self, now: UnixTime) {
        if self.known.len() < MAX_CERTIFICATES {
            return;
        }
        self.known.retain(|_, known| now < known.until);
        if self.known.len() >= MAX_CERTIFICATES
            && let Some(first) = self.known.iter().min_by_key(|(_, known)| known.until)
        {
            let first = first.0.clone();
            self.known.remove(&first);
        }
    }
}
