//! The documents of an application: it writes each of them once, reads what it has written, and
//! notes the acknowledgements, which must be true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::operation::{CommandMessage, OperationError, OperationOptions, Timeout};
use sdam_core::selection::Criteria;
use sdam_core::session::SessionOptions;
use sdam_core::time::Instant;
use sdam_host::driver::{DriverSession, DriverTopology, Request, SessionGuard, Target};
use sdam_host::{ClientSession, Error, Reply, Topology};

use super::ledger::{Ledger, Shared};
use super::operation::{Entry, OperationId, Phase, Worker};
use super::sessions::{HOLDER, Sessions};
use crate::sim::documents::{COLLECTION, DATABASE};
use crate::sim::random::Random;
use crate::sim::runtime::Virtual;

/// The number of operations that a task does one after the other, at most.
const MOST_STEPS: u64 = 4;

/// Unauthorized.
const UNAUTHORIZED: i32 = 13;

/// MaxTimeMSExpired.
const MAX_TIME_EXPIRED: i32 = 50;

/// The progress of a write, as it was acknowledged to its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Acknowledged {
    /// It was not acknowledged.
    Unknown,
    /// The primary has it.
    ByPrimary,
    /// A majority has it, so that it lasts.
    ByMajority,
}

/// A write of one document.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Write {
    pub(in crate::sim) began: Instant,
    pub(in crate::sim) acknowledged: Acknowledged,
}

/// A document that its own session has written, with success, and did not find.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim) struct Missed {
    pub(in crate::sim) document: i64,
    pub(in crate::sim) write: Write,
}

/// The documents of one application.
#[derive(Debug)]
pub(in crate::sim) struct Documents {
    /// The last number, of a document or of the holder of a session; no two applications have one
    /// in common.
    last: i64,
    pub(in crate::sim) writes: BTreeMap<i64, Write>,
    missed: Vec<Missed>,
    /// The operations that have ended, and by when they were to.
    ended: Vec<(OperationId, Instant)>,
    pub(super) sessions: Sessions,
}

impl Documents {
    /// Begins with none, of the client of this number.
    pub(super) fn new(client: usize) -> Self {
        let last = i64::try_from(client).unwrap_or(i64::MAX) << 32;
        let (writes, missed, ended) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { last, writes, missed, ended, sessions: Sessions::default() }
    }

    fn number(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    /// Returns those that a majority has acknowledged.
    pub(in crate::sim) fn lasting(&self) -> impl Iterator<Item = (i64, Write)> {
        let lasts = |it: &(&i64, &Write)| it.1.acknowledged == Acknowledged::ByMajority;
        self.writes.iter().filter(lasts).map(|(document, write)| (*document, *write))
    }

    /// Takes what was missed since the last time.
    pub(in crate::sim) fn take_missed(&mut self) -> Vec<Missed> {
        std::mem::take(&mut self.missed)
    }
}

/// The client whose application has written a document.
pub(in crate::sim) fn writer_of(document: i64) -> usize {
    usize::try_from(document >> 32).unwrap_or_default()
}

/// The task of an application that works on documents.
#[derive(Debug)]
pub(super) struct DocumentJob {
    pub(super) patience: Duration,
    /// True if it has a session, and each of its operations none of its own.
    has_session: bool,
    steps: u64,
    random: Random,
}

impl DocumentJob {
    pub(super) fn draw(patience: Duration, mut random: Random) -> Self {
        let (has_session, steps) = (random.percent(50), 1 + random.below(MOST_STEPS));
        Self { patience, has_session, steps, random }
    }
}

type OwnClient = Topology<Virtual<Shared>>;
type OwnSession = SessionGuard<Virtual<Shared>>;

/// One operation of such a task.
struct DocumentStep {
    /// The session's holder: the task, or, if it has none of its own, the operation.
    holder: i64,
    criteria: Arc<Criteria>,
    deadline: Instant,
}

impl Worker {
    /// Does all of it.
    pub(super) async fn work_on_documents(self, mut job: DocumentJob) {
        let entry = Entry { id: self.id, ledger: self.ledger.clone() };
        let client = Topology::from_host(Arc::clone(&self.host));
        let holder = job.has_session.then(|| self.ledger.lock().documents.number());
        let start = |_| client.start_session(SessionOptions::default());
        let start = holder.map(start).map(|it| it.expect("the defaults go together"));
        let mut session = start.and_then(|it| it.try_acquire());
        let mut written = None;
        for _ in 0..job.steps {
            let implicit = session.is_none().then(|| ClientSession::implicit(client.host()));
            let mut implicit = implicit.and_then(|it| it.try_acquire());
            let used = session.as_mut().or(implicit.as_mut()).expect("there is one");
            let reads = job.has_session && job.random.percent(50);
            match written.filter(|_| reads) {
                Some(document) => self.read(&mut job, (&client, used, holder), document).await,
                None => written = Some(self.write(&mut job, (&client, used, holder)).await),
            }
        }
        drop(entry);
    }

    /// Begins the next operation.
    fn begin_step(
        &self,
        job: &DocumentJob,
        criteria: Criteria,
        holder: Option<i64>,
    ) -> DocumentStep {
        let mut ledger = self.ledger.lock();
        let (now, criteria) = (ledger.now(), Arc::new(criteria));
        let holder = holder.unwrap_or_else(|| ledger.documents.number());
        let deadline = now + job.patience;
        if let Some(operation) = ledger.operations.get_mut(&self.id) {
            (operation.phase, operation.is_retried) = (Phase::Running, true);
            operation.criteria = Arc::clone(&criteria);
            (operation.deadline, operation.wants_since) = (deadline, now);
            // Each step is an operation, with selections of its own.
            operation.attempts = (now, 0);
        }
        DocumentStep { holder, criteria, deadline }
    }

