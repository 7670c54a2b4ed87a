//! Every future can be dropped at every point where it waits.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bson::rawdoc;

use super::fixture::{Fixture, Task};
use super::inline::unless_deadlocked;
use super::puppet::host;
use crate::sync::Mutex;
use sdam_core::description::ServerType;
use sdam_core::time::Instant;

/// An event between two polls.
type Between = fn(&Fixture);

/// Polls `ping` some times, drops it, and checks that nothing is left of it.
///
/// Returns whether it ended by itself.
fn cancelled_after(fixture: &Fixture, polls: usize, between: Between) -> bool {
    let mut task = Task::new(fixture.ping(None));
    let mut ended = false;
    for _ in 0..polls {
        if let Poll::Ready(result) = task.poll() {
            result.unwrap();
            ended = true;
            break;
        }
        between(fixture);
    }
    drop(task);
    let pool = fixture.pool();
    assert_eq!((pool.counts().in_use, pool.counts().waiting), (0, 0), "after {polls} polls");
    assert_eq!(pool.operation_count(), 0);
    ended
}

#[test]
fn a_command_can_be_cancelled_wherever_it_waits() {
    // The replies come in pieces of three bytes, and reading waits between two of them.
    let patterns: [Between; 2] = [
        |fixture| {
            fixture.establish();
        },
        |fixture| {
            fixture.establish();
            let mute = fixture.server.mute.load(Ordering::Relaxed);
            fixture.server.mute.store(!mute, Ordering::Relaxed);
        },
    ];
    for between in patterns {
        for warm in [false, true] {
            let mut polls = 0;
            loop {
                let fixture = Fixture::new("&maxPoolSize=2");
                fixture.server.torn.store(3, Ordering::Relaxed);
                if warm {
                    fixture.run(fixture.ping(None)).unwrap();
                }
                let ended = cancelled_after(&fixture, polls, between);
                // What is being established goes on, and serves the next caller.
                fixture.server.mute.store(false, Ordering::Relaxed);
                fixture.run(fixture.ping(None)).unwrap();
                while fixture.establish() {}
                let counts = fixture.pool().counts();
                let open = fixture.server.open.load(Ordering::Relaxed) as usize;
                assert_eq!((counts.pending, counts.in_use, counts.available), (0, 0, open));
                if ended {
                    break;
                }
                polls += 1;
            }
            assert!(polls > 0 || warm, "it has waited at least once for its connection");
        }
    }
}

#[test]
fn waiting_for_the_next_of_several_replies_can_be_cancelled() {
    let fixture = Fixture::new("");
    fixture.server.torn.store(3, Ordering::Relaxed);
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let mut replies =
        fixture.run(checked_out.command_exhaust("db", &rawdoc! { "getMore": 1_i64 })).unwrap();
    for _ in 0..3 {
        fixture.server.mute.store(true, Ordering::Relaxed);
        assert!(Task::new(replies.next()).poll().is_pending());
        fixture.server.mute.store(false, Ordering::Relaxed);
        fixture.run(replies.next()).unwrap().unwrap();
    }
    assert!(fixture.run(replies.next()).is_none());
    drop(checked_out);
    assert_eq!(fixture.pool().counts().available, 1);
}

#[test]
fn a_connection_that_was_delivered_to_nobody_returns_to_its_pool() {
    let fixture = Fixture::new("");
    let pool = fixture.pool();
    let mut task = Task::new(pool.check_out());
    assert!(task.poll().is_pending());
    while fixture.establish() {}
    assert!(task.was_woken(), "its connection was delivered");
    assert_eq!(pool.counts().in_use, 1);
    drop(task);
    assert_eq!((pool.counts().in_use, pool.counts().available), (0, 1));
}

#[test]
fn a_runtime_that_gives_connections_up_fails_those_who_wait_for_them() {
    let fixture = Fixture::new("");
    let pool = fixture.pool();
    let mut task = Task::new(pool.check_out());
    assert!(task.poll().is_pending());
    fixture.give_up();
    let Poll::Ready(Err(error)) = task.poll() else { panic!("it still waits") };
    let text = "connecting to a:27017 failed: the runtime gave the connection up";
    assert_eq!(error.to_string(), text);
    drop(task);
    let server_type = fixture.host.view().servers()[0].server_type;
    assert_eq!(server_type, ServerType::Standalone, "it says nothing of the server");
    assert_eq!((pool.counts().pending, pool.counts().waiting), (0, 0));
}

