//! A process that was stopped: what had arrived is read before time-outs are judged.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};

use super::fixture::{Behaviour, Fixture, Task};
use super::links::{URI, run};
use super::puppet::{Puppet, host, pass, take_link};
use crate::machines::Host;
use crate::machines::alarm::{Step, Suspension};
use crate::observe::subscription::Events;
use crate::sync::lock;
use sdam_core::description::ServerType;
use sdam_core::failure::Cause;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::EventKind;

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

    /// The number of checks that have failed since this was last asked.
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
    // The pause after that check begins by the clock, so that nothing is overdue any more.
    assert_eq!(alarm(&scene.host) - now(&scene.host), Duration::from_secs(10));
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
    assert!(scene.monitor.was_woken(), "by its own report, so that it is not done yet");
    assert!(scene.monitor.poll().is_pending());
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
        let fixture = Fixture::new("&connectTimeoutMS=700&heartbeatFrequencyMS=100000");
        fixture.server.mute.store(true, Ordering::Relaxed);
        let pool = fixture.pool();
        let deadline = fixture.now() + Duration::from_millis(500);
        let pool = pool.clone().with_deadline(Some(deadline));
        let mut waiting = Task::new(pool.check_out());
        assert!(waiting.poll().is_pending());
        fixture.establish();
        stop(&fixture.host);
        fixture.server.mute.store(!arrives, Ordering::Relaxed);
        ring_late(&fixture.host);
        fixture.establish_woken();
        // The monitor's link has no task, and lets go of nothing.
        fixture.pass(Duration::from_secs(1));
        let Poll::Ready(delivered) = waiting.poll() else { panic!("it still waits") };
        assert_eq!(delivered.is_ok(), arrives);
        assert_eq!(pool.counts().pending, 0);
    }
}

/// connectTimeoutMS is about servers that do not answer; "the timeout MUST be refreshed after each
/// command" of the handshake (Client Side Operations Timeout, "Background Connection Pooling").
#[test]
fn a_login_that_a_stop_has_interrupted_goes_on_and_its_next_step_has_all_of_its_time() {
    let uri = "mongodb://user:pencil@a/?directConnection=true&authMechanism=SCRAM-SHA-256\
               &connectTimeoutMS=5000&heartbeatFrequencyMS=1000000";
    let host = host(uri, false);
    host.ring();
    let fixture = Fixture::begin(host);
    // It goes on with the client's own nonce, which is always the same here.
    let challenge = format!("r={}server,s=c2FsdHNhbHRzYWx0c2E=,i=4096", "BwcH".repeat(8));
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: challenge.into_bytes() };
    let reply = rawdoc! { "ok": 1, "conversationId": 1, "done": false, "payload": payload };
    *lock(&fixture.server.reply) = Some(reply);
    *lock(&fixture.server.mute_from) = Some("saslStart");
    let pool = fixture.pool();
    let mut waiting = Task::new(pool.check_out());
    assert!(waiting.poll().is_pending() && fixture.establish());
    stop(&fixture.host);
    // The challenge has arrived meanwhile, but has no answer yet.
    fixture.server.mute.store(false, Ordering::Relaxed);
    *lock(&fixture.server.mute_from) = Some("saslContinue");
    ring_late(&fixture.host);
    fixture.establish_woken();
    assert_eq!(lock(&fixture.server.commands).len(), 3, "hello, saslStart, saslContinue");
    fixture.pass(Duration::from_millis(4_999));
    let server_type = || fixture.host.view().servers()[0].server_type;
    assert_eq!((pool.counts().pending, server_type()), (1, ServerType::Standalone));
    fixture.pass(Duration::from_millis(1));
    assert!(waiting.poll().is_ready(), "the server has not answered for 5 s");
    assert_eq!((pool.counts().pending, server_type()), (0, ServerType::Unknown));
}

