//! Transactions that are run as a whole, and what has become of each attempt as far as its client
//! knows.

use std::error::Error;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sdam::error::{CallbackError, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use sdam::options::{ReadConcern, WriteConcern};
use sdam::{Client, ClientSession};
use sdam_core::rng::Rng;
use sdam_simulation::histories::Outcome;

/// Any error of a task; it ends the storm.
pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// Takes notes of attempts.
pub(super) trait Notes: Sync {
    /// Begins an attempt, and returns its number.
    fn begin(&self) -> usize;

    /// Notes what has become of it.
    fn end(&self, attempt: usize, outcome: Outcome);
}

/// No notes.
impl Notes for () {
    fn begin(&self) -> usize {
        0
    }

    fn end(&self, _attempt: usize, _outcome: Outcome) {}
}

/// The patience that a client has with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// The two minutes that there are by default, which is more than any fault takes.
    Full,
    /// `timeoutMS`, for all attempts together.
    Limited(Duration),
    /// The transaction is dropped after this time, wherever it stands.
    Dropped(Duration),
}

impl Patience {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let bits = rng.next_u64();
        let of_range =
            |least: u64, most: u64| Duration::from_millis(least + (bits >> 8) % (most - least));
        match bits % 16 {
            0 => Self::Dropped(of_range(1, 40)),
            1 | 2 => Self::Limited(of_range(300, 3000)),
            _ => Self::Full,
        }
    }
}

/// The reason why a callback fails.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The application wants the transaction no more.
    Declined,
    /// An operation has failed.
    Database(sdam::Error),
    /// It has seen what no transaction may see.
    Wrong(String),
}

impl From<sdam::Error> for Refusal {
    fn from(error: sdam::Error) -> Self {
        Self::Database(error)
    }
}

impl CallbackError for Refusal {
    fn database_error(&self) -> Option<&sdam::Error> {
        match self {
            Self::Database(error) => Some(error),
            Self::Declined | Self::Wrong(_) => None,
        }
    }
}

/// A transaction that was run as a whole.
pub(super) struct Ran {
    pub(super) outcome: Outcome,
    attempts: usize,
    took: Duration,
}

/// Runs a transaction as a whole, in a session of its own, and notes what has become of each
/// attempt; the body is given the number of the attempt.
///
/// An attempt that was followed by another one counts as aborted: a body is run again only if
/// nothing of it can be there.
///
/// # Errors
///
/// Fails if the body has seen what it may not see, and if a transaction has failed although there
/// was time.
pub(super) async fn run<F>(
    client: &Client,
    (patience, read_concern): (Patience, ReadConcern),
    notes: &impl Notes,
    body: impl Fn(ClientSession, usize) -> F,
) -> Result<Ran, Failure>
where
    F: Future<Output = Result<(), Refusal>>,
{
    let session = client.start_session().await?;
    let (begun, attempts) = (Instant::now(), Mutex::new(Vec::new()));
    let attempt = |session| {
        let number = notes.begin();
        lock(&attempts).push(number);
        body(session, number)
    };
    let whole = session.start_transaction().read_concern(read_concern);
    let whole = whole.write_concern(WriteConcern::majority());
    let ended = match patience {
        Patience::Full => Some(whole.and_run(attempt).await),
        Patience::Limited(limit) => Some(whole.timeout(limit).and_run(attempt).await),
        Patience::Dropped(after) => tokio::time::timeout(after, whole.and_run(attempt)).await.ok(),
    };
    let outcome = match ended {
        Some(Ok(())) => Outcome::Committed,
        Some(Err(Refusal::Declined)) => Outcome::Aborted,
        Some(Err(Refusal::Wrong(seen))) => return Err(seen.into()),
        Some(Err(Refusal::Database(error))) => match patience {
            Patience::Full => return Err(error.into()),
            _ if error.has_label(UNKNOWN_TRANSACTION_COMMIT_RESULT) => Outcome::Unknown,
            _ => Outcome::Aborted,
        },
        None => Outcome::Unknown,
    };
    let attempts = attempts.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((last, earlier)) = attempts.split_last() {
        earlier.iter().for_each(|attempt| notes.end(*attempt, Outcome::Aborted));
        notes.end(*last, outcome);
    }
    Ok(Ran { outcome, attempts: attempts.len(), took: begun.elapsed() })
}

/// The figures of transactions.
#[derive(Default)]
pub(super) struct Tally {
    committed: usize,
    again: usize,
    aborted: usize,
    unknown: usize,
    longest: Duration,
}

impl Tally {
    pub(super) fn note(&mut self, ran: &Ran) {
        match ran.outcome {
            Outcome::Committed => self.committed += 1,
            Outcome::Aborted => self.aborted += 1,
            Outcome::Unknown => self.unknown += 1,
        }
        self.again += ran.attempts.saturating_sub(1);
        self.longest = self.longest.max(ran.took);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.again += other.again;
        self.aborted += other.aborted;
        self.unknown += other.unknown;
        self.longest = self.longest.max(other.longest);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { committed, again, aborted, unknown, longest } = self;
        write!(
            f,
            "{committed} committed, {again} run again, {aborted} aborted, {unknown} unknown, \
             longest {longest:.2?}"
        )
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
