//! The operations of a transaction.

use std::time::Duration;

use bson::{Document, doc};
use sdam::error::Error;
use sdam::generic::Collection;
use sdam::operation::Find;
use sdam_core::bson;

use super::super::{Application, DATABASE};
use super::{ACCOUNTS, ENTRIES, Held, LISTS, check_within};
use crate::histories::{Act, Key};
use crate::sim::random::Random;
use crate::virtual_time::Runtime;

/// The number of accounts, and of lists.
const COUNT: u64 = 5;

/// The most values that one attempt makes: more than steps and documents in one.
const VALUES: i64 = 64;

/// The first number of an entry: no list has it.
const FIRST_ENTRY: i64 = 1_000;

/// An operation.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Moves an amount from one account to another, with two updates.
    Transfer(i64, i64, i64),
    /// Reads all accounts.
    Sum,
    Append(Key),
    Look(Key),
    /// Inserts so many documents.
    Insert(i64),
}

/// The operations of a transaction, each with the pause before it.
#[derive(Clone, Debug)]
pub(super) struct Body(Vec<(Duration, Step)>);

impl Body {
    pub(super) fn draw(application: &mut Application) -> Self {
        let random = &mut application.random;
        let steps: Vec<Step> = match random.below(100) {
            0..30 => vec![transfer(random); 1 + random.index(2)],
            30..45 => vec![Step::Sum; 1 + random.index(2)],
            45..80 => (0..2 + random.below(4)).map(|_| of_lists(random)).collect(),
            _ => (0..1 + random.below(3)).map(|_| Step::Insert(1 + below(random, 4))).collect(),
        };
        let pause = |step| {
            let pause = match random.below(200) {
                // As if the process was stopped for longer than a transaction may take.
                0 => Duration::from_secs(70),
                1..100 => Duration::ZERO,
                _ => random.millis(0, 60),
            };
            (pause, step)
        };
        Self(steps.into_iter().map(pause).collect())
    }

    /// Runs the operations, up to the first one that fails.
    pub(super) async fn run(
        &self,
        application: &Application,
        held: &Held,
        attempt: usize,
    ) -> Result<(), Error> {
        let mut running = Running { application, held, attempt, last: 0 };
        for (pause, step) in &self.0 {
            if !pause.is_zero() {
                application.time.sleep(*pause).await;
            }
            running.step(*step).await?;
        }
        Ok(())
    }
}

/// Reads once more, after an operation has failed.
pub(super) async fn look_again(application: &Application, held: &Held) {
    let accounts = collection(application, held, ACCOUNTS);
    let find = accounts.find_one(doc! {});
    let terms = held.terms();
    application.run(terms, async |comment| find.comment(comment).await).await.ok();
}

fn below(random: &mut Random, limit: u64) -> i64 {
    i64::try_from(random.below(limit)).unwrap_or_default()
}

fn transfer(random: &mut Random) -> Step {
    let (from, amount) = (below(random, COUNT), 1 + below(random, 9));
    let to = (from + 1 + below(random, COUNT - 1)) % COUNT as i64;
    Step::Transfer(from, to, amount)
}

fn of_lists(random: &mut Random) -> Step {
    let key = below(random, COUNT);
    if random.percent(50) { Step::Append(key) } else { Step::Look(key) }
}

fn collection(application: &Application, held: &Held, name: &str) -> Collection<Runtime, Document> {
    application.client.with_session(&held.session).database(DATABASE).collection(name)
}

/// An attempt that is under way.
struct Running<'a> {
    application: &'a Application,
    held: &'a Held,
    attempt: usize,
    /// The number of values that it has made.
    last: i64,
}

impl Running<'_> {
    async fn step(&mut self, step: Step) -> Result<(), Error> {
        match step {
            Step::Transfer(from, to, amount) => {
                self.change(from, -amount).await?;
                self.change(to, amount).await
            }
            Step::Sum => {
                let accounts = self.collection(ACCOUNTS);
                let find = Find::new(doc! {}).batch_size(2);
                let find = async |comment| sum(accounts.find(find.comment(comment))).await;
                let found = self.run(find).await?;
                check_sum(self.application, Some(found));
                Ok(())
            }
            Step::Append(key) => {
                let (lists, value) = (self.collection(LISTS), self.next_value());
                self.note(Act::Append(key, value));
                let change = doc! { "$push": { "l": value } };
                let update = lists.update_one(doc! { "_id": key }, change).upsert(true);
                self.run(async |comment| update.comment(comment).await.map(drop)).await
            }
            Step::Look(key) => {
                let lists = self.collection(LISTS);
                let find = lists.find_one(doc! { "_id": key });
                let found = self.run(async |comment| find.comment(comment).await).await?;
                let list = found.as_ref().and_then(|it| it.get_array("l").ok());
                let list = list.into_iter().flatten().filter_map(bson::Bson::as_i64);
                self.note(Act::Read(key, list.collect()));
                Ok(())
            }
            Step::Insert(count) => self.insert(count).await,
        }
    }

    async fn change(&self, account: i64, amount: i64) -> Result<(), Error> {
        let accounts = self.collection(ACCOUNTS);
        let change = doc! { "$inc": { "n": amount } };
        let update = accounts.update_one(doc! { "_id": account }, change).upsert(true);
        self.run(async |comment| update.comment(comment).await.map(drop)).await
    }

    async fn insert(&mut self, count: i64) -> Result<(), Error> {
        let numbers: Vec<i64> = (0..count).map(|_| FIRST_ENTRY + self.next_value()).collect();
        let documents: Vec<Document> = numbers.iter().map(|it| doc! { "_id": *it }).collect();
        numbers.into_iter().for_each(|it| self.note(Act::Append(it, it)));
        let entries = self.collection(ENTRIES);
        let insert = entries.insert_many(&documents);
        self.run(async |comment| insert.comment(comment).await.map(drop)).await
    }

    fn collection(&self, name: &str) -> Collection<Runtime, Document> {
        collection(self.application, self.held, name)
    }

    /// Returns a value that nothing else has.
    const fn next_value(&mut self) -> i64 {
        self.last += 1;
        self.attempt as i64 * VALUES + self.last
    }

    fn note(&self, act: Act) {
        self.application.state().history.act(self.attempt, act);
    }

    async fn run<T, F: Future<Output = Result<T, Error>>>(
        &self,
        operation: impl FnOnce(i64) -> F,
    ) -> Result<T, Error> {
        let outcome = self.application.run(self.held.terms(), operation).await;
        outcome.inspect_err(|error| check_within(self.application, self.held, error))
    }
}

/// Sums up the accounts that a cursor brings.
pub(super) async fn sum(
    find: impl IntoFuture<Output = Result<sdam::generic::Cursor<Runtime, Document>, Error>>,
) -> Result<i64, Error> {
    let (mut cursor, mut sum) = (find.await?, 0);
    while let Some(document) = cursor.next().await {
        sum += document?.get_i64("n").unwrap_or_default();
    }
    Ok(sum)
}

/// Checks the sum of all accounts, if they were read.
pub(super) fn check_sum(application: &Application, sum: Option<i64>) {
    if let Some(sum) = sum.filter(|sum| *sum != 0) {
        let check = "the sum of all accounts never changes";
        application.state().fail(application.number, check, format!("a reader finds {sum}"));
    }
}
