//! The work of an application: operations one after the other, each with what it has to come to.

mod bulks;
mod changes;
mod files;
mod questions;
mod reading;
mod sessions;
mod transactions;
mod within;

pub(super) use changes::{CHANGED, COPIES, OTHER, follow, write};
pub(super) use files::{keep, read_all};
pub(super) use transactions::{ACCOUNTS, ENTRIES, LISTS, find_all, key_of};

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use sdam::error::Error;
use sdam::generic::{Client, Collection};
use sdam_cluster::ServerVersion;
use sdam_core::bson;
use sdam_core::config::{Acknowledgment, ReadMode, ReadPreference, WriteConcern};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

use super::ledger::{Ledger, LedgerState};
use crate::sim::random::Random;
use crate::virtual_time::{self, Runtime, VirtualTime};

/// The database and the collection of the documents.
pub(super) const DATABASE: &str = "d";
const COLLECTION: &str = "w";

/// The pause between two reads of an application that does little: with two of them a session is
/// older than servers keep one that was not used meanwhile.
const IDLE: Duration = Duration::from_secs(20 * 60);

/// From when to when an application begins operations, and what its servers can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) from: Instant,
    pub(super) to: Instant,
    pub(super) version: ServerVersion,
}

/// One task of an application.
#[derive(Clone)]
pub(super) struct Application {
    /// The number of its client.
    number: usize,
    client: Client<Runtime>,
    time: VirtualTime,
    ledger: Arc<Ledger>,
    workload: Workload,
    interval: Duration,
    random: Random,
}

/// The conditions of an operation.
#[derive(Clone, Copy, Debug, Default)]
struct Terms {
    session: Option<i64>,
    timeout: Option<Duration>,
}

impl Application {
    pub(super) fn new(
        (number, client): (usize, virtual_time::Topology),
        (time, ledger): (VirtualTime, Arc<Ledger>),
        (workload, interval): (Workload, Duration),
        random: Random,
    ) -> Self {
        let client = Client::from(client);
        Self { number, client, time, ledger, workload, interval, random }
    }

    /// Begins one operation after the other.
    pub(super) async fn work(mut self) {
        self.time.sleep(self.workload.from.since_origin()).await;
        while self.goes_on().await {
            match self.random.below(100) {
                0..12 => self.write_one().await,
                12..24 => self.read_one().await,
                24..40 => reading::read_many(&mut self).await,
                40..52 => bulks::insert_many(&mut self).await,
                52..62 => bulks::bulk_write(&mut self).await,
                62..72 => bulks::bulk_write_of_client(&mut self).await,
                72..86 => sessions::use_session(&mut self).await,
                86..93 => self.give_up().await,
                _ => self.select().await,
            }
        }
        self.state().task_ends();
    }

    /// Runs transactions, one after the other.
    pub(super) async fn transact(mut self) {
        self.time.sleep(self.workload.from.since_origin()).await;
        while self.goes_on().await {
            match self.random.below(100) {
                0..80 => transactions::use_transactions(&mut self).await,
                80..87 => transactions::read_snapshot(&mut self).await,
                87..96 => questions::ask(&mut self).await,
                _ => self.write_one().await,
            }
        }
        self.state().task_ends();
    }

    /// Pauses before the next operation; returns false if there is to be none.
    async fn goes_on(&mut self) -> bool {
        let interval = self.random.between(self.interval / 2, self.interval * 3 / 2);
        self.time.sleep(interval).await;
        self.now() < self.workload.to
    }

