//! Those who watch, and how to know that they see all servers.

use std::any::Any;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;
use sdam_async_std::Task;
use sdam_core::config::Options;
use sdam_core::description::{ServerType, TopologyDescription};

use crate::Failure;

/// The time that discovery may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The interval at which the view is looked at.
const PAUSE: Duration = Duration::from_millis(20);

/// Those who watch, in the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Competitor {
    /// The official driver.
    Mongodb,
    /// This library under tokio, with two threads.
    Tokio,
    /// This library under smol's executor, with two threads.
    Smol,
    /// This library under async-std.
    AsyncStd,
    /// This library without any runtime.
    Blocking,
}

impl Competitor {
    /// Returns the name on the command line and in the table.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("no variant is skipped").get_name().to_owned()
    }

    /// Returns a client that sees all servers, and what it runs on.
    pub(crate) fn watch(self, uri: &str) -> Result<Box<dyn Any>, Failure> {
        match self {
            Self::Mongodb => official(uri),
            Self::Tokio => {
                let runtime = tokio()?;
                let _entered = runtime.enter();
                let client = sdam_tokio::Client::new(Options::parse(uri)?)?;
                wait(|| is_whole(&client.view()))?;
                drop(_entered);
                Ok(Box::new((client, runtime)))
            }
            Self::Smol => {
                let executor = Arc::new(smol::Executor::new());
                for _ in 0..2 {
                    let executor = Arc::clone(&executor);
                    let forever = std::future::pending::<()>();
                    thread::spawn(move || smol::block_on(executor.run(forever)));
                }
                let spawn = move |task: Task| executor.spawn(task).detach();
                let client = sdam_async_std::builder_on(Options::parse(uri)?, spawn).build()?;
                wait(|| is_whole(&client.view()))?;
                Ok(Box::new(client))
            }
            Self::AsyncStd => {
                let client = sdam_async_std::async_std::Client::new(Options::parse(uri)?)?;
                wait(|| is_whole(&client.view()))?;
                Ok(Box::new(client))
            }
            Self::Blocking => {
                let client = sdam_blocking::Client::new(Options::parse(uri)?)?;
                wait(|| is_whole(&client.view()))?;
                Ok(Box::new(client))
            }
        }
    }
}

fn tokio() -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

pub(crate) fn is_whole(view: &TopologyDescription) -> bool {
    view.servers().iter().all(|server| server.server_type == ServerType::Mongos)
}

fn wait(done: impl Fn() -> bool) -> Result<(), Failure> {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > LIMIT {
            return Err("the servers were not all found in a minute".into());
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The official driver shows its view in events only.
fn official(uri: &str) -> Result<Box<dyn Any>, Failure> {
    let (told, views) = std::sync::mpsc::channel();
    let runtime = tokio()?;
    let client = runtime.block_on(async {
        let mut options = mongodb::options::ClientOptions::parse(uri).await?;
        options.sdam_event_handler = Some(EventHandler::callback(move |event| {
            if let SdamEvent::TopologyDescriptionChanged(event) = event {
                let servers = event.new_description.servers();
                let known = servers.values();
                let whole = known
                    .into_iter()
                    .all(|server| server.server_type() == mongodb::ServerType::Mongos);
                // Whoever is not waiting any more need not know.
                let _ = told.send(whole);
            }
        }));
        mongodb::Client::with_options(options)
    })?;
    while !views.recv_timeout(LIMIT)? {}
    drop(views);
    Ok(Box::new((client, runtime)))
}
