//! The limiter of new connections (SDAM prose tests, "Connection Pool Backpressure").

use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{ConnectionId, MemberId, SECOND, ServerVersion, World};

const MEMBER: MemberId = MemberId(0);

fn hello() -> RawDocumentBuf {
    rawdoc! { "hello": 1, "$db": "admin" }
}

/// A member that admits 20 connections at once, 20 in each second after that, and lets one wait.
fn limited() -> (World, ConnectionId) {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(MEMBER);
    let command = rawdoc! {
        "setParameter": 1,
        "ingressConnectionEstablishmentRateLimiterEnabled": true,
        "ingressConnectionEstablishmentRatePerSec": 20,
        "ingressConnectionEstablishmentBurstCapacitySecs": 1,
        "ingressConnectionEstablishmentMaxQueueDepth": 1,
        "$db": "admin",
    };
    assert_eq!(world.ask(connection, &command).get_f64("ok").unwrap(), 1.0);
    (world, connection)
}

#[test]
fn a_storm_of_connections_is_closed_but_for_the_burst_and_the_queue() {
    let (mut world, old) = limited();
    let begin = world.now;
    let storm: Vec<ConnectionId> = (0..100).map(|_| world.connect(MEMBER)).collect();
    for connection in &storm {
        world.request(*connection, Flags::NONE, &hello());
    }
    let (admitted, rest) = storm.split_at(20);
    assert!(admitted.iter().all(|it| world.replies(*it).len() == 1));
    let (queued, refused) = rest.split_first().unwrap();
    assert!(refused.iter().all(|it| world.is_closed(*it)));
    assert_eq!(world.ask(old, &hello()).get_f64("ok").unwrap(), 1.0, "it was there before");
    world.advance(SECOND);
    assert_eq!(world.replies(*queued)[0].0, begin + Duration::from_millis(50));

    let late: Vec<ConnectionId> = (0..20).map(|_| world.connect(MEMBER)).collect();
    for connection in &late[..19] {
        world.ask(*connection, &hello());
    }
    let off = rawdoc! {
        "setParameter": 1, "ingressConnectionEstablishmentRateLimiterEnabled": false,
        "$db": "admin",
    };
    world.ask(old, &off);
    for _ in 0..100 {
        let connection = world.connect(MEMBER);
        world.ask(connection, &hello());
    }
}

#[test]
fn parameters_are_told_and_wrong_ones_change_nothing() {
    let (mut world, connection) = limited();
    let rate = "ingressConnectionEstablishmentRatePerSec";
    let asked = rawdoc! {
        "getParameter": 1, "ingressConnectionEstablishmentRatePerSec": 1, "$db": "admin",
    };
    for wrong in [
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentRatePerSec": 0 },
        rawdoc! { "setParameter": 1, "ingressConnectionEstablishmentMaxQueueDepth": -1 },
        rawdoc! { "setParameter": 1, "noSuchParameter": 1 },
        rawdoc! { "getParameter": 1, "noSuchParameter": 1 },
    ] {
        let mut wrong = wrong;
        wrong.append(bson::raw::cstr!("$db"), "admin");
        assert_eq!(world.ask(connection, &wrong).get_i32("code").unwrap(), 72);
        assert_eq!(world.ask(connection, &asked).get_f64(rate).unwrap(), 20.0);
    }
    let all = world.ask(connection, &rawdoc! { "getParameter": "*", "$db": "admin" });
    assert!(all.get_bool("enableTestCommands").unwrap());
}
