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
    NotAMember,
    NotChecked,
    StalePrimary,
    TwoHeartbeats,
    TwoPrimaries,
    UnexplainedChange,
}

const MONITORING: &str = "Server Monitoring";
const LOGGING: &str = "SDAM Logging and Monitoring";
const SDAM: &str = "Server Discovery And Monitoring";

impl Rule {
    pub(super) const ALL: [Self; 15] = [
        Self::AfterClosed,
        Self::BeforeOpening,
        Self::DescriptionChain,
        Self::ElectionBackwards,
        Self::HeartbeatNotEnded,
        Self::HeartbeatNotStarted,
        Self::HeartbeatStuck,
        Self::HeartbeatTooSoon,
        Self::IgnoredOutcome,
        Self::NotAMember,
        Self::NotChecked,
        Self::StalePrimary,
        Self::TwoHeartbeats,
        Self::TwoPrimaries,
        Self::UnexplainedChange,
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
            Self::NotAMember => "not-a-member",
            Self::NotChecked => "not-checked",
            Self::StalePrimary => "stale-primary",
            Self::TwoHeartbeats => "two-heartbeats",
            Self::TwoPrimaries => "two-primaries",
            Self::UnexplainedChange => "unexplained-change",
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
