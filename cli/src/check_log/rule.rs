//! The rules that a log is judged by, each with the place that it comes from.

/// A rule of the specifications that a step can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Rule {
    AfterClosed,
    BeforeOpening,
    DescriptionChain,
    ElectionBackwards,
    HeartbeatNotEnded,
    HeartbeatNotStarted,
    HeartbeatStuck,
    HeartbeatTooSoon,
    IgnoredOutcome,
    NoError,
    NotAMember,
    NotChecked,
    NothingChanged,
    StalePrimary,
    TwoHeartbeats,
    TwoPrimaries,
    UnexplainedChange,
    WrongAwaited,
    WrongElection,
    WrongField,
    WrongRoundTrip,
    WrongSessionTimeout,
}

const MONITORING: &str = "Server Monitoring";
const LOGGING: &str = "SDAM Logging and Monitoring";
const SDAM: &str = "Server Discovery And Monitoring";

impl Rule {
    pub(super) const ALL: [Self; 22] = [
        Self::AfterClosed,
        Self::BeforeOpening,
        Self::DescriptionChain,
        Self::ElectionBackwards,
        Self::HeartbeatNotEnded,
        Self::HeartbeatNotStarted,
        Self::HeartbeatStuck,
        Self::HeartbeatTooSoon,
        Self::IgnoredOutcome,
        Self::NoError,
        Self::NotAMember,
        Self::NotChecked,
        Self::NothingChanged,
        Self::StalePrimary,
        Self::TwoHeartbeats,
        Self::TwoPrimaries,
        Self::UnexplainedChange,
        Self::WrongAwaited,
        Self::WrongElection,
        Self::WrongField,
        Self::WrongRoundTrip,
        Self::WrongSessionTimeout,
    ];

    /// Returns the name, as `--allow` takes it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AfterClosed => "after-closed",
            Self::BeforeOpening => "before-opening",
            Self::DescriptionChain => "description-chain",
            Self::ElectionBackwards => "election-backwards",
            Self::HeartbeatNotEnded => "heartbeat-not-ended",
            Self::HeartbeatNotStarted => "heartbeat-not-started",
            Self::HeartbeatStuck => "heartbeat-stuck",
            Self::HeartbeatTooSoon => "heartbeat-too-soon",
            Self::IgnoredOutcome => "ignored-outcome",
            Self::NoError => "no-error",
            Self::NotAMember => "not-a-member",
            Self::NotChecked => "not-checked",
            Self::NothingChanged => "nothing-changed",
            Self::StalePrimary => "stale-primary",
            Self::TwoHeartbeats => "two-heartbeats",
            Self::TwoPrimaries => "two-primaries",
            Self::UnexplainedChange => "unexplained-change",
            Self::WrongAwaited => "wrong-awaited",
            Self::WrongElection => "wrong-election",
            Self::WrongField => "wrong-field",
            Self::WrongRoundTrip => "wrong-round-trip",
            Self::WrongSessionTimeout => "wrong-session-timeout",
        }
    }

    /// Finds the rule of that name.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|rule| rule.name() == name);
        found.ok_or_else(|| format!("there are: {}", names()))
    }

    /// Returns what must hold.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::AfterClosed => "nothing of a topology follows its closing",
            Self::BeforeOpening => "nothing of a topology precedes its opening",
            Self::DescriptionChain => "the previous description is the last new one",
            Self::ElectionBackwards => "the largest electionId and its setVersion never go back",
            Self::HeartbeatNotEnded => {
                "every heartbeat that has started succeeds or fails, also if its server leaves or \
                 the client is closed"
            }
            Self::HeartbeatNotStarted => "a heartbeat has started before it ends",
            Self::HeartbeatStuck => {
                "a check ends within connectTimeoutMS, and heartbeatFrequencyMS more if it is \
                 awaited"
            }
            Self::HeartbeatTooSoon => {
                "a check begins 500 ms after the last one has ended at the earliest, unless \
                 replies are streamed or a check of a known server is tried again once"
            }
            Self::IgnoredOutcome => "what a heartbeat has found changes the description",
            Self::NoError => "a server that becomes Unknown has an error that says why",
            Self::NothingChanged => {
                "a change of a server's description is reported if a field has changed that is \
                 compared"
            }
            Self::NotAMember => "servers are checked while they are in the topology, and no others",
            Self::NotChecked => "every server is checked every heartbeatFrequencyMS",
            Self::StalePrimary => {
                "a primary whose electionId and setVersion are older than the largest so far is \
                 not believed"
            }
            Self::TwoHeartbeats => "a server is checked once at a time",
            Self::TwoPrimaries => "a replica set has one primary at most",
            Self::UnexplainedChange => {
                "a description changes by what a heartbeat has found, by an operation's error, or \
                 by what DNS says, as the tables of TopologyTypes have it"
            }
            Self::WrongAwaited => {
                "the start and the end of a heartbeat agree on whether it is awaited, which it is \
                 only if the last reply had a topologyVersion"
            }
            Self::WrongElection => {
                "the largest electionId and setVersion are those of the primary, and stay if there \
                 is none"
            }
            Self::WrongField => {
                "the description of a server says what its reply has said, and nothing if the \
                 server is Unknown"
            }
            Self::WrongRoundTrip => {
                "a server has a round trip time once it has replied, and none while it is Unknown"
            }
            Self::WrongSessionTimeout => {
                "logicalSessionTimeoutMinutes is the smallest of all servers that bear data"
            }
        }
    }

    /// Returns the specification and the section that say so.
    pub(super) const fn source(self) -> (&'static str, &'static str) {
        match self {
            Self::AfterClosed | Self::BeforeOpening => (LOGGING, "Events API"),
            Self::DescriptionChain => (LOGGING, "Event Order and Concurrency"),
            Self::HeartbeatNotEnded | Self::HeartbeatNotStarted => (LOGGING, "Heartbeats"),
            Self::HeartbeatStuck => (MONITORING, "Socket timeout"),
            Self::HeartbeatTooSoon => (MONITORING, "minHeartbeatFrequencyMS"),
            Self::IgnoredOutcome | Self::UnexplainedChange => {
                (SDAM, "Updating the TopologyDescription")
            }
            Self::NotAMember => (LOGGING, "Events API"),
            Self::NoError => (SDAM, "error"),
            Self::NothingChanged => (SDAM, "Server Description Equality"),
            Self::WrongAwaited => (LOGGING, "Heartbeats"),
            Self::WrongElection => (SDAM, "updateRSFromPrimary"),
            Self::WrongField => (SDAM, "Parsing a hello or legacy hello response"),
            Self::WrongRoundTrip => (SDAM, "roundTripTime"),
            Self::WrongSessionTimeout => (SDAM, "Logical Session Timeout"),
            Self::NotChecked => (MONITORING, "Servers are checked periodically"),
            Self::StalePrimary | Self::ElectionBackwards => {
                (SDAM, "Using electionId and setVersion to detect stale primaries")
            }
            Self::TwoHeartbeats => (MONITORING, "Requesting an immediate check"),
            Self::TwoPrimaries => (SDAM, "A note on invalidating the old primary"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rule;

    #[test]
    fn every_rule_is_found_by_its_name_and_described() {
        let document = include_str!("../../CHECK_LOG.md");
        for rule in Rule::ALL {
            assert_eq!(Rule::named(rule.name()), Ok(rule));
            assert!(document.contains(&format!("`{}`", rule.name())), "{rule:?}");
        }
        assert!(Rule::named("all").is_err_and(|error| error.contains("not-checked")));
    }
}
