//! The performance of tests: a runtime's clients do what the machine asks for.
//!
//! One thread reads all events, and calls have threads of their own. When a call has ended, what
//! its client has reported until then comes before its end.

mod administer;
mod alarm;
mod background;
mod bulk;
mod call;
mod compression;
mod crud;
mod defect;
mod deployment;
mod environment;
mod gridfs;
mod log;
mod operate;
mod servers;
mod simulated;
mod skip_lists;
mod spans;
mod transaction;
mod unsupported;

use std::collections::BTreeMap;
use std::iter::repeat;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bson::Document;
use sdam::generic::ClientSession;
use sdam_core::config::Options;
use sdam_core::machine::Machine;
use sdam_core::session::SessionOptions;
use sdam_core::time::Instant;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::driver::DriverSession as _;
use sdam_host::{Events, Runtime, Topology};

use crate::adapter::Adapter;
use crate::spec::Difference;
use crate::unified::format::{File, Test};
use crate::unified::play::{
    Action, Broken, Ended, Failed, Fault, Input, Logged, OpenClient, Play, Token, Traced,
    WithTransaction,
};

use background::Background;
pub use deployment::{Deployment, Facts, Obstacle};
use environment::{Environment, RealTime};
use log::Log;
use operate::{CallError, Cursors};
pub use servers::{Kind, StartError, start};
pub use simulated::{RUNTIME as VIRTUAL, Simulated, obstacle as virtual_obstacle};
use spans::Spans;
use transaction::{Callbacks, Errors};

/// The time that a test may take, whatever it waits for.
const LIMIT: Duration = Duration::from_secs(120);

/// The result of a call.
type CallResult = Result<Ended, Box<Failed>>;

/// The runner's own client of a deployment, for what is not tested.
pub struct Internal<'a, A: Adapter> {
    adapter: &'a Arc<A>,
    deployment: &'a Deployment,
    client: Topology<A::Runtime>,
    /// A client of each mongos, if there are several.
    mongos: Vec<Topology<A::Runtime>>,
}

impl<'a, A: Adapter> Internal<'a, A> {
    /// Opens the client.
    ///
    /// # Errors
    ///
    /// Says why it cannot be opened.
    pub fn open(adapter: &'a Arc<A>, deployment: &'a Deployment) -> Result<Self, String> {
        let open = |uri: &str| {
            let options = Options::parse(uri).map_err(|error| error.to_string())?;
            let (client, _) = adapter.client(options).map_err(|error| error.to_string())?;
            Ok::<_, String>(client)
        };
        let client = open(&deployment.internal_uri())?;
        let uris = deployment.mongos_uris();
        let mongos = uris.iter().map(|uri| open(uri)).collect::<Result<_, _>>()?;
        Ok(Self { adapter, deployment, client, mongos })
    }

    /// Asks what kind of deployment it is.
    ///
    /// # Errors
    ///
    /// Says why there is no answer.
    pub fn facts(&self) -> Result<Facts, String> {
        self.adapter.block_on(Facts::ask(&self.client, self.deployment))
    }

    /// Asks how many bytes of messages of the compressor a server has read; `None` if tests use
    /// none, or the deployment has none.
    ///
    /// # Errors
    ///
    /// Says why there is no answer.
    pub fn compressed(&self) -> Result<Option<i64>, String> {
        let compressor = self.deployment.compressor.as_deref();
        let Some(compressor) = compressor.filter(|_| !self.deployment.is_embedded) else {
            return Ok(None);
        };
        self.adapter.block_on(compression::bytes_read(&self.client, compressor)).map(Some)
    }

    /// Plays a test.
    ///
    /// # Errors
    ///
    /// Returns what made it fail.
    pub fn play(&self, file: &File, test: &Test) -> Result<(), Fault> {
        let environment = RealTime::begin(self.adapter);
        Stage::new(environment, self.deployment, &self.client, &self.mongos).play(file, test)
    }
}

