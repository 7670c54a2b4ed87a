//! `sdam record`: a trace of what is found out about a deployment, for `sdam replay`.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use sdam_core::time::Instant;
use sdam_core::trace::MAX_TRACE_LEN;
use sdam_host::Recording;
use sdam_tokio::Topology;

use crate::complain;
use crate::duration::rfc_3339;
use crate::output;
use crate::preparation::{self, Observation, Preparation, PreparationError};

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam record 'mongodb://db1.example,db2.example/?replicaSet=rs0' -o failover.trace
  sdam record --uri-file staging.uri --for 10m -o - | gzip > staging.trace.gz

Exit codes:
  0    the trace is written, up to the end of --for or to a signal
  1    nothing can be recorded or written
  2    the arguments or the connection string are invalid, or the file exists
  130  SIGINT came before any server was known (143: SIGTERM)";

/// Records all that is found out about a deployment, as a trace that `sdam replay` reads.
///
/// It ends at Ctrl-C, after --for, or at SIGTERM, and the trace is whole then. No user name,
/// password or file of the connection string is in a trace. Without a connection string it records
/// an embedded demonstration deployment, as `sdam watch` shows it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    observation: Observation,
    /// The file to write, which must not exist yet; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write the file even if it exists
    #[arg(long)]
    force: bool,
}

/// The reason why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// It cannot begin.
    #[error(transparent)]
    Preparation(#[from] PreparationError),
    /// The file cannot be created.
    #[error("cannot create {}: {error}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Nothing more can be written.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl RecordError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Preparation(error) => error.exit_code(),
            Self::Create { .. } => 2,
            Self::Output(_) => 1,
        }
    }
}

/// Records until a signal or the time limit ends it.
pub(crate) fn run(args: Args) -> Result<(), RecordError> {
    match preparation::run(record(args)) {
        // The reader has seen enough.
        Err(RecordError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

async fn record(args: Args) -> Result<(), RecordError> {
    let begin = || {
        let out = output::create(&args.output, args.force)
            .map_err(|error| RecordError::Create { path: args.output.clone(), error })?;
        if io::stderr().is_terminal() {
            complain(&format_args!("recording to {}, until Ctrl-C", args.output.display()));
        }
        Ok(out)
    };
    let (_, lines) = tape(args.observation, begin).await?;
    let (file, name) = (&args.output, args.output.display());
    match output::is_standard(file) {
        true => complain(&format_args!("recorded {lines} lines")),
        false => complain(&format_args!("recorded {lines} lines to {name}")),
    }
    Ok(())
}

/// Records until a signal or the time limit ends it, to where `begin` says once something is to be
/// written: a file that is there stays as it is until then. Returns the number of lines, too.
pub(crate) async fn tape<W: Write>(
    observation: Observation,
    begin: impl FnOnce() -> Result<W, RecordError>,
) -> Result<(W, usize), RecordError> {
    let mut preparation = Preparation::new(observation).await?;
    preparation.banner().iter().for_each(|banner| complain(banner));
    let mut recording = Recording::everything();
    let connecting = Topology::builder(preparation.options.clone()).record(&recording).connect();
    let client = preparation.connected(connecting).await?;
    let Preparation { deployment: _deployment, mut shutdown, .. } = preparation;
    let mut out = begin()?;
    let began = rfc_3339(client.wall_clock(Instant::ZERO));
    recording.note(&format!("+0.000000000 was {began}"));
    let (mut written, mut count) = (0, 0);
    while let Some(lines) = shutdown.or(recording.next()).await {
        let Some(lines) = lines else {
            complain(&"the recording ends early, as it was not written fast enough");
            return Ok((out, count));
        };
        written += lines.len();
        if written > MAX_TRACE_LEN {
            complain(&"the recording ends here, as no longer one can be replayed");
            return Ok((out, count));
        }
        count += write(&mut out, &lines)?;
    }
    client.close().await;
    while let Some(lines) = recording.try_next() {
        count += write(&mut out, &lines)?;
    }
    Ok((out, count))
}

/// Writes whole lines at once, so that what is there when the process is killed is a trace too;
/// returns how many.
fn write(out: &mut dyn Write, lines: &str) -> Result<usize, RecordError> {
    let written = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    written.map(|()| lines.lines().count()).map_err(RecordError::Output)
}
