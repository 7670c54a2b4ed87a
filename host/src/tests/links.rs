//! Links that are driven over a socket, and what keeps a host's time.

use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bson::rawdoc;

use super::fixture::{Behaviour, Fixture, Task, Wire, connect};
use super::puppet::{Puppet, host, pass, take_link};
use crate::machines::Host;
use crate::machines::alarm::Deadlines;
use crate::machines::tasks::Link;
use crate::machines::topology::Deferred;
use crate::net::dial::Connector;
use crate::net::dns::srv_records;
use crate::net::stream::Connected;
use crate::observe::recording::Recording;
use crate::sync::Mutex;
use crate::sync::lock;
use sdam_core::config::Options;
use sdam_core::description::ServerType;
use sdam_core::diagnosis::Verdict;
use sdam_core::dns::{DnsError, DnsRecords, Question};
use sdam_core::failure::{Cause, Failure, Stage as Phase};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{EventKind, Input};

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
        while task.was_woken() {
            assert!(task.poll().is_pending(), "it waits for the next hello");
        }
        assert_eq!(host.view().servers()[0].server_type, ServerType::Standalone);
        assert_eq!(server.open.load(Ordering::Relaxed), 1);
        host.close();
        assert!(task.was_woken() && task.poll().is_ready(), "the host has let go of it");
        drop(task);
        assert_eq!(server.open.load(Ordering::Relaxed), 0);
    }
}

/// A report of the stage of a stream is news each time.
#[test]
fn a_stream_that_is_up_at_once_tells_no_more_than_that() {
    let (host, server) = (host(URI, false), Arc::default());
    let mut recording = Recording::everything();
    host.record(&recording);
    host.ring();
    assert!(run(take_link(&host), &server).poll().is_pending());
    let text: String = std::iter::from_fn(|| recording.try_next()).collect();
    assert!(text.contains(" opened "), "{text}");
    assert!(!text.contains(" reached "), "{text}");
}

/// A call that looks at the topology keeps others from changing it meanwhile.
#[test]
fn what_comes_up_while_somebody_diagnoses_is_told_afterwards() {
    let host = host(URI, false);
    host.ring();
    let link = take_link(&host);
    let failure = Failure::new(Phase::Connect, Cause::Refused, "refused");
    host.defer(Deferred::Lost(Input::Closed { link: link.id(), failure }));
    host.diagnose(&Criteria::write());
    let error = host.diagnose(&Criteria::write()).unwrap();
    assert_eq!(error.verdict, Verdict::ConnectionRefused);
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
    assert_ne!(old.round_trip_time, new.round_trip_time, "and selections see that");
    next(false, "nothing has changed");
}

/// Server Monitoring, "minHeartbeatFrequencyMS": also for a server that hangs up on its monitor as
/// soon as it has answered.
#[test]
fn a_monitor_that_was_hung_up_on_between_two_checks_asks_for_a_stream_after_500_ms() {
    let (host, server) = (host(URI, false), Arc::<Behaviour>::default());
    host.ring();
    server.hangs_up.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(run(take_link(&host), &server).poll().is_ready(), "the stream has ended");
        assert_eq!(host.view().servers()[0].server_type, ServerType::Standalone);
        pass(&host, Duration::from_millis(499));
        assert_eq!(lock(&host.runtime().links).len(), 0);
        pass(&host, Duration::from_millis(1));
    }
    assert_eq!(lock(&host.runtime().links).len(), 1);
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
    let refused = Failure::new(Phase::Connect, Cause::Refused, "refused");
    let opened = route.opened::<Wire>(Err(refused));
    assert!(Task::new(take_link(&host).run(ready(opened))).poll().is_ready());
    let failure = Failure::new(Phase::Proxy, Cause::Refused, "the proxy: refused");
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

/// Runs a task to where it waits, or to its end, whose every poll reads a little only.
fn read_in_turns<T>(task: &mut Task<'_, T>, server: &Behaviour) -> Poll<T> {
    let (reads, mut mutex) = (|| server.reads.load(Ordering::Relaxed), 0);
    let mut outcome = Poll::Pending;
    while outcome.is_pending() && task.was_woken() {
        let before = reads();
        outcome = task.poll();
        assert!(reads() - before <= 16, "{} reads at once", reads() - before);
        mutex += 1;
    }
    assert!(mutex > 5, "{mutex}");
    outcome
}

#[test]
fn a_monitor_that_always_finds_something_to_read_lets_others_have_their_turn() {
    let (host, server) = (host(URI, false), Arc::<Behaviour>::default());
    host.ring();
    server.torn.store(1, Ordering::Relaxed);
    let mut task = run(take_link(&host), &server);
    assert!(read_in_turns(&mut task, &server).is_pending());
    assert_eq!(host.view().servers()[0].server_type, ServerType::Standalone);
}

