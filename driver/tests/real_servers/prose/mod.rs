//! Prose tests of the specifications that need real servers, under each runtime.
//!
//! Those that change a fail point while an operation waits to try again are played in virtual time,
//! where nothing comes between.

mod causal;
mod crud;
mod retries;
mod sessions;

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::Poll;

use bson::{Document, doc};
use libtest_mimic::{Failed, Trial};
use sdam_conformance::mongod::{Binary, Options as SetOptions, ReplicaSet, Version};
use sdam_core::command::CommandEvent;
use sdam_core::config::Options;
use sdam_core::topology::{EventKind, Topics};
use sdam_driver::{Client, Collection};
use sdam_host::{Events, Runtime};

pub(crate) type Outcome<T = ()> = Result<T, Failed>;

/// The versions that a test needs at least.
const V4_4: Version = Version { major: 4, minor: 4, patch: 0 };
const V5_0: Version = Version { major: 5, minor: 0, patch: 0 };

/// A replica set of one member, and clients of it under one runtime.
pub(crate) struct Fixture<'a, R: Runtime> {
    /// Makes a client of the runtime.
    connect: &'a dyn Fn(Options) -> Outcome<sdam_host::Client<R>>,
    seed: &'a str,
    version: Version,
    /// A client that nobody listens to.
    quiet: Client<R>,
}

impl<'a, R: Runtime> Fixture<'a, R> {
    fn new(
        connect: &'a dyn Fn(Options) -> Outcome<sdam_host::Client<R>>,
        seed: &'a str,
        version: Version,
    ) -> Outcome<Self> {
        let quiet = connect(Options::parse(&format!("mongodb://{seed}/?replicaSet=rs"))?)?;
        Ok(Self { connect, seed, version, quiet: Client::new(quiet) })
    }

    /// Returns a client, with events of its commands and pools.
    fn client(&self, options: &str) -> Outcome<(Client<R>, Log)> {
        self.client_of(&format!("replicaSet=rs{options}"))
    }

    fn client_of(&self, options: &str) -> Outcome<(Client<R>, Log)> {
        let options = Options::parse(&format!("mongodb://{}/?{options}", self.seed))?;
        let client = (self.connect)(options)?;
        let events = client.subscribe_to(Topics::COMMANDS.with(Topics::POOLS));
        Ok((Client::new(client), Log(events)))
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
        let mut commands: Vec<(i64, Document, Document)> = Vec::new();
        for kind in self.all() {
            let EventKind::Command { command, event, .. } = kind else { continue };
            let id = command.request_id;
            match event {
                CommandEvent::CommandStarted { command } => {
                    let command = Document::try_from(&*command).unwrap_or_default();
                    commands.push((id, command, Document::new()));
                }
                CommandEvent::CommandSucceeded { reply, .. } => {
                    if let Some(known) = commands.iter_mut().find(|it| it.0 == id) {
                        known.2 = Document::try_from(&*reply).unwrap_or_default();
                    }
                }
                _ => {}
            }
        }
        commands.into_iter().map(|(_, command, reply)| (command, reply)).collect()
    }
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

/// Waits for all of several futures, which run at the same time.
async fn all<'a, T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + 'a>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(cx)
            {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

async fn everything<R: Runtime>(
    connect: &dyn Fn(Options) -> Outcome<sdam_host::Client<R>>,
    seed: &str,
    version: Version,
) -> Outcome {
    let fixture = Fixture::new(connect, seed, version)?;
    sessions::play(&fixture).await?;
    causal::play(&fixture).await?;
    crud::play(&fixture).await?;
    retries::play(&fixture).await?;
    fixture.quiet.client().close().await;
    Ok(())
}

fn tokio(seed: &str, version: Version) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    let connect = |options| Ok(sdam_tokio::Client::new(options)?);
    runtime.block_on(everything(&connect, seed, version))
}

fn smol(seed: &str, version: Version) -> Outcome {
    let connect = |options| Ok(sdam_async_std::smol::Client::new(options)?);
    smol::block_on(everything(&connect, seed, version))
}

fn async_std(seed: &str, version: Version) -> Outcome {
    let connect = |options| Ok(sdam_async_std::async_std::Client::new(options)?);
    async_std::task::block_on(everything(&connect, seed, version))
}

fn blocking(seed: &str, version: Version) -> Outcome {
    // A client of threads ends when its last handle is dropped.
    let kept = RefCell::new(Vec::new());
    let connect = |options| {
        let client = sdam_blocking::Client::new(options)?;
        let host = client.host_client();
        kept.borrow_mut().push(client);
        Ok(host)
    };
    let waits = sdam_blocking::Client::new(Options::parse(&format!("mongodb://{seed}"))?)?;
    waits.wait(everything(&connect, seed, version))
}

/// Returns the tests on servers of these versions; those of one version share a set.
pub(crate) fn trials(binary: &Binary, shared: &'static Mutex<Option<ReplicaSet>>) -> Vec<Trial> {
    type Run = fn(&str, Version) -> Outcome;
    let runtimes: [(&str, Run); 4] =
        [("tokio", tokio), ("smol", smol), ("async_std", async_std), ("blocking", blocking)];
    let trial = |(runtime, run): (&str, Run)| {
        let name = format!("prose::{runtime}_on_mongod_{}", binary.version());
        let binary = binary.clone();
        Trial::test(name, move || {
            let mut set = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if set.is_none() {
                *set = Some(ReplicaSet::start(&binary, 1, &SetOptions::calm())?);
            }
            let set = set.as_ref().ok_or("it was just started")?;
            run(&set.seed_list()[0].to_string(), binary.version())
        })
    };
    runtimes.into_iter().map(trial).collect()
}
