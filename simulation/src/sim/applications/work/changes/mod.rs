//! Change streams of an application's: read in every way, dropped wherever they wait, and begun
//! again by another client, behind a token that the application or a store has kept.

mod copying;
mod reading;
mod stores;
mod writing;

use std::sync::Arc;

use bson::doc;
use sdam::error::Error;
use sdam::generic::{ChangeStream, Client};
use sdam::operation::{FullDocumentType, Watch};
use sdam::results::ResumeToken;
use sdam_cluster::MAX_OPLOG_ENTRIES;
use sdam_core::bson;

use super::super::checks::Beginning;
use super::super::stories::{From, Seen, Watched};
use super::within::Patience;
use super::{Application, DATABASE, Terms};
use crate::virtual_time::Runtime;

use stores::{Kept, Store};
pub(in crate::sim::applications) use writing::write;

/// The collection that streams watch, alone or with their database.
const WATCHED: &str = "c";

/// The other collection of the database.
const WATCHED_TOO: &str = "o";

/// The collections in which streams have copies of events, and their tokens.
const OWN: &str = "own";
const COPIED: &str = "copies";

/// The same, as members name them.
pub(in crate::sim::applications) const CHANGED: &str = "d.c";
pub(in crate::sim::applications) const OTHER: &str = "d.o";
pub(in crate::sim::applications) const COPIES: &str = "own.copies";

/// The number of entries behind what a stream has read at which its history may be forgotten by
/// now.
const LONG: u64 = MAX_OPLOG_ENTRIES as u64 / 2;

/// The code of `ChangeStreamHistoryLost`.
const HISTORY_LOST: i32 = 286;

/// The code of `CappedPositionLost`, which a cursor fails with whose history is lost.
const POSITION_LOST: i32 = 136;

/// The errors by which servers say that a token is none of theirs.
const REFUSALS: [i32; 4] = [260, 280, 40647, 40649];

/// The keeper of the token of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    Application,
    /// A store in memory, which outlives the stream.
    Memory,
    /// A store in a collection.
    Collection,
    /// The same, where the token is saved together with a copy of the event.
    Copies,
}

/// A reader of a stream, through all its lives.
struct Reader {
    application: Application,
    /// All clients that may read it, with their numbers.
    clients: Arc<Vec<(usize, Client<Runtime>)>>,
    story: usize,
    watched: Watched,
    /// True if it watches all databases.
    is_of_deployment: bool,
    keeper: Keeper,
    memory: Kept,
    /// True if members forget so soon what they have written that streams may miss it.
    may_lose: bool,
    /// The token of the application's.
    token: Option<ResumeToken>,
    /// The last event that was handed out.
    last: Option<Seen>,
    /// True if the history behind the token that a store has is lost.
    restarts: bool,
    /// True if its process ends before it has dealt with an event.
    is_killed: bool,
}

/// The beginning of a life.
struct Life {
    /// The number of its operation.
    operation: i64,
    watch: Watch,
    terms: Terms,
    store: Option<Store>,
    /// The place that the application has it begin at, unless a store says that.
    from: Option<From>,
}

/// The opening of a stream, whose cursor is read no further if it is dropped.
struct Left<'a> {
    application: &'a Application,
    operation: Option<i64>,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        if let Some(operation) = self.operation {
            self.application.state().checks.sessions.reads_no_more(operation);
        }
    }
}

/// Has an application read a stream until everything is handed out, by any of these clients.
pub(in crate::sim::applications) async fn follow(
    mut application: Application,
    clients: Arc<Vec<(usize, Client<Runtime>)>>,
    may_lose: bool,
) {
    application.time.sleep(application.workload.from.since_origin()).await;
    let random = &mut application.random;
    let keepers = [Keeper::Application, Keeper::Memory, Keeper::Collection, Keeper::Copies];
    let keeper = random.pick(&keepers);
    let watched = random.pick(&[Watched::Collection, Watched::Collection, Watched::Database]);
    let is_of_deployment = watched == Watched::Database && random.percent(40);
    let memory = Kept::new(&application.time, random.fork());
    let is_copied = keeper == Keeper::Copies;
    let story = application.state().stories.begin(application.number, watched, is_copied);
    let mut reader = Reader {
        application,
        clients,
        story,
        watched,
        is_of_deployment,
        keeper,
        memory,
        may_lose,
        token: None,
        last: None,
        restarts: false,
        is_killed: false,
    };
    while !reader.is_done() {
        reader.live().await;
        let pause = reader.application.random.millis(200, 2_000);
        reader.application.time.sleep(pause).await;
    }
    reader.application.state().task_ends();
}

impl Reader {
    fn is_done(&self) -> bool {
        self.application.state().stories.is_done(self.story)
    }

    /// One life of the stream, from its beginning until it is dropped or fails.
    async fn live(&mut self) {
        let (number, client) = {
            let index = self.application.random.index(self.clients.len());
            self.clients[index].clone()
        };
        (self.application.number, self.application.client) = (number, client);
        let life = self.draw();
        let operation = life.operation;
        let patience = match self.application.random.below(10) {
            0..8 => Patience::Endless,
            8 => Patience::Time(self.application.random.millis(0, 1_500)),
            _ => Patience::Polls(1 + self.application.random.below(20)),
        };
        let opening = async {
            let mut left = Left { application: &self.application, operation: Some(operation) };
            let opened = self.open(&life).await;
            left.operation.take_if(|_| opened.is_ok());
            opened
        };
        match patience.with(&self.application.time, opening).await {
            Some(Ok(stream)) => {
                let from = self.from(&life);
                self.application.state().stories.begins(self.story, from);
                self.restarts = false;
                self.read(stream, &life).await;
            }
            Some(Err(error)) => {
                self.is_left(&life);
                self.fails(&error);
            }
            None => self.is_left(&life),
        }
        self.application.over(operation);
    }

