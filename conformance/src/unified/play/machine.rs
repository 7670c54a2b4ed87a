//! The machine that plays a test.

use std::collections::VecDeque;
use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam_core::config::ServerAddress;
use sdam_core::machine::Machine;
use sdam_core::session::{SessionOptions, TransactionOptions};
use sdam_core::time::{Instant, Time};
use sdam_core::topology::EventKind as CoreEvent;

use super::actor::{Actor, Current, Look, Wait};
use super::entities::Entities;
use super::failed::Failed;
use super::fault::{Broken, Fault};
use super::logged::{self, Logged};
use super::traced::{self, Traced};
use super::{data, events, operation, runner, transaction, wrong};
use crate::spec::Difference;
use crate::unified::format::{
    CollectionData, CollectionOptions, Component, Entity, File, Level, ServerApi, Test,
};
use crate::unified::matching::Matcher;

/// The identity of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

/// A client to be opened.
#[derive(Clone, Debug)]
pub struct OpenClient {
    /// Its name.
    pub name: String,
    /// Options beside those of the deployment's connection string, over which they prevail.
    pub uri_options: Document,
    /// True if it must connect to several mongos, false if to one; neither matters if absent.
    pub use_multiple_mongoses: Option<bool>,
    /// True if the test sets fail points, which one of several mongos has then.
    pub meets_fail_points: bool,
    /// The version of the API that it declares.
    pub server_api: Option<ServerApi>,
    /// The messages of its log that are to be reported: those of a component, from a level upwards.
    pub log_messages: Vec<(Component, Level)>,
    /// Present if its spans are to be reported; true if with the text of commands.
    pub spans: Option<bool>,
}

/// A command of the internal client.
#[derive(Clone, Debug)]
pub struct Command {
    /// The member that it goes to, or the balancer or one of the mongos: then all mongos get it.
    /// The primary if absent.
    pub server: Option<ServerAddress>,
    /// The database.
    pub database: String,
    /// The command.
    pub command: Document,
    /// The code of an error that is an answer, too.
    pub tolerated: Option<i32>,
}

/// An operation, to be called as applications call it.
#[derive(Clone, Debug)]
pub struct Operate {
    /// The client.
    pub client: String,
    /// The thing that has the operation.
    pub subject: Subject,
    /// The options of the collection, and of the database where that has none.
    pub options: CollectionOptions,
    /// The limit that the operation has of its own, in milliseconds.
    pub timeout_ms: Option<i64>,
    /// The session, by its name in the test.
    pub session: Option<String>,
    /// The name of the operation.
    pub name: String,
    /// Its other arguments, which the caller reads strictly.
    pub arguments: Document,
    /// The name under which a cursor is kept that it opens.
    pub save_as: Option<String>,
}

/// The thing that an operation is called on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The client.
    Client,
    /// A database of this name.
    Database(String),
    /// A collection.
    Collection {
        /// The name of its database.
        database: String,
        /// Its own.
        name: String,
    },
    /// A bucket of GridFS.
    Bucket {
        /// The name of its database.
        database: String,
        /// Its options.
        options: Document,
    },
    /// A cursor that was kept under this name.
    Cursor(String),
}

/// A call of a session's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfSession {
    /// End it.
    End,
    /// Start a transaction.
    StartTransaction(TransactionOptions),
    /// Commit it, within so many milliseconds.
    Commit(Option<i64>),
    /// Abort it, within so many milliseconds.
    Abort(Option<i64>),
    /// Return whether a network error came upon one of its commands.
    IsDirty,
    /// Return whether its transaction is pinned.
    IsPinned,
    /// Return the state of its transaction.
    TransactionState,
    /// Return the time of its snapshot.
    SnapshotTime,
}

/// A transaction that is run as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithTransaction {
    /// The session.
    pub session: String,
    /// The options of the transaction.
    pub options: TransactionOptions,
    /// The limit of the whole, in milliseconds.
    pub timeout_ms: Option<i64>,
}

