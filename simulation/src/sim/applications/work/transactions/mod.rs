//! Transactions of an application's, run as a whole or started and ended by hand, and dropped
//! wherever they wait; what each has done is noted in the history.

mod body;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, doc, rawdoc};
use sdam::error::Error;
use sdam::generic::ClientSession;
use sdam_cluster::ServerVersion;
use sdam_core::bson;
use sdam_core::config::{Acknowledgment, ReadConcern, WriteConcern};
use sdam_core::operation::{OperationError, TRANSIENT_TRANSACTION, UNKNOWN_COMMIT_RESULT};
use sdam_core::pool::CheckOutError;
use sdam_core::session::{TransactionOptions, TransactionState};

use super::super::conversation::integer;
use super::within::Patience;
use super::{Application, DATABASE, Terms};
use crate::histories::{Key, Outcome, Value};
use crate::virtual_time::Runtime;

use body::Body;

/// The accounts, whose sum is always zero.
pub(in crate::sim::applications) const ACCOUNTS: &str = "accounts";

/// The lists, which transactions append to and read.
pub(in crate::sim::applications) const LISTS: &str = "lists";

/// Documents that are inserted together.
pub(in crate::sim::applications) const ENTRIES: &str = "entries";

/// The number of times that a commit is asked again by hand.
const QUESTIONS: u32 = 4;

/// Returns the command that reads a collection as the majority has it.
pub(in crate::sim::applications) fn find_all(collection: &str) -> RawDocumentBuf {
    let (filter, concern) = (rawdoc! {}, rawdoc! { "level": "majority" });
    rawdoc! { "find": collection, "filter": filter, "batchSize": 1 << 20, "readConcern": concern }
}

/// Reads a document as a list: that which it has, its balance, or itself.
pub(in crate::sim::applications) fn key_of(document: &RawDocument) -> (Key, Vec<Value>) {
    let key = document.get_i64("_id").unwrap_or_default();
    let list = document.get_array("l").ok();
    let list = list.map(|list| list.into_iter().filter_map(|it| it.ok()?.as_i64()).collect());
    let balance = || integer(document, bson::raw::cstr!("n"));
    (key, list.unwrap_or_else(|| vec![balance().unwrap_or(key)]))
}

/// The way in which a transaction is run.
#[derive(Clone, Debug)]
struct Way {
    options: TransactionOptions,
    /// True if what is acknowledged lasts.
    lasts: bool,
    timeout: Option<Duration>,
    patience: Patience,
}

/// The last attempt at a transaction, and how far it has come.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    attempt: Option<usize>,
    /// True once its commit may be asked for.
    may_commit: bool,
}

impl Way {
    fn draw(application: &mut Application) -> Self {
        let random = &mut application.random;
        let lasts = random.percent(70);
        let concern = match lasts {
            true => WriteConcern::majority(),
            false => WriteConcern::default().with_w(Some(Acknowledgment::Servers(1))),
        };
        let mut options = TransactionOptions::default().with_write_concern(concern);
        if random.percent(60) {
            options = options.with_read_concern(ReadConcern::snapshot());
        }
        let timeout = random.pick(&[0, 0, 0, 0, 300, 2_000, 10_000]);
        let patience = match random.below(10) {
            0..7 => Patience::Endless,
            7 => Patience::Time(random.millis(0, 400)),
            _ => Patience::Polls(1 + random.below(30)),
        };
        let timeout = (timeout > 0).then(|| Duration::from_millis(timeout));
        Self { options, lasts, timeout, patience }
    }

    /// Returns what an application may conclude from the outcome of a commit.
    fn conclude(&self, committed: Result<(), &Error>) -> Outcome {
        match committed {
            Ok(()) if self.lasts => Outcome::Committed,
            Ok(()) => Outcome::Unknown,
            Err(error) if error.has_label(UNKNOWN_COMMIT_RESULT) => Outcome::Unknown,
            Err(_) => Outcome::Aborted,
        }
    }
}

impl Progress {
    /// Another attempt begins, because the one before has come to nothing.
    fn begin(&mut self, application: &Application) -> usize {
        let history = &mut application.state().history;
        self.attempt.into_iter().for_each(|before| history.end(before, Outcome::Aborted));
        let attempt = history.begin();
        *self = Self { attempt: Some(attempt), may_commit: false };
        attempt
    }

    /// Returns what an application may conclude if it hears no more.
    const fn given_up(self) -> Outcome {
        if self.may_commit { Outcome::Unknown } else { Outcome::Aborted }
    }

