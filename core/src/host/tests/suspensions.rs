//! A process that was stopped: what had arrived is read before time-outs are judged.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use super::super::{Events, Host, lock};
use super::links::{URI, run};
use super::puppet::{Puppet, host, pass, take_link};
use super::stage::{Behaviour, Stage, Task};
use crate::description::ServerType;
use crate::event::EventKind;
use crate::failure::Cause;
use crate::selection::Criteria;
use crate::time::Instant;

/// Far longer than any time-out.
const STOPPED: Duration = Duration::from_secs(300);

/// A client of one server that keeps its replies to itself, and the task of its monitor.
struct Scene {
    host: Arc<Host<Puppet>>,
    server: Arc<Behaviour>,
    monitor: Task<'static, ()>,
    events: Events,
}

impl Scene {
    fn new(uri: &str) -> Self {
        let (host, server) = (host(uri, false), Arc::<Behaviour>::default());
        let events = host.subscribe();
        host.ring();
        server.mute.store(true, Ordering::Relaxed);
        let mut monitor = run(take_link(&host), &server);
        // Sending its hello, it has woken itself.
        assert!(monitor.poll().is_pending() && monitor.poll().is_pending());
        assert!(!monitor.was_woken(), "it waits for the reply");
        Self { host, server, monitor, events }
    }

    /// Stops the process; meanwhile the replies arrive.
    fn stop_while_replies_arrive(&self) {
        stop(&self.host);
        self.server.mute.store(false, Ordering::Relaxed);
    }

    fn server_type(&self) -> ServerType {
        self.host.view().servers()[0].server_type
    }

    /// How many checks have failed since this was last asked.
    fn failures(&mut self) -> usize {
        let failed = |kind: &EventKind| matches!(kind, EventKind::ServerHeartbeatFailed { .. });
        std::iter::from_fn(|| self.events.try_next()).filter(|event| failed(&event.kind)).count()
    }
}

fn stop(host: &Host<Puppet>) {
    let mut now = lock(&host.runtime().now);
    *now = *now + STOPPED;
}

fn now(host: &Host<Puppet>) -> Instant {
    *lock(&host.runtime().now)
}

fn alarm(host: &Host<Puppet>) -> Instant {
    lock(&host.runtime().alarm).expect("an alarm")
}

/// Rings late, and again when the runtime has seen which sockets are ready: then tasks are woken.
fn ring_late(host: &Host<Puppet>) {
    host.ring();
    let look = alarm(host) - now(host);
    assert!(look > Duration::ZERO && look < Duration::from_millis(100), "{look:?}");
    pass(host, look);
}

/// Rings as the host has just asked for.
fn judge(host: &Host<Puppet>) {
    assert_eq!(alarm(host), now(host), "what had arrived was read");
    host.ring();
    assert!(alarm(host) > now(host), "and what was due is done");
}

#[test]
fn a_reply_that_arrived_while_the_process_was_stopped_saves_the_check() {
    let mut scene = Scene::new(URI);
    scene.stop_while_replies_arrive();
    ring_late(&scene.host);
    assert!(scene.monitor.was_woken());
    assert!(scene.monitor.poll().is_pending());
    judge(&scene.host);
    assert_eq!((scene.server_type(), scene.failures()), (ServerType::Standalone, 0));
    // The next check was due, too; it begins now.
    assert_eq!(alarm(&scene.host), now(&scene.host) + Duration::from_secs(10));
}

#[test]
fn whoever_comes_before_the_ring_judges_nothing() {
    let mut scene = Scene::new(URI);
    scene.stop_while_replies_arrive();
    scene.host.request_check();
    assert_eq!(scene.failures(), 0);
    assert!(scene.monitor.poll().is_pending());
    assert_eq!(scene.server_type(), ServerType::Standalone);
    ring_late(&scene.host);
    assert!(scene.monitor.poll().is_pending());
    judge(&scene.host);
    assert_eq!(scene.failures(), 0);
}

/// Server Monitoring, "Socket timeout": connectTimeoutMS and heartbeatFrequencyMS together.
#[test]
fn an_awaited_reply_that_arrived_saves_the_check_and_the_next_one_has_all_of_its_time() {
    let mut scene = Scene::new(URI);
    scene.server.streams.store(true, Ordering::Relaxed);
    // The reply that says that the server can stream is to the second hello.
    scene.server.mute.store(false, Ordering::Relaxed);
    assert!(scene.monitor.poll().is_pending());
    pass(&scene.host, Duration::from_secs(10));
    assert!(scene.monitor.poll().is_pending());
    let mut pinger = run(take_link(&scene.host), &scene.server);
    assert!(pinger.poll().is_pending());
    stop(&scene.host);
    scene.server.changes.store(true, Ordering::Relaxed);
    ring_late(&scene.host);
    assert!(pinger.was_woken() && pinger.poll().is_pending());
    assert!(scene.monitor.was_woken() && scene.monitor.poll().is_pending());
    let read = now(&scene.host);
    judge(&scene.host);
    assert!(pinger.poll().is_pending());
    pass(&scene.host, Duration::from_millis(19_999));
    assert!(pinger.poll().is_pending());
    assert_eq!((scene.server_type(), scene.failures()), (ServerType::Standalone, 0));
    pass(&scene.host, Duration::from_millis(1));
    assert_eq!(scene.failures(), 1, "nothing came within 20 s after {read:?}");
}