/// A request to the caller.
#[derive(Clone, Debug)]
pub enum Action {
    /// Open a client, and report all its events from the very first on; [`Input::Opened`] says what
    /// came of it.
    Open(OpenClient),
    /// Have the internal client run a command.
    Internal(Token, Command),
    /// Start a session of a client; [`Input::Started`] says what came of it.
    Start {
        /// Its name.
        session: String,
        /// The client.
        client: String,
        /// Its options.
        options: SessionOptions,
    },
    /// Run a command of a client that sets a fail point, and report the server that has replied.
    Run {
        /// The call.
        token: Token,
        /// The client.
        client: String,
        /// The database.
        database: String,
        /// The command.
        command: Document,
    },
    /// Call an operation.
    Operate(Token, Box<Operate>),
    /// Call a session.
    Session(Token, String, OfSession),
    /// Run a transaction as a whole; [`Input::Called`] says that its callback was called.
    WithTransaction(Token, Box<WithTransaction>),
    /// Return from the callback of a transaction.
    Return {
        /// The call of the transaction.
        token: Token,
        /// Present if the callback fails: with the call of the operation that has failed, whose
        /// error is to be returned, or without one where the test has ended.
        failed: Option<Option<Token>>,
    },
    /// Run a command that sets a fail point on the mongos that a session is pinned to, and report
    /// that.
    Target {
        /// The call.
        token: Token,
        /// The session.
        session: String,
        /// The command.
        command: Document,
    },
    /// Have a client append the name of a library, its version and its platform.
    Append {
        /// The call.
        token: Token,
        /// The client.
        client: String,
        /// The name.
        name: String,
        /// The version.
        version: Option<String>,
        /// The platform.
        platform: Option<String>,
    },
    /// Close a client.
    Close {
        /// The call.
        token: Token,
        /// The client.
        client: String,
    },
    /// Take the result; nothing else matters any more.
    Finished(Result<(), Fault>),
}

/// The good end of a call.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// Its result.
    pub result: Option<Bson>,
    /// The server that has replied.
    pub server: Option<ServerAddress>,
}

/// News from the caller.
#[derive(Debug)]
pub enum Input<'a> {
    /// A client was opened, or cannot be.
    Opened {
        /// Its name.
        client: &'a str,
        /// The reason why it cannot be opened, if it cannot.
        result: Result<(), Fault>,
    },
    /// A session was started, or cannot be.
    Started {
        /// Its name.
        session: &'a str,
        /// Its logical session id, or the reason why it cannot be started.
        result: Result<Document, Fault>,
    },
    /// A client reports an event. What it has reported before a call has ended comes before that.
    Event {
        /// Its name.
        client: &'a str,
        /// The event.
        event: &'a CoreEvent,
    },
    /// A client has logged a message.
    Logged {
        /// Its name.
        client: &'a str,
        /// The message.
        message: Logged,
    },
    /// A span of a client has ended that is within no other.
    Traced {
        /// Its name.
        client: &'a str,
        /// The span, with what is within it.
        span: Traced,
    },
    /// The callback of a transaction was called.
    Called {
        /// The call of the transaction.
        token: Token,
    },
    /// A call has ended.
    Ended {
        /// The operation's token.
        token: Token,
        /// Its result.
        result: Result<Ended, Box<Failed>>,
    },
}

/// The comparison of what clients have reported with what is expected.
#[derive(Debug)]
pub(super) enum Compared {
    /// All is as it should be.
    Equal,
    /// So far, but something is missing.
    Missing(Difference),
}

/// The phases of a test.
#[derive(Debug)]
enum Phase {
    New,
    /// Collections are given their contents.
    Before(Sequence),
    Running,
    /// Fail points are switched off.
    Cleaning(Sequence),
    /// Collections are compared.
    After(Sequence),
    Done,
}

/// Internal commands, one after the other.
#[derive(Debug, Default)]
struct Sequence {
    left: VecDeque<Command>,
    current: Option<(Token, Command)>,
    done: usize,
}

/// A test that is played.
#[derive(Debug)]
pub struct Play {
    made: Vec<Entity>,
    initial_data: Vec<CollectionData>,
    test: Test,
    /// True if the test may leave a transaction open.
    runs_transactions: bool,
    phase: Phase,
    pub(super) entities: Entities,
    /// The test itself, and its threads.
    pub(super) actors: Vec<Actor>,
    /// The fail points that were set, and where.
    pub(super) fail_points: Vec<(ServerAddress, String)>,
    /// The clients that are being opened.
    pub(super) opening: Vec<Opening>,
    /// The errors of calls.
    failures: Vec<Failed>,
    /// True if a session was ended, which may have a transaction to abort.
    pub(super) has_ended_session: bool,
    /// By when that must be there which is still missing in the end.
    missing_by: Option<Instant>,
    last_token: u64,
    failure: Option<Fault>,
}