/// The clients of one test, and the calls that are under way.
struct Stage<'a, E: Environment> {
    environment: E,
    deployment: &'a Deployment,
    /// The runner's own client, and those of each mongos.
    internal: &'a Topology<E::Runtime>,
    mongos: &'a [Topology<E::Runtime>],
    clients: BTreeMap<String, Opened<E::Runtime>>,
    sessions: BTreeMap<String, ClientSession<E::Runtime>>,
    cursors: Cursors<E::Runtime>,
    calls: Vec<(Token, Background<CallResult>)>,
    /// The callbacks of transactions that are run as a whole.
    callbacks: Callbacks,
    errors: Errors,
}

/// A client, and what it reports: without commands from the very first event on, and its commands.
struct Opened<R: Runtime> {
    client: sdam::generic::Client<R>,
    events: [Events; 2],
    log: Log,
    spans: Spans,
}

/// News for the machine.
enum News {
    Event(String, EventKind),
    Logged(String, Logged),
    Traced(String, Traced),
    Called(Token),
    Ended(Token, CallResult),
}

impl<'a, E: Environment> Stage<'a, E> {
    fn new(
        environment: E,
        deployment: &'a Deployment,
        internal: &'a Topology<E::Runtime>,
        mongos: &'a [Topology<E::Runtime>],
    ) -> Self {
        Self {
            environment,
            deployment,
            internal,
            mongos,
            clients: BTreeMap::new(),
            sessions: BTreeMap::new(),
            cursors: Cursors::default(),
            calls: Vec::new(),
            callbacks: Callbacks::default(),
            errors: Errors::default(),
        }
    }

    fn now(&self) -> Instant {
        self.environment.now()
    }

    fn play(mut self, file: &File, test: &Test) -> Result<(), Fault> {
        let mut play = Play::new(file, test);
        let (mut out, mut opened, mut started) = (Vec::new(), Vec::new(), Vec::new());
        play.tick(self.now().into(), &mut out);
        loop {
            for action in std::mem::take(&mut out) {
                match action {
                    Action::Finished(result) => return result,
                    Action::Open(client) => opened.push(self.open(client)),
                    Action::Start { session, client, options } => {
                        started.extend(self.start(session, &client, options));
                    }
                    Action::Return { token, failed } => {
                        let failed = failed.map(|call| self.errors.take(call));
                        self.callbacks.end(token, failed.map_or(Ok(()), Err));
                    }
                    Action::WithTransaction(token, run) => {
                        let call = self.with_transaction(token, *run);
                        self.calls.extend(call);
                    }
                    action => self.calls.extend(self.call(action)),
                }
            }
            for (client, result) in opened.drain(..) {
                let input = Input::Opened { client: &client, result };
                play.handle(self.now().into(), input, &mut out);
            }
            for (session, result) in started.drain(..) {
                let input = Input::Started { session: &session, result };
                play.handle(self.now().into(), input, &mut out);
            }
            if !out.is_empty() {
                continue;
            }
            let news = self.next(play.deadline());
            if self.now() > Instant::ZERO + LIMIT {
                let reason = format!("it has not ended within {} s", LIMIT.as_secs());
                return Err(Broken::new("the test", reason).into());
            }
            self.check_none_dropped()?;
            for news in &news {
                let input = match news {
                    News::Event(client, event) => Input::Event { client, event },
                    News::Logged(client, message) => {
                        Input::Logged { client, message: message.clone() }
                    }
                    News::Traced(client, span) => Input::Traced { client, span: span.clone() },
                    News::Called(token) => Input::Called { token: *token },
                    News::Ended(token, result) => {
                        Input::Ended { token: *token, result: result.clone() }
                    }
                };
                play.handle(self.now().into(), input, &mut out);
            }
            play.tick(self.now().into(), &mut out);
        }
    }