    fn end(self, application: &Application, outcome: Outcome) {
        let history = &mut application.state().history;
        self.attempt.into_iter().for_each(|attempt| history.end(attempt, outcome));
    }

    /// Has others ask what became of it, if that is what an error says.
    fn note_question(self, application: &Application, error: &Error) {
        if let (Some(attempt), Some(token)) = (self.attempt, error.commit_token()) {
            application.state().questions.note(application.number, attempt, token);
        }
    }
}

/// A session of transactions, with its number among the holders of sessions.
pub(super) struct Held {
    pub(super) session: ClientSession<Runtime>,
    number: i64,
    name: Vec<u8>,
}

impl Held {
    /// Starts a session.
    pub(super) async fn start(application: &Application) -> Option<Self> {
        let session = application.client.start_session().await.ok()?;
        let name = session.id()?.get_binary("id").ok()?.bytes.to_vec();
        let number = application.state().operations.session(application.number);
        let held = Self { session, number, name };
        let ending = held.begin_end(application, true);
        application.over(ending);
        Some(held)
    }

    /// The session has ended.
    fn has_ended(number: i64, application: &Application) {
        application.state().checks.sessions.ended(number);
        application.over(number);
    }

    /// Ends the session.
    pub(super) fn end(&self, application: &Application) {
        self.session.end();
        Self::has_ended(self.number, application);
    }

    pub(super) const fn terms(&self) -> Terms {
        Terms { session: Some(self.number), timeout: None }
    }

    /// Notes that the commit of its transaction is called, whose outcome may be asked for later.
    pub(super) fn note_commit(&self, application: &Application) {
        let mut state = application.state();
        state.checks.transactions.is_committed(&self.name);
        state.checks.sessions.may_be_retired(&self.name);
    }

    /// Begins the operation that the commands belong to which end transactions.
    pub(super) fn begin_end(&self, application: &Application, repeats: bool) -> i64 {
        let operation = application.begin(self.terms());
        let mut state = application.state();
        if repeats {
            state.operations.repeats(operation);
        }
        let session = (application.number, self.name.clone());
        state.conversations.ends_transactions(session, operation);
        operation
    }
}

/// Runs some transactions in a session.
pub(super) async fn use_transactions(application: &mut Application) {
    let Some(held) = Held::start(application).await.map(Arc::new) else { return };
    let number = held.number;
    for _ in 0..application.random.pick(&[1, 1, 2, 3]) {
        let (way, body) = (Way::draw(application), Body::draw(application));
        match application.random.percent(50) {
            true => run_whole(application, &held, &way, body).await,
            false => run_by_hand(application, &held, &way, &body).await,
        }
    }
    match application.random.percent(50) {
        true => held.session.end(),
        false => drop(held),
    }
    Held::has_ended(number, application);
}

/// The future of an attempt.
pub(super) type Attempt = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Has the driver run a transaction as a whole.
async fn run_whole(application: &Application, held: &Arc<Held>, way: &Way, body: Body) {
    let ending = held.begin_end(application, true);
    let progress = Arc::new(Mutex::new(Progress::default()));
    // A task is `Send` if what it runs borrows nothing.
    let shared = Arc::new((application.clone(), Arc::clone(held), body, Arc::clone(&progress)));
    let mut start = held.session.start_transaction().with_options(way.options.clone());
    if let Some(timeout) = way.timeout {
        start = start.timeout(timeout);
    }
    let run = start.and_run(move |_: ClientSession<Runtime>| -> Attempt {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let (application, held, body, progress) = &*shared;
            let known = || progress.lock().unwrap_or_else(PoisonError::into_inner);
            let attempt = known().begin(application);
            body.run(application, held, attempt).await?;
            known().may_commit = true;
            held.note_commit(application);
            Ok(())
        })
    });
    let outcome = way.patience.with(&application.time, run).await;
    let progress = *progress.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Err(error)) = &outcome {
        progress.note_question(application, error);
    }
    let concluded = match &outcome {
        Some(outcome) => way.conclude(outcome.as_ref().copied()),
        None => progress.given_up(),
    };
    progress.end(application, concluded);
    application.over(ending);
}

