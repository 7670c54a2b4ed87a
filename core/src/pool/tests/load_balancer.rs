//! Pools behind a load balancer (Load Balancer Support).

use bson::oid::ObjectId;

use super::{Command, Fixture, Generation, Input, broken, failure, millis};
use crate::id::ConnectionId;
use crate::pool::{Established, Purpose};

fn service(number: u8) -> ObjectId {
    ObjectId::from_bytes([number; 12])
}

fn load_balanced() -> Fixture {
    let mut fixture = Fixture::new(|config| {
        config.load_balanced = true;
        config.options.max_pool_size = 3;
        config.options.wait_queue_timeout = Some(millis(50));
    });
    fixture.input(Input::Command(Command::Ready));
    for (connection, number) in [(1, 1), (2, 2), (3, 1)] {
        fixture.check_out(1_000_000 + connection);
        let outcome = Ok(Established { connection, service: Some(service(number)) });
        fixture.input(Input::Established { connection: ConnectionId(connection), outcome });
    }
    fixture.notes();
    fixture
}

fn clear(fixture: &mut Fixture, number: u8, to: u32) {
    let (service, to) = (service(number), Generation::new(to));
    fixture.input(Input::Command(Command::ClearService { service, to, cause: failure() }));
}

/// "Clearing a load balanced pool": neither paused nor is anybody turned away.
#[test]
fn clearing_one_service_leaves_the_others_alone() {
    let mut fixture = load_balanced();
    fixture.check_in(1);
    fixture.check_in(2);
    fixture.notes();
    clear(&mut fixture, 1, 1);
    assert_eq!(fixture.notes(), ["pool cleared", "c1 closed: Stale", "dispose c1"]);
    fixture.check_in(3);
    assert_eq!(fixture.notes(), ["c3 checked in", "c3 closed: Stale", "dispose c3"]);
    fixture.check_out(1);
    let (check_out, _) = *fixture.checked_out.last().unwrap();
    assert_eq!((check_out.connection.0, check_out.service), (2, Some(service(2))));
}

/// The topology keeps counting, so the pool does, even without a connection.
#[test]
fn a_service_keeps_its_generation_after_its_last_connection() {
    let mut fixture = load_balanced();
    clear(&mut fixture, 1, 1);
    fixture.check_in(1);
    fixture.check_in(3);
    fixture.check_out(1);
    let outcome = Ok(Established { connection: 4, service: Some(service(1)) });
    fixture.input(Input::Established { connection: ConnectionId(4), outcome });
    let (check_out, _) = *fixture.checked_out.last().unwrap();
    assert_eq!((check_out.connection.0, check_out.generation.number()), (4, 1));
    let pool = fixture.pool.get();
    assert_eq!(pool.generation(Some(service(2))).number(), 0);
    assert_eq!(pool.generation(None).number(), 0);
}

/// "The traditional / non-load balanced clearing behavior MUST NOT be used", nor the other way.
#[test]
fn each_kind_of_pool_knows_its_own_kind_of_clear_only() {
    let mut fixture = load_balanced();
    fixture.clear(true);
    let mut other = Fixture::ready(|_| {});
    clear(&mut other, 1, 1);
    assert_eq!((fixture.notes().len(), other.notes().len()), (0, 0));
}

/// The ids of services come from outside, so that there may be any number of them.
#[test]
fn no_more_than_ten_thousand_services_are_remembered() {
    let mut fixture = load_balanced();
    let id = |number: u32| {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        ObjectId::from_bytes(bytes)
    };
    for number in 1..=10_001 {
        let (service, to) = (id(number), Generation::new(1));
        fixture.input(Input::Command(Command::ClearService { service, to, cause: failure() }));
    }
    let pool = fixture.pool.get();
    let [oldest, next] = [1, 2].map(|number| pool.generation(Some(id(number))).number());
    assert_eq!((oldest, next), (0, 1));
}

/// "MUST track the purpose for which connections are checked out", and say so in the error.
#[test]
fn a_time_out_says_what_the_connections_are_used_for() {
    let mut fixture = load_balanced();
    let pin = |connection, purpose, fixture: &mut Fixture| {
        let check_out = fixture.check_out_of(connection);
        fixture.input(Input::Pin { check_out, purpose });
    };
    pin(1, Purpose::Cursor, &mut fixture);
    pin(2, Purpose::Cursor, &mut fixture);
    pin(2, Purpose::Transaction, &mut fixture);
    fixture.check_out(1);
    fixture.at(50);
    let message = fixture.errors[0].to_string();
    let counts = "maxPoolSize: 3, connections in use by cursors: 1, connections in use by \
                  transactions: 1, connections in use by other operations: 1";
    assert!(message.contains(counts), "{message}");
    let start = "Timed out while checking out a connection from connection pool";
    assert!(message.starts_with(start), "{message}");
    fixture.check_in(2);
    fixture.check_in(3);
    fixture.input(Input::CheckIn { check_out: fixture.check_out_of(1), outcome: broken() });
    pin(1, Purpose::Cursor, &mut fixture);
    fixture.check_out(2);
    fixture.check_out(3);
    fixture.check_out(4);
    fixture.at(100);
    let message = fixture.errors[1].to_string();
    assert!(message.contains("cursors: 0, connections in use by transactions: 0"), "{message}");
    assert!(message.contains("other operations: 2"), "{message}");
}
