//! Prose tests of the specifications that need real servers, under each runtime.
//!
//! Those that change a fail point while an operation waits to try again are played in virtual time,
//! where nothing comes between.

mod causal;
mod change_streams;
mod crud;
mod durations;
mod errors;
mod gateway;
mod gridfs;
mod retries;
mod sessions;
mod timeouts;
mod transactions;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::thread;

use bson::{Document, doc};
use libtest_mimic::{Failed, Trial};
use sdam::error::Error;
use sdam::generic::{Client, Collection};
use sdam_blocking::driver::DriverTopology;
use sdam_conformance::mongod::{
    Binary, Config, Options as SetOptions, ReplicaSet, Server, User, Version,
};
use sdam_core::command::CommandEvent;
use sdam_core::config::Options;
use sdam_core::operation::OperationError;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::{Events, Runtime};

pub(crate) type Outcome<T = ()> = Result<T, Failed>;

/// The versions that a test needs at least.
const V4_4: Version = Version { major: 4, minor: 4, patch: 0 };
const V5_0: Version = Version { major: 5, minor: 0, patch: 0 };

/// The way in which a runtime makes clients, and runs operations at the same time.
struct Way<'a, R: Runtime> {
    connect: &'a dyn Fn(Options) -> Outcome<sdam_host::Topology<R>>,
    /// A client that waits in threads, if futures block.
    threads: Option<&'a sdam_blocking::Topology>,
}

type Operation<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// A server, or a replica set of one member, and clients of it under one runtime.
pub(crate) struct Fixture<'a, R: Runtime> {
    runtime: Way<'a, R>,
    seed: &'a str,
    /// The options that each client needs.
    options: &'static str,
    version: Version,
    /// A client that no test listens to.
    quiet: Client<R>,
    /// All clients, with events of their commands.
    clients: RefCell<Vec<(sdam_host::Topology<R>, Log)>>,
}

impl<'a, R: Runtime> Fixture<'a, R> {
    fn new(
        runtime: Way<'a, R>,
        (seed, options): (&'a str, &'static str),
        version: Version,
    ) -> Outcome<Self> {
        let quiet = Options::parse(&format!("mongodb://{seed}/?{options}"))?;
        let quiet = (runtime.connect)(quiet)?;
        let clients = RefCell::new(vec![listened(&quiet)]);
        Ok(Self { runtime, seed, options, version, quiet: Client::from(quiet), clients })
    }

    /// Waits for all of several operations, which run at the same time.
    async fn all(&self, operations: Vec<Operation<'_>>) -> Vec<Result<(), Error>> {
        match self.runtime.threads {
            None => all(operations).await,
            Some(client) => thread::scope(|scope| {
                let run = |operation| scope.spawn(|| client.wait(operation));
                let running: Vec<_> = operations.into_iter().map(run).collect();
                let ended = running.into_iter().map(thread::ScopedJoinHandle::join);
                ended.map(|it| it.unwrap_or_else(|panic| resume_unwind(panic))).collect()
            }),
        }
    }

    /// Returns a client, with events of its commands and pools.
    fn client(&self, options: &str) -> Outcome<(Client<R>, Log)> {
        self.client_at(self.seed, &format!("{}{options}", self.options))
    }

    fn client_at(&self, seed: &str, options: &str) -> Outcome<(Client<R>, Log)> {
        let options = Options::parse(&format!("mongodb://{seed}/?{options}"))?;
        let client = (self.runtime.connect)(options)?;
        let (client, log) = listened(&client);
        self.clients.borrow_mut().push(listened(&client));
        Ok((Client::from(client), log))
    }

    /// SESS-P10: "No remaining sessions are checked out after each functional test". Of those that
    /// commands were sent with, all are back in the pool, and ended with the client; but for those
    /// of commands whose connection broke, which are used no more.
    async fn end(self) -> Outcome {
        for (client, mut log) in self.clients.take() {
            client.close().await;
            let (mut in_use, mut broken) = (BTreeSet::new(), BTreeSet::new());
            for (command, outcome) in log.ended() {
                if let Ok(ended) = command.get_array("endSessions") {
                    for id in ended {
                        in_use.remove(&id.to_string());
                    }
                }
                let Some(id) = command.get("lsid").map(ToString::to_string) else { continue };
                if outcome.is_none() {
                    in_use.remove(&id);
                    broken.insert(id);
                } else if !broken.contains(&id) {
                    in_use.insert(id);
                }
            }
            assert!(in_use.is_empty(), "sessions in use: {in_use:?}");
        }
        Ok(())
    }

