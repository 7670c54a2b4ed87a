//! Actions and events that are made up, and must not be.

use std::sync::Arc;

use sdam_core::config::Options;
use sdam_core::id::{LinkId, ServerId};
use sdam_core::machine::Machine;
use sdam_core::selection::Snapshot;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Event, EventKind, MonitoringConnection, Topology};

use super::Checks;

/// Three members.
const SET: &str = "mongodb://a,b,c";

const BALANCER: &str = "mongodb://a/?loadBalanced=true";

fn topology(uri: &str) -> Topology {
    Topology::new(Arc::new(Options::parse(uri).unwrap()), 1)
}

fn seeds(uri: &str) -> Arc<Snapshot> {
    Arc::clone(topology(uri).snapshot())
}

/// Three servers, which only topologies number.
pub(super) fn servers() -> [ServerId; 3] {
    let view = seeds(SET);
    [0, 1, 2].map(|index| view.description().servers()[index].id)
}

/// A link of the first of them, which only topologies number either.
pub(super) fn link() -> LinkId {
    let (mut topology, mut actions) = (topology(SET), Vec::new());
    topology.tick(Instant::ZERO.into(), &mut actions);
    let opened = actions.iter().find_map(|action| match action {
        Action::Open { link, .. } if link.server() == servers()[0] => Some(*link),
        _ => None,
    });
    opened.expect("a monitor dials its server")
}

fn checks(uri: &str) -> Checks {
    Checks::new(0, &Options::parse(uri).unwrap(), Arc::new([]), Vec::new(), false)
}

/// Returns which rule is broken by what is done.
fn broken(uri: &str, does: impl FnOnce(&mut Checks)) -> Option<&'static str> {
    let mut checks = checks(uri);
    does(&mut checks);
    checks.take_violation().map(|violation| violation.check)
}

fn perform(checks: &mut Checks, action: &Action) {
    checks.action(Instant::ZERO, action, |_| Some(true));
}

/// The first server joins, as a monitored one does.
fn join(checks: &mut Checks) {
    let address = seeds(SET).description().servers()[0].address.clone();
    perform(checks, &Action::Join { server: servers()[0], address });
}

fn open() -> Action {
    Action::Open { link: link(), address: "a:27017".parse().unwrap() }
}

#[test]
fn links_are_opened_and_used_to_members_only_and_to_no_load_balancer() {
    let removed = Some("nothing of a removed server");
    assert_eq!(broken(SET, |checks| perform(checks, &open())), removed);
    let send = Action::Send { link: link(), bytes: vec![0] };
    assert_eq!(broken(SET, |checks| perform(checks, &send)), removed);
    let joined = |uri| {
        broken(uri, |checks| {
            join(checks);
            perform(checks, &open());
        })
    };
    assert_eq!(joined(SET), None);
    assert_eq!(joined(BALANCER), Some("load balancers are not monitored"));
}

#[test]
fn members_only_are_checked() {
    let (topology, at) = (topology(SET).id(), Instant::ZERO);
    let (server, address) = (servers()[0], "a:27017".parse().unwrap());
    let connection = MonitoringConnection::new(link(), None);
    let kind = EventKind::ServerHeartbeatStarted { server, address, awaited: false, connection };
    let event = Event::new(topology, at, kind);
    let check = |checks: &mut Checks| checks.event(&event);
    assert_eq!(broken(SET, check), Some("nothing of a removed server"));
    assert_eq!(
        broken(SET, |checks| {
            join(checks);
            check(checks);
        }),
        None
    );
}

/// Returns which rule is broken when this is due after a step, and nothing has happened.
fn after_step(uri: &str, due: Option<Instant>, wanted: bool) -> Option<&'static str> {
    let view = seeds(uri);
    broken(uri, |checks| checks.after_step(Instant::ZERO, due, false, &view, wanted))
}

#[test]
fn something_is_always_due_but_behind_a_load_balancer_where_nobody_waits_either() {
    let due = Some(Instant::from_millis(500));
    assert_eq!((after_step(SET, due, true), after_step(BALANCER, None, false)), (None, None));
    assert_eq!(after_step(SET, None, false), Some("monitors never all stop"));
    let suits = Some("load balancers suit all");
    assert_eq!(
        (after_step(BALANCER, due, false), after_step(BALANCER, None, true)),
        (suits, suits)
    );
}

#[test]
fn a_closed_client_has_no_links_and_no_deadline() {
    let rests = Some("a closed client rests");
    assert_eq!(broken(SET, |checks| checks.closed(None, 1)), rests);
    assert_eq!(broken(SET, |checks| checks.closed(Some(Instant::ZERO), 0)), rests);
}

#[test]
fn the_first_rule_that_is_broken_counts() {
    let found = broken(SET, |checks| {
        checks.closed(None, 1);
        perform(checks, &open());
    });
    assert_eq!(found, Some("a closed client rests"));
}