#[test]
fn a_check_out_that_begins_before_the_ring_has_all_of_its_time() {
    let fixture = Fixture::new("&connectTimeoutMS=5000&waitQueueTimeoutMS=2000");
    fixture.server.mute.store(true, Ordering::Relaxed);
    let pool = fixture.pool();
    let mut first = Task::new(pool.check_out());
    assert!(first.poll().is_pending());
    stop(&fixture.host);
    let mut second = Task::new(pool.check_out());
    assert!(second.poll().is_pending());
    fixture.pass(Duration::from_millis(1999));
    assert!(first.poll().is_ready() && second.poll().is_pending());
    fixture.pass(Duration::from_millis(1));
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

/// CMAP, "Checking Out a Connection": a perished connection is closed, not delivered.
#[test]
fn a_connection_that_was_idle_for_too_long_is_not_lent_before_the_ring_either() {
    for is_subscribed in [false, true] {
        let fixture = Fixture::new("&maxIdleTimeMS=1000&heartbeatFrequencyMS=100000");
        let _events = is_subscribed.then(|| fixture.host.subscribe());
        let pool = fixture.pool();
        drop(fixture.run(pool.check_out()).unwrap());
        assert_eq!(pool.counts().available, 1);
        stop(&fixture.host);
        let mut waiting = Task::new(pool.check_out());
        assert!(waiting.poll().is_pending(), "another one is established");
        assert_eq!((pool.counts().available, pool.counts().pending), (0, 1));
    }
}

/// Server Selection, "Calculation of Average Round Trip Times".
#[test]
fn what_was_asked_after_a_deadline_that_is_not_judged_yet_took_as_long_as_it_took() {
    let host = host(URI, false);
    host.ring();
    let link = take_link(&host);
    let criteria = Arc::new(Criteria::write());
    let mut selection = Task::new(host.select(&criteria, Some(Instant::from_millis(1000))));
    assert!(selection.poll().is_pending());
    *lock(&host.runtime().now) = Instant::from_millis(1050);
    link.opened();
    *lock(&host.runtime().now) = Instant::from_millis(1070);
    Fixture::answer(&link);
    let server = Arc::clone(&host.view().servers()[0]);
    assert_eq!(server.round_trip_time, Some(Duration::from_millis(20)));
    assert_eq!(server.last_update_time, Some(Instant::from_millis(1070)));
    assert!(matches!(selection.poll(), Poll::Ready(Ok(_))));
}

#[test]
fn an_error_says_how_long_an_operation_has_really_waited() {
    let scene = Scene::new(URI);
    let criteria = Arc::new(Criteria::write());
    let mut selection = Task::new(scene.host.select(&criteria, Some(Instant::from_millis(5000))));
    assert!(selection.poll().is_pending());
    stop(&scene.host);
    scene.host.close();
    let Poll::Ready(Err(error)) = selection.poll() else { panic!("it still waits") };
    assert_eq!(error.spent().unwrap().selecting, STOPPED);
}

#[test]
fn a_runtime_that_is_always_late_judges_at_the_third_ring_nevertheless() {
    const LATE: Duration = Duration::from_millis(500);
    for (is_polled, judged_at) in [(true, 1560), (false, 2560)] {
        let mut scene = Scene::new(URI);
        let (host, criteria) = (Arc::clone(&scene.host), Arc::new(Criteria::write()));
        let mut selection = Task::new(host.select(&criteria, Some(Instant::from_millis(50))));
        assert!(selection.poll().is_pending());
        for ring in 1..=3 {
            let due = alarm(&host).max(now(&host));
            *lock(&host.runtime().now) = due + LATE;
            host.ring();
            assert!(!is_polled || scene.monitor.poll().is_pending());
            assert_eq!(selection.poll().is_ready(), ring == 3);
        }
        assert_eq!(now(&host), Instant::from_millis(judged_at));
    }
}

#[test]
fn a_second_stop_while_tasks_read_is_noticed_as_well_and_a_third_puts_nothing_off() {
    let mut scene = Scene::new(URI);
    stop(&scene.host);
    ring_late(&scene.host);
    scene.stop_while_replies_arrive();
    ring_late(&scene.host);
    assert!(scene.monitor.poll().is_pending());
    judge(&scene.host);
    assert_eq!((scene.server_type(), scene.failures()), (ServerType::Standalone, 0));
    let mut scene = Scene::new(URI);
    for _ in 0..2 {
        stop(&scene.host);
        ring_late(&scene.host);
    }
    stop(&scene.host);
    scene.host.ring();
    assert_eq!(scene.failures(), 1);
}

/// A ring that is late by as much as is allowed is in time.
#[test]
fn a_ring_is_late_after_100_ms_and_what_it_leads_to_happens_in_time() {
    let mut suspension = None;
    let mut ring = |now: u64, due: u64| {
        let (now, due) = (Instant::from_millis(now), Instant::from_millis(due));
        Suspension::step(&mut suspension, now, Some(due), 1)
    };
    assert_eq!(ring(1100, 1000), Step::Judge);
    assert_eq!(ring(1100, 0), Step::Judge, "a client that is new is due since the origin");
    for late_again in [3111, 3112] {
        assert_eq!(ring(1101, 1000), Step::Wait, "for the runtime to look");
        assert_eq!(ring(1110, 1000), Step::Wait);
        assert_eq!(ring(1111, 1000), Step::Sweep(1));
        assert_eq!(ring(2110, 1000), Step::Wait, "for tasks to read");
        let is_late = late_again > 3111;
        assert_eq!(ring(late_again, 1000), if is_late { Step::Wait } else { Step::Judge });
    }
}
