//! The incidents themselves, by name.

mod names;

use std::time::Duration;

use super::coverage::Sign;
use super::fault::FaultKind as Kind;
use super::inject::{Effect, NEXT_CLOSE, NEXT_NOT_PRIMARY, NOT_PRIMARY, SLOW_COMMANDS, hello_bits};
use super::reconfig::Reconfig;
use super::scenario::{ALL, Demand, Incident, Scenario, USUAL, failing, incident, reconfig};
use sdam_cluster::ServerVersion;

/// One member is near, and the others are beyond the usual localThresholdMS of 15 ms.
const DISTANCES: &[Duration] =
    &[Duration::from_millis(1), Duration::from_millis(11), Duration::from_millis(25)];

/// A process forks at work, while there is no primary, and its child does.
const FORKS: &[Incident] = &[
    incident(Kind::Fork, (5, 6), &[]),
    incident(Kind::StepDown, (14, 15), &[]),
    incident(Kind::Fork, (14, 15), &[]),
    incident(Kind::Fork, (15, 16), &[]),
];

/// Incidents that users of other drivers had.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "last-server-removed",
        story: "The last server was removed, and the client stayed empty until it was restarted.",
        faults: &[
            incident(Kind::Misdirected, (5, 35), ALL),
            incident(Kind::Reset, (6, 7), ALL),
            incident(Kind::StepDown, (12, 13), &[]),
            incident(Kind::StepDown, (20, 21), &[]),
            incident(Kind::StepDown, (28, 29), &[]),
        ],
        coverage: &[(Sign::Refilled, 1)],
        demand: Demand::Succeed(20),
        ..USUAL
    },
    Scenario {
        name: "round-trip-of-zero",
        story: "Streamed replies made all servers equally near, and reads went to the farthest.",
        interval: 100,
        distances: DISTANCES,
        faults: &[
            incident(Kind::StepDown, (5, 6), &[]),
            failing(NOT_PRIMARY, (15, 16)),
            incident(Kind::StepDown, (25, 26), &[]),
        ],
        coverage: &[(Sign::Streamed, 10), (Sign::ToldApart, 10)],
        ..USUAL
    },
    Scenario {
        name: "pinger-meets-fail-point",
        story: "A hello that only measured met a fail point that was meant for others.",
        options: "heartbeatFrequencyMS=1000&serverMonitoringMode=stream",
        faults: &[
            failing(hello_bits(Effect::Close), (8, 14)),
            failing(hello_bits(Effect::Block), (16, 22)),
            failing(hello_bits(Effect::NotPrimary), (24, 30)),
        ],
        coverage: &[(Sign::MeasuringBroken, 1)],
        demand: Demand::Succeed(80),
        ..USUAL
    },
    Scenario {
        name: "monitors-that-die",
        story: "After a series of network errors a monitor's task was gone, and nothing noticed.",
        faults: &[
            incident(Kind::Reset, (5, 6), ALL),
            incident(Kind::Refused, (8, 20), ALL),
            incident(Kind::Reset, (9, 10), ALL),
            incident(Kind::DeadStreams, (25, 26), ALL),
            incident(Kind::Unresolvable, (40, 50), ALL),
        ],
        coverage: &[(Sign::MonitorRecovered, 3)],
        ..USUAL
    },
    Scenario {
        name: "reconnect-cancels-heartbeat",
        story: "Reconnecting after a reset cancelled the heartbeat that it was about to begin.",
        options: "heartbeatFrequencyMS=1000",
        faults: &[
            incident(Kind::Reset, (5, 6), ALL),
            incident(Kind::Reset, (6, 7), &[0]),
            incident(Kind::Reset, (7, 8), ALL),
        ],
        coverage: &[(Sign::CheckedAgainAtOnce, 3)],
        demand: Demand::Succeed(80),
        ..USUAL
    },
    Scenario {
        name: "rolling-restarts",
        story: "Members restarted one after the other, overlapping, and the primary moved back.",
        // When it is back, the first member takes over: just before the last one restarts.
        priorities: [2, 1, 1],
        election_timeout: 10,
        patience: 60_000,
        faults: &[
            incident(Kind::Kill, (5, 16), &[0]),
            incident(Kind::Kill, (15, 26), &[1]),
            incident(Kind::Kill, (28, 39), &[2]),
        ],
        coverage: &[(Sign::TwoDown, 1), (Sign::TakenOver, 1)],
        demand: Demand::Succeed(60),
        ..USUAL
    },
    Scenario {
        name: "farewells",
        story: "A primary that was shutting down said so, and was still taken for the primary.",
        faults: &[
            incident(Kind::Shutdown, (5, 25), &[0]),
            incident(Kind::Shutdown, (30, 50), &[1]),
            incident(Kind::Shutdown, (55, 75), &[2]),
        ],
        coverage: &[(Sign::ShutdownAnnounced, 3)],
        demand: Demand::Succeed(80),
        ..USUAL
    },
    Scenario {
        name: "upgrade-across-6.0",
        story: "During an upgrade to 6.0 a new primary was taken for a stale one for ever.",
        version: ServerVersion::V5_0,
        options: "heartbeatFrequencyMS=2000",
        faults: &[
            reconfig(Reconfig::Tag, (4, 80), &[2]),
            incident(Kind::Upgrade, (5, 12), &[0]),
            incident(Kind::Succession, (20, 30), &[]),
            reconfig(Reconfig::Add, (31, 60), &[]),
            incident(Kind::Upgrade, (35, 42), &[1]),
            incident(Kind::Succession, (45, 55), &[]),
            incident(Kind::Upgrade, (62, 70), &[2]),
            // Somebody changes his mind: the primary may be an older one again.
            Incident { bits: 1, ..incident(Kind::Upgrade, (75, 80), &[0]) },
        ],
        coverage: &[(Sign::PrimaryUpgraded, 2)],
        demand: Demand::Succeed(60),
        ..USUAL
    },
    Scenario {
        name: "configuration-that-was-lost",
        story: "A primary that had not heard of the last configuration was taken for a stale one.",
        options: "heartbeatFrequencyMS=2000",
        faults: &[reconfig(Reconfig::Lose, (5, 20), &[]), reconfig(Reconfig::Lose, (25, 40), &[])],
        coverage: &[(Sign::ConfigurationLost, 1)],
        demand: Demand::Succeed(60),
        ..USUAL
    },
    Scenario {
        name: "primary-that-was",
        story: "A primary that had been succeeded still claimed to be primary.",
        options: "heartbeatFrequencyMS=500&connectTimeoutMS=10000",
        faults: &[
            incident(Kind::Succession, (10, 18), &[]),
            incident(Kind::Succession, (30, 38), &[]),
            incident(Kind::Cut, (50, 58), &[]),
        ],
        coverage: &[(Sign::StalePrimary, 1), (Sign::TwoPrimaries, 1)],
        ..USUAL
    },
    Scenario {
        name: "no-primary-for-long",
        story: "Selections that found nothing spun without a pause.",
        interval: 100,
        faults: &[incident(Kind::Kill, (5, 45), &[0, 1])],
        coverage: &[(Sign::TwoDown, 1), (Sign::WaitedLong, 10)],
        ..USUAL
    },
    Scenario {
        name: "lost-wake-up",
        story: "A view that was published between looking and waiting woke no operation.",
        interval: 50,
        hesitating_percent: 100,
        options: "heartbeatFrequencyMS=500",
        faults: &[
            incident(Kind::StepDown, (5, 6), &[]),
            incident(Kind::StepDown, (15, 16), &[]),
            incident(Kind::StepDown, (25, 26), &[]),
        ],
        coverage: &[(Sign::PublishedMeanwhile, 1)],
        demand: Demand::Succeed(80),
        ..USUAL
    },
    Scenario {
        name: "cancelled-operations",
        story: "Each operation that was cancelled took a place in the pool with it.",
        options: "maxPoolSize=2",
        interval: 50,
        cancelled_percent: 60,
        faults: &[failing(SLOW_COMMANDS, (5, 20))],
        coverage: &[(Sign::CancelledInQueue, 20)],
        ..USUAL
    },
    Scenario {
        name: "retries-with-every-connection-out",
        story: "Retries waited for connections that those who retried had not returned.",
        options: "maxPoolSize=1&maxConnecting=1",
        interval: 50,
        faults: &[
            failing(NEXT_NOT_PRIMARY, (5, 6)),
            failing(NEXT_CLOSE, (8, 9)),
            incident(Kind::Reset, (10, 11), ALL),
            failing(NEXT_NOT_PRIMARY, (12, 13)),
            failing(NEXT_CLOSE, (15, 16)),
        ],
        demand: Demand::Succeed(60),
        coverage: &[(Sign::RetriedWithAllOut, 3)],
        ..USUAL
    },
    Scenario {
        name: "wait-queue-timeout",
        story: "An operation that got no connection in time had the pool cleared.",
        options: "maxPoolSize=1&waitQueueTimeoutMS=300",
        interval: 100,
        patience: 1_000,
        faults: &[failing(SLOW_COMMANDS, (5, 25))],
        coverage: &[(Sign::WaitedInVain, 10)],
        demand: Demand::NothingCleared,
        ..USUAL
    },
    Scenario {
        name: "limiter",
        story: "Connections that a limiter turned away had the pool cleared.",
        options: "maxPoolSize=50&maxConnecting=10&maxIdleTimeMS=200",
        interval: 20,
        faults: &[incident(Kind::RateLimit, (5, 25), ALL)],
        coverage: &[(Sign::TurnedAway, 10)],
        demand: Demand::NothingCleared,
        ..USUAL
    },
    Scenario {
        name: "frozen-for-ten-minutes",
        story: "After ten minutes a hundred queued replies were each taken for a round trip.",
        faults: &[incident(Kind::FrozenClient, (10, 610), &[])],
        coverage: &[(Sign::RepliesQueued, 2)],
        ..USUAL
    },
    Scenario {
        name: "timeout-after-pause",
        story: "A process that went on took its own pause for a server that did not answer.",
        faults: &[incident(Kind::FrozenClient, (10, 45), &[])],
        coverage: &[(Sign::CheckOutlivedPause, 2)],
        demand: Demand::NothingCleared,
        ..USUAL
    },
    Scenario {
        name: "timeout-shorter-than-heartbeat",
        story: "Operations with a time-out below the heartbeat's had healthy pools cleared.",
        patience: 800,
        faults: &[failing(SLOW_COMMANDS, (5, 25))],
        coverage: &[(Sign::NoReplyInTime, 10)],
        demand: Demand::NothingCleared,
        ..USUAL
    },
    names::MEMBER_THAT_MOVES,
    names::CROSSED_NAMES,
    names::CROSSED_NAMES_ON_ONE_THREAD,
    names::DNS_THAT_FAILS,
    Scenario {
        name: "cold-pool",
        story: "A burst on an empty pool waited for connections that were made one by one.",
        options: "maxConnecting=2",
        interval: 5,
        coverage: &[(Sign::ColdBurst, 2)],
        demand: Demand::Succeed(90),
        ..USUAL
    },
    Scenario {
        name: "dead-seed",
        story: "A seed that refused connections was checked again without a pause.",
        interval: 50,
        faults: &[incident(Kind::Refused, (0, 40), &[2]), incident(Kind::Kill, (15, 25), &[0])],
        coverage: &[(Sign::RefusedWhileWanted, 5)],
        ..USUAL
    },
    Scenario {
        name: "monitor-and-operations-at-odds",
        story: "An operation's error and a check's success overtook each other.",
        options: "heartbeatFrequencyMS=500",
        interval: 50,
        faults: &[
            incident(Kind::FailPoint, (5, 20), &[0]),
            incident(Kind::Reset, (8, 9), ALL),
            incident(Kind::StepDown, (10, 11), &[]),
            incident(Kind::Reset, (12, 13), ALL),
        ],
        coverage: &[(Sign::CheckAbandoned, 1), (Sign::StaleErrorIgnored, 1)],
        ..USUAL
    },
    Scenario {
        name: "close-in-the-middle",
        story: "A client that was closed while it worked emitted its events in the wrong order.",
        interval: 50,
        faults: &[incident(Kind::StepDown, (14, 15), &[]), incident(Kind::Close, (15, 16), &[])],
        coverage: &[(Sign::ClosedAtWork, 1)],
        ..USUAL
    },
    Scenario {
        name: "fork-in-the-middle",
        story: "A child that was forked off while locks were held waited for them for ever.",
        election_timeout: 20,
        interval: 200,
        cursor_percent: 20,
        faults: FORKS,
        coverage: &[(Sign::ForkedInTheMiddle, 2), (Sign::ForkedWhileWanted, 1)],
        demand: Demand::NobodyIsDisturbed(95),
        ..USUAL
    },
    Scenario {
        name: "fork-of-a-single-thread",
        story: "A worker used the connections of the process that had forked it.",
        election_timeout: 20,
        interval: 200,
        cursor_percent: 20,
        single_threaded: true,
        options: "heartbeatFrequencyMS=10000&serverSelectionTryOnce=false",
        faults: FORKS,
        coverage: &[(Sign::ForkedInTheMiddle, 2), (Sign::ForkedWhileWanted, 1)],
        demand: Demand::NobodyIsDisturbed(95),
        ..USUAL
    },
    Scenario {
        name: "blackholed-seed",
        story: "One of three seeds swallowed all packets, and reads of the primary waited for it.",
        patience: 5_000,
        priorities: [1, 0, 1],
        faults: &[incident(Kind::Blackhole, (0, 60), &[1])],
        coverage: &[(Sign::TimedOut, 2)],
        demand: Demand::Succeed(90),
        ..USUAL
    },
    Scenario {
        name: "mongos-behind-a-balancer",
        story: "One mongos behind a load balancer went, and connections to all others were closed.",
        load_balanced: true,
        interval: 50,
        cursor_percent: 30,
        faults: &[incident(Kind::Kill, (5, 8), &[1]), incident(Kind::Reset, (15, 16), &[2])],
        coverage: &[(Sign::ServiceCleared, 1)],
        demand: Demand::Succeed(90),
        ..USUAL
    },
    Scenario {
        name: "cursor-on-a-demoted-primary",
        story: "A cursor stayed on a server that was no longer primary, and no error said so.",
        interval: 100,
        cursor_percent: 100,
        faults: &[
            incident(Kind::StepDown, (10, 11), &[]),
            incident(Kind::Succession, (25, 35), &[]),
            incident(Kind::Kill, (45, 60), &[0]),
        ],
        coverage: &[(Sign::CursorDemoted, 2)],
        demand: Demand::Succeed(60),
        ..USUAL
    },
    Scenario {
        name: "login-refused",
        story: "A login that was refused made servers Unknown, and they stayed so when it was not.",
        logs_in: true,
        options: "maxIdleTimeMS=500",
        interval: 100,
        faults: &[incident(Kind::LoginRefused, (10, 20), ALL)],
        coverage: &[(Sign::LoginRefused, 2)],
        demand: Demand::Succeed(60),
        ..USUAL
    },
];