/// A client that is being opened, or comes to minPoolSize.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) client: String,
    /// True if it was opened.
    pub(super) is_open: bool,
    /// The time that its pools have to come to minPoolSize, if the test begins after that.
    pub(super) limit: Option<Duration>,
    /// By when they have to.
    pub(super) until: Option<Instant>,
}

impl Play {
    /// Returns whether the test sets fail points.
    pub(super) fn sets_fail_points(&self) -> bool {
        self.test.operations.iter().any(|operation| operation.name == "failPoint")
    }

    /// Takes a test of a file.
    pub fn new(file: &File, test: &Test) -> Self {
        Self {
            made: file.entities.clone(),
            initial_data: file.initial_data.clone(),
            test: test.clone(),
            runs_transactions: transaction::is_run_by(test),
            phase: Phase::New,
            entities: Entities::default(),
            actors: vec![Actor::default()],
            fail_points: Vec::new(),
            opening: Vec::new(),
            failures: Vec::new(),
            has_ended_session: false,
            missing_by: None,
            last_token: 0,
            failure: None,
        }
    }

    /// Returns a new identity for a call.
    pub(super) fn token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    fn begin(&mut self, now: Time, out: &mut Vec<Action>) {
        let left = match self.initial_data.is_empty() {
            // Leftovers of other files may be in the way of what this one writes.
            true => self.collections().map(|(database, name)| data::drop(database, name)).collect(),
            false => self.initial_data.iter().flat_map(data::set_up).collect(),
        };
        self.phase = Phase::Before(Sequence { left, ..Sequence::default() });
        self.step(now, out);
    }

    /// Returns the database and the name of each collection that the file gives a name to.
    fn collections(&self) -> impl Iterator<Item = (&str, &str)> {
        let name_of = |wanted: &str| {
            self.made.iter().find_map(|entity| match entity {
                Entity::Database { id, name, .. } if id == wanted => Some(name.as_str()),
                _ => None,
            })
        };
        self.made.iter().filter_map(move |entity| match entity {
            Entity::Collection { database, name, .. } => Some((name_of(database)?, name.as_str())),
            _ => None,
        })
    }

    /// Asks for the next internal command, or goes to the next phase if there is none.
    fn step(&mut self, now: Time, out: &mut Vec<Action>) {
        let token = self.token();
        let (Phase::Before(sequence) | Phase::Cleaning(sequence) | Phase::After(sequence)) =
            &mut self.phase
        else {
            return;
        };
        if let Some(command) = sequence.left.pop_front() {
            sequence.current = Some((token, command.clone()));
            return out.push(Action::Internal(token, command));
        }
        match &self.phase {
            Phase::Before(_) => self.run(now, out),
            Phase::Cleaning(_) if self.failure.is_none() => {
                let left = self.test.outcome.iter().map(data::read).collect();
                self.phase = Phase::After(Sequence { left, ..Sequence::default() });
                self.step(now, out);
            }
            _ => {
                self.phase = Phase::Done;
                out.push(Action::Finished(self.failure.take().map_or(Ok(()), Err)));
            }
        }
    }

    /// Makes the entities, and begins with the operations.
    fn run(&mut self, now: Time, out: &mut Vec<Action>) {
        self.phase = Phase::Running;
        for (index, entity) in std::mem::take(&mut self.made).into_iter().enumerate() {
            let place = format!("createEntities[{index}]");
            if let Err(difference) = runner::make(self, &place, entity, out) {
                return self.fail(difference, now, out);
            }
        }
        let operations = std::mem::take(&mut self.test.operations).into_iter().enumerate();
        let operations = operations.map(|(index, it)| (format!("operations[{index}]"), it));
        self.actors[0].queue = operations.collect();
        self.advance(now, out);
    }

