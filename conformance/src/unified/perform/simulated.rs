//! Tests in virtual time: a simulated replica set, a network without faults, and no thread.

use std::cell::RefCell;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use sdam_cluster::{ClusterOptions, ServerVersion};
use sdam_core::config::{Options, ServerAddress};
use sdam_core::time::Instant;
use sdam_host::Error;
use sdam_simulation::virtual_time::{self, Runtime, Simulation};

use super::background::Background;
use super::deployment::{Deployment, Facts};
use super::environment::Environment;
use super::log::Log;
use super::spans::Spans;
use super::{CallResult, News, Stage};
use crate::adapter::Subject;
use crate::unified::format::{Entity, File, Operation, Test, Topology};
use crate::unified::play::{Broken, Fault, OpenClient};

/// The name of the set.
const SET: &str = "rs";

/// The number of its members.
const MEMBERS: usize = 3;

/// The seed of every simulation, so that the same test is played in the same way.
const SEED: u64 = 7;

/// The time that a packet takes one way, as between processes of one machine.
const LATENCY: Duration = Duration::from_micros(100);

/// The time in which the members elect a primary.
const BEGINNING: Duration = Duration::from_secs(30);

/// The time that passes after a deadline before it counts as passed.
const AFTER: Duration = Duration::from_millis(1);

/// The name of the runtime in reports.
pub const RUNTIME: &str = "virtual time";

/// A replica set that is simulated, a new one for each test.
pub struct Simulated<'a> {
    version: ServerVersion,
    deployment: &'a Deployment,
    facts: Facts,
}

/// The members' addresses.
fn addresses() -> impl Iterator<Item = ServerAddress> {
    let host = |index: usize| format!("m{index}.example");
    (0..MEMBERS).map(move |index| ServerAddress::Tcp { host: host(index).into(), port: 27017 })
}

/// Returns how to connect to the set.
pub(super) fn deployment(name: String) -> Deployment {
    let hosts: Vec<String> = addresses().map(|address| address.to_string()).collect();
    Deployment {
        name,
        topology: Topology::ReplicaSet,
        is_embedded: true,
        one_host: hosts[0].clone(),
        hosts,
        mongos: Vec::new(),
        login: None,
        options: vec![("replicaSet".to_owned(), SET.to_owned())],
        compressor: None,
        _servers: Box::new(()),
    }
}

/// Returns why a test cannot be played in virtual time, if it cannot.
pub fn obstacle(file: &File, test: &Test) -> Option<&'static str> {
    let observes = |entity: &Entity| match entity {
        Entity::Client(client) => {
            !client.observe_log_messages.is_empty() || client.observe_tracing.is_some()
        }
        _ => false,
    };
    let asks =
        |text: &str| ["observeLogMessages", "observeTracing"].iter().any(|it| text.contains(it));
    let makes = |operation: &Operation| asks(&operation.arguments.to_string());
    let is_about_them = file.entities.iter().any(observes) || test.operations.iter().any(makes);
    is_about_them.then_some("in virtual time, clients have no log and no spans")
}

impl<'a> Simulated<'a> {
    /// Asks what kind of deployment it is.
    ///
    /// # Errors
    ///
    /// Says why there is no answer.
    pub fn open(version: ServerVersion, deployment: &'a Deployment) -> Result<Self, String> {
        let (mut simulation, client) = begin(version, deployment)?;
        let names = self::deployment(String::new());
        let facts = Arc::new(Mutex::new(None));
        let found = Arc::clone(&facts);
        simulation.spawn(async move {
            let asked = Facts::ask(&client, &names).await;
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        });
        simulation.run(BEGINNING);
        let facts = facts.lock().unwrap_or_else(PoisonError::into_inner).take();
        let facts = facts.ok_or("it does not answer")??;
        Ok(Self { version, deployment, facts })
    }

    /// Returns what kind of deployment it is.
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Plays a test, with a set of its own.
    ///
    /// # Errors
    ///
    /// Returns what made it fail.
    pub fn play(&self, file: &File, test: &Test) -> Result<(), Fault> {
        let begun = begin(self.version, self.deployment);
        let (simulation, client) = begun.map_err(|reason| Broken::new("the simulation", reason))?;
        let began = simulation.time().elapsed();
        let environment = VirtualTime { simulation: RefCell::new(simulation), began };
        Stage::new(environment, self.deployment, &client, &[]).play(file, test)
    }
}

/// Begins a simulation with a primary, and opens the runner's own client.
fn begin(
    version: ServerVersion,
    deployment: &Deployment,
) -> Result<(Simulation, virtual_time::Topology), String> {
    let options = ClusterOptions::new(SET, addresses());
    let options = options.with_keeps_data(true).with_version(version);
    let simulation = Simulation::of(options, SEED).map_err(|error| error.to_string())?;
    let mut simulation = simulation.with_latency(LATENCY);
    let options = Options::parse(&deployment.internal_uri()).map_err(|error| error.to_string())?;
    let client = simulation.topology(options).map_err(|error| error.to_string())?;
    simulation.run_for(BEGINNING);
    Ok((simulation, client))
}

/// The environment of a test in virtual time.
struct VirtualTime {
    simulation: RefCell<Simulation>,
    began: Duration,
}

impl Environment for VirtualTime {
    type Runtime = Runtime;

    fn now(&self) -> Instant {
        Instant::ZERO + (self.simulation.borrow().time().elapsed() - self.began)
    }

    fn open(
        &self,
        options: Options,
        _: &OpenClient,
        _: (&Log, &Spans),
    ) -> Result<Subject<Runtime>, Error> {
        let client = self.simulation.borrow_mut().topology(options)?;
        let events = client.subscribe();
        Ok((client, events))
    }

    fn spawn<F>(&self, call: impl FnOnce() -> F + Send + 'static) -> Background<CallResult>
    where
        F: Future<Output = CallResult> + Send + 'static,
    {
        let (background, completer) = Background::pending();
        let call = call();
        self.simulation.borrow_mut().spawn(async move { completer.complete(call.await) });
        background
    }

    fn wait(
        &self,
        until: Instant,
        mut look: impl FnMut(&mut Context<'_>) -> Vec<News>,
    ) -> Vec<News> {
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            let (news, now) = (look(&mut cx), self.now());
            if !news.is_empty() || now > until {
                return news;
            }
            self.simulation.borrow_mut().step(until - now + AFTER);
        }
    }
}
