//! `sdam cluster`: an embedded deployment for people and for drivers of any language.
//!
//! The map: `flags` say what is started; a `step` is what may happen to it, from a `scenario` file
//! or, as `inputs`, from keys or lines; `stage` takes the steps, and `report` prints what happens.

mod flags;
mod inputs;
mod report;
mod scenario;
mod stage;
mod step;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use sdam_cluster::{ClientName, ClusterEvent, EmbeddedCluster, encoded};
use tokio::runtime;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::{Instant, sleep_until};

pub(crate) use self::flags::Args;
use self::flags::FlagError;
use self::inputs::{HELP, Input, Inputs};
use self::report::News;
use self::scenario::{Scenario, ScenarioError};
use self::stage::{Refusal, Stage};
use self::step::Step;
use crate::news::Report;
use crate::open_files;
use crate::shutdown::Shutdown;

/// The number of different clients that are reported.
const MAX_CLIENTS: usize = 1000;

/// The reason why there is no deployment, or no more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// The flags do not describe a deployment.
    #[error(transparent)]
    Flags(#[from] FlagError),
    /// The scenario is none.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A port cannot be bound, or the flags contradict each other.
    #[error("cannot start the deployment: {0}")]
    Start(io::Error),
    /// The deployment has ended by itself.
    #[error(transparent)]
    Lost(#[from] Refusal),
    /// Nothing more can be printed.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl ClusterError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Flags(_) | Self::Scenario(_) => 2,
            Self::Start(error) if error.kind() == io::ErrorKind::InvalidInput => 2,
            Self::Start(_) | Self::Lost(_) | Self::Output(_) => 1,
        }
    }
}

/// Runs a deployment until the user, a signal or the time limit ends it.
pub(crate) fn run(args: &Args) -> Result<(), ClusterError> {
    let options = args.options()?;
    open_files::allow_many();
    let scenario = match &args.scenario {
        Some(file) => Scenario::read(file, args.count(), args.has_mongos())?,
        None => Scenario::default(),
    };
    // Output blocks this thread when it is not read; the deployment lives on another one, and goes
    // on answering.
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(ClusterError::Start)?;
    let result = runtime.block_on(async {
        let users = options.users.clone();
        let cluster = EmbeddedCluster::start_with(options, |id, it| args.adjust(id, it));
        let cluster = cluster.await.map_err(ClusterError::Start)?;
        let play = Play {
            uri: uri(&cluster, args.ca_file()),
            events: cluster.subscribe().await.map_err(ClusterError::Start)?,
            stage: Stage::new(cluster, args.has_mongos(), users),
            scenario,
            clients: BTreeSet::new(),
            begun: Instant::now(),
        };
        play.run(args).await
    });
    runtime.shutdown_background();
    match result {
        // The reader has seen enough.
        Err(ClusterError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Returns the connection string, with the file that says whom to trust.
fn uri(cluster: &EmbeddedCluster, ca_file: Option<&Path>) -> String {
    let uri = cluster.uri();
    let Some(file) = ca_file else { return uri };
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let file = encoded(&file.to_string_lossy());
    format!("{uri}&tlsCAFile={file}")
}

/// A deployment, and what is to happen to it.
struct Play {
    uri: String,
    events: Receiver<ClusterEvent>,
    stage: Stage,
    scenario: Scenario,
    /// The clients that were reported.
    clients: BTreeSet<ClientName>,
    begun: Instant,
}

impl Play {
    async fn run(mut self, args: &Args) -> Result<(), ClusterError> {
        self.stage.slow(None, args.hello_latency).await?;
        let mut shutdown = Shutdown::arrange(args.limit).map_err(ClusterError::Start)?;
        let mut inputs = Inputs::listen().map_err(ClusterError::Start)?;
        let mut report = Report::new(io::stdout(), args.json, inputs.is_raw());
        let members = self.stage.addresses();
        let mut news = vec![News::Ready { uri: self.uri.clone(), members }];
        if inputs.is_raw() {
            news.push(News::Help { text: HELP.to_owned() });
        }
        loop {
            for it in news.drain(..) {
                report.print(self.begun.elapsed(), &it).map_err(ClusterError::Output)?;
            }
            let due = self.scenario.next_at().map(|at| self.begun + at);
            let due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let step = tokio::select! {
                event = self.events.recv() => {
                    news.extend(self.hear(event));
                    continue;
                }
                () = due => self.scenario.take(),
                input = inputs.next() => match input {
                    Input::Step(step) => Some(step),
                    Input::Wrong(error) => {
                        news.push(News::Refused { step: "?".into(), reason: error.to_string() });
                        continue;
                    }
                    Input::Help => {
                        news.push(News::Help { text: help(inputs.is_raw()) });
                        continue;
                    }
                },
                () = shutdown.reached() => return Ok(()),
            };
            match step {
                Some(Step::Quit) => return Ok(()),
                Some(step) => news.push(self.take(&step).await?),
                None => {}
            }
        }
    }

    async fn take(&mut self, step: &Step) -> Result<News, ClusterError> {
        if *step == Step::List {
            return Ok(News::Members { members: self.stage.describe().await? });
        }
        let written = step.to_string();
        Ok(match self.stage.take(step).await {
            Ok(()) => News::Done { step: written },
            Err(refusal) => News::Refused { step: written, reason: refusal.to_string() },
        })
    }

    fn hear(&mut self, event: Result<ClusterEvent, RecvError>) -> Option<News> {
        match event {
            Ok(ClusterEvent::SaidHello { client, .. })
                if self.clients.len() >= MAX_CLIENTS || self.clients.contains(&client) =>
            {
                None
            }
            Ok(event) => {
                if let ClusterEvent::SaidHello { client, .. } = &event {
                    self.clients.insert(client.clone());
                }
                News::of(event)
            }
            Err(RecvError::Lagged(count)) => Some(News::Lost { count }),
            // The deployment goes before its events do.
            Err(RecvError::Closed) => None,
        }
    }
}

fn help(is_raw: bool) -> String {
    match is_raw {
        true => HELP.to_owned(),
        false => format!("write one of: {}", step::STEPS.replace('\n', ", ")),
    }
}