    /// Does what can be done now.
    fn advance(&mut self, now: Time, out: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Running)
            && let Err(difference) = self.settle_openings(now)
        {
            return self.fail(difference, now, out);
        }
        let mut index = 0;
        while self.opening.is_empty()
            && matches!(self.phase, Phase::Running)
            && index < self.actors.len()
        {
            match self.go(index, now, out) {
                Ok(true) => index = 0,
                Ok(false) => index += 1,
                Err(difference) => return self.fail(difference, now, out),
            }
        }
        let is_running = self.opening.is_empty() && matches!(self.phase, Phase::Running);
        if is_running && self.actors[0].is_idle() {
            self.conclude(now, out);
        }
    }

    /// Compares what clients have reported and logged. A message may be written a little after the
    /// event that it is about, by another thread, and a session that has ended aborts its
    /// transaction in the background: what is missing has some time to come.
    fn conclude(&mut self, now: Time, out: &mut Vec<Action>) {
        let compared = self.compare_events().and_then(|events| match events {
            Compared::Equal => self.compare_spans().and_then(|()| self.compare_messages()),
            missing => Ok(missing),
        });
        let difference = match compared {
            Ok(Compared::Equal) => None,
            Ok(Compared::Missing(missing)) => {
                let until = *self.missing_by.get_or_insert(now.clock + runner::WAIT);
                if until > now.judged {
                    return;
                }
                Some(missing)
            }
            Err(difference) => Some(difference),
        };
        self.clean(difference.map(Fault::from), now, out);
    }

    /// Forgets the clients that are open, and whose pools are as large as the test wants them;
    /// fails if one cannot come to that any more.
    fn settle_openings(&mut self, now: Time) -> Result<(), Difference> {
        let mut opening = std::mem::take(&mut self.opening);
        let mut late = None;
        opening.retain(|opening| {
            let Some(client) = self.entities.reporter(&opening.client) else {
                return false;
            };
            if !opening.is_open || (opening.limit.is_some() && !client.is_populated()) {
                if opening.until.is_some_and(|until| until <= now.judged) {
                    late = Some(opening.client.clone());
                }
                return true;
            }
            if opening.limit.is_some() {
                client.observed.clear();
                client.logged.clear();
                client.traced.clear();
            }
            false
        });
        self.opening = opening;
        match late {
            None => Ok(()),
            Some(client) => {
                let place = format!("the client {client}");
                Err(wrong(place, "pools of minPoolSize connections", "smaller ones in time"))
            }
        }
    }

    /// Takes what came of opening a client.
    fn opened(
        &mut self,
        client: &str,
        result: Result<(), Fault>,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        if let Err(fault) = result {
            return self.fail(fault, now, out);
        }
        for opening in self.opening.iter_mut().filter(|opening| opening.client == client) {
            opening.is_open = true;
            opening.until = opening.limit.map(|limit| now.clock + limit);
        }
        self.advance(now, out);
    }

    /// Lets one actor go on by one step; returns whether it could.
    fn go(&mut self, index: usize, now: Time, out: &mut Vec<Action>) -> Result<bool, Difference> {
        if let Some(current) = &self.actors[index].current {
            let is_over = self.is_over(&current.place, &current.wait, now)?;
            if is_over {
                self.actors[index].current = None;
            }
            return Ok(is_over);
        }
        let Some((place, operation)) = self.actors[index].queue.pop_front() else {
            let callback = self.actors[index].callback.take();
            out.extend(callback.map(|token| Action::Return { token, failed: None }));
            return Ok(false);
        };
        let wait = match operation.object.as_str() {
            "testRunner" => runner::start(self, &place, &operation, now.clock, out)?,
            _ => Some(operation::start(self, &place, &operation, out)?),
        };
        self.actors[index].current = wait.map(|wait| Current { place, operation, wait });
        Ok(true)
    }

    /// Returns whether a wait without a call is over; fails if it was without success.
    fn is_over(&self, place: &str, wait: &Wait, now: Time) -> Result<bool, Difference> {
        let is_late = wait.until().is_some_and(|until| until <= now.judged);
        let matcher = Matcher::new(&self.entities);
        let (is_met, wanted) = match wait {
            Wait::Event { client, event, count, .. } => {
                let found = events::count(self.entities.client(place, client)?, event, matcher);
                let kind = event.kind.name();
                (found >= *count, format!("{count} times {kind} {}, not {found}", event.fields))
            }
            Wait::Primary { client, prior, .. } => {
                let primary = self.entities.client(place, client)?.topology().primary;
                let is_new = primary.is_some() && primary != *prior;
                (is_new, "another primary".to_owned())
            }
            Wait::Thread { index, .. } => {
                (self.actors[*index].is_idle(), "the end of the thread".to_owned())
            }
            Wait::Moment(_) => return Ok(is_late),
            Wait::Call(_) | Wait::FailPoint { .. } | Wait::Look { .. } | Wait::Answer { .. } => {
                return Ok(false);
            }
        };
        match (is_met, is_late) {
            (false, true) => Err(wrong(place, wanted, "nothing of the kind in time")),
            (is_met, _) => Ok(is_met),
        }
    }

    fn compare_events(&self) -> Result<Compared, Difference> {
        let matcher = Matcher::new(&self.entities);
        for (index, expected) in self.test.expect_events.iter().enumerate() {
            let place = format!("expectEvents[{index}]");
            let client = self.entities.client(&place, &expected.client)?;
            let compared = events::compare_all(&place, expected, client, matcher)?;
            if let Compared::Missing(missing) = compared {
                return match self.has_ended_session {
                    true => Ok(Compared::Missing(missing)),
                    false => Err(missing),
                };
            }
        }
        Ok(Compared::Equal)
    }

    fn compare_spans(&self) -> Result<(), Difference> {
        let matcher = Matcher::new(&self.entities);
        for (index, expected) in self.test.expect_tracing.iter().enumerate() {
            let place = format!("expectTracingMessages[{index}]");
            let traced = &self.entities.client(&place, &expected.client)?.traced;
            traced::compare_all(&place, expected, traced, matcher)?;
        }
        Ok(())
    }

    fn compare_messages(&self) -> Result<Compared, Difference> {
        let matcher = Matcher::new(&self.entities);
        for (index, expected) in self.test.expect_log_messages.iter().enumerate() {
            let place = format!("expectLogMessages[{index}]");
            let client = &self.entities.client(&place, &expected.client)?.logged;
            let compared = logged::compare_all(&place, expected, client, &self.failures, matcher)?;
            if let Compared::Missing(_) = compared {
                return Ok(compared);
            }
        }
        Ok(Compared::Equal)
    }

    fn fail(&mut self, fault: impl Into<Fault>, now: Time, out: &mut Vec<Action>) {
        let callbacks = self.actors.iter_mut().filter_map(Actor::stop);
        out.extend(callbacks.map(|token| Action::Return { token, failed: Some(None) }));
        self.clean(Some(fault.into()), now, out);
    }

    /// Switches the fail points off, and ends transactions that are left open, whose locks would
    /// hold up the next test.
    fn clean(&mut self, failure: Option<Fault>, now: Time, out: &mut Vec<Action>) {
        self.failure = failure;
        let off = self.fail_points.drain(..).map(|(server, name)| Command {
            server: Some(server),
            database: "admin".to_owned(),
            command: doc! { "configureFailPoint": name, "mode": "off" },
            tolerated: None,
        });
        let left = off.chain(self.runs_transactions.then(data::kill_sessions)).collect();
        self.phase = Phase::Cleaning(Sequence { left, ..Sequence::default() });
        self.step(now, out);
    }

    /// Takes the end of an internal command between two phases; returns whether it was one.
    fn sequenced(
        &mut self,
        token: Token,
        result: &Result<Ended, Box<Failed>>,
        now: Time,
        out: &mut Vec<Action>,
    ) -> bool {
        let is_after = matches!(self.phase, Phase::After(_));
        let (Phase::Before(sequence) | Phase::Cleaning(sequence) | Phase::After(sequence)) =
            &mut self.phase
        else {
            return false;
        };
        let Some((_, command)) = sequence.current.take_if(|(current, _)| *current == token) else {
            return false;
        };
        sequence.done += 1;
        let place = format!("outcome[{}]", sequence.done - 1);
        let fault = match data::reply(&command, result.clone()) {
            Ok(reply) if is_after => {
                let expected = &self.test.outcome[sequence.done - 1];
                data::compare(&place, expected, &reply).err().map(Fault::from)
            }
            Ok(_) => None,
            Err(broken) => Some(Fault::from(broken)),
        };
        if let Some(fault) = fault {
            sequence.left.clear();
            let is_before = matches!(self.phase, Phase::Before(_));
            // A breakdown outweighs what the test has found: it may be the reason for that.
            if self.failure.is_none() || matches!(fault, Fault::Broken(_)) {
                self.failure = Some(fault);
            }
            if is_before {
                self.phase = Phase::Cleaning(Sequence::default());
            }
        }
        self.step(now, out);
        true
    }

    /// Takes the end of a call that an operation waits for.
    fn ended(
        &mut self,
        token: Token,
        result: Result<Ended, Box<Failed>>,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let waits = |actor: &Actor| {
            actor.current.as_ref().is_some_and(|current| current.wait.token() == Some(token))
        };
        let Some(index) = self.actors.iter().position(waits) else {
            return;
        };
        let Some(current) = self.actors[index].current.take() else {
            return;
        };
        self.failures.extend(result.as_ref().err().map(|failed| Failed::clone(failed)));
        let has_failed = result.is_err();
        let settled = match current.wait {
            Wait::FailPoint { name, .. } => self.fail_point_set(&current.place, name, result),
            Wait::Look { look, command, .. } => looked(&current.place, &look, &command, result),
            Wait::Answer { wanted, .. } => {
                transaction::answered(&current.place, &current.operation, &wanted, result)
            }
            _ => operation::settle(self, &current.place, &current.operation, result)
                .map_err(Fault::from),
        };
        match settled {
            Ok(()) => {
                if has_failed && let Some(call) = self.actors[index].callback {
                    self.actors[index].stop();
                    out.push(Action::Return { token: call, failed: Some(Some(token)) });
                }
                self.advance(now, out);
            }
            Err(fault) => self.fail(fault, now, out),
        }
    }

    fn fail_point_set(
        &mut self,
        place: &str,
        name: String,
        result: Result<Ended, Box<Failed>>,
    ) -> Result<(), Fault> {
        match result {
            Ok(ended) => {
                self.fail_points.extend(ended.server.map(|server| (server, name)));
                Ok(())
            }
            Err(failed) => Err(Broken::new(place, failed.message).into()),
        }
    }
}

