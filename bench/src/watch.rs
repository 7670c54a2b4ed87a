//! Clients that watch all servers of a deployment and do nothing else, and how to know that they
//! see them.

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;
use mongodb::options::ClientOptions;
use sdam_async_std::Task;
use sdam_core::config::Options;
use sdam_core::description::{ServerType, TopologyDescription};

use crate::{Failure, THREADS, runtime};

/// The time that discovery may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The interval at which a view is looked at.
const PAUSE: Duration = Duration::from_millis(20);

/// Those who watch, in the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Watcher {
    /// The official driver.
    Mongodb,
    /// The official driver's API for threads.
    MongodbSync,
    /// This library under tokio, with two threads.
    Tokio,
    /// This library under smol's executor, with two threads.
    Smol,
    /// This library under async-std.
    AsyncStd,
    /// This library without any runtime.
    Blocking,
}

impl Watcher {
    /// Returns a client that sees all servers, which are mongos, and what it runs on.
    ///
    /// # Errors
    ///
    /// Fails if the client cannot be made, and if it does not see them in a minute.
    pub fn watch(self, uri: &str) -> Result<Box<dyn Any>, Failure> {
        match self {
            Self::Mongodb => {
                let runtime = runtime(THREADS)?;
                let (handler, views) = told();
                let client = runtime.block_on(async {
                    let mut options = ClientOptions::parse(uri).await?;
                    options.sdam_event_handler = Some(handler);
                    mongodb::Client::with_options(options)
                })?;
                hear(&views)?;
                Ok(Box::new((client, runtime)))
            }
            Self::MongodbSync => {
                let (handler, views) = told();
                let mut options = ClientOptions::parse(uri).run()?;
                options.sdam_event_handler = Some(handler);
                let client = mongodb::sync::Client::with_options(options)?;
                hear(&views)?;
                Ok(Box::new(client))
            }
            Self::Tokio => {
                let runtime = runtime(THREADS)?;
                let client = {
                    let _entered = runtime.enter();
                    sdam_tokio::Topology::new(Options::parse(uri)?)?
                };
                look(|| is_whole(&client.view()))?;
                Ok(Box::new((client, runtime)))
            }
            Self::Smol => {
                let executor = Arc::new(smol::Executor::new());
                for _ in 0..THREADS {
                    let executor = Arc::clone(&executor);
                    let forever = std::future::pending::<()>();
                    thread::spawn(move || smol::block_on(executor.run(forever)));
                }
                let spawn = move |task: Task| executor.spawn(task).detach();
                let client = sdam_async_std::builder_on(Options::parse(uri)?, spawn).build()?;
                look(|| is_whole(&client.view()))?;
                Ok(Box::new(client))
            }
            Self::AsyncStd => {
                let client = sdam_async_std::async_std::Topology::new(Options::parse(uri)?)?;
                look(|| is_whole(&client.view()))?;
                Ok(Box::new(client))
            }
            Self::Blocking => {
                let client = sdam_blocking::Topology::new(Options::parse(uri)?)?;
                look(|| is_whole(&client.view()))?;
                Ok(Box::new(client))
            }
        }
    }
}

/// Returns whether all servers have been found, which are mongos.
pub fn is_whole(view: &TopologyDescription) -> bool {
    view.servers().iter().all(|server| server.server_type == ServerType::Mongos)
}

/// Waits until it is done, with `pause` between two looks.
///
/// # Errors
///
/// Fails if it is not done after `limit`.
pub fn wait(
    limit: Duration,
    mut pause: impl FnMut(),
    done: impl Fn() -> bool,
) -> Result<(), Failure> {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > limit {
            return Err(format!("the servers were not all found in {limit:?}").into());
        }
        pause();
    }
    Ok(())
}

fn look(done: impl Fn() -> bool) -> Result<(), Failure> {
    wait(LIMIT, || thread::sleep(PAUSE), done)
}

/// The official driver shows its view in events only; for each, the handler sends whether all
/// servers are found.
fn told() -> (EventHandler<SdamEvent>, Receiver<bool>) {
    let (tell, views) = channel();
    let handler = EventHandler::callback(move |event| {
        if let SdamEvent::TopologyDescriptionChanged(event) = event {
            let servers = event.new_description.servers();
            let mut known = servers.values();
            let whole = known.all(|server| server.server_type() == mongodb::ServerType::Mongos);
            // The receiver may be gone.
            let _ = tell.send(whole);
        }
    });
    (handler, views)
}

fn hear(views: &Receiver<bool>) -> Result<(), Failure> {
    while !views.recv_timeout(LIMIT)? {}
    Ok(())
}
