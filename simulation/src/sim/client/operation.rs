//! The workload of a client: operations that select a server, check out a connection, exchange
//! messages, and return the connection, as an application writes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::bson;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::description::{ServerDescription, ServerType, TopologyType};
use sdam_core::failure::Stage;
use sdam_core::id::ServerId;
use sdam_core::operation::{CommandError, OperationError, Timeout};
use sdam_core::pool::{CheckOutError, Purpose};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::wire::Frames;
use sdam_host::{CheckedOut, Error, Host, Outcome, SelectedServer};

use super::ledger::{Ledger, Shared};
use crate::sim::coverage::Sign;
use crate::sim::random::Random;
use crate::sim::request::{Kind, command, get_more, message};
use crate::sim::runtime::{Desk, Virtual};

/// Unauthorized.
const UNAUTHORIZED: i32 = 13;

/// CursorNotFound.
const CURSOR_NOT_FOUND: i32 = 43;

/// NotPrimaryNoSecondaryOk.
pub(super) const NO_SECONDARY_OK: i32 = 13435;

/// The wait of an operation that counts as long.
const LONG: Duration = Duration::from_secs(10);

/// The longest that an application takes between two batches, in milliseconds.
const BETWEEN_BATCHES: u64 = 1_500;

/// The percentage of operations that leave everything to the client.
const BRIEF_PERCENT: u64 = 20;

/// An operation of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sim) struct OperationId(pub(super) u64);

/// A selection that has given up before its deadline.
#[derive(Debug)]
pub(in crate::sim) struct GaveUp {
    pub(in crate::sim) criteria: Arc<Criteria>,
    /// The time when it began.
    pub(in crate::sim) since: Instant,
}

/// The look at the deployment that an application takes once all is calm, in the single-threaded
/// mode, where no monitor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    None,
    Begun(OperationId),
    /// A server was selected, from a view that must be right.
    Ended,
}

/// The phase of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Selecting,
    CheckingOut,
    Exchanging,
    /// The client does all of it.
    Running,
    /// The application keeps the connection for a while.
    Holding,
    /// The application has a batch, and is going to want another one.
    Resting,
}

/// An operation, and how far it has come.
#[derive(Debug)]
pub(in crate::sim) struct Operation {
    pub(in crate::sim) criteria: Arc<Criteria>,
    pub(super) deadline: Instant,
    pub(super) phase: Phase,
    /// Since when it has had no connection.
    pub(super) wants_since: Instant,
    /// Since when it last waited for a server.
    pub(super) selecting_since: Option<Instant>,
    /// The number of times that it has looked for a server since then, for a second.
    pub(super) attempts: (Instant, u32),
    /// The server that has more batches for it.
    pub(super) cursor: Option<ServerId>,
    /// True if the client sends it again by itself.
    pub(super) is_retried: bool,
}

impl Operation {
    /// Returns the server that has more batches for it.
    pub(in crate::sim) const fn cursor_server(&self) -> Option<ServerId> {
        self.cursor
    }

    /// Returns whether its caller waits for it.
    pub(super) const fn waits(&self) -> bool {
        !matches!(self.phase, Phase::Holding | Phase::Resting)
    }
}

/// The task of an operation.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) kind: Kind,
    pub(super) criteria: Criteria,
    pub(super) patience: Duration,
    /// The time that the connection is kept after the reply.
    hold: Duration,
    /// True if it reads in batches.
    batches: bool,
    /// True if the application writes its message itself, and does not say whom it is meant for.
    careless: bool,
    /// True if it takes its time between looking for a server and waiting for one.
    hesitates: bool,
    /// True if it leaves everything to the client.
    brief: bool,
    random: Random,
}

impl Job {
    /// Draws what an operation does that may take so long.
    pub(super) fn draw(
        ledger: &Ledger,
        kind: Kind,
        patience: Duration,
        mut random: Random,
    ) -> Self {
        let hold = match random.percent(30) {
            true => random.millis(0, 300),
            false => Duration::ZERO,
        };
        let reads = matches!(kind, Kind::Read(_));
        let batches = reads && random.percent(ledger.plan.cursor_percent);
        let careless = random.percent(2);
        let hesitates = random.percent(ledger.plan.hesitating_percent);
        let own = ledger.options.pool().wait_queue_timeout.is_none();
        // A client that is sent elsewhere cannot know there whether it has logged in.
        let own = own && ledger.options.credential().is_none();
        let plain = own && !batches && !careless && !hesitates;
        let brief = random.percent(BRIEF_PERCENT) && plain;
        let criteria = match kind {
            Kind::Write => Criteria::write(),
            Kind::Read(mode) => Criteria::read(ReadPreference::new(mode)),
        };
        Self { kind, criteria, patience, hold, batches, careless, hesitates, brief, random }
    }
}

