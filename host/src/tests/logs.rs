//! The log: whatever its collector does, no thread is kept from its work, nothing is lost without a
//! word, and a closed client has logged everything.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use bson::{DateTime, rawdoc};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use super::commands::{all_out, find, lose};
use super::fixture::{Fixture, Task};
use super::puppet::Puppet;
use crate::machines::log::TURN_LIMIT;
use crate::operations::selected_server::SelectedServer;
use crate::sync::{Mutex, lock};
use sdam_core::logging::LogSettings;
use sdam_core::selection::Criteria;

/// A reaction to a message.
type Reaction = Box<dyn Fn(&Message) + Send + Sync>;

/// Collects the messages of some targets, and reacts to each.
#[derive(Clone)]
struct Collector(Arc<Collected>);

struct Collected {
    targets: Vec<&'static str>,
    messages: Mutex<Vec<Message>>,
    reaction: Mutex<Option<Arc<Reaction>>>,
}

#[derive(Clone, Debug, Default)]
struct Message {
    text: String,
    time: String,
    lost: usize,
    operation: Option<i64>,
}

impl Visit for Message {
    fn record_i64(&mut self, field: &Field, value: i64) {
        match field.name() {
            "lost" => self.lost = value.try_into().unwrap(),
            "operationId" => self.operation = Some(value),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.text = value.to_owned(),
            "time" => self.time = value.to_owned(),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.targets.contains(&metadata.target())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        lock(&self.0.messages).push(message.clone());
        let reaction = lock(&self.0.reaction).clone();
        if let Some(reaction) = reaction {
            reaction(&message);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Collector {
    fn new(target: &'static str) -> Self {
        Self::of([target])
    }

    fn of<const N: usize>(targets: [&'static str; N]) -> Self {
        let (messages, reaction) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Collected { targets: targets.into(), messages, reaction }))
    }

    /// A client with two connections, which logs from now on.
    fn fixture(&self) -> Fixture {
        let fixture = Fixture::new("");
        let pool = fixture.pool();
        drop([(); 2].map(|()| fixture.run(pool.check_out()).unwrap()));
        let log = || fixture.host.log(LogSettings::default());
        tracing::subscriber::with_default(self.clone(), log);
        fixture
    }

    fn react(&self, reaction: impl Fn(&Message) + Send + Sync + 'static) {
        *lock(&self.0.reaction) = Some(Arc::new(Box::new(reaction)));
    }

    fn texts(&self) -> Vec<String> {
        lock(&self.0.messages).iter().map(|message| message.text.clone()).collect()
    }

    /// Returns how many messages there are, and how many they say were lost.
    fn counts(&self) -> (usize, usize) {
        let messages = lock(&self.0.messages);
        let lost = messages.iter().filter(|message| message.lost > 0);
        (messages.len() - lost.clone().count(), lost.map(|message| message.lost).sum())
    }
}

/// A message has the time of its event, not that at which a thread that was held up came to write
/// it: a log is judged by its times.
#[test]
#[expect(clippy::disallowed_methods, reason = "the log that was written is read by no other test")]
fn messages_have_the_times_of_their_events() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let (settings, _) = LogSettings::from_variables(|name| match name {
        "MONGODB_LOG_CONNECTION" => Some("debug".to_owned()),
        "MONGODB_LOG_PATH" => file.to_str().map(str::to_owned),
        _ => None,
    });
    let time_of_day = Some(DateTime::from_millis(0));
    let fixture = Fixture::of(Puppet { time_of_day, ..Puppet::default() });
    drop([(); 2].map(|()| fixture.run(fixture.pool().check_out()).unwrap()));
    let collector = Collector::new("mongodb::connection");
    tracing::subscriber::with_default(collector.clone(), || fixture.host.log(settings));
    let (others, host) = (fixture.pool(), Arc::clone(&fixture.host));
    let is_held_up = AtomicBool::new(true);
    collector.react(move |_| {
        if is_held_up.swap(false, Ordering::Relaxed) {
            // What is published now is written afterwards.
            use_connection(&others);
            let mut now = lock(&host.runtime().now);
            *now = *now + Duration::from_secs(10);
        }
    });
    use_connection(&fixture.pool());
    let told = lock(&collector.0.messages).clone();
    let told: Vec<_> = told.iter().map(|message| message.time.clone()).collect();
    let (then, later) = ("1970-01-01T00:00:00Z", "1970-01-01T00:00:10Z");
    assert_eq!(told, [then, then, then, then, then, later]);
    let text = std::fs::read_to_string(&file).unwrap();
    let time = |line: &str| line.split('"').nth(3).map(str::to_owned);
    let written: Vec<_> = text.lines().filter_map(time).collect();
    assert_eq!(written, told);
}

/// Checks a connection out and in again: three messages.
fn use_connection(pool: &SelectedServer<Puppet>) {
    let Poll::Ready(Ok(checked_out)) = Task::new(pool.check_out()).poll() else {
        panic!("there is an idle connection")
    };
    drop(checked_out);
}

#[test]
fn a_thread_writes_a_bounded_number_of_messages_and_a_ring_those_that_are_left() {
    let collector = Collector::new("mongodb::connection");
    let fixture = collector.fixture();
    let (pool, told) = (fixture.pool(), Arc::new(AtomicUsize::new(0)));
    let (others, counted) = (fixture.pool(), Arc::clone(&told));
    // As if other threads published more while this one writes.
    collector.react(move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) < 1000 {
            use_connection(&others);
        }
    });
    use_connection(&pool);
    assert!(told.load(Ordering::Relaxed) <= 4 * TURN_LIMIT, "{told:?}");
    for _ in 0..1000 {
        fixture.pass(Duration::from_millis(1));
    }
    assert_eq!(collector.counts(), (3 + 3000, 0));
}

