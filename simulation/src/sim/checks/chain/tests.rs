//! Chains of events that are made up, and have gaps.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{Options, PoolOptions};
use sdam_core::description::{ServerDescription, TopologyDescription};
use sdam_core::id::ConnectionId;
use sdam_core::pool::{Pool, PoolConfig, PoolEvent};
use sdam_core::topology::{EventKind, Topology};

use super::Chain;

/// Returns the first description of a deployment's members.
fn seeds() -> Arc<TopologyDescription> {
    let options = Arc::new(Options::parse("mongodb://a").unwrap());
    Arc::clone(Topology::new(options, 1).snapshot().description())
}

/// The number of a connection, which only pools give.
fn connection_of(known: &ServerDescription) -> ConnectionId {
    let (address, options) = (known.address.clone(), PoolOptions::default());
    let config = PoolConfig::new(address, options);
    let pool: Pool<()> = Pool::new(config);
    pool.newest()
}

/// Returns an event of that server's pool.
fn of_pool(known: &ServerDescription, event: PoolEvent) -> EventKind {
    EventKind::Pool { server: known.id, address: known.address.clone(), event }
}

/// Returns whether a chain may go on so.
fn follows(chain: &mut Chain, kind: &EventKind) -> bool {
    chain.event(kind).is_ok()
}

/// A chain in which a server has joined, and its pool is open.
fn opened() -> (Chain, Arc<ServerDescription>) {
    let (mut chain, new) = (Chain::default(), seeds());
    assert!(follows(&mut chain, &EventKind::TopologyOpening));
    let known = Arc::clone(&new.servers()[0]);
    let changed = EventKind::TopologyDescriptionChanged { previous: Arc::default(), new };
    assert!(follows(&mut chain, &changed));
    let (server, address) = (known.id, known.address.clone());
    assert!(follows(&mut chain, &EventKind::ServerOpening { server, address }));
    let options = PoolOptions::default();
    assert!(follows(&mut chain, &of_pool(&known, PoolEvent::PoolCreated { options })));
    (chain, known)
}

#[test]
fn the_first_change_begins_with_nothing_known() {
    let mut chain = Chain::default();
    assert!(follows(&mut chain, &EventKind::TopologyOpening));
    let changed = EventKind::TopologyDescriptionChanged { previous: seeds(), new: seeds() };
    assert!(!follows(&mut chain, &changed));
}

#[test]
fn the_first_change_of_a_server_begins_with_it_as_it_joined() {
    let (mut chain, known) = opened();
    let mut other = (*known).clone();
    other.server_type = sdam_core::description::ServerType::Mongos;
    let other = Arc::new(other);
    let (previous, new) = (Arc::clone(&other), Arc::clone(&known));
    assert!(!follows(&mut chain, &EventKind::ServerDescriptionChanged { previous, new }));
    assert!(follows(
        &mut chain,
        &EventKind::ServerDescriptionChanged { previous: known, new: other }
    ));
}

#[test]
fn views_are_what_was_told_last() {
    let (mut chain, _) = opened();
    chain.published(&seeds());
    assert!(chain.after_step().is_ok());
    chain.published(&Arc::default());
    assert!(chain.after_step().is_err(), "nothing was reported of that");
    assert!(chain.after_step().is_ok(), "and it is judged once");
}

#[test]
fn whoever_asks_for_a_connection_is_answered_once() {
    let (mut chain, known) = opened();
    let server = known.id;
    let started = of_pool(&known, PoolEvent::ConnectionCheckOutStarted);
    let (connection, duration) = (connection_of(&known), Duration::ZERO);
    let connections = &mut chain.pools.get_mut(&server).unwrap().connections;
    connections.insert(connection.number(), false);
    let checked_out = of_pool(&known, PoolEvent::ConnectionCheckedOut { connection, duration });
    assert!(follows(&mut chain, &started));
    assert!(chain.ended().is_err(), "there is a question, and a connection");
    assert!(follows(&mut chain, &checked_out));
    assert!(!follows(&mut chain, &checked_out), "nothing has asked");
    assert!(follows(&mut chain, &started));
    chain.lends_aloud();
    assert!(!follows(&mut chain, &checked_out), "it was not returned");
}

#[test]
fn pools_and_their_connections_end_with_the_client() {
    let (mut chain, known) = opened();
    let (server, address) = (known.id, known.address.clone());
    assert!(follows(&mut chain, &EventKind::ServerClosed { server, address }));
    assert!(follows(&mut chain, &EventKind::TopologyClosed));
    assert!(chain.over().is_err(), "the pool is open");
    assert!(follows(&mut chain, &of_pool(&known, PoolEvent::PoolClosed)));
    assert!(chain.over().is_ok() && chain.ended().is_ok());
}
