//! The engine, driven by the thread that tests it.

use std::future::{pending, poll_fn};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::share::start;
use super::{Engine, EngineMode, Interest, Joining, Registration, Sleep};

fn sleep(engine: &Arc<Engine>, time: Duration) -> Sleep {
    engine.sleep_until(Some(Instant::now() + time))
}

fn pair() -> (UnixStream, Arc<Socket>) {
    let (far, near) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    (far, Arc::new(Socket::from(OwnedFd::from(near))))
}

/// Has a task note `name` after `work`.
fn note(
    engine: &Arc<Engine>,
    notes: &Arc<Mutex<Vec<&'static str>>>,
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let notes = Arc::clone(notes);
    engine.spawn(Box::pin(async move {
        work.await;
        notes.lock().unwrap().push(name);
    }));
}

#[test]
fn the_caller_runs_the_tasks_and_no_other_thread_does() {
    let engine = Engine::new(EngineMode::Thread).unwrap();
    let (sender, receiver) = mpsc::channel();
    let driven = Arc::clone(&engine);
    engine.spawn(Box::pin(async move {
        assert!(driven.is_current());
        sleep(&driven, Duration::from_millis(10)).await;
        sender.send(thread::current().id()).unwrap();
    }));
    assert!(receiver.try_recv().is_err(), "nothing drives it");
    let begun = Instant::now();
    engine.block_on(engine.end());
    assert!(begun.elapsed() >= Duration::from_millis(10));
    assert!(!engine.is_current());
    assert_eq!(receiver.try_recv().unwrap(), thread::current().id());
}

/// After SIGSTOP and SIGCONT, for one.
#[test]
fn what_had_come_by_then_is_seen_before_time_is_up() {
    let engine = Engine::new(EngineMode::Thread).unwrap();
    let (mut far, near) = pair();
    let notes = Arc::default();
    let registration = Registration::new(&engine, &near).unwrap();
    let due = Instant::now() + Duration::from_secs(3);
    note(&engine, &notes, "late", engine.sleep_until(Some(due)));
    note(&engine, &notes, "read", async move {
        registration.ready(Interest::READABLE).await.unwrap();
        assert_eq!((&*near).read(&mut [0; 8]).unwrap(), 1);
    });
    let mut turns = 0;
    engine.block_on(poll_fn(|cx| {
        turns += 1;
        if turns == 1 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // Both tasks wait now. The process is stopped, and meanwhile bytes come.
        far.write_all(b"!").unwrap();
        thread::sleep(due.saturating_duration_since(Instant::now()));
        Poll::Ready(())
    }));
    engine.block_on(engine.end());
    assert_eq!(*notes.lock().unwrap(), ["read", "late"]);
}

#[test]
fn another_thread_wakes_a_task_while_the_engine_sleeps() {
    let engine = Engine::new(EngineMode::Thread).unwrap();
    let (sender, receiver) = mpsc::channel();
    let woken = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&woken);
    engine.spawn(Box::pin(poll_fn(move |cx| {
        sender.send(cx.waker().clone()).unwrap();
        if seen.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    })));
    start(&engine).unwrap();
    let waker = receiver.recv().unwrap();
    thread::sleep(Duration::from_millis(10));
    woken.store(true, Ordering::Release);
    waker.wake();
    assert!(receiver.recv_timeout(Duration::from_secs(30)).is_ok(), "it is polled again");
    // The thread ends with its last task, and drops what the task had.
    assert!(receiver.recv_timeout(Duration::from_secs(30)).is_err());
}

#[test]
fn tasks_are_given_up_when_nobody_drives_the_engine_any_more() {
    let engine = Engine::new(EngineMode::Thread).unwrap();
    let held = Arc::new(());
    let task = || {
        let held = Arc::clone(&held);
        Box::pin(async move {
            pending::<()>().await;
            drop(held);
        })
    };
    engine.spawn(task());
    assert_eq!(Arc::strong_count(&held), 2);
    engine.give_up();
    assert_eq!(Arc::strong_count(&held), 1);
    engine.spawn(task());
    Engine::exhausted().spawn(task());
    assert_eq!(Arc::strong_count(&held), 1);
}