#[test]
fn the_log_tells_how_many_messages_were_lost() {
    let collector = Collector::new("mongodb::connection");
    let fixture = collector.fixture();
    let (pool, told) = (fixture.pool(), Arc::new(AtomicUsize::new(0)));
    let (others, counted) = (fixture.pool(), Arc::clone(&told));
    collector.react(move |_| {
        if counted.fetch_add(1, Ordering::Relaxed) == 0 {
            (0..2000).for_each(|_| use_connection(&others));
        }
    });
    use_connection(&pool);
    for _ in 0..1000 {
        fixture.pass(Duration::from_millis(1));
    }
    let (written, lost) = collector.counts();
    assert!(lost > 1000, "{lost}");
    assert_eq!(written + lost, 3 + 6000);
}

#[test]
fn the_end_of_a_client_waits_for_the_last_message() {
    let collector = Collector::new("mongodb::topology");
    let fixture = collector.fixture();
    let (entered, has_entered) = sync_channel::<()>(1);
    let (release, released) = sync_channel::<()>(1);
    let released = Mutex::new(Some(released));
    collector.react(move |_| {
        if let Some(released) = lock(&released).take() {
            entered.send(()).unwrap();
            released.recv().unwrap();
        }
    });
    let Fixture { host, link, .. } = fixture;
    let mut ended = Task::new(host.ended());
    thread::scope(|scope| {
        let writer = scope.spawn(|| super::puppet::pass(&host, Duration::from_secs(10)));
        has_entered.recv().unwrap();
        host.close();
        drop(link);
        assert!(ended.poll().is_pending(), "the log is not written yet");
        release.send(()).unwrap();
        writer.join().unwrap();
        assert!(ended.poll().is_ready());
    });
    let texts = collector.texts();
    assert_eq!(texts.last().unwrap(), "Stopped topology monitoring", "{texts:?}");
}

