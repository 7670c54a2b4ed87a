//! Links that are driven over a socket, and what keeps a host's time.

use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::super::sync::Mutex;
use super::super::{Connected, Connector, Deadlines, Link, lock};
use super::puppet::{Puppet, host, pass, take_link};
use super::stage::{Behaviour, Task, Wire};
use crate::description::ServerType;
use crate::event::EventKind;
use crate::failure::{Cause, Failure, Stage};
use crate::options::Options;
use crate::time::Instant;

pub(super) const URI: &str = "mongodb://a/?directConnection=true";

/// A link's task over a connection to `server`.
pub(super) fn run(link: Link<Puppet>, server: &Arc<Behaviour>) -> Task<'static, ()> {
    let connector = Connector::new(&Options::parse(URI).unwrap()).unwrap();
    let wire = Wire::new(Arc::clone(server), Arc::default());
    let route = connector.route(&"a".parse().unwrap(), &connector.filters()).unwrap();
    Task::new(link.run(ready(route.opened(Ok(wire)))))
}

#[test]
fn a_link_says_hello_and_reports_the_reply_however_it_is_torn() {
    for torn in [0, 1, 7] {
        let (host, server) = (host(URI, false), Arc::<Behaviour>::default());
        host.ring();
        server.torn.store(torn, Ordering::Relaxed);
        let mut task = run(take_link(&host), &server);
        assert!(task.poll().is_pending(), "it waits for the next hello");
        assert_eq!(host.view().servers()[0].server_type, ServerType::Standalone);
        assert_eq!(server.open.load(Ordering::Relaxed), 1);
        host.close();
        assert!(task.was_woken() && task.poll().is_ready(), "the host has let go of it");
        drop(task);
        assert_eq!(server.open.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn watchers_are_woken_by_changes_and_not_by_round_trip_times() {
    let (host, server) = (host(&format!("{URI}&serverMonitoringMode=poll"), false), Arc::default());
    let mut views = host.watch();
    let mut next = |is_woken: bool, what: &str| {
        let mut cx = Context::from_waker(Waker::noop());
        let view = pin!(views.next()).poll(&mut cx);
        assert_eq!(view.is_ready(), is_woken, "{what}");
    };
    next(true, "the view of now comes first");
    host.ring();
    let mut task = run(take_link(&host), &server);
    next(false, "the seeds are known already");
    pass(&host, Duration::from_millis(7));
    assert!(task.poll().is_pending());
    next(true, "the server is known");
    let known = host.view();
    pass(&host, Duration::from_millis(10_005));
    assert!(task.poll().is_pending());
    let checked = host.view();
    let (old, new) = (&known.servers()[0], &checked.servers()[0]);
    assert_ne!(old.last_update_time, new.last_update_time, "it was checked again");
    assert_ne!(old.round_trip_time, new.round_trip_time, "and whoever selects sees that");
    next(false, "nothing has changed");
}

#[test]
fn a_link_that_is_let_go_gives_up_connecting() {
    let host = host(URI, false);
    host.ring();
    let connect = std::future::pending::<Result<Connected<Wire>, Failure>>();
    let mut task = Task::new(take_link(&host).run(connect));
    assert!(task.poll().is_pending());
    host.close();
    assert!(task.was_woken() && task.poll().is_ready());
}

#[test]
fn what_fails_on_the_way_to_a_proxy_is_said_of_the_proxy() {
    let host = host(URI, false);
    host.ring();
    let options = Options::parse("mongodb://a/?proxyHost=p&proxyPort=1").unwrap();
    let connector = Connector::new(&options).unwrap();
    let route = connector.route(&"a".parse().unwrap(), &connector.filters()).unwrap();
    assert_eq!(route.dial(), &"p:1".parse().unwrap());
    let refused = Failure::new(Stage::Connect, Cause::Refused, "refused");
    let opened = route.opened::<Wire>(Err(refused));
    assert!(Task::new(take_link(&host).run(ready(opened))).poll().is_ready());
    let failure = Failure::new(Stage::Proxy, Cause::Refused, "the proxy: refused");
    assert_eq!(host.view().servers()[0].error, Some(failure));
}

#[test]
fn the_timekeeper_rings_at_each_deadline_and_closes_a_client_whose_runtime_ends() {
    let (deadlines, timekeeper) = Deadlines::new();
    let host = host(URI, false);
    let mut events = host.subscribe();
    let slept = Mutex::new(Vec::new());
    let sleep_until = |at: Instant| {
        lock(&slept).push(at);
        if at == Instant::ZERO {
            // As the runtime does, when the host has been rung and asks for the next time.
            deadlines.set(Some(Instant::from_millis(5)));
        }
        std::future::poll_fn(move |_| match at {
            Instant::ZERO => Poll::Ready(()),
            _ => Poll::Pending,
        })
    };
    let mut task = Task::new(timekeeper.run(Arc::downgrade(&host), sleep_until));
    assert!(events.try_next().is_none());
    assert!(task.poll().is_pending());
    let opening = events.try_next().unwrap().kind;
    assert!(matches!(opening, EventKind::TopologyOpening), "it has rung: {opening:?}");
    assert_eq!(*lock(&slept), [Instant::ZERO, Instant::from_millis(5)]);
    drop(task);
    let last = std::iter::from_fn(|| events.try_next()).last().unwrap().kind;
    assert!(matches!(last, EventKind::TopologyClosed), "{last:?}");
}

#[test]
fn a_timekeeper_that_is_dropped_before_it_began_closes_the_client() {
    let (_deadlines, timekeeper) = Deadlines::new();
    let host = host(URI, false);
    let mut events = host.subscribe();
    drop(timekeeper.run(Arc::downgrade(&host), |_| std::future::pending::<()>()));
    let last = std::iter::from_fn(|| events.try_next()).last().unwrap().kind;
    assert!(matches!(last, EventKind::TopologyClosed), "{last:?}");
}
