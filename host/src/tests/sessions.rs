//! Sessions as applications hold them: one operation at a time, and what becomes of the servers'.

use std::sync::Arc;

use bson::{RawDocument, Timestamp};
use sdam_core::session::SessionOptions;

use super::Puppet;
use super::fixture::Fixture;
use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::operations::session::{ClientSession, DriverSession, SessionAccessError, SessionGuard};

fn start(fixture: &Fixture) -> ClientSession<Puppet> {
    ClientSession::start(&fixture.host, &Default::default(), SessionOptions::default()).unwrap()
}

fn lsid(guard: &SessionGuard<Puppet>) -> Option<&RawDocument> {
    guard.server_session().map(|session| session.id().document())
}

/// Driver Sessions, "endSession": the operation that uses the session goes on with it; the
/// servers' session is not used by another one before, and is afterwards.
#[test]
fn a_session_that_is_ended_while_an_operation_uses_it_ends_with_that() {
    let fixture = Fixture::with_sessions("");
    let own = start(&fixture);
    let id = own.id().unwrap().to_owned();
    let guard = own.try_acquire().unwrap();
    own.end();
    assert_eq!(lsid(&guard), Some(&*id), "the operation has it");
    assert_ne!(start(&fixture).id(), Some(&*id), "it is in use");
    drop(guard);
    assert_eq!(lsid(&own.try_acquire().unwrap()), None, "it has ended");
    assert_eq!(start(&fixture).id(), Some(&*id), "it was given back");
}

/// Driver Sessions, "endSession": "A driver MUST allow multiple calls"; the servers' session is
/// given back once.
#[test]
fn a_session_that_is_ended_twice_is_given_back_once() {
    let fixture = Fixture::with_sessions("");
    let own = start(&fixture);
    let id = own.id().unwrap().to_owned();
    own.end();
    own.end();
    let next = start(&fixture);
    assert_eq!(next.id(), Some(&*id));
    drop(own);
    assert_ne!(start(&fixture).id(), Some(&*id), "the next one has it");
    assert_eq!(lsid(&next.try_acquire().unwrap()), Some(&*id));
}

/// Driver Sessions: what a session was started with, and what it was advanced to.
#[test]
fn a_session_says_what_it_is() {
    let (fixture, other) = (Fixture::with_sessions(""), Fixture::with_sessions(""));
    let clients = [&fixture, &other].map(|it| Topology::from_host(Arc::clone(&it.host)));
    let options = SessionOptions::default().with_causal_consistency(Some(false));
    let own = clients[0].start_session(options.clone()).unwrap();
    assert_eq!(
        (own.options(), start(&fixture).options().clone()),
        (&options, SessionOptions::default())
    );
    assert!(own.belongs_to(&clients[0]) && !own.belongs_to(&clients[1]));
    assert!(!own.is_dirty().unwrap());
    assert!(own == own.clone() && own != start(&fixture));
    let time = Timestamp { time: 7, increment: 1 };
    assert_eq!(own.operation_time().unwrap(), None);
    own.advance_operation_time(time).unwrap();
    assert_eq!(own.operation_time().unwrap(), Some(time));
    assert_eq!((own.snapshot_time().unwrap(), own.cluster_time().unwrap()), (None, None));
    let _guard = own.try_acquire().unwrap();
    assert_eq!(own.operation_time(), Err(SessionAccessError::InUse));
}

#[test]
fn a_session_is_the_last_of_its_clones_alone() {
    let fixture = Fixture::with_sessions("");
    let own = start(&fixture);
    assert!(own.is_last());
    let clone = own.clone();
    assert!(!own.is_last());
    drop(clone);
    assert!(own.is_last());
}