#[test]
fn a_collector_that_panics_loses_its_message_and_nothing_else() {
    let collector = Collector::new("mongodb::connection");
    let fixture = collector.fixture();
    let pool = fixture.pool();
    collector.react(|message| {
        assert_ne!(message.text, "Connection checked out", "as a test wants it");
    });
    use_connection(&pool);
    assert_eq!((pool.counts().in_use, pool.counts().available), (0, 2));
    use_connection(&pool);
    let texts = ["Connection checkout started", "Connection checked out", "Connection checked in"];
    assert_eq!(collector.texts(), [texts, texts].concat());
}

#[test]
fn a_collector_that_panics_in_a_selection_or_a_command_harms_neither() {
    for target in ["mongodb::server_selection", "mongodb::command", "mongodb::topology"] {
        let collector = Collector::new(target);
        let fixture = collector.fixture();
        collector.react(|_| panic!("as a test wants it"));
        let pool = fixture.pool();
        fixture.run(fixture.ping(None)).unwrap();
        fixture.host.close();
        let written = collector.texts().len();
        assert!(written >= 2, "{target}: {written}");
        assert_eq!(pool.counts().in_use, 0);
    }
}

#[test]
fn the_log_keeps_neither_its_client_nor_its_collector_alive() {
    for closes in [true, false] {
        let collector = Collector::new("mongodb::topology");
        let fixture = collector.fixture();
        let host = Arc::downgrade(&fixture.host);
        let shared = Arc::downgrade(&fixture.host.shared);
        if closes {
            fixture.host.close();
        }
        drop(fixture);
        assert!(host.upgrade().is_none() && Weak::strong_count(&shared) == 0);
        assert_eq!(collector.texts().last().unwrap(), "Stopped topology monitoring");
        // Others hold it for a moment where they begin to collect in another thread.
        for _ in 0..1_000_000 {
            if Arc::strong_count(&collector.0) == 1 {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&collector.0), 1);
    }
}

/// Server Selection, "Logging": "operationId", and "once per operation", however often an operation
/// selects a server because it has found its pool cleared.
#[test]
fn an_operation_has_one_number_and_waits_once_in_the_log() {
    let collector = Collector::new("mongodb::server_selection");
    let log = |fixture: &Fixture| {
        let log = || fixture.host.log(LogSettings::default());
        tracing::subscriber::with_default(collector.clone(), log);
    };
    let (fixture, _kept) = all_out();
    log(&fixture);
    let mut ping = Task::new(fixture.ping(None));
    for generation in 0..2 {
        assert!(ping.poll().is_pending(), "it waits for a connection");
        lose(&fixture, generation);
        assert!(ping.poll().is_pending(), "it selects again");
        find(&fixture);
    }
    assert!(ping.poll().is_pending());
    let messages = lock(&collector.0.messages).clone();
    let count = |text: &str| messages.iter().filter(|message| message.text == text).count();
    assert_eq!(count("Server selection started"), 3, "{messages:?}");
    assert_eq!(count("Waiting for suitable server to become available"), 1, "{messages:?}");
    assert!(messages.iter().all(|message| message.operation == Some(1)), "{messages:?}");
}

#[test]
fn commands_after_a_selection_have_its_number() {
    let collector = Collector::of(["mongodb::server_selection", "mongodb::command"]);
    let fixture = collector.fixture();
    let criteria = Arc::new(Criteria::write());
    let selected = fixture.run(fixture.host.select(&criteria, None)).unwrap();
    for connects in [false, true] {
        let mut checked_out = match connects {
            false => fixture.run(selected.check_out()).unwrap(),
            true => fixture.run(selected.connect()).unwrap(),
        };
        fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    }
    let messages = lock(&collector.0.messages).clone();
    let texts: Vec<&str> = messages.iter().map(|message| &*message.text).collect();
    let command = ["Command started", "Command succeeded"];
    let selection = ["Server selection started", "Server selection succeeded"];
    assert_eq!(texts, [selection, command, command].concat());
    assert!(messages.iter().all(|message| message.operation == Some(1)), "{messages:?}");
}
