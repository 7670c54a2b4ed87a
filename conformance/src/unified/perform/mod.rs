//! The performance of tests: a runtime's clients do what the machine asks for.
//!
//! One thread reads all events, and calls have threads of their own. When a call has ended, what
//! its client has told until then is told before its end.

mod administer;
mod alarm;
mod aside;
mod bulk;
mod call;
mod crud;
mod defect;
mod deployment;
mod gap;
mod log;
mod oddity;
mod operate;
mod search;
mod servers;
mod spans;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::iter::repeat;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as Clock};

use bson::Document;
use sdam_core::config::Options;
use sdam_core::machine::Machine;
use sdam_core::session::SessionOptions;
use sdam_core::time::Instant;
use sdam_core::topology::{EventKind, Topics};
use sdam_driver::ClientSession;
use sdam_host::{Client, Events};
use tracing::dispatcher::with_default;

use crate::adapter::Adapter;
use crate::spec::Difference;
use crate::unified::format::{File, Test};
use crate::unified::play::{
    Action, Broken, Ended, Failed, Fault, Input, Logged, OpenClient, Play, Token, Traced,
};

use alarm::Alarm;
use aside::Aside;
pub use deployment::{Deployment, Facts, Obstacle};
use log::Log;
use operate::Cursors;
pub use servers::{Kind, StartError, start};
use spans::Spans;

/// The time that a test may take, whatever it waits for.
const LIMIT: Duration = Duration::from_secs(120);

/// The result of a call.
type CallResult = Result<Ended, Box<Failed>>;

/// The runner's own client of a deployment, for what is not tested.
pub struct Internal<'a, A: Adapter> {
    adapter: &'a Arc<A>,
    deployment: &'a Deployment,
    client: Client<A::Runtime>,
    /// A client of each mongos, if there are several.
    mongos: Vec<Client<A::Runtime>>,
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

    /// Plays a test.
    ///
    /// # Errors
    ///
    /// Returns what made it fail.
    pub fn play(&self, file: &File, test: &Test) -> Result<(), Fault> {
        let stage = Stage {
            internal: self,
            began: Clock::now(),
            alarm: Alarm::start(),
            clients: BTreeMap::new(),
            sessions: BTreeMap::new(),
            cursors: Cursors::default(),
            calls: Vec::new(),
        };
        stage.play(Play::new(file, test))
    }
}

/// The clients of one test, and the calls that are under way.
struct Stage<'a, A: Adapter> {
    internal: &'a Internal<'a, A>,
    began: Clock,
    alarm: Alarm,
    clients: BTreeMap<String, Opened<A>>,
    sessions: BTreeMap<String, ClientSession<A::Runtime>>,
    cursors: Cursors<A::Runtime>,
    calls: Vec<(Token, Aside<CallResult>)>,
}

/// A client, and what it tells: without commands from the very first event on, and its commands.
struct Opened<A: Adapter> {
    client: sdam_driver::Client<A::Runtime>,
    events: [Events; 2],
    log: Log,
    spans: Spans,
}

/// News for the machine.
enum News {
    Told(String, EventKind),
    Logged(String, Logged),
    Traced(String, Traced),
    Ended(Token, CallResult),
}

