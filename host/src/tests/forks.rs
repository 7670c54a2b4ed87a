//! Values of the process that made them, as a forked-off process sees them: a copy of
//! everything, where nothing runs that the parent has started.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bson::rawdoc;

use super::fixture::{Fixture, Task, connect};
use super::inline::unless_deadlocked;
use super::lock;
use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::error::{Error, ErrorKind};
use crate::process::{Own, Process, here};
use sdam_core::config::metadata::DriverInfo;
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::{InvalidCommand, OperationError};
use sdam_core::pool::CheckOutError;
use sdam_core::process::Forked;
use sdam_core::selection::Criteria;
use sdam_core::wire::{Flags, Frames, write_op_msg};

thread_local! {
    static IN_CHILD: Cell<bool> = const { Cell::new(false) };
}

/// Returns the number of the process that this thread is in.
pub(in super::super) fn number() -> u32 {
    here::number().wrapping_add(IN_CHILD.get().into())
}

/// Does something as in a process that was forked off.
pub(super) fn in_child<T>(act: impl FnOnce() -> T) -> T {
    struct Back;

    impl Drop for Back {
        fn drop(&mut self) {
            IN_CHILD.set(false);
        }
    }

    let _back = Back;
    IN_CHILD.set(true);
    act()
}

fn forked() -> Forked {
    let made_in = std::process::id();
    Forked::new(made_in, made_in.wrapping_add(1))
}

/// Returns what a future comes to when it is polled for the first time.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn selecting_and_checking_out_fail_at_once_in_a_fork_and_say_so() {
    let fixture = Fixture::new("");
    let selected = fixture.host.members().remove(0);
    let client = Topology::from_host(Arc::clone(&fixture.host));
    in_child(|| {
        let error = at_once(client.select(Criteria::write())).err().unwrap();
        assert_eq!(error.verdict(), Some(&Verdict::Forked(forked())));
        let error = client.diagnose(&Criteria::write()).unwrap();
        assert_eq!(error.verdict, Verdict::Forked(forked()));
        let ping = rawdoc! { "ping": 1 };
        let error = at_once(client.run_command("admin", &ping)).unwrap_err();
        assert!(error.as_selection().is_some(), "{error}");
        assert_eq!(error.kind(), ErrorKind::Forked);
        for checked_out in [at_once(selected.check_out()), at_once(selected.connect())] {
            let error = checked_out.unwrap_err();
            let address = selected.address().clone();
            let told = CheckOutError::Forked { address, forked: forked() };
            assert_eq!(error.as_check_out(), Some(&told));
            assert_eq!(error.kind(), ErrorKind::Forked);
        }
    });
    assert_eq!(fixture.pool().counts().total(), 0, "nothing was begun");
    assert!(fixture.run(fixture.pool().check_out()).is_ok(), "the parent goes on");
}

#[test]
fn a_sleep_that_the_parent_has_begun_ends_in_a_fork_at_once() {
    let fixture = Fixture::new("");
    let client = Topology::from_host(Arc::clone(&fixture.host));
    let mut sleep = Task::new(client.sleep_until(fixture.now() + Duration::from_secs(1)));
    assert!(sleep.poll().is_pending());
    in_child(|| assert!(sleep.poll().is_ready()));
}

#[test]
fn a_loan_is_of_no_use_in_a_fork_and_stays_the_parents() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let (mut bytes, mut frames) = (Vec::new(), Frames::new());
    write_op_msg(&mut bytes, 1, 0, Flags::NONE, &rawdoc! { "ping": 1, "$db": "admin" });
    frames.extend(&bytes);
    let message = frames.next().unwrap().unwrap();
    let sent = lock(&fixture.server.commands).len();
    in_child(|| {
        let is_refused = |error: Error| {
            let told = OperationError::Invalid(InvalidCommand::Forked(forked()));
            assert_eq!(error.as_operation(), Some(&told));
            assert_eq!(error.kind(), ErrorKind::Forked);
        };
        is_refused(at_once(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap_err());
        is_refused(at_once(checked_out.send_message(&message)).unwrap_err());
        is_refused(at_once(checked_out.receive_message()).unwrap_err());
    });
    assert_eq!(lock(&fixture.server.commands).len(), sent);
    fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    let counts = fixture.pool().counts();
    in_child(|| drop(checked_out));
    assert_eq!(fixture.server.open.load(Ordering::Relaxed), 1, "it is not closed");
    assert_eq!(fixture.pool().counts(), counts, "nor returned");
}