/// The reason for which an operation goes on, or ends.
enum Next {
    /// It looks for a server once more.
    Again,
    /// It is tried once more, with another server if there is one.
    Retry(ServerId),
    Over,
}

/// The server that an operation was sent to.
struct Chosen {
    topology: TopologyType,
    server: ServerType,
}

impl Chosen {
    fn of(selected: &SelectedServer<Virtual<Shared>>) -> Self {
        Self { topology: selected.topology_type(), server: selected.description().server_type }
    }
}

/// An operation at work.
pub(super) struct Worker {
    pub(super) id: OperationId,
    pub(super) ledger: Shared,
    pub(super) host: Arc<OwnHost>,
    pub(super) desk: Arc<Desk>,
}

impl Worker {
    /// Does all of it.
    pub(super) async fn work(self, mut job: Job) {
        let entry = Entry { id: self.id, ledger: self.ledger.clone() };
        if job.brief {
            self.run(&job).await;
        } else {
            let (mut retried, mut found_dead) = (false, false);
            loop {
                match self.attempt(&mut job, retried, &mut found_dead).await {
                    Next::Again => {}
                    Next::Over => break,
                    Next::Retry(failed) => {
                        retried = true;
                        self.avoid(failed);
                    }
                }
            }
        }
        drop(entry);
    }

    fn set(&self, change: impl FnOnce(&mut Operation)) {
        let mut ledger = self.ledger.lock();
        if let Some(operation) = ledger.operations.get_mut(&self.id) {
            change(operation);
        }
    }

    /// Avoids a server that has failed.
    fn avoid(&self, failed: ServerId) {
        let mut ledger = self.ledger.lock();
        let now = ledger.now();
        let address = ledger.servers.get(&failed).map(|server| server.address.clone());
        if let Some(operation) = ledger.operations.get_mut(&self.id) {
            operation.wants_since = now;
            let criteria = (*operation.criteria).clone();
            operation.criteria = Arc::new(criteria.deprioritize(address));
        }
    }

    /// Leaves everything to the client.
    async fn run(&self, job: &Job) {
        let (criteria, deadline, sent_by) = {
            let mut ledger = self.ledger.lock();
            let sent_by = ledger.now() + ledger.plan.patience;
            let Some(operation) = ledger.operations.get_mut(&self.id) else { return };
            operation.phase = Phase::Running;
            (Arc::clone(&operation.criteria), operation.deadline, sent_by)
        };
        let last = deadline.min(sent_by);
        let command = command(job.kind, false);
        let reply = self.host.run_command("d", &command, criteria, Timeout::At(last)).await;
        let mut ledger = self.ledger.lock();
        match reply {
            Ok(_) => ledger.succeeded += 1,
            Err(error) => match (error.as_selection(), error.as_operation()) {
                (Some(error), _) if deadline <= sent_by => ledger.gives_up(self.id, error),
                (_, Some(OperationError::Reply { error, .. })) => {
                    ledger.judge_error(self.id, error, false);
                }
                (_, Some(OperationError::Stream(failure))) => {
                    ledger.judge_failure(self.id, failure);
                }
                _ => {}
            },
        }
    }

    /// Selects, checks out and exchanges once.
    async fn attempt(&self, job: &mut Job, retried: bool, found_dead: &mut bool) -> Next {
        let Some((criteria, deadline)) = self.look(job) else { return Next::Over };
        let selected = self.host.select(&criteria, Some(deadline)).await;
        let selected = match selected {
            Ok(selected) => selected,
            Err(error) => {
                if let Some(error) = error.as_selection() {
                    self.ledger.lock().gives_up(self.id, error);
                }
                return Next::Over;
            }
        };
        let (server, own) = self.found(job, &selected, retried);
        let most = self.host.options().pool().max_pool_size as usize;
        let all_out = retried && most > 0 && selected.counts().in_use >= most;
        let by = own.then_some(deadline);
        let checked_out = match selected.clone().with_deadline(by).check_out().await {
            Ok(checked_out) => checked_out,
            Err(error) => return self.got_none(&error, server, retried, found_dead),
        };
        self.exchange(job, checked_out, &selected, (retried, all_out)).await
    }

