//! The beginning of commands that look at a deployment: options to connect to it, and when it is
//! over.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use sdam_core::config::{Options, OptionsBuilder, OptionsError, PoolOptions, ProxyOptions};
use sdam_host::system::Certificates;
use tokio::runtime;

use crate::embedded::{self, Deployment, EmbeddedError};
use crate::shutdown::{End, Shutdown, Signal};
use crate::target::{Target, TargetError};
use crate::{complain, duration};

/// The interval at which a slow lookup is reported.
const PROGRESS: Duration = Duration::from_secs(2);

/// The deployment, and the time for which it is observed.
#[derive(Debug, clap::Args)]
pub(crate) struct Observation {
    #[command(flatten)]
    target: Target,
    /// End after this time: a whole number and ms, s, m or h, as in 500ms or 30s
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    limit: Option<Duration>,
}

impl Observation {
    /// Returns the argument that names what is looked at, if there is one.
    pub(crate) fn argument(&self) -> Option<&str> {
        self.target.argument()
    }

    /// Returns whether other addresses are to be dialled than those that servers advertise.
    pub(crate) const fn is_mapped(&self) -> bool {
        self.target.is_mapped()
    }

    /// Returns after which time it ends, if it ends by itself.
    pub(crate) const fn limit(&self) -> Option<Duration> {
        self.limit
    }
}

/// The reason why it cannot begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PreparationError {
    /// The connection string cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// It is not clear which deployment is meant.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is no embedded deployment.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// The client could not be created.
    #[error(transparent)]
    Client(#[from] sdam_host::Error),
    /// The files of TLS that the connection string names cannot be used.
    #[error("{0}")]
    Certificates(String),
    /// The time was up before the hosts were known.
    #[error(
        "the SRV records of {host} were not found in {}: no name server has answered",
        duration::precise(*limit)
    )]
    NotLookedUp {
        /// The name that was looked up.
        host: String,
        /// The time that it was allowed to take.
        limit: Duration,
    },
    /// A signal came before it was done.
    #[error("interrupted before {before}")]
    Interrupted {
        /// The signal.
        signal: Signal,
        /// The moment that it did not come to.
        before: &'static str,
    },
    /// There are two ways to the servers.
    #[error(
        "the connection string has a proxyHost, and --ssh is another way; leave out one of them"
    )]
    TwoWays,
    /// Nothing says in which database a bucket is.
    #[error(
        "--gridfs takes a database: name it by --database, or in the connection string \
         (mongodb://…/DATABASE)"
    )]
    NoDatabase,
    /// The runtime could not be started, or cannot receive signals.
    #[error("cannot start: {0}")]
    Start(io::Error),
}

/// The reason why a look at a deployment cannot say anything of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    /// It cannot begin, or was interrupted.
    #[error(transparent)]
    Preparation(#[from] PreparationError),
    /// It cannot be printed.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl From<io::Error> for LookError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl PreparationError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Options(_)
            | Self::Target(_)
            | Self::Certificates(_)
            | Self::TwoWays
            | Self::NoDatabase => 2,
            Self::Interrupted { signal, .. } => signal.exit_code(),
            Self::Embedded(_) | Self::Client(_) | Self::NotLookedUp { .. } | Self::Start(_) => 1,
        }
    }
}

/// The state before there is a client.
#[derive(Debug)]
pub(crate) struct Preparation {
    /// The embedded deployment, which ends when this is dropped.
    pub(crate) deployment: Option<Deployment>,
    /// Options for a client that only monitors.
    pub(crate) options: Options,
    /// The time when it is over.
    pub(crate) shutdown: Shutdown,
    /// After which time, if there is one.
    pub(crate) limit: Option<Duration>,
}

impl Preparation {
    /// Starts a deployment if none is named, and prints warnings about the connection string.
    pub(crate) async fn new(wanted: Observation) -> Result<Self, PreparationError> {
        let (deployment, uri) = match wanted.target.uri()? {
            Some(uri) => (None, uri),
            None => {
                let (deployment, uri) = embedded::start().await?;
                (Some(deployment), uri)
            }
        };
        let options = monitoring(builder(&wanted.target, &uri)?)?;
        let shutdown = Shutdown::arrange(wanted.limit).map_err(PreparationError::Start)?;
        Ok(Self { deployment, options, shutdown, limit: wanted.limit })
    }

    /// Prepares a look at a deployment that must be named.
    pub(crate) fn of_named(target: &Target, limit: Duration) -> Result<Self, PreparationError> {
        let uri = target.uri()?.ok_or(TargetError::Missing)?;
        let options = monitoring(builder(target, &uri)?)?;
        let shutdown = Shutdown::arrange(Some(limit)).map_err(PreparationError::Start)?;
        Ok(Self { deployment: None, options, shutdown, limit: Some(limit) })
    }

