//! `sdam status`: one look at a deployment, with an exit code for scripts and probes.

mod report;
#[cfg(test)]
mod tests;
mod token;

use std::process::ExitCode;
use std::time::Duration;

use sdam_core::bson::rawdoc;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::description::{ServerDescription, ServerType, TopologyDescription, TopologyType};
use sdam_core::diagnosis::{SelectionError, Verdict};
use sdam_core::selection::Criteria;
use sdam_host::ErrorKind;
use sdam_tokio::Topology;

use self::report::{Status, WhyNot};
use self::token::Reach;
use crate::color::ColorChoice;
use crate::duration::{self, rfc_3339};
use crate::history::token_time;
use crate::preparation::{self, LookError, Preparation, PreparationError};
use crate::printer::Printer;
use crate::shutdown::{End, Shutdown};
use crate::target::Target;

/// The exit code of a call that makes no sense, or says nothing of the deployment.
pub(crate) const NOTHING_TO_SAY: u8 = 3;

/// The exit code if no server is available.
const NEITHER: u8 = 2;

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam status 'mongodb://db1.example,db2.example/?replicaSet=rs0'
  sdam status --uri-file production.uri --json
  until sdam status --uri-file staging.uri --for 2s; do sleep 1; done
  sdam status --uri-file production.uri --token @orders.token

Exit codes:
  0    writes find a server, and so do reads
  1    only reads find a server: there is no primary; or the --token is lost within a day
  2    neither does, or the hosts cannot be looked up; or the --token is lost
  3    nothing can be said: the arguments or the connection string are invalid, a file cannot be
       read, or nothing can be printed; or all is well but that nothing is known of the --token
  130  SIGINT came before the look was over (143: SIGTERM)
They are those of monitoring plugins: OK, WARNING, CRITICAL and UNKNOWN.";

/// Looks at a deployment once, and says in words what is wrong with it.
///
/// It waits until each server has answered or failed, or until --for is over. The table, or the
/// object of --json, is what is known then.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// The time to wait at most: a whole number and ms, s, m or h, as in 500ms or 30s
    #[arg(long = "for", visible_alias = "timeout", value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = duration::parse)]
    limit: Duration,
    /// Say whether the oplogs still reach back to this resume token of a change stream, and for how
    /// long: its JSON, the hexadecimal digits of its _data, or @PATH (or PATH) of the file of a
    /// checkpoint (FileCheckpointStore)
    #[arg(long, value_name = "TOKEN", value_parser = token_time)]
    token: Option<u64>,
    /// Print one JSON object, as STATUS.md describes it
    #[arg(long)]
    json: bool,
}

fn exit_code(error: &LookError) -> u8 {
    match error {
        // Without the addresses of the hosts there is no server.
        LookError::Preparation(PreparationError::NotLookedUp { .. }) => NEITHER,
        LookError::Preparation(PreparationError::Client(error))
            if error.kind() == ErrorKind::Dns =>
        {
            NEITHER
        }
        LookError::Preparation(PreparationError::Interrupted { signal, .. }) => signal.exit_code(),
        LookError::Preparation(_) | LookError::Output(_) => NOTHING_TO_SAY,
    }
}

/// The result of waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Look {
    /// Each server has answered or failed.
    Settled,
    /// The time was over before.
    Unsettled,
    /// A deployment that seems available has not done what was asked of it: the likely cause, and
    /// all that is known.
    Refused(Verdict, String),
}

/// Looks, prints, and returns the exit code.
pub(crate) fn run(args: &Args, color: ColorChoice) -> ExitCode {
    preparation::conclude(look(args, color), exit_code)
}

async fn look(args: &Args, color: ColorChoice) -> Result<u8, LookError> {
    let mut preparation = Preparation::of_named(&args.target, args.limit)?;
    let connecting = Topology::builder(preparation.options.clone()).connect();
    let client = preparation.connected(connecting).await?;
    let mut shutdown = preparation.shutdown;
    let looked = settle(&client, &mut shutdown).await;
    if let Some(End::Signal(signal)) = shutdown.end() {
        let before = "each server had answered or failed";
        return Err(PreparationError::Interrupted { signal, before }.into());
    }
    let mut status = status_of(&client, looked);
    if let Some(token) = args.token {
        status.token = Some(Reach::ask(&client, token, &mut shutdown).await);
    }
    client.close().await;
    Printer::report(color, |out| match args.json {
        true => status.print_json(out),
        false => status.print(out),
    })?;
    Ok(status.exit_code())
}