/// It may be another client's.
#[test]
fn a_task_that_panics_ends_alone() {
    let engine = Engine::new(EngineMode::Thread).unwrap();
    let (sender, receiver) = mpsc::channel();
    let held = sender.clone();
    engine.spawn(Box::pin(async move {
        let _held = held;
        panic!("as it should, in this test");
    }));
    let driven = Arc::clone(&engine);
    engine.spawn(Box::pin(async move {
        sleep(&driven, Duration::from_millis(1)).await;
        sender.send(()).unwrap();
    }));
    start(&engine).unwrap();
    assert_eq!(receiver.recv_timeout(Duration::from_secs(30)), Ok(()));
    let ended = receiver.recv_timeout(Duration::from_secs(30));
    assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected), "both have ended");
}

#[test]
fn whoever_joins_has_an_engine_that_goes_on_until_its_tasks_have_ended() {
    let (sender, receiver) = mpsc::channel();
    let first = Joining::new(EngineMode::Thread).unwrap();
    let second = Joining::new(EngineMode::Thread).unwrap();
    assert!(Arc::ptr_eq(&first, &second), "it is shared");
    drop(first);
    second.spawn(Box::pin(async move { sender.send(()).unwrap() }));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(30)), Ok(()));
    let engine = Arc::clone(&second);
    assert!(!engine.lock().ended);
    drop(second);
    let end = Instant::now() + Duration::from_secs(30);
    while !engine.lock().ended {
        assert!(Instant::now() < end, "it ends");
        thread::yield_now();
    }
    let third = Joining::new(EngineMode::Thread).unwrap();
    assert!(!Arc::ptr_eq(&engine, &third), "one that has ended is not joined");
    let callers = Joining::new(EngineMode::Callers).unwrap();
    assert!(!Arc::ptr_eq(&callers, &third), "callers drive their own");
}

#[test]
fn another_caller_goes_on_when_the_one_who_drives_has_what_it_waits_for_or_panics() {
    for panics in [false, true] {
        let engine = Engine::new(EngineMode::Callers).unwrap();
        let (driven, (sender, receiver)) = (Arc::clone(&engine), mpsc::channel());
        let first = thread::spawn(move || {
            driven.wait(async {
                sleep(&driven, Duration::from_millis(30)).await;
                assert!(!panics, "as it should, in this test");
            });
        });
        let others: Vec<_> = (0..3)
            .map(|_| {
                let (driven, sender) = (Arc::clone(&engine), sender.clone());
                thread::spawn(move || {
                    driven.wait(sleep(&driven, Duration::from_millis(60)));
                    sender.send(()).unwrap();
                })
            })
            .collect();
        assert_eq!(first.join().is_err(), panics);
        for _ in &others {
            assert_eq!(receiver.recv_timeout(Duration::from_secs(30)), Ok(()));
        }
    }
}

#[test]
fn nobody_is_late_because_another_caller_blocks() {
    let engine = Engine::new(EngineMode::Callers).unwrap();
    let (driven, (sender, receiver)) = (Arc::clone(&engine), mpsc::channel());
    let (blocks, blocked) = mpsc::channel();
    let blocker = thread::spawn(move || {
        driven.wait(async {
            blocks.send(()).unwrap();
            receiver.recv_timeout(Duration::from_secs(30))
        })
    });
    blocked.recv().unwrap();
    let end = Instant::now() + Duration::from_millis(10);
    assert_eq!(engine.wait_until(pending::<()>(), Some(end)), None);
    sender.send(()).unwrap();
    assert_eq!(blocker.join().unwrap(), Ok(()));
}

/// Without a look at sockets and timers in between, it would go on for ever.
#[test]
fn a_task_that_wakes_itself_again_and_again_holds_up_neither_timers_nor_sockets() {
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let engine = Engine::new(EngineMode::Thread).unwrap();
        let (mut far, near) = pair();
        far.write_all(b"x").unwrap();
        let registration = Registration::new(&engine, &near).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, driven) = (Arc::clone(&is_over), Arc::clone(&engine));
        engine.spawn(Box::pin(async move {
            sleep(&driven, Duration::from_millis(1)).await;
            registration.ready(Interest::READABLE).await.unwrap();
            over.store(true, Ordering::Relaxed);
        }));
        engine.spawn(Box::pin(poll_fn(move |cx| {
            if is_over.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        engine.block_on(engine.end());
        ended.send(()).unwrap();
    });
    end.recv_timeout(Duration::from_secs(30)).expect("the other task has its turn");
}