#[test]
fn a_connection_that_always_finds_something_to_read_lets_others_have_their_turn() {
    let fixture = Fixture::new("");
    fixture.server.torn.store(1, Ordering::Relaxed);
    let pool = fixture.pool();
    let mut check_out = Task::new(pool.check_out());
    assert!(check_out.poll().is_pending());
    let pending = lock(&fixture.host.runtime().pending).pop().expect("a slot");
    let clock = Arc::clone(&fixture.host.runtime().now);
    let connecting = connect(Arc::clone(&fixture.server), clock);
    let mut establishing = Task::new(pending.run(connecting, || Ok([7; 24])));
    assert!(read_in_turns(&mut establishing, &fixture.server).is_ready());
    let Poll::Ready(Ok(mut checked_out)) = check_out.poll() else { panic!("no connection") };
    let ping = rawdoc! { "ping": 1 };
    *lock(&fixture.server.reply) = Some(rawdoc! { "ok": 1, "text": "x".repeat(100) });
    let mut exchange = Task::new(checked_out.command("admin", &ping));
    assert!(matches!(read_in_turns(&mut exchange, &fixture.server), Poll::Ready(Ok(_))));
    drop(exchange);
    let mut exhaust = Task::new(async {
        let mut replies = checked_out.command_exhaust("admin", &ping).await.unwrap();
        while let Some(reply) = replies.next().await {
            reply.unwrap();
        }
    });
    assert!(read_in_turns(&mut exhaust, &fixture.server).is_ready());
}

/// A monitor that has more to read is not done when it lets others have their turn: deadlines are
/// not judged before it has read what had arrived.
#[test]
fn a_probe_is_kept_until_all_was_read() {
    let (host, server) = (host(URI, false), Arc::<Behaviour>::default());
    host.ring();
    server.torn.store(1, Ordering::Relaxed);
    let link = take_link(&host);
    let outgoing = Arc::clone(&link.outgoing);
    let mut task = run(link, &server);
    let barrier: Arc<()> = Arc::default();
    outgoing.barrier(Arc::clone(&barrier) as Arc<_>);
    assert!(task.poll().is_pending() && task.was_woken());
    assert_eq!(Arc::strong_count(&barrier), 2, "there is more to read");
    assert!(read_in_turns(&mut task, &server).is_pending());
    assert_eq!(Arc::strong_count(&barrier), 1);
}

/// A ring may come too early: the host sets the runtime's alarm again.
#[test]
fn a_runtime_that_rings_early_or_twice_is_told_the_deadline_again() {
    let host = host("mongodb://a/?connectTimeoutMS=0", false);
    host.ring();
    take_link(&host).closed(Failure::new(Phase::Connect, Cause::Refused, "refused"));
    let due = lock(&host.runtime().alarm).expect("a deadline");
    for early in [Duration::from_nanos(1), Duration::from_millis(1), Duration::from_millis(400)] {
        *lock(&host.runtime().now) = Instant::from_nanos(due.as_nanos() - early.as_nanos() as u64);
        // The timer is gone when it has fired.
        *lock(&host.runtime().alarm) = None;
        host.ring();
        assert_eq!(*lock(&host.runtime().alarm), Some(due), "{early:?} too early");
    }
    *lock(&host.runtime().now) = due;
    for _ in 0..2 {
        *lock(&host.runtime().alarm) = None;
        host.ring();
    }
    assert_eq!(lock(&host.runtime().links).len(), 1, "it goes on, once");
}

