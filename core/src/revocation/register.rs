//! The statuses that are known, and whose turn it is to ask for others: for a whole process.

use std::collections::BTreeMap;
use std::time::Duration;

use rustls::pki_types::UnixTime;

use super::{CertificateId, Status, Verdict};

/// The number of certificates that are remembered.
const MAX_CERTIFICATES: usize = 10_000;

/// The time for which a certificate is not asked about again after no responder has answered: each
/// connection would be held up by it.
const PAUSE: Duration = Duration::from_secs(60);

/// The statuses of certificates that are known, and the inquiries that are under way.
///
/// One for a process spares connections from asking what another one has found out ("Suggested OCSP
/// Caching Behavior"), and has one at a time ask about a certificate, however many servers show it.
#[derive(Debug, Default)]
pub struct Register {
    known: BTreeMap<CertificateId, Verdict>,
    asking: BTreeMap<CertificateId, u64>,
    /// The last inquiry about a certificate that came to nothing.
    without_answer: BTreeMap<CertificateId, WithoutAnswer>,
    /// The number of the last inquiry.
    last: u64,
}

/// An inquiry that has come to nothing.
#[derive(Clone, Copy, Debug)]
struct WithoutAnswer {
    inquiry: u64,
    at: UnixTime,
    /// True if a responder has answered, and does not know the certificate.
    is_unknown: bool,
}

/// The step to take for a connection whose certificate is to be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The status is known.
    Known(Status),
    /// The responders are to be asked, and [`Register::end`] called with what they said.
    Ask,
    /// Another connection asks them: this inquiry is to be waited for.
    Wait(u64),
    /// No responder has answered, so that the connection goes on without.
    Unanswered,
}

/// The end of an inquiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A responder has given a valid response.
    Answered(Verdict),
    /// None has, in the time that there was.
    Unanswered,
    /// It was given up before its end, so that another connection is to ask.
    GivenUp,
}

impl Register {
    /// Returns the status of a certificate, if it is known.
    pub fn status(&self, id: &CertificateId, now: UnixTime) -> Option<&Status> {
        let known = self.known.get(id)?;
        (now < known.until).then_some(&known.status)
    }

    /// Keeps what a response says of a certificate, unless what is known of it is good for longer.
    ///
    /// "An unknown certificate status SHOULD NOT be considered conclusive, and the corresponding
    /// OCSP response SHOULD NOT be cached." A certificate that was revoked stays so for as long as
    /// that response is valid, whatever another one says.
    pub fn learn(&mut self, id: &CertificateId, verdict: Verdict, now: UnixTime) {
        if !verdict.status.is_conclusive() {
            return;
        }
        if let Some(known) = self.known.get(id)
            && now < known.until
        {
            let is_better = match (&known.status, &verdict.status) {
                (Status::Good, Status::Revoked { .. }) => true,
                (Status::Revoked { .. }, Status::Good) => false,
                _ => known.until < verdict.until,
            };
            if !is_better {
                return;
            }
        }
        self.make_room(now);
        self.known.insert(id.clone(), verdict);
    }

    /// Returns what a connection does about a certificate; `waited` is the inquiry that it has
    /// waited for, if any.
    pub fn turn(&mut self, id: &CertificateId, now: UnixTime, waited: Option<u64>) -> Turn {
        if let Some(status) = self.status(id, now) {
            return Turn::Known(status.clone());
        }
        if let Some(inquiry) = self.asking.get(id) {
            return Turn::Wait(*inquiry);
        }
        if let Some(last) = self.without_answer.get(id) {
            let is_recent = now >= last.at && now.as_secs() - last.at.as_secs() < PAUSE.as_secs();
            if waited == Some(last.inquiry) || (is_recent && !last.is_unknown) {
                return Turn::Unanswered;
            }
        }
        self.last += 1;
        self.asking.insert(id.clone(), self.last);
        Turn::Ask
    }

    /// Ends the inquiry about a certificate that [`Turn::Ask`] began.
    pub fn end(&mut self, id: &CertificateId, outcome: Outcome, now: UnixTime) {
        let Some(inquiry) = self.asking.remove(id) else { return };
        let is_unknown = match outcome {
            Outcome::Answered(verdict) if verdict.status.is_conclusive() => {
                self.without_answer.remove(id);
                return self.learn(id, verdict, now);
            }
            Outcome::Answered(_) => true,
            Outcome::Unanswered => false,
            Outcome::GivenUp => return,
        };
        if self.without_answer.len() >= MAX_CERTIFICATES {
            self.without_answer.clear();
        }
        self.without_answer.insert(id.clone(), WithoutAnswer { inquiry, at: now, is_unknown });
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