/// Waits until nothing more is to be expected, and returns what it came to.
async fn settle(client: &Topology, shutdown: &mut Shutdown) -> Look {
    let mut views = client.watch_topology();
    let settled = async {
        while let Some(view) = views.next().await {
            if view.topology_type == TopologyType::LoadBalanced {
                return ask(client).await;
            }
            if is_settled(&view) {
                return Look::Settled;
            }
        }
        Look::Unsettled
    };
    let is_behind_balancer = client.view().topology_type == TopologyType::LoadBalanced;
    match shutdown.or(settled).await {
        Some(look) => look,
        None if is_behind_balancer => {
            Look::Refused(Verdict::NoAnswer, "the load balancer has not answered".into())
        }
        None => Look::Unsettled,
    }
}

/// Asks a load balancer, which no monitor ever does, for a server that answers.
async fn ask(client: &Topology) -> Look {
    match client.run_command("admin", &rawdoc! { "ping": 1 }).await {
        Ok(_) => Look::Settled,
        Err(error) => Look::Refused(cause(client, &error), error.to_string()),
    }
}

/// Returns the likely cause for which a load balancer does not do what it was asked for.
fn cause(client: &Topology, error: &sdam_host::Error) -> Verdict {
    let view = client.view();
    let balancer = view.servers().iter().next().map(|server| &server.address);
    let of_failure = || {
        let waited = error.spent().unwrap_or_default().checking_out;
        Verdict::of_failure(balancer?, error.failure()?, waited)
    };
    let of_operation = || {
        let (server, command, reason) = (balancer?.clone(), "ping".to_owned(), error.to_string());
        Some(Verdict::OperationFailed { server, command, reason })
    };
    let known = error.verdict().cloned().or_else(of_failure).or_else(of_operation);
    known.unwrap_or(Verdict::NoServerAvailable)
}

/// Returns whether each server has answered or failed.
pub(crate) fn is_settled(view: &TopologyDescription) -> bool {
    let is_open = |server: &ServerDescription| {
        server.server_type == ServerType::Unknown && server.error.is_none()
    };
    !view.servers().iter().any(|server| is_open(server))
}

fn status_of(client: &Topology, look: Look) -> Status {
    let (now, view) = (client.now(), client.view());
    let (mut write, mut read) = reasons(&view, |criteria| client.diagnose(criteria));
    let is_settled = look != Look::Unsettled;
    if let Look::Refused(verdict, text) = look {
        write.get_or_insert(WhyNot::Operation(verdict.clone(), text.clone()));
        read.get_or_insert(WhyNot::Operation(verdict, text));
    }
    let time = rfc_3339(client.wall_clock(now));
    Status { view, is_settled, elapsed: now.since_origin(), time, write, read, token: None }
}

/// Returns why writes fail, and why reads do that take any server; `None` if they need not.
fn reasons(
    view: &TopologyDescription,
    diagnose: impl Fn(&Criteria) -> Option<Box<SelectionError>>,
) -> (Option<WhyNot>, Option<WhyNot>) {
    let any = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let write = diagnose(&Criteria::write()).map(WhyNot::Selection);
    let read = diagnose(&any).map(WhyNot::Selection);
    let takes_writes = |server_type| {
        use ServerType::{Mongos, RsPrimary, Standalone};
        matches!(server_type, Mongos | RsPrimary | Standalone)
    };
    (
        write.or_else(|| of_direct(view, takes_writes)),
        read.or_else(|| of_direct(view, ServerType::is_data_bearing)),
    )
}

/// Judges the server of a direct connection by its type, which selections leave out of account.
fn of_direct(view: &TopologyDescription, suits: impl Fn(ServerType) -> bool) -> Option<WhyNot> {
    let server = view.servers().iter().next()?;
    let is_direct = view.topology_type == TopologyType::Single;
    let verdict = || Verdict::WrongServerType {
        direct: Some(server.address.clone()),
        server_type: Some(server.server_type),
    };
    (is_direct && !suits(server.server_type)).then(|| WhyNot::Verdict(verdict()))
}
