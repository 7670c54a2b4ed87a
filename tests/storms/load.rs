//! Many tasks that read and write, and cancel some of it, and what became of all that.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sdam_core::bson::rawdoc;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::operation::OperationError;
use sdam_core::pool::CheckOutError;
use sdam_core::rng::Rng;
use sdam_core::selection::Criteria;
use sdam_host::{Error, ErrorKind, Reply};
use sdam_tokio::Topology;
use tokio::task::JoinSet;

use crate::support::soon;

/// The number of tasks that there are.
const TASKS: u64 = 64;

/// By when an operation is to end, from its beginning.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// The allowed delay until its task learns of it, on a machine that is busy with a storm; what
/// overlooks its deadline goes on for serverSelectionTimeoutMS, 30 s.
const GRACE: Duration = Duration::from_secs(20);

/// The pause of a task between two operations, so that the servers have something left for
/// elections.
const PAUSE: Duration = Duration::from_millis(20);

/// Tasks that operate until they are stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Tally>,
}

/// The outcomes of operations.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) succeeded: u64,
    pub(crate) cancelled: u64,
    pub(crate) failed: BTreeMap<String, u64>,
    unclassified: Vec<String>,
    slowest: Duration,
}

impl Load {
    pub(crate) fn start(client: &Topology) -> Self {
        let (stop, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for number in 0..TASKS {
            tasks.spawn(work(client.clone(), Rng::new(number), Arc::clone(&stop)));
        }
        Self { stop, tasks }
    }

    /// Ends the load, and returns what became of its operations.
    ///
    /// # Errors
    ///
    /// Fails if an operation did not end in time, or with an error that says nothing.
    pub(crate) async fn end(self) -> Result<Tally, Box<dyn std::error::Error>> {
        self.stop.store(true, Ordering::Relaxed);
        let tally =
            soon(self.tasks.join_all()).await.into_iter().fold(Tally::default(), Tally::add);
        if let Some(error) = tally.unclassified.first() {
            return Err(format!("an error is of no class: {error}").into());
        }
        if tally.slowest > DEADLINE + GRACE {
            return Err(format!("an operation within {DEADLINE:?} took longer: {tally}").into());
        }
        Ok(tally)
    }
}

/// Operates until stopped; one operation in eight is cancelled by a time-out of a few milliseconds,
/// and another one by aborting its task.
async fn work(client: Topology, mut rng: Rng, stop: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    while !stop.load(Ordering::Relaxed) {
        let client = client.clone();
        let bits = rng.next_u64();
        let operation = operate(client, bits & 8 == 0);
        let patience = Duration::from_micros((bits >> 8) % 5000);
        match bits % 8 {
            0 => match tokio::time::timeout(patience, operation).await {
                Ok(ended) => tally.note(ended),
                Err(_elapsed) => tally.cancelled += 1,
            },
            1 => {
                let task = tokio::spawn(operation);
                tokio::time::sleep(patience).await;
                task.abort();
                match task.await {
                    Ok(ended) => tally.note(ended),
                    Err(error) if error.is_cancelled() => tally.cancelled += 1,
                    Err(error) => tally.unclassified.push(error.to_string()),
                }
            }
            _ => tally.note(operation.await),
        }
        tokio::time::sleep(PAUSE).await;
    }
    tally
}

/// The outcome of an operation, and the time it took.
type Ended = (Result<Reply, Error>, Duration);

async fn operate(client: Topology, writes: bool) -> Ended {
    let (start, client) = (Instant::now(), client.with_timeout(DEADLINE));
    let result = match writes {
        true => {
            let insert = rawdoc! { "insert": "storm", "documents": [{ "x": 1 }] };
            client.run_command("storm", &insert).await
        }
        false => {
            let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest));
            let find = rawdoc! { "find": "storm", "limit": 1 };
            client.run_command_on(nearest, "storm", &find).await
        }
    };
    (result, start.elapsed())
}

impl Tally {
    fn note(&mut self, (result, took): Ended) {
        self.slowest = self.slowest.max(took);
        match result {
            Ok(_) => self.succeeded += 1,
            Err(error) => match class(&error) {
                Some(class) => *self.failed.entry(class).or_default() += 1,
                None => self.unclassified.push(error.to_string()),
            },
        }
    }

    fn add(mut self, other: Self) -> Self {
        self.succeeded += other.succeeded;
        self.cancelled += other.cancelled;
        for (class, count) in other.failed {
            *self.failed.entry(class).or_default() += count;
        }
        self.unclassified.extend(other.unclassified);
        self.slowest = self.slowest.max(other.slowest);
        self
    }
}

/// Returns the kind of the error; `None` if a program cannot distinguish it.
fn class(error: &Error) -> Option<String> {
    if let Some(verdict) = error.verdict() {
        return Some(format!("select {}", name(verdict)));
    }
    match error.as_check_out() {
        Some(CheckOutError::Establishing { error, .. }) => {
            Some(format!("connect {}", kind(error)?))
        }
        Some(error) => Some(format!("check out {}", name(error))),
        None => match error.as_operation() {
            Some(error) => Some(format!("operate {}", kind(error)?)),
            // A connection that was had just before the deadline leaves no time to send.
            None if error.kind() == ErrorKind::Timeout => Some("not sent in time".to_owned()),
            None => None,
        },
    }
}

fn kind(error: &OperationError) -> Option<String> {
    match error {
        OperationError::Stream(failure) => Some(name(&failure.cause)),
        OperationError::Reply { error, .. } => error.code.map(|code| code.to_string()),
        // Nothing that is sent here is invalid.
        _ => None,
    }
}

/// Returns the name of a variant.
fn name(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { succeeded, cancelled, failed, slowest, .. } = self;
        write!(f, "{succeeded} succeeded, {cancelled} cancelled, slowest {slowest:.2?}")?;
        failed.iter().try_for_each(|(class, count)| write!(f, ", {count} × {class}"))
    }
}