    /// Begins to look for a server; returns what for, and until when.
    fn look(&self, job: &mut Job) -> Option<(Arc<Criteria>, Instant)> {
        let mut ledger = self.ledger.lock();
        ledger.looks(self.id);
        let ledger = &mut *ledger;
        let operation = ledger.operations.get_mut(&self.id)?;
        operation.phase = Phase::Selecting;
        if std::mem::take(&mut job.hesitates) {
            // Others work between this operation's look at the view and its wait for another one,
            // so that it finds no server at first, even if there is one.
            let pretends = Arc::new(AtomicBool::new(true));
            ledger.hesitating = Some(Arc::clone(&pretends));
            let sees = move |_: &ServerDescription| !pretends.load(Ordering::Relaxed);
            operation.criteria = Arc::new((*operation.criteria).clone().with_predicate(sees));
        }
        let operation = ledger.operations.get(&self.id)?;
        Some((Arc::clone(&operation.criteria), operation.deadline))
    }

    /// A server was selected; returns it, and whether the check-out has a deadline of its own.
    fn found(
        &self,
        job: &Job,
        selected: &SelectedServer<Virtual<Shared>>,
        retried: bool,
    ) -> (ServerId, bool) {
        let mut ledger = self.ledger.lock();
        let now = ledger.now();
        if ledger.look == Look::Begun(self.id) {
            ledger.look = Look::Ended;
        }
        // The operation reads from a near server, unless it avoids one that has failed it.
        if job.kind == Kind::Read(ReadMode::Nearest) && !retried {
            let view = Arc::clone(&ledger.view);
            let address = selected.address();
            if let Ok(index) = view.description().servers().position(address) {
                ledger.checks.chosen(&view, index);
            }
        }
        if let Some(operation) = ledger.operations.get_mut(&self.id) {
            operation.phase = Phase::CheckingOut;
            if now - operation.wants_since >= LONG {
                ledger.checks.note(Sign::WaitedLong);
            }
        }
        // "If timeoutMS is set, waitQueueTimeoutMS is ignored": with the latter there is no
        // deadline.
        (selected.id(), ledger.options.pool().wait_queue_timeout.is_none())
    }

    fn got_none(
        &self,
        error: &Error,
        server: ServerId,
        retried: bool,
        found_dead: &mut bool,
    ) -> Next {
        let mut ledger = self.ledger.lock();
        let (now, closed) = (ledger.now(), ledger.closed);
        let Some(operation) = ledger.operations.get(&self.id) else { return Next::Over };
        if now >= operation.deadline || closed {
            return Next::Over;
        }
        let Some(error) = error.as_check_out() else { return Next::Over };
        match error {
            CheckOutError::Timeout { .. } => {
                ledger.checks.note(Sign::WaitedInVain);
                if ledger.options.pool().wait_queue_timeout.is_none() {
                    let what = || format!("{:?} gives up before its deadline: {error}", self.id);
                    ledger.checks.fail("check-outs wait until their deadline", what);
                }
                Next::Over
            }
            CheckOutError::PoolCleared { .. }
            | CheckOutError::NotReady { .. }
            | CheckOutError::PoolClosed { .. } => Next::Again,
            // "attempt once more to select a server"
            CheckOutError::IdleConnection { .. } if !std::mem::replace(found_dead, true) => {
                Next::Again
            }
            // As a retry does, it avoids the server that failed.
            CheckOutError::Establishing { .. } | CheckOutError::IdleConnection { .. }
                if ledger.plan.retries && !retried =>
            {
                Next::Retry(server)
            }
            _ => Next::Over,
        }
    }

