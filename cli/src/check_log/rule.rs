//! The rules that a log is judged by, each with the place that it comes from.

use crate::findings::{self, Law};

const MONITORING: &str = "Server Monitoring";
const LOGGING: &str = "SDAM Logging and Monitoring";
const SDAM: &str = "Server Discovery And Monitoring";

/// Makes the rules of their table: the name as `--allow` takes it, what must hold, and the
/// specification and the section that say so.
macro_rules! rules {
    ($($rule:ident = $name:literal, $text:literal, $specification:ident, $section:literal;)*) => {
        /// A rule of the specifications that a step can break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Rule {
            $($rule,)*
        }

        impl findings::Rule for Rule {
            fn law(self) -> Law {
                let (name, text, specification, section) = match self {
                    $(Self::$rule => ($name, $text, $specification, $section),)*
                };
                Law { name, text, specification, section }
            }

            fn all() -> impl Iterator<Item = Self> {
                [$(Self::$rule),*].into_iter()
            }
        }
    };
}

rules! {
    AfterClosed = "after-closed",
        "nothing of a topology follows its closing",
        LOGGING, "Events API";
    BeforeOpening = "before-opening",
        "nothing of a topology precedes its opening",
        LOGGING, "Events API";
    DescriptionChain = "description-chain",
        "the previous description is the last new one",
        LOGGING, "Event Order and Concurrency";
    ElectionBackwards = "election-backwards",
        "the largest electionId and its setVersion never go back",
        SDAM, "Using electionId and setVersion to detect stale primaries";
    HeartbeatNotEnded = "heartbeat-not-ended",
        "every heartbeat that has started succeeds or fails, also if its server leaves or the \
         client is closed",
        LOGGING, "Heartbeats";
    HeartbeatNotStarted = "heartbeat-not-started",
        "a heartbeat has started before it ends",
        LOGGING, "Heartbeats";
    HeartbeatStuck = "heartbeat-stuck",
        "a check ends within connectTimeoutMS, and heartbeatFrequencyMS more if it is awaited",
        MONITORING, "Socket timeout";
    HeartbeatTooSoon = "heartbeat-too-soon",
        "a check begins 500 ms after the last one has ended at the earliest, unless replies are \
         streamed or a check of a known server is tried again once",
        MONITORING, "minHeartbeatFrequencyMS";
    IgnoredOutcome = "ignored-outcome",
        "what a heartbeat has found changes the description",
        SDAM, "Updating the TopologyDescription";
    NoError = "no-error",
        "a server that becomes Unknown has an error that says why",
        SDAM, "error";
    NotAMember = "not-a-member",
        "servers are checked while they are in the topology, and no others",
        LOGGING, "Events API";
    NotChecked = "not-checked",
        "every server is checked every heartbeatFrequencyMS",
        MONITORING, "Servers are checked periodically";
    NothingChanged = "nothing-changed",
        "a change of a server's description is reported if a field has changed that is compared",
        SDAM, "Server Description Equality";
    StalePrimary = "stale-primary",
        "a primary whose electionId and setVersion are older than the largest so far is not \
         believed",
        SDAM, "Using electionId and setVersion to detect stale primaries";
    TwoHeartbeats = "two-heartbeats",
        "a server is checked once at a time",
        MONITORING, "Requesting an immediate check";
    TwoPrimaries = "two-primaries",
        "a replica set has one primary at most",
        SDAM, "A note on invalidating the old primary";
    UnexplainedChange = "unexplained-change",
        "a description changes by what a heartbeat has found, by an operation's error, or by what \
         DNS says, as the tables of TopologyTypes have it",
        SDAM, "Updating the TopologyDescription";
    WrongAwaited = "wrong-awaited",
        "the start and the end of a heartbeat agree on whether it is awaited, which it is only if \
         the last reply had a topologyVersion",
        LOGGING, "Heartbeats";
    WrongElection = "wrong-election",
        "the largest electionId and setVersion are those of the primary, and stay if there is none",
        SDAM, "updateRSFromPrimary";
    WrongField = "wrong-field",
        "the description of a server says what its reply has said, and nothing if the server is \
         Unknown",
        SDAM, "Parsing a hello or legacy hello response";
    WrongRoundTrip = "wrong-round-trip",
        "a server has a round trip time once it has replied, and none while it is Unknown",
        SDAM, "roundTripTime";
    WrongSessionTimeout = "wrong-session-timeout",
        "logicalSessionTimeoutMinutes is the smallest of all servers that bear data",
        SDAM, "Logical Session Timeout";
}

#[cfg(test)]
mod tests {
    use super::Rule;
    use crate::findings::{Rule as _, named};

    #[test]
    fn every_rule_is_found_by_its_name_and_described() {
        let document = include_str!("../../CHECK_LOG.md");
        for rule in Rule::all() {
            let name = rule.law().name;
            assert_eq!(named(name), Ok(rule));
            assert!(document.contains(&format!("`{name}`")), "{rule:?}");
        }
        assert!(named::<Rule>("all").is_err_and(|error| error.contains("not-checked")));
    }
}
