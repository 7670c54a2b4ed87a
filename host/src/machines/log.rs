//! The log of a client: its events as messages, in the order in which they happened, and the
//! messages about selections.

use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use bson::DateTime;
use sdam_core::logging::{Component, LogMessage, SelectionLog};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Event, Topics};

use crate::machines::Shared;
use crate::machines::runtime::Runtime;
use crate::observe::subscription::{EVENT_LIMIT, Subscribers, Subscription};
use crate::process::Process;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, Running, lock};
use crate::system;
use crate::system::log::LogSink;

/// The number of messages that one thread writes in a turn before it leaves the rest to others:
/// where the log is slow, no thread should have to write the events of all others.
pub(crate) const TURN_LIMIT: usize = 64;

/// The components whose messages are made of events, and the topics of those.
const OF_EVENTS: [(Component, &[Topics]); 3] = [
    (Component::Topology, &[Topics::TOPOLOGY, Topics::SERVERS, Topics::HEARTBEATS]),
    (Component::Connection, &[Topics::POOLS]),
    (Component::Command, &[Topics::COMMANDS]),
];

/// A subscriber that writes every event to the log, on the thread that published it and without its
/// locks: the log's collector may use the client.
///
/// One thread writes at a time. After a [turn](TURN_LIMIT) it leaves what is unread to the next
/// thread that publishes something, and to the next ring, which it asks for.
pub(crate) struct Logger {
    sink: LogSink,
    process: Process,
    /// The component that reports lost messages.
    component: Component,
    unread: Mutex<Unread>,
    /// The number of wake-ups since the one that reads has begun, that one included.
    wakes: AtomicUsize,
}

struct Unread {
    events: Subscription<Event>,
    /// The number of lost events that the log has reported.
    lost: u64,
    /// The time of the event that was read last.
    last: Instant,
    /// Present until the last event was written.
    running: Option<Running>,
}

/// The next thing that a reader of the log finds.
enum Next {
    Message(Instant, LogMessage),
    /// An event without a message.
    Nothing,
    /// All was read, and the thread that publishes the next event reads it.
    End,
}

impl Logger {
    /// Subscribes to what the sink wants, to be read by the thread that [publishes](Self::read_for)
    /// an event.
    pub(crate) fn new(
        events: &Arc<Subscribers<Event>>,
        sink: LogSink,
        process: Process,
        running: Running,
        last: Instant,
    ) -> Self {
        let wanted = OF_EVENTS.iter().filter(|(component, _)| sink.wants(*component));
        let topics = wanted.clone().flat_map(|(_, topics)| *topics);
        let events = match topics.fold(Topics::NONE, |all, topic| all | *topic) {
            Topics::NONE => Subscription::none(),
            topics => events.subscribe(topics, EVENT_LIMIT, None),
        };
        let component = wanted.map(|(component, _)| *component).next();
        Self {
            sink,
            process,
            component: component.unwrap_or(Component::Topology),
            unread: Mutex::new(Unread { events, lost: 0, last, running: Some(running) }),
            wakes: AtomicUsize::new(0),
        }
    }