    async fn operate(
        &self,
        step: DocumentStep,
        (client, session): (&OwnClient, &mut OwnSession),
        mut command: RawDocumentBuf,
        options: &OperationOptions,
    ) -> Result<Reply, Error> {
        command.append(HOLDER, step.holder);
        let message = CommandMessage::new(DATABASE, &command);
        let request = Request::new(message, options, Target::Select(step.criteria))
            .with_session(Some(session))
            .with_timeout(Timeout::At(step.deadline));
        let outcome = client.host().operate(request).await;
        let mut ledger = self.ledger.lock();
        ledger.documents.ended.push((self.id, step.deadline));
        match outcome.as_ref().map_err(Error::as_operation) {
            Ok(_) => ledger.succeeded += 1,
            Err(Some(OperationError::Reply { error, .. })) => {
                // An arbiter has no users.
                let anonymous = ledger.options.credential().is_some();
                let excused = error.code == Some(MAX_TIME_EXPIRED)
                    || (anonymous && error.code == Some(UNAUTHORIZED));
                ledger.judge_error(self.id, error, excused);
            }
            Err(Some(OperationError::Stream(failure))) => ledger.judge_failure(self.id, failure),
            Err(_) => {}
        }
        outcome
    }

    /// Writes a document, and returns which.
    async fn write(
        &self,
        job: &mut DocumentJob,
        (client, session, holder): (&OwnClient, &mut OwnSession, Option<i64>),
    ) -> i64 {
        let by_majority = job.random.percent(70);
        let options = OperationOptions::write().with_retryable(job.random.percent(90));
        let step = self.begin_step(job, Criteria::write(), holder);
        let document = {
            let mut ledger = self.ledger.lock();
            let (began, document) = (ledger.now(), ledger.documents.number());
            let write = Write { began, acknowledged: Acknowledged::Unknown };
            ledger.documents.writes.insert(document, write);
            document
        };
        let mut command = match job.random.percent(50) {
            true => rawdoc! { "insert": COLLECTION, "documents": [{ "_id": document, "n": 1 }] },
            false => rawdoc! {
                "update": COLLECTION,
                "updates": [
                    { "q": { "_id": document }, "u": { "$inc": { "n": 1 } }, "upsert": true }
                ],
            },
        };
        match by_majority {
            true => command.append(cstr!("writeConcern"), rawdoc! { "w": "majority" }),
            false => command.append(cstr!("writeConcern"), rawdoc! { "w": 1 }),
        }
        if let Ok(reply) = self.operate(step, (client, session), command, &options).await {
            written(&mut self.ledger.lock(), document, &reply, by_majority);
        }
        document
    }

    /// Reads a document that the session has written.
    async fn read(
        &self,
        job: &mut DocumentJob,
        (client, session, holder): (&OwnClient, &mut OwnSession, Option<i64>),
        document: i64,
    ) {
        let modes = [ReadMode::PrimaryPreferred, ReadMode::SecondaryPreferred, ReadMode::Nearest];
        let criteria = Criteria::read(ReadPreference::new(job.random.pick(&modes)));
        let step = self.begin_step(job, criteria, holder);
        let command = rawdoc! { "find": COLLECTION, "filter": { "_id": document } };
        let options = OperationOptions::read();
        if let Ok(reply) = self.operate(step, (client, session), command, &options).await {
            read(&mut self.ledger.lock(), document, &reply);
        }
    }
}

/// A write has succeeded.
fn written(ledger: &mut Ledger, document: i64, reply: &Reply, by_majority: bool) {
    if !matches!(reply.get_i32("n"), Ok(1)) || reply.get_array("writeErrors").is_ok() {
        let what = || format!("that of {document:#x} comes to {reply:?}");
        ledger.checks.fail("a write returns what it has done", what);
    }
    if let Some(write) = ledger.documents.writes.get_mut(&document) {
        write.acknowledged = match (by_majority, reply.write_concern_error()) {
            (true, None) => Acknowledged::ByMajority,
            (false, None) => Acknowledged::ByPrimary,
            (_, Some(_)) => Acknowledged::Unknown,
        };
    }
}

/// The session that has written a document has read it.
fn read(ledger: &mut Ledger, document: i64, reply: &RawDocument) {
    let found = reply.get_document("cursor").and_then(|it| it.get_array("firstBatch"));
    let is_found = found.is_ok_and(|found| !found.is_empty());
    let write = ledger.documents.writes.get(&document).copied();
    let acknowledged = write.filter(|it| it.acknowledged != Acknowledged::Unknown);
    if let Some(write) = acknowledged.filter(|_| !is_found) {
        ledger.documents.missed.push(Missed { document, write });
    }
}

/// No operation takes longer than it may, except while no thread looks at the clock.
pub(super) fn check_ended(ledger: &mut Ledger, running_since: Instant, late: Duration) {
    let now = ledger.now();
    for (id, deadline) in std::mem::take(&mut ledger.documents.ended) {
        if now > deadline.max(running_since) + late {
            let what = || format!("{id:?} ends at {now:?}, and was to by {deadline:?}");
            ledger.checks.fail("operations end by their deadline", what);
        }
    }
}