    /// Prepares a long look at a deployment that must be named, through a proxy if one is given;
    /// returns the options as they are written, too.
    pub(crate) fn through(
        wanted: &Observation,
        proxy: Option<ProxyOptions>,
    ) -> Result<(Self, Options), PreparationError> {
        let (target, limit) = (&wanted.target, wanted.limit);
        let uri = target.uri()?.ok_or(TargetError::Missing)?;
        let mut builder = builder(target, &uri)?;
        let written = builder.clone().build()?;
        if let Some(proxy) = proxy {
            if written.proxy().is_some() {
                return Err(PreparationError::TwoWays);
            }
            builder = builder.proxy(proxy);
        }
        let options = monitoring(builder)?;
        let shutdown = Shutdown::arrange(limit).map_err(PreparationError::Start)?;
        Ok((Self { deployment: None, options, shutdown, limit }, written))
    }

    /// Waits for the client, and says from time to time what that waits for.
    pub(crate) async fn connected<T>(
        &mut self,
        connecting: impl Future<Output = Result<T, sdam_host::Error>>,
    ) -> Result<T, PreparationError> {
        let host = self.options.srv().map(|srv| srv.hostname.to_string());
        let report = async {
            let mut waited = Duration::ZERO;
            loop {
                tokio::time::sleep(PROGRESS).await;
                waited += PROGRESS;
                if let Some(host) = &host {
                    let waited = duration::rounded(waited);
                    complain(&format_args!("looking up the SRV records of {host}, for {waited}"));
                }
            }
        };
        let connecting = async {
            tokio::select! {
                connected = connecting => connected,
                () = report => unreachable!("the reports have no end"),
            }
        };
        match (self.shutdown.or(connecting).await, self.shutdown.end()) {
            (Some(connected), _) => Ok(connected?),
            (None, Some(End::Signal(signal))) => {
                let before = "any server was known";
                Err(PreparationError::Interrupted { signal, before })
            }
            (None, _) => Err(PreparationError::NotLookedUp {
                host: host.unwrap_or_default(),
                limit: self.limit.unwrap_or_default(),
            }),
        }
    }

    /// Returns what is to be said of the embedded deployment, if there is one.
    pub(crate) fn banner(&self) -> Option<&'static str> {
        self.deployment.as_ref().map(|_| embedded::BANNER)
    }
}

/// Reads a connection string.
fn builder(target: &Target, uri: &str) -> Result<OptionsBuilder, PreparationError> {
    Ok(Options::builder().uri(uri)?.address_map(target.address_map()?))
}

/// Makes options for a client that only monitors, prints warnings about them, and tries the files
/// that they name.
fn monitoring(builder: OptionsBuilder) -> Result<Options, PreparationError> {
    // An observer uses no connections.
    let options = builder.pool(PoolOptions::default()).build()?;
    for warning in options.warnings() {
        complain(&format_args!("warning: {warning}"));
    }
    check_certificates(&options)?;
    Ok(options)
}

/// Reads the files of TLS that the options name, before any connection would.
fn check_certificates(options: &Options) -> Result<(), PreparationError> {
    let Some(tls) = options.tls() else { return Ok(()) };
    let files = [("tlsCAFile", &tls.ca_file), ("tlsCertificateKeyFile", &tls.certificate_key_file)];
    let mut named = files.iter().filter_map(|(option, path)| Some((option, path.as_ref()?)));
    let Some((option, path)) = named.next() else { return Ok(()) };
    let Err(failure) = Certificates::of_files(tls.clone()).load() else { return Ok(()) };
    Err(PreparationError::Certificates(match failure.detail.contains(path.as_str()) {
        true => failure.detail.to_string(),
        false if named.next().is_some() => failure.detail.to_string(),
        false => format!("cannot use the {option} {path}: {}", failure.detail),
    }))
}

/// Does what ends with an exit code, that of an error if it fails, which is printed then.
pub(crate) fn conclude(
    work: impl Future<Output = Result<u8, LookError>>,
    exit_code: impl FnOnce(&LookError) -> u8,
) -> ExitCode {
    let code = run(work).unwrap_or_else(|error| {
        complain(&error);
        exit_code(&error)
    });
    ExitCode::from(code)
}

/// Does all of it on this thread. Output blocks it when it is not read; the client lives on another
/// one, so that its heartbeats do not wait too.
pub(crate) fn run<T, E: From<PreparationError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(PreparationError::Start)?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}