#[test]
fn nothing_that_a_fork_does_reaches_the_parents_client() {
    let fixture = Fixture::new("");
    let client = Topology::from_host(Arc::clone(&fixture.host));
    let mut events = client.subscribe();
    let (pool, mut waiting) = (fixture.pool(), Vec::new());
    waiting.push(Task::new(pool.check_out()));
    assert!(waiting[0].poll().is_pending());
    while events.try_next().is_some() {}
    in_child(|| {
        client.append_metadata(DriverInfo::new("planted", None, None).unwrap());
        client.request_check();
        assert!(waiting.pop().is_some(), "it is dropped here");
        at_once(client.close());
    });
    assert!(events.try_next().is_none());
    let metadata = format!("{:?}", lock(&fixture.host.shared.metadata));
    assert!(!metadata.contains("planted"));
    assert_eq!(fixture.pool().counts().pending, 1, "the parent still waits");
}

#[test]
fn a_task_of_the_parent_never_goes_on_in_a_fork_and_is_left_as_it_is() {
    let fixture = Fixture::new("");
    let pool = fixture.pool();
    let mut check_out = Task::new(pool.check_out());
    assert!(check_out.poll().is_pending());
    let pending = lock(&fixture.host.runtime().pending).pop().expect("a slot");
    let connecting = connect(Arc::clone(&fixture.server), Arc::clone(&fixture.host.runtime().now));
    let mut establishing = Box::pin(pending.run(connecting, || Ok([7; 24])));
    let mut cx = Context::from_waker(Waker::noop());
    in_child(|| assert!(establishing.as_mut().poll(&mut cx).is_pending()));
    assert_eq!(fixture.server.open.load(Ordering::Relaxed), 0, "it has not begun");
    assert!(establishing.as_mut().poll(&mut cx).is_ready());
    assert!(check_out.poll().is_ready(), "the parent has done it");
}

/// Dropped where it belongs, its value is dropped; elsewhere the value is left alone.
#[test]
fn what_belongs_to_the_parent_is_not_dropped_in_a_fork() {
    let value = Arc::new(());
    let own = Own::new(Arc::clone(&value), Process::current());
    assert!(own.ours().is_some());
    in_child(|| {
        assert!(own.ours().is_none());
        drop(own);
    });
    assert_eq!(Arc::strong_count(&value), 2, "the parent's is as it was");
    drop(Own::new(Arc::clone(&value), Process::current()));
    assert_eq!(Arc::strong_count(&value), 2);
}

#[test]
fn a_process_knows_itself() {
    let parent = Process::current();
    assert!(parent.is_current());
    assert_eq!(parent.check(), Ok(()));
    in_child(|| {
        assert!(!parent.is_current());
        assert_eq!(parent.check(), Err(forked()));
    });
}

/// The likely cause of an error is looked for without the locks, which a thread may hold that is
/// not there.
#[test]
fn an_error_in_a_fork_is_judged_without_a_lock() {
    unless_deadlocked(|| {
        let fixture = Fixture::new("");
        let pool = fixture.pool();
        let failure = Failure::new(Stage::Connect, Cause::Refused, "refused");
        let _topology = lock(&fixture.host.topology);
        in_child(|| pool.server().judge(&OperationError::Stream(failure)));
    });
}