    /// Fails if a client has reported more than was read in time.
    fn check_none_dropped(&self) -> Result<(), Broken> {
        let events = self.clients.iter().flat_map(|(name, it)| it.events.iter().zip(repeat(name)));
        for (events, client) in events {
            none_dropped(client, events.dropped())?;
        }
        Ok(())
    }

    /// Opens a client; returns its name, and what came of it.
    fn open(&mut self, client: OpenClient) -> (String, Result<(), Fault>) {
        let (log, spans) = (Log::default(), Spans::default());
        let opened = self.deployment.options(&client).and_then(|options| {
            let opened = self.environment.open(options, &client, (&log, &spans));
            opened.map_err(|error| refused(&client.name, error))
        });
        let opened = opened.map(|(opened, events)| {
            // No command was run yet.
            let commands = opened.subscribe_to(Topics::COMMANDS);
            let events = [events, commands];
            let client_of = sdam::generic::Client::from(opened);
            let opened = Opened { client: client_of, events, log, spans };
            self.clients.insert(client.name.clone(), opened);
        });
        (client.name, opened)
    }

    /// Starts a session; returns its name, and what came of it: nothing, if the client could not be
    /// opened, which has ended the test.
    fn start(
        &mut self,
        session: String,
        client: &str,
        options: SessionOptions,
    ) -> Option<(String, Result<Document, Fault>)> {
        let started = self.clients.get(client)?.client.start_session().with_options(options).run();
        let started = started.map_err(|error| refused(&session, error)).and_then(|started| {
            let id = started.id().map(Document::try_from);
            let id = id.ok_or_else(|| Broken::new(&session, "it has no lsid"))?;
            let id = id.map_err(|error| Broken::new(&session, error))?;
            self.sessions.insert(session.clone(), started);
            Ok(id)
        });
        Some((session, started))
    }

    /// Begins a call; none if the client could not be opened, which has ended the test.
    fn call(&self, action: Action) -> Option<(Token, Background<CallResult>)> {
        let driver = |name: &str| self.clients.get(name).map(|opened| opened.client.clone());
        let client = |name: &str| driver(name).map(|driver| driver.topology().clone());
        match action {
            Action::Internal(token, command) => {
                // Clients of several mongos may have had any of them do what this one undoes.
                let everywhere = command.server.is_some() && !self.mongos.is_empty();
                let clients = match everywhere {
                    true => self.mongos.to_vec(),
                    false => vec![self.internal.clone()],
                };
                let call = move || call::internal(clients, everywhere, command);
                Some((token, self.environment.spawn(call)))
            }
            Action::Run { token, client: name, database, command } => {
                let client = client(&name)?;
                Some((token, self.environment.spawn(move || call::run(client, database, command))))
            }
            Action::Operate(token, operate) => {
                let (client, cursors) = (driver(&operate.client)?, self.cursors.clone());
                let session = match &operate.session {
                    Some(name) => Some(self.sessions.get(name)?.clone()),
                    None => None,
                };
                let call = move || operate::operate(client, session, cursors, *operate);
                Some(self.spawn(token, call))
            }
            Action::Session(token, name, call) => {
                let session = self.sessions.get(&name)?.clone();
                Some(self.spawn(token, move || transaction::of_session(session, call)))
            }
            Action::Target { token, session, command } => {
                let server = self.sessions.get(&session)?.pinned_server();
                let client = server.and_then(|server| self.mongos_at(&server.to_string()));
                let call = move || async move {
                    match client {
                        Some(client) => call::run(client, "admin".to_owned(), command).await,
                        None => Err(call::invalid("the session is not pinned to a mongos")),
                    }
                };
                Some((token, self.environment.spawn(call)))
            }
            Action::Append { token, client: name, name: library, version, platform } => {
                let client = client(&name)?;
                let call = move || call::append(client, library, version, platform);
                Some((token, self.environment.spawn(call)))
            }
            Action::Close { token, client: name } => {
                let client = client(&name)?;
                Some((token, self.environment.spawn(move || call::close(client))))
            }
            Action::Open(_)
            | Action::Start { .. }
            | Action::WithTransaction(..)
            | Action::Return { .. }
            | Action::Finished(_) => None,
        }
    }