/// Starts a transaction, and ends it in one of several ways.
async fn run_by_hand(application: &mut Application, held: &Held, way: &Way, body: &Body) {
    let start = held.session.start_transaction().with_options(way.options.clone());
    if start.await.is_err() {
        return;
    }
    let mut progress = Progress::default();
    let attempt = progress.begin(application);
    let done = {
        let run = body.run(application, held, attempt);
        way.patience.with(&application.time, run).await
    };
    match done {
        Some(Ok(())) if application.random.percent(90) => {
            progress.may_commit = true;
            held.note_commit(application);
            let outcome = commit(application, held, way, progress).await;
            return progress.end(application, outcome);
        }
        // What is ignored leaves it open what the transaction has become.
        Some(Err(_)) if application.random.percent(40) => {
            body::look_again(application, held).await;
        }
        _ => {}
    }
    progress.end(application, Outcome::Aborted);
    if application.random.percent(70) {
        let ending = held.begin_end(application, false);
        let abort = held.session.abort_transaction();
        way.patience.with(&application.time, abort).await;
        application.over(ending);
    }
}

/// Commits a transaction, and asks again what has become of it while that is unknown.
async fn commit(
    application: &mut Application,
    held: &Held,
    way: &Way,
    progress: Progress,
) -> Outcome {
    let mut outcome = Outcome::Unknown;
    for question in 0..QUESTIONS {
        let ending = held.begin_end(application, way.timeout.is_some());
        let mut commit = held.session.commit_transaction();
        if let Some(timeout) = way.timeout {
            commit = commit.timeout(timeout);
        }
        let patience = if question == 0 { way.patience } else { Patience::Endless };
        let ended = patience.with(&application.time, commit).await;
        application.over(ending);
        let error = match ended {
            Some(Ok(())) => return way.conclude(Ok(())),
            Some(Err(error)) => error,
            None => continue,
        };
        check_commit(application, &error);
        progress.note_question(application, &error);
        outcome = way.conclude(Err(&error));
        if outcome == Outcome::Aborted && question > 0 && error.reply().is_none() {
            // Nothing was heard this time.
            outcome = Outcome::Unknown;
        }
        if outcome == Outcome::Aborted || application.random.percent(20) {
            return outcome;
        }
        let pause = application.random.millis(0, 3_000);
        application.time.sleep(pause).await;
    }
    outcome
}

/// Checks the labels of an error of a commit.
///
/// "any [...] network error or server selection error [...] encountered running commitTransaction
/// MUST add an `UnknownTransactionCommitResult` label" (Transactions, "Error Labels").
fn check_commit(application: &Application, error: &Error) {
    if is_unreachable(error) && !error.has_label(UNKNOWN_COMMIT_RESULT) {
        let check = "commits whose outcome is unknown say so";
        application.state().fail(application.number, check, format!("{error:?}"));
    }
}

/// Returns whether an error is one of the network, of a pool that was cleared, or of selection.
fn is_unreachable(error: &Error) -> bool {
    let is_lost = |error: &OperationError| matches!(error, OperationError::Stream(_));
    let is_cleared = |error: &CheckOutError| match error {
        CheckOutError::PoolCleared { .. } | CheckOutError::NotReady { .. } => true,
        CheckOutError::IdleConnection { error, .. } | CheckOutError::Establishing { error, .. } => {
            is_lost(error)
        }
        _ => false,
    };
    error.as_selection().is_some()
        || error.as_operation().is_some_and(is_lost)
        || error.as_check_out().is_some_and(is_cleared)
}

/// Checks what an operation within a transaction has failed with, and notes if that unpins.
///
/// "any network error or server selection error encountered running any command besides
/// commitTransaction in a transaction" has the label (Transactions, "Error Labels").
pub(super) fn check_within(application: &Application, held: &Held, error: &Error) {
    let is_open = held.session.transaction_state() != Ok(TransactionState::None);
    let mut state = application.state();
    if error.has_label(TRANSIENT_TRANSACTION) {
        state.checks.transactions.is_unpinned(&held.name);
    }
    if is_open && is_unreachable(error) && !error.has_label(TRANSIENT_TRANSACTION) {
        let check = "errors that end a transaction for a while say so";
        state.fail(application.number, check, format!("{error:?}"));
    }
}

/// Reads all accounts in a session of snapshot reads.
pub(super) async fn read_snapshot(application: &mut Application) {
    if application.workload.version < ServerVersion::V5_0 {
        return;
    }
    let Ok(session) = application.client.start_session().snapshot(true).await else { return };
    let number = application.state().operations.session(application.number);
    let terms = Terms { session: Some(number), timeout: None };
    let database = application.client.with_session(&session).database(DATABASE);
    let accounts = database.collection::<bson::Document>(ACCOUNTS);
    let find = accounts.find(doc! {}).batch_size(2);
    let sum = application.run(terms, async |comment| body::sum(find.comment(comment)).await).await;
    body::check_sum(application, sum.ok());
    session.end();
    application.state().checks.sessions.ended(number);
    application.over(number);
}
