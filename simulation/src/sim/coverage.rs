//! True if an incident took place: what there is to be seen of one, and how often it was seen.

use std::ops::AddAssign;

/// Something that is seen in the course of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Sign {
    /// A view names no server.
    Emptied,
    /// A view names servers again.
    Refilled,
    /// A server that had left is back.
    Rejoined,
    /// A server replied because its state had changed, or a time had passed.
    Streamed,
    /// An operation that wanted one of the nearest also had a suitable server that is too far away.
    ToldApart,
    /// The stream that only measures round trips was broken.
    MeasuringBroken,
    /// A check has succeeded after five or more that had failed.
    MonitorRecovered,
    /// A check has succeeded after some of which one had got no answer.
    BackAfterSilence,
    /// A check has failed, and the one that followed at once has succeeded.
    CheckedAgainAtOnce,
    /// A check in progress was given up because of an operation's error.
    CheckAbandoned,
    /// A server refused a check while an operation waited.
    RefusedWhileWanted,
    /// A check got no answer.
    TimedOut,
    /// A server said that it is about to end.
    ShutdownAnnounced,
    /// A server claims to be primary and was succeeded.
    StalePrimary,
    /// The primary has become one that is judged by its election first, and was none before.
    PrimaryUpgraded,
    /// The primary has become one that is judged by its configuration first, and was none before.
    PrimaryDowngraded,
    /// A newer primary has an older configuration.
    ConfigurationLost,
    /// An operation got a server after it had waited for ten seconds.
    WaitedLong,
    /// A view that suits an operation came after it had looked, and before it waited.
    PublishedMeanwhile,
    /// An operation was cancelled while it waited for a connection, and all were out.
    CancelledInQueue,
    /// An operation that had failed has succeeded, and when it was retried all connections were
    /// out.
    RetriedWithAllOut,
    /// An operation got no connection within waitQueueTimeoutMS.
    WaitedInVain,
    /// A connection was turned away before hello was answered.
    TurnedAway,
    /// An operation got no reply by its deadline, which was nearer than a heartbeat.
    NoReplyInTime,
    /// An error was reported that was out of date, and changed nothing.
    StaleErrorIgnored,
    /// Ten operations and more waited for connections of a pool that had none.
    ColdBurst,
    /// A process went on, and fifty replies and more lay on one stream of a monitor.
    RepliesQueued,
    /// A check succeeded that was in progress while its process was stopped, for longer than
    /// connectTimeoutMS.
    CheckOutlivedPause,
    /// A client was closed that awaited replies to operations, and had checks in progress.
    ClosedAtWork,
    /// A process forked while one of its machines was at work, before what it did had been done.
    ForkedInTheMiddle,
    /// A process forked while operations waited for a server.
    ForkedWhileWanted,
    /// Connections to one service behind a load balancer were closed, and others were not.
    ServiceCleared,
    /// An application learned that the server of its cursor is no longer primary.
    CursorDemoted,
    /// A login was refused, and its server is Unknown.
    LoginRefused,
    /// A lookup of the deployment's hosts has brought none.
    RescanFailed,
    /// A lookup of the deployment's hosts has brought some, after one that had not.
    RescanRecovered,
    /// Two members were down at once.
    TwoDown,
    /// A member became primary that wants it more than the one before, which was alive.
    TakenOver,
    /// Two members claimed to be primary at once.
    TwoPrimaries,
}

impl Sign {
    const COUNT: usize = Self::TwoPrimaries as usize + 1;
}

/// The number of times that each sign was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally([u64; Sign::COUNT]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Sign::COUNT])
    }
}

impl Tally {
    /// Notes a sign.
    pub(super) const fn note(&mut self, sign: Sign) {
        self.0[sign as usize] += 1;
    }

    /// Returns how often a sign was seen.
    pub const fn count(&self, sign: Sign) -> u64 {
        self.0[sign as usize]
    }

    /// Returns whether each of these was seen that often.
    pub(super) fn has(&self, signs: &[(Sign, u64)]) -> bool {
        signs.iter().all(|(sign, times)| self.count(*sign) >= *times)
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(all, one)| *all += one);
    }
}

#[cfg(test)]
mod tests {
    use super::{Sign, Tally};

    #[test]
    fn an_incident_took_place_if_all_that_is_to_be_seen_of_it_was_seen_often_enough() {
        let mut tally = Tally::default();
        let incident = [(Sign::Emptied, 2), (Sign::Refilled, 1)];
        tally.note(Sign::Emptied);
        tally.note(Sign::Refilled);
        assert!(!tally.has(&incident), "one is missing");
        let other = tally.clone();
        tally += &other;
        assert!(tally.has(&incident));
        assert_eq!((tally.count(Sign::Emptied), tally.count(Sign::TwoPrimaries)), (2, 0));
    }
}