    /// Exchanges messages until the application has all that it wants.
    async fn exchange(
        &self,
        job: &mut Job,
        checked_out: CheckedOut<Virtual<Shared>>,
        selected: &SelectedServer<Virtual<Shared>>,
        (retried, all_out): (bool, bool),
    ) -> Next {
        let (server, mut checked_out) = (selected.id(), Some(checked_out));
        let (mut sent, mut reads_on) = (command(job.kind, job.batches), false);
        loop {
            let mut own = match checked_out.take() {
                Some(checked_out) => checked_out,
                // Another batch, over whichever connection.
                None => match self.check_out_again(selected).await {
                    Some(checked_out) => checked_out,
                    None => return Next::Over,
                },
            };
            let reply = self.ask(job, &mut own, &sent, reads_on).await;
            let may_retry = self.may_retry() && !retried && !reads_on;
            let document = match reply {
                Ok(document) => document,
                Err(OperationError::Reply { error, .. }) => {
                    let is_anonymous = self.check_login(&own);
                    self.check_meant(job, &Chosen::of(selected), &error);
                    if error.state_change().is_some() && may_retry {
                        return Next::Retry(server);
                    }
                    let stranger = is_anonymous && error.code == Some(UNAUTHORIZED);
                    self.judge(&error, reads_on, stranger);
                    self.hold(job).await;
                    return Next::Over;
                }
                Err(OperationError::Stream(failure)) => {
                    self.ledger.lock().judge_failure(self.id, &failure);
                    drop(own);
                    return if may_retry { Next::Retry(server) } else { Next::Over };
                }
                Err(error) => {
                    let what = || error.to_string();
                    self.ledger.lock().checks.fail("commands can be sent", what);
                    return Next::Over;
                }
            };
            if !reads_on {
                self.succeeded(all_out);
            }
            let cursor = document.get_document("cursor").and_then(|cursor| cursor.get_i64("id"));
            let Some(cursor) = cursor.ok().filter(|id| *id != 0 && job.batches) else {
                self.hold(job).await;
                return Next::Over;
            };
            (sent, reads_on) = (get_more(cursor), true);
            // "the driver MUST pin the connection" to a cursor behind a load balancer.
            if self.host.options().load_balanced() {
                own.pin(Purpose::Cursor);
                checked_out = Some(own);
            } else {
                drop(own);
            }
            if !self.rest(job, server).await {
                return Next::Over;
            }
        }
    }

    fn succeeded(&self, all_out: bool) {
        let mut ledger = self.ledger.lock();
        ledger.succeeded += 1;
        if all_out {
            ledger.checks.note(Sign::RetriedWithAllOut);
        }
    }

    /// Checks out another connection of the same server, for the next batch.
    async fn check_out_again(
        &self,
        selected: &SelectedServer<Virtual<Shared>>,
    ) -> Option<CheckedOut<Virtual<Shared>>> {
        let mut by = None;
        let own = self.host.options().pool().wait_queue_timeout.is_none();
        self.set(|operation| {
            operation.phase = Phase::CheckingOut;
            by = own.then_some(operation.deadline);
        });
        selected.clone().with_deadline(by).check_out().await.ok()
    }

    /// Sends a command, and waits for its reply as long as others do, however patient the operation
    /// was in waiting for a server.
    async fn ask(
        &self,
        job: &Job,
        checked_out: &mut CheckedOut<Virtual<Shared>>,
        command: &RawDocument,
        reads_on: bool,
    ) -> Result<RawDocumentBuf, OperationError> {
        let deadline = {
            let mut ledger = self.ledger.lock();
            let (now, limit) = (ledger.now(), ledger.plan.patience);
            let Some(operation) = ledger.operations.get_mut(&self.id) else {
                return Ok(RawDocumentBuf::new());
            };
            operation.phase = Phase::Exchanging;
            operation.wants_since = now;
            operation.deadline = operation.deadline.min(now + limit);
            operation.deadline
        };
        checked_out.set_deadline(Some(deadline));
        if !job.careless || reads_on {
            let reply =
                checked_out.command("d", command).await.map_err(|error| exchange_error(&error))?;
            return Ok(RawDocumentBuf::from_bytes(reply.as_bytes().to_vec()).expect("it is one"));
        }
        let mut frames = Frames::new();
        frames.extend(&message(7, command));
        let request = frames.next().ok().flatten().expect("it is one message");
        checked_out.send_message(&request).await.map_err(|error| exchange_error(&error))?;
        let reply = checked_out.receive_message().await.map_err(|error| exchange_error(&error))?;
        if reply.header().response_to != 7 {
            let what = || format!("{:?} is answered", reply.header());
            self.ledger.lock().checks.fail("replies match requests", what);
        }
        let Ok(reply) = reply.op_msg() else {
            self.ledger.lock().checks.fail("bytes arrive as sent", String::new);
            return Ok(RawDocumentBuf::new());
        };
        checked_out.report(Outcome::of_reply(reply.body));
        match CommandError::in_reply(reply.body) {
            Some(error) => Err(OperationError::Reply { stage: Stage::Operate, error }),
            None => Ok(reply.body.to_owned()),
        }
    }

