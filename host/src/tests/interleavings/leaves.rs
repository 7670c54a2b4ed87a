//! The wake-ups of channels, cancellation tokens, turns, and the count of running tasks.

use std::any::Any;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Poll, Waker};

use shuttle::thread::{self, spawn};

use super::{Sleep, Sleeper, block_on, explore, give_up};
use crate::process::Process;
use crate::sync::Activity;
use crate::sync::AsyncMutex;
use crate::sync::CancellationToken;
use crate::sync::channel::{Barrier, Channel};
use crate::sync::lock;

/// Reads a channel to its end.
fn read_all(channel: &Channel<u32>) -> Vec<u32> {
    let (sleeper, mut items) = (Arc::<Sleeper>::default(), Vec::new());
    while let Some(item) = sleeper.run(poll_fn(|cx| channel.poll_next(cx))) {
        items.push(item);
    }
    sleeper.assert_woken_once_per_wait();
    items
}

fn write(channel: &Arc<Channel<u32>>, items: [u32; 3]) -> thread::JoinHandle<()> {
    let channel = Arc::clone(channel);
    spawn(move || items.into_iter().for_each(|item| channel.push(item)))
}

#[test]
fn every_item_of_a_mailbox_is_read_once_and_in_order_and_then_its_end() {
    explore(4000, || {
        let channel = Arc::new(Channel::new(usize::MAX));
        let writers = [write(&channel, [1, 2, 3]), write(&channel, [11, 12, 13])];
        let closed = Arc::clone(&channel);
        let closer = spawn(move || {
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            closed.close();
            closed.push(99);
        });
        let items = read_all(&channel);
        closer.join().unwrap();
        let (low, high): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| *item < 10);
        assert_eq!((low, high), (vec![1, 2, 3], vec![11, 12, 13]));
    });
}

#[test]
fn what_came_before_a_mailbox_was_closed_can_be_read_and_nothing_after_that() {
    explore(4000, || {
        let channel = Arc::new(Channel::new(usize::MAX));
        let writers = [write(&channel, [1, 2, 3]), write(&channel, [11, 12, 13])];
        let closed = Arc::clone(&channel);
        let closer = spawn(move || closed.close());
        let items = read_all(&channel);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        closer.join().unwrap();
        let (low, high): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| *item < 10);
        assert!([1, 2, 3].starts_with(&low) && [11, 12, 13].starts_with(&high));
        assert_eq!(channel.try_next(), None);
    });
}

#[test]
fn a_probe_is_let_go_of_whether_the_reader_waits_or_ends_or_leaves() {
    explore(4000, || {
        let channel = Arc::new(Channel::<u32>::new(usize::MAX));
        let read = Arc::clone(&channel);
        let reader = spawn(move || {
            let item = block_on(read.read_by(pin!(poll_fn(|cx| read.poll_next(cx)))));
            drop(item);
            drop(read.leave());
        });
        let probed = Arc::clone(&channel);
        let prober = spawn(move || {
            let barrier: Barrier = Arc::new(()) as Arc<dyn Any + Send + Sync>;
            let gone = Arc::downgrade(&barrier);
            probed.barrier(barrier);
            gone
        });
        channel.push(1);
        reader.join().unwrap();
        assert!(prober.join().unwrap().upgrade().is_none(), "somebody still holds it");
    });
}

#[test]
fn a_switch_wakes_whoever_waits_once_for_each_look_at_it() {
    explore(4000, || {
        let cancellation = Arc::new(CancellationToken::new(None));
        let throwers = [(); 2].map(|()| {
            let cancellation = Arc::clone(&cancellation);
            spawn(move || cancellation.cancel().into_iter().for_each(Waker::wake))
        });
        let sleeper = Arc::<Sleeper>::default();
        sleeper.run(poll_fn(|cx| match cancellation.is_canceled_or_wake(cx.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }));
        throwers.into_iter().for_each(|thrower| thrower.join().unwrap());
        // Perhaps without need, if it saw that the cancellation token was canceled while it
        // registered.
        let Sleep { wakes, waits, .. } = *lock(&sleeper.state);
        assert!(wakes <= waits + 1, "woken {wakes} times, and looked {} times", waits + 1);
        assert!(cancellation.is_canceled());
    });
}

#[test]
fn one_at_a_time_has_the_turn_and_everybody_gets_it() {
    explore(4000, || {
        let (mutex, busy) = (Arc::new(AsyncMutex::default()), Arc::new(AtomicBool::new(false)));
        let takers = [(); 3].map(|()| {
            let (mutex, busy) = (Arc::clone(&mutex), Arc::clone(&busy));
            spawn(move || {
                give_up(mutex.take());
                let turn = block_on(mutex.take());
                assert!(!busy.swap(true, Ordering::Relaxed), "two have the turn");
                thread::yield_now();
                busy.store(false, Ordering::Relaxed);
                drop(turn);
            })
        });
        takers.into_iter().for_each(|taker| taker.join().unwrap());
    });
}

#[test]
fn whoever_waits_for_the_last_task_is_told_when_it_ends() {
    explore(4000, || {
        let (activity, ended) =
            (Arc::new(Activity::new(Process::current())), Arc::new(AtomicU32::new(0)));
        let tasks = [activity.begin(), activity.begin()].map(|running| {
            let ended = Arc::clone(&ended);
            spawn(move || {
                ended.fetch_add(1, Ordering::Relaxed);
                drop(running);
            })
        });
        let also = Arc::clone(&activity);
        let waits = spawn(move || block_on(also.idle()));
        block_on(activity.idle());
        assert_eq!(ended.load(Ordering::Relaxed), 2);
        waits.join().unwrap();
        tasks.into_iter().for_each(|task| task.join().unwrap());
    });
}