    /// Reads now and then, and does nothing else for more than an hour.
    pub(super) async fn idle(mut self) {
        let terms = Terms::default();
        for _ in 0..4 {
            let things = self.things(terms);
            self.run(terms, async |comment| things.find_one(doc! {}).comment(comment).await)
                .await
                .ok();
            self.time.sleep(IDLE).await;
        }
        self.state().task_ends();
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.time.elapsed()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LedgerState> {
        self.ledger.lock()
    }

    /// Draws a limit of an operation.
    fn terms(&mut self) -> Terms {
        let limits = [0, 0, 0, 400, 1_500, 4_000];
        let timeout = self.random.pick(&limits);
        let timeout = (timeout > 0).then(|| Duration::from_millis(timeout));
        Terms { session: None, timeout }
    }

    /// Returns the collection, for reads wherever they may be sent.
    fn things(&mut self, terms: Terms) -> Collection<Runtime, Document> {
        let mode = self.random.pick(&[ReadMode::Primary, ReadMode::Nearest, ReadMode::Nearest]);
        let things = self.collection_of(&self.client, terms);
        things.with_read_preference(ReadPreference::new(mode))
    }

    /// Returns the collection of a client, or of one with a session.
    fn collection_of(
        &self,
        client: &Client<Runtime>,
        terms: Terms,
    ) -> Collection<Runtime, Document> {
        let things = client.database(DATABASE).collection(COLLECTION);
        match terms.timeout {
            Some(timeout) => things.with_timeout(timeout),
            None => things,
        }
    }

    /// Returns a document with an `_id` that nothing else has.
    fn document(&mut self) -> Document {
        let id = i64::try_from(self.random.bits() >> 2).unwrap_or_default();
        doc! { "_id": id, "n": 1 }
    }

    fn begin(&self, terms: Terms) -> i64 {
        let Terms { session, timeout } = terms;
        self.state().operations.begin((self.number, self.now()), session, timeout)
    }

    /// An operation has come to its end; its cursor, if it has one, has not.
    fn ended(&self, operation: i64, error: Option<&Error>) {
        self.state().ended(self.now(), operation, error);
    }

    /// An operation is over, with its cursor if it has one.
    fn over(&self, operation: i64) {
        let mut state = self.state();
        state.checks.sessions.reads_no_more(operation);
        state.operations.end(self.number);
    }

    /// Runs an operation, which sends its number as its comment.
    async fn run<T, F: Future<Output = Result<T, Error>>>(
        &self,
        terms: Terms,
        operation: impl FnOnce(i64) -> F,
    ) -> Result<T, Error> {
        let number = self.begin(terms);
        let outcome = operation(number).await;
        self.ended(number, outcome.as_ref().err());
        self.over(number);
        outcome
    }

    /// Writes one document, or changes one.
    async fn write_one(&mut self) {
        let (terms, document) = (self.terms(), self.document());
        let mut things = self.things(terms);
        if self.random.percent(40) {
            let majority = Acknowledgment::Named("majority".to_owned());
            let majority = WriteConcern::default().with_w(Some(majority));
            things = things.with_write_concern(majority);
        }
        let (filter, change) = (doc! { "_id": document.get("_id") }, doc! { "$inc": { "n": 1 } });
        let kind = self.random.below(3);
        self.run(terms, async |comment| match kind {
            0 => things.insert_one(&document).comment(comment).await.map(drop),
            1 => things.update_one(filter, change).upsert(true).comment(comment).await.map(drop),
            _ => things.find_one_and_update(doc! {}, change).comment(comment).await.map(drop),
        })
        .await
        .ok();
    }

    /// Reads what comes in one reply.
    async fn read_one(&mut self) {
        let terms = self.terms();
        let (things, kind) = (self.things(terms), self.random.below(3));
        self.run(terms, async |comment| match kind {
            0 => things.find_one(doc! {}).comment(comment).await.map(drop),
            1 => things.distinct("n", doc! {}).comment(comment).await.map(drop),
            _ => things.count(doc! {}).comment(comment).await.map(drop),
        })
        .await
        .ok();
    }

    /// Waits for a server that takes writes.
    async fn select(&mut self) {
        let number = self.begin(Terms::default());
        self.state().selects(self.number, number, Criteria::write());
        self.client.topology().select(Criteria::write()).await.ok();
        self.state().has_selected(self.number, number);
        self.over(number);
    }

    /// Gives an operation up after a while, wherever it is.
    async fn give_up(&mut self) {
        let (terms, document) = (self.terms(), self.document());
        let (things, after) = (self.things(terms), self.random.millis(0, 150));
        let number = self.begin(terms);
        let insert = things.insert_one(&document).comment(number);
        let ended = within::within(&self.time, after, insert).await;
        if let Some(outcome) = &ended {
            self.ended(number, outcome.as_ref().err());
        }
        self.over(number);
    }
}
