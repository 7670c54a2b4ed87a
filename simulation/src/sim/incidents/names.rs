//! Incidents about names: what they lead to, and what DNS says of them.

use super::{Demand, Incident, Kind, Scenario, Sign, USUAL, incident};

/// Two members' names lead to each other.
const CROSSED: &[Incident] = &[
    incident(Kind::Misdirected, (10, 20), &[0]),
    Incident { bits: 1, ..incident(Kind::Misdirected, (10, 20), &[1]) },
    incident(Kind::Kill, (11, 12), &[0, 1]),
];

pub(super) const MEMBER_THAT_MOVES: Scenario = Scenario {
    name: "member-that-moves",
    story: "A member's name led to another address, and the old one was tried for ever.",
    faults: &[
        incident(Kind::Moved, (5, 40), &[1]),
        incident(Kind::Unresolvable, (30, 35), &[1]),
        incident(Kind::Moved, (60, 90), &[0]),
    ],
    coverage: &[(Sign::BackAfterSilence, 2)],
    demand: Demand::Succeed(60),
    ..USUAL
};

pub(super) const CROSSED_NAMES: Scenario = Scenario {
    name: "crossed-names",
    story: "Two members' names were crossed, and each brought the other back, without a pause.",
    faults: CROSSED,
    coverage: &[(Sign::Rejoined, 2)],
    ..USUAL
};

pub(super) const CROSSED_NAMES_ON_ONE_THREAD: Scenario = Scenario {
    name: "crossed-names-on-one-thread",
    story: "The same without threads: one scan went on for ever, and answered no operation.",
    single_threaded: true,
    faults: CROSSED,
    coverage: &[(Sign::Rejoined, 2)],
    ..USUAL
};

pub(super) const DNS_THAT_FAILS: Scenario = Scenario {
    name: "dns-that-fails",
    story: "A lookup that failed was the last one, and mongos that came later were never found.",
    in_dns: true,
    faults: &[
        // Two that are there in the beginning vanish, one after the other, and come back.
        incident(Kind::DnsChange, (20, 100), &[1]),
        incident(Kind::DnsChange, (130, 170), &[2]),
        incident(Kind::DnsError, (55, 75), &[]),
        incident(Kind::DnsLoss, (75, 95), &[]),
        incident(Kind::DnsEmpty, (150, 170), &[]),
        Incident { bits: 1, ..incident(Kind::DnsStrangers, (170, 190), &[]) },
        incident(Kind::DnsStrangers, (200, 300), &[]),
    ],
    coverage: &[(Sign::RescanFailed, 4), (Sign::RescanRecovered, 2)],
    demand: Demand::Succeed(95),
    ..USUAL
};