    /// A life has ended before it was known to have begun.
    fn is_left(&self, life: &Life) {
        if life.store.as_ref().is_some_and(|store| !store.has_loaded()) {
            let left = From::Left(self.application.now());
            self.application.state().stories.begins(self.story, left);
        }
    }

    /// Draws how the next life begins.
    fn draw(&mut self) -> Life {
        let random = &mut self.application.random;
        let timeout = random.pick(&[0, 0, 0, 0, 1_500, 8_000]);
        let timeout = (timeout > 0).then(|| std::time::Duration::from_millis(timeout));
        let terms = Terms { session: None, timeout };
        let operation = self.application.begin(terms);
        self.application.state().operations.repeats(operation);
        let random = &mut self.application.random;
        let mut watch = Watch::new().comment(operation);
        if self.is_of_deployment {
            watch = watch.pipeline([doc! { "$match": { "ns.db": DATABASE } }]);
        }
        if random.percent(50) {
            watch = watch.batch_size(random.pick(&[1, 2, 5]));
        }
        if random.percent(50) {
            watch = watch.max_await_time(random.millis(50, 1_200));
        }
        if random.percent(20) {
            watch = watch.full_document(FullDocumentType::UpdateLookup);
        }
        let (watch, store, from, beginning) = self.place(watch);
        let is_limited = terms.timeout.is_some();
        self.application.state().checks.streams.begin(operation, beginning, is_limited);
        Life { operation, watch, terms, store, from }
    }

    /// Says where a life begins.
    fn place(&mut self, watch: Watch) -> (Watch, Option<Store>, Option<From>, Beginning) {
        if self.keeper != Keeper::Application {
            let store = self.store();
            let watch = watch.checkpoint(store.clone());
            let watch = if self.restarts { watch.restart() } else { watch };
            return (watch, Some(store), None, Beginning::Stored);
        }
        let Some(token) = self.token.clone() else {
            return (watch, None, None, Beginning::Now);
        };
        let was_invalidated = self.last.as_ref().is_some_and(Seen::invalidates);
        let document = token.document().to_owned();
        match (&self.last, self.application.random.below(10)) {
            _ if was_invalidated => {
                let watch = watch.start_after(token);
                (watch, None, Some(From::Behind), Beginning::StartAfter(document))
            }
            (Some(last), 0..2) => {
                let time = last.time();
                let watch = watch.start_at_operation_time(time);
                (watch, None, Some(From::At(time)), Beginning::At(time))
            }
            (_, 2..6) => {
                let watch = watch.resume_after(token);
                (watch, None, Some(From::Behind), Beginning::ResumeAfter(document))
            }
            _ => {
                let watch = watch.start_after(token);
                (watch, None, Some(From::Behind), Beginning::StartAfter(document))
            }
        }
    }

    /// Returns the place from where a stream has begun that is there now.
    fn from(&self, life: &Life) -> From {
        let now = From::Now(self.application.now());
        match &life.store {
            Some(store) if store.has_loaded() => {
                From::Stored { may_be_late: self.keeper == Keeper::Collection }
            }
            Some(_) => now,
            None => life.from.unwrap_or(now),
        }
    }

    fn store(&mut self) -> Store {
        let (client, story) = (&self.application.client, self.story);
        match self.keeper {
            Keeper::Application | Keeper::Memory => Store::in_memory(self.memory.clone()),
            Keeper::Collection | Keeper::Copies => Store::in_collection(client, story),
        }
    }

    async fn open(&self, life: &Life) -> Result<ChangeStream<Runtime, bson::Document>, Error> {
        let (client, watch) = (self.application.client.clone(), life.watch.clone());
        let client = match life.terms.timeout {
            Some(timeout) => client.with_timeout(timeout),
            None => client,
        };
        let database = client.database(DATABASE);
        let stream = match self.watched {
            Watched::Collection => {
                let things = database.collection::<bson::Document>(WATCHED);
                things.operation(watch).await?
            }
            Watched::Database if self.is_of_deployment => client.operation(watch).await?,
            Watched::Database => database.operation(watch).await?,
        };
        Ok(stream.with_type())
    }

    /// Judges an error: that of a history which is lost names that, and no token is refused.
    fn fails(&mut self, error: &Error) {
        let code = error.code().unwrap_or_default();
        let number = self.application.number;
        if REFUSALS.contains(&code) {
            let check = "tokens are those of the stream";
            self.application.state().fail(number, check, format!("{error:?}"));
        }
        let is_lost = [HISTORY_LOST, POSITION_LOST].contains(&code);
        let may_lose = self.may_lose || self.application.state().stories.unread(self.story) > LONG;
        if is_lost && !may_lose {
            let check = "history is lost only where the log is short";
            self.application.state().fail(number, check, format!("{error:?}"));
        }
        if code == HISTORY_LOST {
            self.application.state().stories.is_lost(self.story);
            (self.token, self.last, self.restarts) = (None, None, true);
        }
    }
}