    /// Returns the observer of the steps of a selection, if one is wanted.
    pub(crate) fn selection<'a, R: Runtime>(
        &'a self,
        runtime: &'a R,
        (operation, number): (&'a str, impl FnOnce() -> i64),
        criteria: &'a Criteria,
    ) -> Option<SelectionLogger<'a, R>> {
        let wants = self.sink.wants(Component::ServerSelection);
        wants.then(|| SelectionLogger { log: self, runtime, operation, number: number(), criteria })
    }

    /// Writes what is unread to the log of a client, if it has one, unless another thread does. In
    /// a process that was forked off, that thread may be missing.
    pub(crate) fn read_for<R: Runtime>(shared: &Arc<Shared<R>>) {
        let Some(logger) = shared.logger.get().filter(|log| log.process.is_current()) else {
            return;
        };
        let waker = Waker::from(Arc::new(LogReader(Arc::downgrade(shared))));
        let date = |at| date(&shared.runtime, at);
        while logger.read(&waker, &date) {
            // Closed in between, when there is no ring any more: nothing may be left unread.
            if !lock(&logger.unread).events.is_closed() {
                shared.alarm.set_log(shared.runtime.now());
                return shared.alarm.arm(&shared.runtime);
            }
        }
    }

    /// Writes unread events with their dates, and arranges for a wake-up by the next one. Returns
    /// whether a turn has left some unread.
    fn read(&self, waker: &Waker, date: &dyn Fn(Instant) -> DateTime) -> bool {
        if self.wakes.fetch_add(1, Ordering::AcqRel) > 0 {
            // Another thread reads, or this one does further up, and will come by again.
            return false;
        }
        let (cx, mut written) = (Context::from_waker(waker), 0);
        loop {
            let seen = self.wakes.load(Ordering::Acquire);
            loop {
                // Not locked while a message is written, which may take its time.
                match self.next(&cx) {
                    Next::End => break,
                    Next::Nothing => {}
                    Next::Message(at, message) => {
                        self.write(&message, date(at));
                        written += 1;
                    }
                }
                // What is left once the client is closed is not more than fits.
                if written >= TURN_LIMIT && !lock(&self.unread).events.is_closed() {
                    self.wakes.store(0, Ordering::Release);
                    return true;
                }
            }
            let was = self.wakes.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire);
            if was.is_ok() {
                return false;
            }
        }
    }

    fn next(&self, cx: &Context<'_>) -> Next {
        let mut unread = lock(&self.unread);
        let lost = unread.events.dropped();
        if let Some(more) = NonZeroU64::new(lost - unread.lost) {
            unread.lost = lost;
            return Next::Message(unread.last, LogMessage::lost(self.component, more));
        }
        match unread.events.poll_next(cx) {
            Poll::Ready(Some(event)) => {
                unread.last = event.at;
                drop(unread);
                let message = LogMessage::of_event(&event, self.sink.longest_document());
                message.map_or(Next::Nothing, |message| Next::Message(event.at, message))
            }
            Poll::Ready(None) => {
                let running = unread.running.take();
                drop(unread);
                // Wakes those who wait for the client's end.
                drop(running);
                Next::End
            }
            Poll::Pending => Next::End,
        }
    }

    /// Writes a message. If the log's collector panics, which the panic hook has reported, that
    /// message is lost, and the thread goes on: it has more to do than to write a log.
    fn write(&self, message: &LogMessage, date: DateTime) {
        _ = catch_unwind(AssertUnwindSafe(|| self.sink.write(message, date)));
    }
}

/// Returns the time of day at which an event was published, however late it is now.
fn date<R: Runtime>(runtime: &R, at: Instant) -> DateTime {
    let late = i64::try_from((runtime.now() - at).as_millis()).unwrap_or(i64::MAX);
    let now = runtime.wall_clock().unwrap_or_else(system::wall_clock);
    now.saturating_add_millis(-late)
}

/// Reads the log of a client when it is woken; it does not keep it alive.
struct LogReader<R: Runtime>(Weak<Shared<R>>);

impl<R: Runtime> Wake for LogReader<R> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(shared) = self.0.upgrade() {
            Logger::read_for(&shared);
        }
    }
}

/// The log of one selection.
pub(crate) struct SelectionLogger<'a, R: Runtime> {
    log: &'a Logger,
    runtime: &'a R,
    operation: &'a str,
    /// The number of the operation in the client.
    pub(crate) number: i64,
    criteria: &'a Criteria,
}

impl<R: Runtime> SelectionLogger<'_, R> {
    /// Writes a message, unless the process was forked off meanwhile: the lock of the output may be
    /// held by a thread that is not there.
    pub(crate) fn write(&self, message: impl FnOnce(SelectionLog<'_>) -> LogMessage) {
        if self.log.process.is_current() {
            let log = SelectionLog::new(self.operation, Some(self.number), self.criteria);
            self.log.write(&message(log), date(self.runtime, self.runtime.now()));
        }
    }
}