    /// Returns an empty collection of its own, unheard.
    async fn empty(&self, client: &Client<R>, name: &str) -> Outcome<Collection<R>> {
        let fresh = self.quiet.database("prose").collection::<Document>(name);
        fresh.delete_many(doc! {}).await?;
        Ok(client.database("prose").collection(name))
    }

    /// Has commands fail, unheard.
    async fn fail(&self, mode: impl Into<bson::Bson>, data: Document) -> Outcome {
        let mode = mode.into();
        let fail = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
        self.quiet.database("admin").run_command(fail).await?;
        Ok(())
    }

    async fn fail_no_more(&self) -> Outcome {
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        self.quiet.database("admin").run_command(off).await?;
        Ok(())
    }
}

/// Returns a client, with events of its commands, pools and checks.
fn listened<R: Runtime>(client: &sdam_host::Topology<R>) -> (sdam_host::Topology<R>, Log) {
    let events = client.subscribe_to(Topics::COMMANDS.with(Topics::POOLS).with(Topics::HEARTBEATS));
    (client.clone(), Log(events))
}

/// The events of a client.
struct Log(Events);

impl Log {
    /// Returns what has happened since the last call.
    fn all(&mut self) -> Vec<EventKind> {
        std::iter::from_fn(|| self.0.try_next()).map(|event| event.kind).collect()
    }

    /// Returns the commands that were sent since the last call.
    fn sent(&mut self) -> Vec<Document> {
        self.commands().into_iter().map(|(command, _)| command).collect()
    }

    /// Returns the commands that were sent since the last call, each with its reply, which is empty
    /// if it failed.
    fn commands(&mut self) -> Vec<(Document, Document)> {
        let ended = self.ended().into_iter();
        ended.map(|(command, outcome)| (command, outcome.unwrap_or_default())).collect()
    }

    /// Does the same; of a command that failed without a reply, there is `None`.
    fn ended(&mut self) -> Vec<(Document, Option<Document>)> {
        let mut commands: Vec<(i64, Document, Option<Document>)> = Vec::new();
        for kind in self.all() {
            let EventKind::Command { command, event, .. } = kind else { continue };
            let id = command.request_id;
            let reply = match event {
                CommandEvent::CommandStarted { command } => {
                    let command = Document::try_from(&*command).unwrap_or_default();
                    commands.push((id, command, None));
                    continue;
                }
                CommandEvent::CommandSucceeded { reply, .. } => {
                    Document::try_from(&*reply).unwrap_or_default()
                }
                CommandEvent::CommandFailed { failure, .. } if is_reply(&failure) => {
                    Document::new()
                }
                _ => continue,
            };
            if let Some(known) = commands.iter_mut().find(|it| it.0 == id) {
                known.2 = Some(reply);
            }
        }
        commands.into_iter().map(|(_, command, reply)| (command, reply)).collect()
    }
}

/// Returns whether the server has answered.
fn is_reply(error: &OperationError) -> bool {
    matches!(error, OperationError::Reply { .. })
}

fn name(command: &Document) -> &str {
    command.keys().next().map_or("", String::as_str)
}

fn names(commands: &[Document]) -> Vec<&str> {
    commands.iter().map(name).collect()
}

fn session(command: &Document) -> Option<&Document> {
    command.get_document("lsid").ok()
}

