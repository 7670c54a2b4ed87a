//! The reason for which writes have found no server for a while, as lines and objects say it; the
//! screen shows it anyway.

use std::time::Duration;

use sdam_core::diagnosis::Verdict;
use sdam_core::time::Instant;

/// The time without a server for writes that is reported: most elections are over by then.
pub(super) const ALERT_AFTER: Duration = Duration::from_secs(5);

/// Reports why writes find no server, once for each reason.
#[derive(Debug, Default)]
pub(super) struct Writes {
    failing_since: Option<Instant>,
    /// The kind that was reported last.
    announced: Option<&'static str>,
}

impl Writes {
    /// Takes notice of why a write would find no server now, if it would not; returns what is to be
    /// reported.
    pub(super) fn look(&mut self, now: Instant, verdict: Option<Verdict>) -> Option<Verdict> {
        let Some(verdict) = verdict else {
            *self = Self::default();
            return None;
        };
        let since = *self.failing_since.get_or_insert(now);
        let is_news = now - since >= ALERT_AFTER && self.announced != Some(verdict.name());
        if !is_news {
            return None;
        }
        self.announced = Some(verdict.name());
        Some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(
        writes: &mut Writes,
        millis: u64,
        verdict: Option<Verdict>,
    ) -> Option<&'static str> {
        let verdict = writes.look(Instant::from_millis(millis), verdict);
        verdict.map(|verdict| verdict.name())
    }

    #[test]
    fn a_reason_is_reported_once_after_five_seconds_and_again_when_it_is_another_one() {
        let mut writes = Writes::default();
        let no_primary = || Some(Verdict::NoPrimary { since: Duration::ZERO });
        assert_eq!(announced(&mut writes, 1_000, no_primary()), None);
        assert_eq!(announced(&mut writes, 5_999, no_primary()), None);
        assert_eq!(announced(&mut writes, 6_000, no_primary()), Some("noPrimary"));
        assert_eq!(announced(&mut writes, 7_000, no_primary()), None);
        assert_eq!(announced(&mut writes, 8_000, Some(Verdict::NoAnswer)), Some("noAnswer"));
        assert_eq!(announced(&mut writes, 9_000, None), None);
        assert_eq!(announced(&mut writes, 9_100, no_primary()), None, "another outage");
        assert_eq!(announced(&mut writes, 14_100, no_primary()), Some("noPrimary"));
    }
}
