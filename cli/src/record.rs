//! `sdam record`: a trace of what is found out about a deployment, for `sdam replay`.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sdam_core::address_map::{AddressMap, AddressMapError};
use sdam_core::host::Recording;
use sdam_core::options::{Options, OptionsError};
use sdam_core::time::Instant;
use sdam_tokio::{Client, ClientError};
use tokio::runtime;

use crate::embedded::{self, EmbeddedError};
use crate::watch::{Ending, rfc_3339};
use crate::{complain, duration};

/// Records all that is found out about a deployment, as a trace that `sdam replay` reads.
///
/// It ends at Ctrl-C. No user name, password or file of the connection string is in a trace.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The connection string, mongodb://…; without it, an embedded deployment is started
    uri: Option<String>,
    /// The file to write, which must not exist yet; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write the file even if it exists
    #[arg(long)]
    force: bool,
    /// End after this time: a whole number and ms, s, m or h, as in 500ms or 30s
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    limit: Option<Duration>,
    /// Dial TO for the server that advertises FROM, as `sdam watch` does
    #[arg(long, value_name = "FROM=TO")]
    map: Vec<String>,
}

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The connection string cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// What servers are to be dialled as is not clear.
    #[error("--map: {0}")]
    Map(#[from] AddressMapError),
    /// The file cannot be created.
    #[error("cannot create {}: {error}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// There is no embedded deployment.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// The client could not be created.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The runtime could not be started, or cannot receive signals.
    #[error("cannot start: {0}")]
    Start(#[source] io::Error),
    /// Nothing more can be written.
    #[error("cannot write: {0}")]
    Output(#[source] io::Error),
}

impl RecordError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Options(_) | Self::Map(_) | Self::Create { .. } => 2,
            Self::Embedded(_) | Self::Client(_) | Self::Start(_) | Self::Output(_) => 1,
        }
    }
}

/// Records until a signal or the time limit ends it.
pub(crate) fn run(args: Args) -> Result<(), RecordError> {
    // Writing blocks this thread; the client lives on another one.
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(RecordError::Start)?;
    let result = runtime.block_on(record(args));
    runtime.shutdown_background();
    result
}

async fn record(args: Args) -> Result<(), RecordError> {
    let rules: Result<Vec<_>, _> = args.map.iter().map(|rule| rule.parse()).collect();
    let map = AddressMap::new(rules?)?;
    let (_deployment, uri) = match args.uri {
        Some(uri) => (None, uri),
        None => {
            let (deployment, uri) = embedded::start().await?;
            complain(&embedded::BANNER);
            (Some(deployment), uri)
        }
    };
    let options = Options::builder()
        .uri(&uri)?
        .environment(sdam_tokio::environment())
        .address_map(map)
        .build()?;
    for warning in options.warnings() {
        complain(&format_args!("warning: {warning}"));
    }
    let mut out = create(&args.output, args.force)?;
    if io::stderr().is_terminal() {
        complain(&format_args!("recording to {}, until Ctrl-C", args.output.display()));
    }
    let mut ending = Ending::arrange(args.limit).map_err(RecordError::Start)?;
    let mut recording = Recording::everything();
    let client = tokio::select! {
        connected = Client::builder(options).record(&recording).connect() => connected?,
        () = ending.reached() => return Ok(()),
    };
    let began = rfc_3339(client.wall_clock(Instant::ZERO));
    recording.note(&format!("+0.000000000 was {began}"));
    loop {
        let lines = tokio::select! {
            lines = recording.next() => lines,
            () = ending.reached() => break,
        };
        match lines {
            Some(lines) => write(&mut out, &lines)?,
            None => return Ok(()),
        }
    }
    client.close().await;
    while let Some(lines) = recording.try_next() {
        write(&mut out, &lines)?;
    }
    Ok(())
}

fn create(path: &Path, force: bool) -> Result<Box<dyn Write>, RecordError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let mut options = File::options();
    options.write(true).truncate(true).create(true).create_new(!force);
    match options.open(path) {
        Ok(file) => Ok(Box::new(BufWriter::new(file))),
        Err(error) => Err(RecordError::Create { path: path.to_owned(), error }),
    }
}

/// Writes whole lines at once, so that what is there when the process is killed is a trace too.
fn write(out: &mut dyn Write, lines: &str) -> Result<(), RecordError> {
    out.write_all(lines.as_bytes()).and_then(|()| out.flush()).map_err(RecordError::Output)
}