async fn all(mut operations: Vec<Operation<'_>>) -> Vec<Result<(), Error>> {
    let mut done: Vec<_> = operations.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (operation, done) in operations.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(output) = operation.as_mut().poll(cx)
            {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// The tests of one specification, or of several.
#[derive(Clone, Copy, Debug)]
enum Chapter {
    Sessions,
    Causal,
    Crud,
    Retries,
    Errors,
    Transactions,
    ChangeStreams,
    GridFs,
    /// Those of a server where clients log in.
    Timeouts,
    /// Those of a server that is no member of a set.
    Standalone,
}

impl Chapter {
    const OF_SETS: [Self; 8] = [
        Self::Sessions,
        Self::Causal,
        Self::Crud,
        Self::Retries,
        Self::Errors,
        Self::Transactions,
        Self::ChangeStreams,
        Self::GridFs,
    ];

    async fn play<R: Runtime>(self, runtime: Way<'_, R>, seed: &str, version: Version) -> Outcome {
        let options = match self {
            Self::Timeouts => "authSource=admin",
            Self::Standalone => "directConnection=true",
            _ => "replicaSet=rs",
        };
        let fixture = Fixture::new(runtime, (seed, options), version)?;
        let played = match self {
            Self::Sessions => sessions::play(&fixture).await,
            Self::Causal => causal::play(&fixture).await,
            Self::Crud => crud::play(&fixture).await,
            Self::Retries => retries::play(&fixture).await,
            Self::Errors => errors::play(&fixture).await,
            Self::Transactions => transactions::play(&fixture).await,
            Self::ChangeStreams => change_streams::play(&fixture).await,
            Self::GridFs => gridfs::play(&fixture).await,
            Self::Timeouts => timeouts::play(&fixture).await,
            Self::Standalone => match causal::play_alone(&fixture).await {
                Ok(()) => durations::play(&fixture).await,
                failed => failed,
            },
        };
        fixture.fail_no_more().await?;
        played?;
        fixture.end().await
    }
}

fn tokio(chapter: Chapter, seed: &str, version: Version) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let connect = |options| Ok(sdam_tokio::Topology::new(options)?);
    let way = Way { connect: &connect, threads: None };
    runtime.block_on(chapter.play(way, seed, version))
}

fn smol(chapter: Chapter, seed: &str, version: Version) -> Outcome {
    let connect = |options| Ok(sdam_async_std::smol::Topology::new(options)?);
    let way = Way { connect: &connect, threads: None };
    smol::block_on(chapter.play(way, seed, version))
}

fn async_std(chapter: Chapter, seed: &str, version: Version) -> Outcome {
    let connect = |options| Ok(sdam_async_std::async_std::Topology::new(options)?);
    let way = Way { connect: &connect, threads: None };
    async_std::task::block_on(chapter.play(way, seed, version))
}

fn blocking(chapter: Chapter, seed: &str, version: Version) -> Outcome {
    // A client of threads ends when its last handle is dropped.
    let kept = RefCell::new(Vec::new());
    let connect = |options| {
        let client = sdam_blocking::Topology::new(options)?;
        let host = client.host_topology();
        kept.borrow_mut().push(client);
        Ok(host)
    };
    let waits = sdam_blocking::Topology::new(Options::parse(&format!("mongodb://{seed}"))?)?;
    let way = Way { connect: &connect, threads: Some(&waits) };
    waits.wait(chapter.play(way, seed, version))
}

type Run = fn(Chapter, &str, Version) -> Outcome;

const RUNTIMES: [(&str, Run); 4] =
    [("tokio", tokio), ("smol", smol), ("async_std", async_std), ("blocking", blocking)];

/// Returns the tests on servers of these versions; those of one version share a set.
pub(crate) fn trials(binary: &Binary, shared: &'static Mutex<Option<ReplicaSet>>) -> Vec<Trial> {
    let trial = |chapter: Chapter, (runtime, run): (&str, Run)| {
        let name = format!("prose::{chapter:?}_{runtime}_on_mongod_{}", binary.version());
        let binary = binary.clone();
        Trial::test(name.to_lowercase(), move || {
            let mut set = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if set.is_none() {
                *set = Some(ReplicaSet::start(&binary, 1, &SetOptions::calm())?);
            }
            let set = set.as_ref().ok_or("it was just started")?;
            run(chapter, &set.seed_list()[0].to_string(), binary.version())
        })
    };
    let of = |chapter| RUNTIMES.map(|runtime| trial(chapter, runtime));
    let mut trials: Vec<Trial> = Chapter::OF_SETS.into_iter().flat_map(of).collect();
    let name = format!("prose::standalone_on_mongod_{}", binary.version());
    let alone = binary.clone();
    trials.push(Trial::test(name, move || {
        let server = Server::start(&alone, Config::default())?;
        let seed = server.address().to_string();
        RUNTIMES.into_iter().try_for_each(|(runtime, run)| {
            let played = run(Chapter::Standalone, &seed, alone.version());
            played.map_err(|error| format!("{runtime}: {}", error.message().unwrap_or("")).into())
        })
    }));
    // Older fail points hold no login up.
    if binary.version() >= V4_4 {
        let (name, binary) = (format!("prose::timeouts_on_mongod_{}", binary.version()), binary);
        let binary = binary.clone();
        trials.push(Trial::test(name, move || {
            let mut server = Server::start(&binary, Config::default())?;
            server.enable_auth(&[User::new("me", "pass")])?;
            let seed = format!("me:pass@{}", server.address());
            RUNTIMES.into_iter().try_for_each(|(runtime, run)| {
                let played = run(Chapter::Timeouts, &seed, binary.version());
                played
                    .map_err(|error| format!("{runtime}: {}", error.message().unwrap_or("")).into())
            })
        }));
    }
    trials
}