#[test]
fn without_a_reply_the_time_out_comes_once_and_after_the_probes() {
    let mut scene = Scene::new(URI);
    stop(&scene.host);
    ring_late(&scene.host);
    assert_eq!(scene.failures(), 0);
    assert!(scene.monitor.was_woken() && scene.monitor.poll().is_pending());
    assert_eq!(scene.failures(), 0);
    judge(&scene.host);
    assert_eq!(scene.failures(), 1);
    let error = scene.host.view().servers()[0].error.clone().unwrap();
    assert_eq!(error.cause, Cause::Timeout);
    assert!(scene.monitor.was_woken() && scene.monitor.poll().is_ready(), "it was let go of");
    assert_eq!(alarm(&scene.host), now(&scene.host) + Duration::from_secs(10));
}

#[test]
fn a_task_that_is_dropped_and_one_that_is_never_polled_hold_nothing_up() {
    let mut scene = Scene::new(URI);
    stop(&scene.host);
    ring_late(&scene.host);
    let Scene { host, monitor, .. } = &mut scene;
    *monitor = Task::new(std::future::pending());
    judge(host);
    assert_eq!(host.view().servers()[0].error.as_ref().unwrap().cause, Cause::Io);
    let mut scene = Scene::new(URI);
    stop(&scene.host);
    ring_late(&scene.host);
    pass(&scene.host, Duration::from_millis(999));
    assert_eq!(scene.failures(), 0);
    pass(&scene.host, Duration::from_millis(1));
    assert_eq!(scene.failures(), 1);
    // What it lets go of later belongs to the past.
    let next = alarm(&scene.host);
    assert!(scene.monitor.poll().is_ready());
    assert_eq!(alarm(&scene.host), next);
}

#[test]
fn a_selection_is_answered_by_what_arrived_before_it_is_judged() {
    for arrives in [true, false] {
        let mut scene = Scene::new(URI);
        let host = Arc::clone(&scene.host);
        let criteria = Arc::new(Criteria::write());
        let mut selection = Task::new(host.select(&criteria, Some(Instant::from_millis(5000))));
        assert!(selection.poll().is_pending());
        if arrives {
            scene.stop_while_replies_arrive();
        } else {
            stop(&host);
        }
        ring_late(&host);
        assert!(selection.poll().is_pending(), "nothing was read yet");
        assert!(scene.monitor.poll().is_pending());
        judge(&host);
        let Poll::Ready(selected) = selection.poll() else { panic!("no answer") };
        assert_eq!(selected.is_ok(), arrives);
    }
}

#[test]
fn a_process_that_is_stopped_within_a_ring_judges_nothing_that_was_not_due_before() {
    let mut scene = Scene::new(URI);
    let (host, criteria) = (Arc::clone(&scene.host), Arc::new(Criteria::write()));
    let mut selection = Task::new(host.select(&criteria, Some(Instant::from_millis(5000))));
    assert!(selection.poll().is_pending());
    *lock(&host.runtime().now) = Instant::from_millis(5000);
    *lock(&host.runtime().stops) = Some(STOPPED);
    host.ring();
    assert!(matches!(selection.poll(), Poll::Ready(Err(_))), "that was due");
    assert!(now(&host) > Instant::ZERO + STOPPED);
    scene.server.mute.store(false, Ordering::Relaxed);
    ring_late(&host);
    assert!(scene.monitor.poll().is_pending());
    judge(&host);
    assert_eq!((scene.failures(), scene.server_type()), (0, ServerType::Standalone));
}

#[test]
fn a_connection_whose_hello_was_answered_is_established_and_delivered() {
    for arrives in [true, false] {
        let stage = Stage::new("&connectTimeoutMS=700&heartbeatFrequencyMS=100000");
        stage.server.mute.store(true, Ordering::Relaxed);
        let pool = stage.pool();
        let deadline = stage.now() + Duration::from_millis(500);
        let mut waiting = Task::new(pool.check_out(Some(deadline)));
        assert!(waiting.poll().is_pending());
        stage.establish();
        stop(&stage.host);
        stage.server.mute.store(!arrives, Ordering::Relaxed);
        ring_late(&stage.host);
        stage.establish_woken();
        // The monitor's link has no task, and lets go of nothing.
        stage.pass(Duration::from_secs(1));
        let Poll::Ready(delivered) = waiting.poll() else { panic!("it still waits") };
        assert_eq!(delivered.is_ok(), arrives);
        assert_eq!(pool.counts().pending, 0);
    }
}

#[test]
fn a_check_out_that_begins_before_the_ring_has_all_of_its_time() {
    let stage = Stage::new("&connectTimeoutMS=5000&waitQueueTimeoutMS=2000");
    stage.server.mute.store(true, Ordering::Relaxed);
    let pool = stage.pool();
    let mut first = Task::new(pool.check_out(None));
    assert!(first.poll().is_pending());
    stop(&stage.host);
    let mut second = Task::new(pool.check_out(None));
    assert!(second.poll().is_pending());
    stage.pass(Duration::from_millis(1999));
    assert!(first.poll().is_ready() && second.poll().is_pending());
    stage.pass(Duration::from_millis(1));
    assert!(second.poll().is_ready());
}

#[test]
fn a_ring_in_time_wakes_nobody_who_reads() {
    let mut scene = Scene::new(URI);
    let host = Arc::clone(&scene.host);
    let criteria = Arc::new(Criteria::write());
    let mut selection = Task::new(host.select(&criteria, Some(Instant::from_millis(5000))));
    assert!(selection.poll().is_pending());
    for late in [0, 100] {
        let due = alarm(&host);
        *lock(&host.runtime().now) = due + Duration::from_millis(late);
        host.ring();
        assert!(alarm(&host) > due, "it was judged at once");
        let told = if late == 0 { selection.poll().is_ready() } else { scene.failures() == 1 };
        assert!(told);
        // In the end, because it is let go of.
        assert_eq!(scene.monitor.was_woken(), late > 0);
    }
}