/// The first waker of the timer is used up, and the time has not come: it is set again.
#[test]
fn a_timekeeper_whose_timer_is_early_sets_it_again() {
    let (deadlines, timekeeper) = Deadlines::new();
    let puppet = Puppet { deadlines: Some(deadlines), ..Puppet::default() };
    let host = Host::new(Arc::new(Options::parse(URI).unwrap()), 1, puppet);
    let slept = Arc::<Mutex<Vec<Instant>>>::default();
    let (sleeps, now) = (Arc::clone(&slept), Arc::clone(&host.runtime().now));
    let sleep_until = move |at: Instant| {
        let (mut polls, now) = (0, Arc::clone(&now));
        lock(&sleeps).push(at);
        std::future::poll_fn(move |_| {
            polls += 1;
            // It fires when it is polled for the second time, whatever the time.
            if at <= *lock(&now) || polls > 1 { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    let mut task = Task::new(timekeeper.run(Arc::downgrade(&host), sleep_until));
    assert!(task.poll().is_pending());
    take_link(&host).closed(Failure::new(Phase::Connect, Cause::Refused, "refused"));
    assert!(task.poll().is_pending());
    let due = *lock(&slept).last().unwrap();
    for _ in 0..3 {
        assert!(task.poll().is_pending());
    }
    let again = lock(&slept).iter().filter(|at| **at == due).count();
    assert!(again > 2, "slept until {due:?} {again} times");
    *lock(&host.runtime().now) = due;
    assert!(task.poll().is_pending());
    assert_eq!(lock(&host.runtime().links).len(), 1, "the next check");
}

/// `Topology::close` waits until none of the client's tasks runs any more, this one included.
#[test]
fn the_timekeeper_ends_with_its_client_and_is_waited_for() {
    let (deadlines, timekeeper) = Deadlines::new();
    let puppet = Puppet { deadlines: Some(deadlines), ..Puppet::default() };
    let host = Host::new(Arc::new(Options::parse(URI).unwrap()), 1, puppet);
    let never = |_| std::future::pending::<()>();
    let mut timekeeper = Task::new(timekeeper.run(Arc::downgrade(&host), never));
    host.close();
    lock(&host.runtime().links).clear();
    let mut ended = Task::new(host.ended());
    assert!(ended.poll().is_pending(), "it runs");
    assert!(timekeeper.poll().is_ready(), "it was stopped");
    drop(timekeeper);
    assert!(ended.was_woken() && ended.poll().is_ready());
}

#[test]
fn what_fails_on_the_way_to_a_server_is_not_said_of_a_proxy() {
    let connector = Connector::new(&Options::parse(URI).unwrap()).unwrap();
    assert!(connector.filters().proxy().is_none());
    let route = connector.route(&"a".parse().unwrap(), &connector.filters()).unwrap();
    let refused = Failure::new(Phase::Connect, Cause::Refused, "refused");
    assert_eq!(route.opened::<Wire>(Err(refused.clone())).err(), Some(refused));
}

/// An address need not be resolved, and nor need a socket of the file system.
#[test]
fn opening_a_stream_begins_with_resolving_if_there_is_a_name() {
    let connector = Connector::new(&Options::parse(URI).unwrap()).unwrap();
    for (address, fixture) in [
        ("db.example:27017", Phase::Resolve),
        ("127.0.0.1:27017", Phase::Connect),
        ("[::1]:27017", Phase::Connect),
        ("/tmp/mongodb-27017.sock", Phase::Connect),
    ] {
        let route = connector.route(&address.parse().unwrap(), &connector.filters()).unwrap();
        assert_eq!(route.first_stage(), fixture, "{address}");
    }
}

/// A proxy that does not answer: the server has heard nothing, and the time-out says where it was.
#[test]
fn a_monitor_behind_a_proxy_says_hello_when_the_proxy_has_connected_it() {
    let uri = format!("{URI}&connectTimeoutMS=700&proxyHost=p&proxyPort=1");
    let (host, server) = (host(&uri, false), Arc::<Behaviour>::default());
    host.ring();
    let connector = Connector::new(host.options()).unwrap();
    assert!(connector.filters().proxy().is_some());
    let route = connector.route(&"a".parse().unwrap(), &connector.filters()).unwrap();
    let wire = Wire::new(Arc::clone(&server), Arc::clone(&host.runtime().now));
    let mut task = Task::new(take_link(&host).run(ready(route.opened(Ok(wire)))));
    while task.was_woken() {
        assert!(task.poll().is_pending());
    }
    assert!(lock(&server.commands).is_empty());
    pass(&host, Duration::from_millis(700));
    let view = host.view();
    let failure = view.servers()[0].error.as_ref().expect("time is up");
    assert_eq!((failure.stage, &failure.cause), (Phase::Proxy, &Cause::Timeout));
}

/// No lookup takes longer than a minute, whatever the resolver does.
#[test]
fn a_lookup_ends_after_a_minute_and_records_are_those_that_were_asked_for() {
    let question = || Question::srv("mongodb", "cluster.example.com");
    let at_once = |_| ready(());
    let never = |_| std::future::pending::<Result<DnsRecords, DnsError>>();
    let Poll::Ready(outcome) = Task::new(srv_records(question(), never, at_once)).poll() else {
        panic!("it waits")
    };
    assert!(outcome.unwrap_err().to_string().contains("60s"));
}

/// A timekeeper ends when no handle can set it any more.
#[test]
fn a_timekeeper_whose_deadlines_are_gone_ends() {
    let (deadlines, timekeeper) = Deadlines::new();
    let host = host(URI, false);
    let never = |_| std::future::pending::<()>();
    let mut task = Task::new(timekeeper.run(Arc::downgrade(&host), never));
    assert!(task.poll().is_pending());
    drop(deadlines);
    assert!(task.was_woken() && task.poll().is_ready());
}