    /// Judges the error that the server has replied with.
    fn judge(&self, error: &CommandError, reads_on: bool, stranger: bool) {
        let mut ledger = self.ledger.lock();
        let lost = reads_on && ledger.plan.loses_cursors && error.code == Some(CURSOR_NOT_FOUND);
        ledger.judge_error(self.id, error, lost || stranger);
    }

    fn may_retry(&self) -> bool {
        let ledger = self.ledger.lock();
        let in_time = ledger.operations.get(&self.id).is_some_and(|it| ledger.now() < it.deadline);
        ledger.plan.retries && !ledger.closed && in_time
    }

    /// Checks that a client with a user logs in, but to arbiters; returns whether it is anonymous.
    fn check_login(&self, checked_out: &CheckedOut<Virtual<Shared>>) -> bool {
        let connection_description = checked_out.connection_description();
        let is_anonymous = self.host.options().credential().is_some()
            && connection_description.mechanism.is_none();
        if is_anonymous && connection_description.server_type != ServerType::RsArbiter {
            let what = || {
                format!(
                    "{} to a {}",
                    checked_out.connection_id(),
                    connection_description.server_type
                )
            };
            self.ledger.lock().checks.fail("a client with a user logs in", what);
        }
        is_anonymous
    }

    /// Server Selection, "Read operations": "to ensure that any suitable server can handle the
    /// request".
    fn check_meant(&self, job: &Job, chosen: &Chosen, error: &CommandError) {
        use ServerType::{RsPrimary, RsSecondary};
        let of_a_set = matches!(chosen.server, RsPrimary | RsSecondary);
        let direct = chosen.topology == TopologyType::Single;
        let may_be_secondary = match job.kind {
            Kind::Read(mode) if !job.careless => of_a_set && (direct || mode != ReadMode::Primary),
            Kind::Read(_) | Kind::Write => false,
        };
        if error.code == Some(NO_SECONDARY_OK) && may_be_secondary {
            let what = || format!("{:?} fails with {error}", self.id);
            self.ledger.lock().checks.fail("a command for a secondary allows one", what);
        }
    }

    /// The application keeps the connection for a while.
    async fn hold(&self, job: &Job) {
        if !job.hold.is_zero() {
            self.set(|operation| operation.phase = Phase::Holding);
            self.desk.sleep_until(self.desk.now() + job.hold).await;
        }
    }

    /// The application takes its time until the next batch; returns whether it still wants that.
    async fn rest(&self, job: &mut Job, server: ServerId) -> bool {
        let mut deadline = self.desk.now();
        let of_primary = self.ledger.lock().sees_primary(server);
        self.set(|operation| {
            (operation.phase, operation.cursor) = (Phase::Resting, Some(server));
            deadline = operation.deadline;
        });
        let next = self.desk.now() + job.random.millis(0, BETWEEN_BATCHES);
        self.desk.sleep_until(next.min(deadline)).await;
        let mut ledger = self.ledger.lock();
        let is_member = ledger.servers.get(&server).is_some_and(|it| !it.left);
        if of_primary && is_member && !ledger.sees_primary(server) {
            ledger.checks.note(Sign::CursorDemoted);
        }
        is_member && next < deadline
    }
}

/// Takes an operation out of the ledger, also if it is dropped in the middle.
pub(super) struct Entry {
    pub(super) id: OperationId,
    pub(super) ledger: Shared,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let removed = self.ledger.lock().operations.remove(&self.id);
        drop(removed);
    }
}

/// A host in virtual time.
pub(super) type OwnHost = Host<Virtual<Shared>>;

/// Returns what went wrong over a connection in use, which is all that can.
fn exchange_error(error: &Error) -> OperationError {
    error.as_operation().expect("it is of an exchange").clone()
}