/// Compares what an internal command found with what was wanted.
fn looked(
    place: &str,
    look: &Look,
    command: &Command,
    result: Result<Ended, Box<Failed>>,
) -> Result<(), Fault> {
    // Where there is no collection, there is an error in place of its indexes.
    let reply = data::reply(command, result)?;
    let cursor = reply.get_document("cursor");
    let batch = cursor.and_then(|cursor| cursor.get_array("firstBatch"));
    let batch: &[Bson] = batch.map_or(&[], Vec::as_slice);
    let named = |wanted: &str| {
        let name = |value: &Bson| {
            value.as_document().and_then(|it| it.get_str("name").ok()) == Some(wanted)
        };
        batch.iter().any(name)
    };
    let (is_there, wanted, what) = match look {
        Look::Collection { wanted } => (!batch.is_empty(), *wanted, "collection"),
        Look::Index { name, wanted } => (named(name), *wanted, "index"),
    };
    let words = |is: bool| format!("{} such {what}", if is { "a" } else { "no" });
    match is_there == wanted {
        true => Ok(()),
        false => Err(wrong(place, words(wanted), words(is_there)).into()),
    }
}

impl Machine for Play {
    type Input<'a> = Input<'a>;
    type Action = Action;

    fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Action>) {
        self.tick(now, out);
        match input {
            Input::Opened { client, result } => self.opened(client, result, now, out),
            Input::Started { session, result } => match result {
                Ok(id) => {
                    self.entities.started(session, id);
                    self.advance(now, out);
                }
                Err(fault) if matches!(self.phase, Phase::Running) => self.fail(fault, now, out),
                Err(_) => {}
            },
            Input::Event { client, event } => {
                if let Some(client) = self.entities.reporter(client) {
                    client.event(event);
                }
                self.advance(now, out);
            }
            Input::Logged { client, message } => {
                if let Some(client) = self.entities.reporter(client) {
                    client.logged.push(message);
                }
                self.advance(now, out);
            }
            Input::Traced { client, span } => {
                if let Some(client) = self.entities.reporter(client) {
                    client.traced.push(span);
                }
                self.advance(now, out);
            }
            Input::Called { token } => {
                transaction::called(self, token, out);
                self.advance(now, out);
            }
            Input::Ended { token, result } => {
                if !self.sequenced(token, &result, now, out) {
                    self.ended(token, result, now, out);
                }
            }
        }
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        match self.phase {
            Phase::New => self.begin(now, out),
            Phase::Running if self.deadline().is_some_and(|due| due <= now.judged) => {
                self.advance(now, out);
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::New => Some(Instant::ZERO),
            Phase::Running => {
                let waits = self.actors.iter().filter_map(|actor| actor.current.as_ref());
                let waits = waits.filter_map(|current| current.wait.until());
                let opening = self.opening.iter().filter_map(|opening| opening.until);
                waits.chain(opening).chain(self.missing_by).min()
            }
            _ => None,
        }
    }
}