    /// Begins a call whose error a callback may have to return.
    fn spawn<F>(
        &self,
        token: Token,
        call: impl FnOnce() -> F + Send + 'static,
    ) -> (Token, Background<CallResult>)
    where
        F: Future<Output = Result<Ended, CallError>> + Send + 'static,
    {
        let errors = self.errors.clone();
        let call = move || {
            let call = call();
            async move { call.await.map_err(|error| errors.keep(token, error)) }
        };
        (token, self.environment.spawn(call))
    }

    /// Begins a transaction that is run as a whole; none if its session could not be started.
    fn with_transaction(
        &mut self,
        token: Token,
        run: WithTransaction,
    ) -> Option<(Token, Background<CallResult>)> {
        let session = self.sessions.get(&run.session)?.clone();
        let callback = self.callbacks.add(token);
        Some(self.spawn(token, move || transaction::run(session, callback, run)))
    }

    /// Returns the runner's client of a mongos.
    fn mongos_at(&self, host: &str) -> Option<Topology<E::Runtime>> {
        let at = self.deployment.mongos.iter().position(|known| known == host)?;
        self.mongos.get(at).cloned()
    }

    /// Waits until there is something to report, or the deadline has passed, or that of the test.
    fn next(&mut self, deadline: Option<Instant>) -> Vec<News> {
        let limit = Instant::ZERO + LIMIT;
        let until = deadline.map_or(limit, |at| limit.min(at));
        let (clients, calls, callbacks) = (&mut self.clients, &mut self.calls, &self.callbacks);
        self.environment.wait(until, |cx| {
            let ended = poll_calls(calls, cx);
            let mut news = Vec::new();
            let opened = clients.iter_mut();
            for (name, events) in
                opened.flat_map(|(name, it)| it.events.iter_mut().map(move |events| (name, events)))
            {
                while let Poll::Ready(Some(event)) = events.poll_next(cx) {
                    news.push(News::Event(name.clone(), event.kind));
                }
            }
            for (name, opened) in &*clients {
                let spans = opened.spans.take().into_iter();
                news.extend(spans.map(|span| News::Traced(name.clone(), span)));
                let messages = opened.log.read(cx).into_iter();
                news.extend(messages.map(|message| News::Logged(name.clone(), message)));
            }
            news.extend(callbacks.called(cx).map(News::Called));
            news.extend(ended);
            news
        })
    }
}

/// Returns the calls that have ended.
fn poll_calls(calls: &mut Vec<(Token, Background<CallResult>)>, cx: &Context<'_>) -> Vec<News> {
    let mut ended = Vec::new();
    calls.retain(|(token, call)| match call.poll(cx) {
        Poll::Ready(result) => {
            ended.push(News::Ended(*token, result));
            false
        }
        Poll::Pending => true,
    });
    ended
}

/// Fails if events of a client were dropped because they were not read in time: what a test says of
/// the others would be worth nothing.
fn none_dropped(client: &str, dropped: u64) -> Result<(), Broken> {
    match dropped {
        0 => Ok(()),
        _ => Err(Broken::new(format!("the events of {client}"), format!("{dropped} were dropped"))),
    }
}

/// Says that a client cannot be opened, as the test wants what the client refuses.
fn refused(client: &str, reason: impl std::fmt::Display) -> Fault {
    let (place, expected) = (format!("the client {client}"), "a client".to_owned());
    Fault::Differs(Difference { place, expected, found: reason.to_string() })
}

#[cfg(test)]
mod tests {
    use super::none_dropped;

    #[test]
    fn events_that_were_dropped_are_a_breakdown() {
        assert_eq!(none_dropped("client0", 0), Ok(()));
        let broken = none_dropped("client0", 7).expect_err("7 are missing").to_string();
        assert_eq!(broken, "the runner broke down over the events of client0: 7 were dropped");
    }
}