impl<A: Adapter> Stage<'_, A> {
    fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed()
    }

    fn play(mut self, mut play: Play) -> Result<(), Fault> {
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
            if self.began.elapsed() > LIMIT {
                let reason = format!("it has not ended within {} s", LIMIT.as_secs());
                return Err(Broken::new("the test", reason).into());
            }
            self.has_heard_all()?;
            for news in &news {
                let input = match news {
                    News::Told(client, event) => Input::Told { client, event },
                    News::Logged(client, message) => {
                        Input::Logged { client, message: message.clone() }
                    }
                    News::Traced(client, span) => Input::Traced { client, span: span.clone() },
                    News::Ended(token, result) => {
                        Input::Ended { token: *token, result: result.clone() }
                    }
                };
                play.handle(self.now().into(), input, &mut out);
            }
            play.tick(self.now().into(), &mut out);
        }
    }

    /// Fails if a client has told more than was read in time.
    fn has_heard_all(&self) -> Result<(), Broken> {
        let events = self.clients.iter().flat_map(|(name, it)| it.events.iter().zip(repeat(name)));
        for (events, client) in events {
            heard_all(client, events.dropped())?;
        }
        Ok(())
    }

    /// Opens a client; returns its name, and what came of it.
    fn open(&mut self, client: OpenClient) -> (String, Result<(), Fault>) {
        let (log, spans) = (Log::default(), Spans::default());
        let opened = self.internal.deployment.options(&client).and_then(|options| {
            let adapter = self.internal.adapter;
            let opened = match (client.spans, client.log_messages.is_empty()) {
                (Some(with_commands), _) => {
                    adapter.traced_client(options, Spans::settings(with_commands), spans.clone())
                }
                (None, true) => adapter.client(options),
                (None, false) => with_default(&log.collector(&client.log_messages), || {
                    adapter.logging_client(options, Log::settings())
                }),
            };
            let (opened, events) = opened.map_err(|error| refused(&client.name, error))?;
            Ok((opened, events))
        });
        let opened = opened.map(|(opened, events)| {
            // Nobody has run a command yet.
            let commands = opened.subscribe_to(Topics::COMMANDS);
            let events = [events, commands];
            let client_of = sdam_driver::Client::new(opened);
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
        let started = self.clients.get(client)?.client.start_session(options);
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
    fn call(&self, action: Action) -> Option<(Token, Aside<CallResult>)> {
        let driver = |name: &str| self.clients.get(name).map(|opened| opened.client.clone());
        let client = |name: &str| driver(name).map(|driver| driver.client().clone());
        match action {
            Action::Internal(token, command) => {
                // Clients of several mongos may have had any of them do what this one undoes.
                let everywhere = command.server.is_some() && !self.internal.mongos.is_empty();
                let clients = match everywhere {
                    true => self.internal.mongos.clone(),
                    false => vec![self.internal.client.clone()],
                };
                let call = move || call::internal(clients, everywhere, command);
                Some((token, self.aside(call)))
            }
            Action::Run { token, client: name, database, command } => {
                let client = client(&name)?;
                Some((token, self.aside(move || call::run(client, database, command))))
            }
            Action::Operate(token, operate) => {
                let (client, cursors) = (driver(&operate.client)?, self.cursors.clone());
                let session = match &operate.session {
                    Some(name) => Some(self.sessions.get(name)?.clone()),
                    None => None,
                };
                let call = move || operate::operate(client, session, cursors, *operate);
                Some((token, self.aside(call)))
            }
            Action::Session(token, name, call) => {
                let session = self.sessions.get(&name)?.clone();
                Some((token, self.aside(move || operate::of_session(session, call))))
            }
            Action::Append { token, client: name, name: library, version, platform } => {
                let client = client(&name)?;
                let call = move || call::append(client, library, version, platform);
                Some((token, self.aside(call)))
            }
            Action::Close { token, client: name } => {
                let client = client(&name)?;
                Some((token, self.aside(move || call::close(client))))
            }
            Action::Open(_) | Action::Start { .. } | Action::Finished(_) => None,
        }
    }

    /// Begins a call, whose future the thread makes that polls it.
    fn aside<F: Future<Output = CallResult>>(
        &self,
        call: impl FnOnce() -> F + Send + 'static,
    ) -> Aside<CallResult> {
        let adapter = Arc::clone(self.internal.adapter);
        Aside::begin(move || adapter.block_on(call()))
    }

    /// Waits until there is something to tell, or the deadline has passed, or that of the test.
    fn next(&mut self, deadline: Option<Instant>) -> Vec<News> {
        let due = self.began + LIMIT;
        let due = deadline.map_or(due, |at| due.min(self.began + at.since_origin()));
        let internal = self.internal;
        internal.adapter.block_on(poll_fn(|cx| {
            let ended = self.poll_calls(cx);
            let mut news = Vec::new();
            let opened = self.clients.iter_mut();
            for (name, events) in
                opened.flat_map(|(name, it)| it.events.iter_mut().map(move |events| (name, events)))
            {
                while let Poll::Ready(Some(event)) = events.poll_next(cx) {
                    news.push(News::Told(name.clone(), event.kind));
                }
            }
            for (name, opened) in &self.clients {
                let spans = opened.spans.take().into_iter();
                news.extend(spans.map(|span| News::Traced(name.clone(), span)));
                let messages = opened.log.read(cx).into_iter();
                news.extend(messages.map(|message| News::Logged(name.clone(), message)));
            }
            news.extend(ended);
            if !news.is_empty() || Clock::now() > due {
                return Poll::Ready(news);
            }
            self.alarm.set(due, cx.waker());
            Poll::Pending
        }))
    }

    fn poll_calls(&mut self, cx: &mut Context<'_>) -> Vec<News> {
        let mut ended = Vec::new();
        self.calls.retain(|(token, call)| match call.poll(cx) {
            Poll::Ready(result) => {
                ended.push(News::Ended(*token, result));
                false
            }
            Poll::Pending => true,
        });
        ended
    }
}

/// Fails if events of a client were dropped because they were not read in time: what a test says of
/// the others would be worth nothing.
fn heard_all(client: &str, dropped: u64) -> Result<(), Broken> {
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
    use super::heard_all;

    #[test]
    fn events_that_were_dropped_are_a_breakdown() {
        assert_eq!(heard_all("client0", 0), Ok(()));
        let broken = heard_all("client0", 7).expect_err("7 are missing").to_string();
        assert_eq!(broken, "the runner broke down over the events of client0: 7 were dropped");
    }
}
