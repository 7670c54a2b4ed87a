//! Lists to which transactions append, and that they read: a history that shows whether they were
//! isolated.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sdam::options::{ReadConcern, WriteConcern};
use sdam::{Client, ClientSession, Collection, doc};
use sdam_core::rng::Rng;
use sdam_simulation::histories::{Act, History, Key, Outcome, Value};
use serde::{Deserialize, Serialize};

use super::attempts::{Failure, Notes, Patience, Ran, Refusal, lock, run};
use super::{Application, Resolved};

/// The lists that transactions of one chapter use.
const KEYS: usize = 6;

/// The most steps of a transaction.
const MOST: usize = 4;

#[derive(Debug, Serialize, Deserialize)]
struct List {
    #[serde(rename = "_id")]
    key: Key,
    values: Vec<Value>,
}

/// A step of a transaction.
#[derive(Clone, Copy)]
enum Step {
    Append(Key),
    Read(Key),
}

/// The transactions of one fault, with lists of their own: so that these remain short.
#[derive(Default)]
struct Chapter {
    history: History,
    unknown: BTreeSet<usize>,
}

/// All lists, and what clients know of them.
pub(super) struct Lists {
    client: Client,
    lists: Collection<List>,
    chapters: Vec<Mutex<Chapter>>,
    current: AtomicUsize,
}

impl Notes for Mutex<Chapter> {
    fn begin(&self) -> usize {
        lock(self).history.begin()
    }

    fn end(&self, attempt: usize, outcome: Outcome) {
        let mut chapter = lock(self);
        chapter.history.end(attempt, outcome);
        if outcome == Outcome::Unknown {
            chapter.unknown.insert(attempt);
        }
    }
}

impl Lists {
    /// Makes the lists of so many chapters.
    pub(super) async fn open(client: &Client, chapters: usize) -> Result<Self, Failure> {
        let database = client.database("storm_lists");
        database.drop().await?;
        let lists = database.collection("lists");
        let keys = 0..Key::try_from(chapters * KEYS)?;
        let all = keys.map(|key| List { key, values: Vec::new() });
        lists.insert_many(all).write_concern(WriteConcern::majority()).await?;
        let chapters = (0..chapters).map(|_| Mutex::default()).collect();
        Ok(Self { client: client.clone(), lists, chapters, current: AtomicUsize::new(0) })
    }

    /// Has the transactions that begin from now on belong to a chapter.
    pub(super) fn turn_to(&self, chapter: usize) {
        self.current.store(chapter, Ordering::Relaxed);
    }

    /// Draws the steps of a transaction: one of them appends something, at least.
    fn draw(chapter: usize, rng: &mut Rng) -> Vec<Step> {
        let mut below = |count: usize| (rng.next_u64() % count as u64) as usize;
        let (count, appends) = (2 + below(MOST - 1), below(2));
        let mut step = |at: usize| {
            let key = (chapter * KEYS + below(KEYS)) as Key;
            if at == appends || below(2) == 0 { Step::Append(key) } else { Step::Read(key) }
        };
        (0..count).map(&mut step).collect()
    }

    async fn walk(
        &self,
        session: &ClientSession,
        (chapter, attempt): (&Mutex<Chapter>, usize),
        steps: &[Step],
    ) -> Result<(), Refusal> {
        let lists = self.lists.with_session(session);
        for (at, step) in steps.iter().enumerate() {
            match *step {
                Step::Append(key) => {
                    let value = (attempt * MOST + at) as Value;
                    lock(chapter).history.act(attempt, Act::Append(key, value));
                    let push = doc! { "$push": { "values": value } };
                    lists.update_one(doc! { "_id": key }, push).await?;
                }
                Step::Read(key) => {
                    let list = lists.find_one(doc! { "_id": key }).await?;
                    let Some(List { values, .. }) = list else {
                        return Err(Refusal::Wrong(format!("list {key} is not there")));
                    };
                    lock(chapter).history.act(attempt, Act::Read(key, values));
                }
            }
        }
        Ok(())
    }

    /// Returns what there is at the end, when no transaction is under way any more: this one writes
    /// to all lists, which no other one can have written to meanwhile.
    async fn end(&self) -> sdam::Result<Vec<List>> {
        let session = self.client.start_session().await?;
        let whole = session.start_transaction().read_concern(ReadConcern::snapshot());
        whole
            .write_concern(WriteConcern::majority())
            .and_run(async |session| {
                let close = doc! { "$set": { "closed": true } };
                self.lists.update_many(doc! {}, close).session(&session).await?;
                let (mut found, mut lists) =
                    (self.lists.find(doc! {}).session(&session).await?, Vec::new());
                while let Some(list) = found.try_next().await? {
                    lists.push(list);
                }
                Ok::<_, sdam::Error>(lists)
            })
            .await
    }

    /// Checks the history of each chapter; says what the transactions were whose outcome is
    /// unknown.
    pub(super) async fn check(&self) -> Result<Resolved, Failure> {
        let lists = self.end().await?;
        let mut resolved = Resolved::default();
        for (number, chapter) in self.chapters.iter().enumerate() {
            let Chapter { history, unknown } = &mut *lock(chapter);
            let keys = (number * KEYS) as Key..((number + 1) * KEYS) as Key;
            let last = lists.iter().filter(|list| keys.contains(&list.key));
            history.finish(last.clone().map(|list| (list.key, list.values.clone())));
            history.check().map_err(|anomaly| format!("in chapter {number}, {anomaly}"))?;
            let values = last.flat_map(|list| &list.values);
            let done: BTreeSet<usize> = values.map(|value| *value as usize / MOST).collect();
            unknown.iter().for_each(|attempt| resolved.note(done.contains(attempt)));
        }
        Ok(resolved)
    }
}

impl Application for Lists {
    async fn once(&self, rng: &mut Rng) -> Result<Ran, Failure> {
        let manner = (Patience::draw(rng), ReadConcern::snapshot());
        let current = self.current.load(Ordering::Relaxed);
        let (chapter, steps) = (&self.chapters[current], Self::draw(current, rng));
        let is_declined = rng.next_u64().is_multiple_of(16);
        run(&self.client, manner, chapter, async |session, attempt| {
            self.walk(&session, (chapter, attempt), &steps).await?;
            if is_declined { Err(Refusal::Declined) } else { Ok(()) }
        })
        .await
    }
}