#[test]
fn closing_ends_every_wait_and_every_task() {
    let fixture = Fixture::new("&maxPoolSize=1");
    let checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let pool = fixture.pool();
    let mut waiting = Task::new(pool.check_out());
    assert!(waiting.poll().is_pending());
    fixture.host.close();
    let Poll::Ready(Err(error)) = waiting.poll() else { panic!("it still waits") };
    assert!(error.to_string().contains("closed connection pool"), "{error}");
    drop((waiting, checked_out));
    assert!(!ended_now(&fixture.host), "the monitor's link is still there");
    let Fixture { host, link, .. } = fixture;
    drop(link);
    assert!(ended_now(&host), "and with it the last task ended");
    assert_eq!(pool.counts().in_use, 0);
}

fn ended_now(host: &super::Host<super::Puppet>) -> bool {
    Task::new(host.ended()).poll().is_ready()
}

#[test]
fn connect_timeout_ends_an_attempt_and_the_topology_is_told() {
    let fixture = Fixture::new("&connectTimeoutMS=700&heartbeatFrequencyMS=100000");
    fixture.server.mute.store(true, Ordering::Relaxed);
    let pool = fixture.pool();
    let mut task = Task::new(pool.check_out());
    assert!(task.poll().is_pending());
    fixture.establish();
    fixture.pass(Duration::from_millis(700));
    let Poll::Ready(Err(error)) = task.poll() else { panic!("it still waits") };
    let text = error.to_string();
    assert!(text.contains("was not established within connectTimeoutMS"), "{text}");
    while fixture.establish() {}
    assert_eq!((pool.counts().pending, fixture.server.open.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_runtime_that_gives_a_connection_up_the_moment_it_is_asked_for_one_is_heard() {
    unless_deadlocked(|| {
        let host = host("mongodb://a/?loadBalanced=true", true);
        host.ring();
        let member = host.members().remove(0);
        let Poll::Ready(Err(error)) = Task::new(member.check_out()).poll() else {
            panic!("it waits")
        };
        assert!(error.to_string().contains("the runtime gave the connection up"), "{error}");
        let Poll::Ready(Err(error)) = Task::new(member.connect()).poll() else {
            panic!("it waits")
        };
        assert!(error.to_string().contains("the runtime gave the connection up"), "{error}");
        drop(host);
        let Poll::Ready(Err(error)) = Task::new(member.connect()).poll() else {
            panic!("it waits")
        };
        assert!(error.to_string().contains("closed connection pool"), "{error}");
    });
}

/// Wakes a task by dropping what it has, as an executor that has ended does.
struct Dropping<T>(Mutex<Option<T>>);

impl<T: Send + 'static> Wake for Dropping<T> {
    fn wake(self: Arc<Self>) {
        let dropped = self.0.lock().unwrap().take();
        drop(dropped);
    }
}

fn dropping<T: Send + 'static>(what: T) -> Waker {
    Waker::from(Arc::new(Dropping(Mutex::new(Some(what)))))
}

#[test]
fn whoever_is_woken_may_return_a_connection_to_the_same_pool() {
    unless_deadlocked(|| {
        let fixture = Fixture::new("&maxPoolSize=3");
        let pool = fixture.pool();
        let mut in_use: Vec<_> =
            std::iter::repeat_with(|| fixture.run(pool.check_out()).unwrap()).take(3).collect();
        let (first, second) = (dropping(in_use.remove(0)), dropping(in_use.remove(0)));
        let mut waiting = std::pin::pin!(pool.check_out());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
        let mut events = fixture.host.subscribe();
        assert!(events.poll_next(&mut Context::from_waker(&second)).is_pending());
        drop(in_use);
        let counts = pool.counts();
        assert_eq!((counts.available, counts.in_use), (2, 1), "one was delivered");
    });
}

#[test]
fn whoever_is_woken_may_stop_to_wait_for_a_server() {
    let host = host("mongodb://a", false);
    host.ring();
    let select = || {
        let host = Arc::clone(&host);
        let criteria = Arc::new(sdam_core::selection::Criteria::write());
        Box::pin(
            async move { host.select(&criteria, Some(Instant::from_millis(9000))).await.is_ok() },
        )
    };
    let (mut first, mut second) = (select(), select());
    assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let waker = dropping(second);
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    host.close();
    let answer = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(answer, Poll::Ready(false), "the client is closed");
    assert!(super::lock(&host.topology).waiters.is_empty());
}

#[test]
fn connections_of_no_pool_end_with_their_client_too() {
    let fixture = Fixture::new("");
    let member = fixture.host.members().remove(0);
    let mut task = Task::new(member.connect());
    assert!(task.poll().is_pending());
    fixture.host.close();
    assert!(task.was_woken());
    let Poll::Ready(Err(error)) = task.poll() else { panic!("it still waits") };
    assert!(error.to_string().contains("closed connection pool"), "{error}");
    let error = fixture.run(member.connect()).unwrap_err();
    assert!(error.to_string().contains("closed connection pool"), "{error}");
    while fixture.establish() {}
    assert_eq!(fixture.server.open.load(Ordering::Relaxed), 0);
}
