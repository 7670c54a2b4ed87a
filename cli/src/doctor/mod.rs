//! `sdam doctor`: goes the whole way to a deployment, as an application would, and says the first
//! true cause of what is wrong.
//!
//! [`probe`] gathers [`evidence`], plain values; [`rules`] judge it without touching anything, and
//! [`report`] prints both.

mod evidence;
mod finding;
mod probe;
mod report;
mod rules;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use sdam_core::config::address_map::AddressMap;
use sdam_core::config::{Options, OptionsError, ProxyOptions, Warning};
use sdam_core::diagnosis::other_timeout;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use self::evidence::{BucketSeen, Evidence, Identity, OptionsSeen, Role, ServerSeen};
use self::finding::Finding;
use self::probe::Means;
use self::probe::client::Watcher;
use self::probe::gridfs::Bucket;
use self::report::Report;
use crate::color::ColorChoice;
use crate::duration::rfc_3339;
use crate::history::token_time;
use crate::preparation::{self, LookError, PreparationError};
use crate::printer::Printer;
use crate::shutdown::{End, Shutdown};
use crate::target::{Target, TargetError};
use crate::{complain, duration};

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam doctor 'mongodb://db1.example,db2.example/?replicaSet=rs0'
  sdam doctor --uri-file production.uri --json
  sdam doctor --uri-file production.uri --watch --for 2m
  sdam doctor mongodb+srv://cluster0.example.com --name-server 9.9.9.9
  sdam doctor --uri-file production.uri --token @orders.token
  sdam doctor --uri-file production.uri --database shop --gridfs fs --for 10m

Exit codes:
  0    nothing is wrong
  1    something is wrong, or nothing can be reached
  2    the arguments, the connection string or a file that it names are invalid, or nothing can be
       printed
  130  SIGINT came before it was over (143: SIGTERM)";

/// Finds out why applications cannot reach a deployment, or may soon lose it, and what to do.
///
/// It goes the whole way: options, DNS, routes, proxy, TLS, hello, login, the members as they see
/// each other, clocks, load and transactions. The first true cause comes first, in one sentence,
/// then what to do, and then the evidence. It writes nothing: one delete that matches nothing shows
/// whether a primary takes writes. With --gridfs, it looks at a bucket, too.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// The time to take at most: a whole number and ms, s, m or h, as in 500ms or 30s
    #[arg(long = "for", visible_alias = "timeout", value_name = "DURATION")]
    #[arg(default_value = "10s", value_parser = duration::parse)]
    limit: Duration,
    /// Watch for all of --for, or until Ctrl-C, for what shows over time only: idle connections
    /// that are cut, times at which this process does not run
    #[arg(long)]
    watch: bool,
    /// Ask this name server, too, for SRV and TXT records; may be repeated
    #[arg(long, value_name = "ADDRESS", value_parser = name_server)]
    name_server: Vec<SocketAddr>,
    /// Say whether the oplog still reaches back to this resume token of a change stream, and for
    /// how long: its JSON, the hexadecimal digits of its _data, or @PATH (or PATH) of the file of a
    /// checkpoint (FileCheckpointStore)
    #[arg(long, value_name = "TOKEN", value_parser = token_time)]
    token: Option<u64>,
    /// Look at this bucket of GridFS, too (fs, unless applications name another one): at all
    /// chunks, though not at their bytes. Allow time for that by --for
    #[arg(long, value_name = "BUCKET")]
    gridfs: Option<String>,
    /// The database of the bucket; without it, that of the connection string
    #[arg(long, value_name = "DATABASE", requires = "gridfs")]
    database: Option<String>,
    /// Remove chunks of which there is no file, all of them older than --grace. They are gone then,
    /// also for uploads that would go on from a checkpoint
    #[arg(long, requires = "gridfs")]
    remove_orphans: bool,
    /// The age from which on chunks without a file are of no upload under way
    #[arg(long, value_name = "DURATION", requires = "gridfs")]
    #[arg(default_value = "24h", value_parser = duration::parse)]
    grace: Duration,
    /// Print one JSON object, as DOCTOR.md describes it
    #[arg(long)]
    json: bool,
}

/// The port of name servers.
const DNS_PORT: u16 = 53;

/// Reads the address of a name server, whose port may be left out.
fn name_server(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse().or_else(|_| text.parse().map(|ip| SocketAddr::new(ip, DNS_PORT)));
    address.map_err(|_| "write an IP address, and a port if it is not 53".to_owned())
}

/// The exit code of a call that makes no sense.
const NO_SENSE: u8 = 2;

const fn exit_code(error: &LookError) -> u8 {
    match error {
        LookError::Preparation(PreparationError::Interrupted { signal, .. }) => signal.exit_code(),
        LookError::Preparation(_) | LookError::Output(_) => NO_SENSE,
    }
}

/// The time that is left for logins when an election is waited for.
const LOGIN: Duration = Duration::from_secs(3);

/// The part of `--for` that is left for printing.
const REST: Duration = Duration::from_millis(100);

/// The time that noting what was found may take besides, if the process was stopped until then:
/// nothing is begun in it.
const NOTING: Duration = Duration::from_secs(1);

/// Examines, prints, and returns the exit code.
pub(crate) fn run(args: &Args, color: ColorChoice) -> ExitCode {
    preparation::conclude(examine(args, color), exit_code)
}

async fn examine(args: &Args, color: ColorChoice) -> Result<u8, LookError> {
    let begun = Instant::now();
    let uri = args.target.uri().map_err(PreparationError::from)?;
    let uri = uri.ok_or(PreparationError::from(TargetError::Missing))?;
    let map = args.target.address_map().map_err(PreparationError::from)?;
    let mut shutdown = Shutdown::arrange(Some(args.limit)).map_err(PreparationError::Start)?;
    let parsed = parse(&uri, map);
    let bucket = match &parsed {
        Ok(options) => bucket(args, options)?,
        Err(_) => None,
    };
    let notebook = Notebook::default();
    notebook.write().options = options_seen(&parsed);
    notebook.write().limit = args.limit;
    notebook.write().token = args.token;
    if let Ok(options) = parsed {
        let watch = Watch::default();
        let mut work = pin!(gather(options, args, bucket, (&notebook, &watch), begun));
        if shutdown.or(&mut work).await.is_none() {
            if let Some(End::Signal(signal)) = shutdown.end()
                && !watch.end()
            {
                let before = "everything was looked at";
                return Err(PreparationError::Interrupted { signal, before }.into());
            }
            let _ = timeout(NOTING, work).await;
        }
    }
    let evidence = notebook.write().clone();
    let findings = rules::judge(&evidence);
    let time = rfc_3339(SystemTime::now());
    let report = Report { time, elapsed: begun.elapsed(), findings, evidence };
    Printer::report(color, |out| match args.json {
        true => report.print_json(out),
        false => report.print(out),
    })?;
    Ok(match report.findings.iter().any(Finding::is_of_the_call) {
        true => NO_SENSE,
        false => u8::from(!report.is_healthy()),
    })
}

/// Returns the bucket that is to be looked at, if one is.
fn bucket(args: &Args, options: &Options) -> Result<Option<Bucket>, PreparationError> {
    let Some(name) = args.gridfs.clone() else { return Ok(None) };
    let database = args.database.as_deref().or(options.database());
    let database = database.ok_or(PreparationError::NoDatabase)?.to_owned();
    let (removes, grace) = (args.remove_orphans, args.grace);
    Ok(Some(Bucket { database, name, removes, grace }))
}

/// Reads a connection string, for a client that keeps no connections ready.
fn parse(uri: &str, map: AddressMap) -> Result<Options, OptionsError> {
    let builder = Options::builder().uri(uri)?.address_map(map);
    let pool = builder.clone().build()?.pool().clone().with_min_pool_size(0);
    builder.pool(pool).build()
}

/// The evidence so far, which is there even if time is over in the middle of a step.
#[derive(Clone, Debug, Default)]
struct Notebook(Arc<Mutex<Evidence>>);

impl Notebook {
    fn write(&self) -> MutexGuard<'_, Evidence> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that there can be no client.
    fn fail(&self, error: &sdam_host::Error) {
        let mut evidence = self.write();
        evidence.client.error = Some(error.to_string());
        evidence.complete = true;
    }
}

/// The time of `--watch` after everything was looked at, which a signal may end.
#[derive(Debug, Default)]
struct Watch {
    has_begun: AtomicBool,
    ended: Notify,
}

impl Watch {
    /// Watches until the deadline, or until that is enough.
    async fn until(&self, deadline: Instant) {
        self.has_begun.store(true, Ordering::Relaxed);
        complain(&"everything was looked at; watching until --for is over, or Ctrl-C");
        let _ = timeout_at(deadline, self.ended.notified()).await;
    }

    /// Ends it; returns false if it has not begun.
    fn end(&self) -> bool {
        self.ended.notify_one();
        self.has_begun.load(Ordering::Relaxed)
    }
}

/// Gathers evidence, and notes it as it comes.
async fn gather(
    options: Options,
    args: &Args,
    bucket: Option<Bucket>,
    (notebook, watch): (&Notebook, &Watch),
    begun: Instant,
) {
    let deadline = begun + args.limit.saturating_sub(REST);
    let pauses = notebook.clone();
    let paused = probe::pause::watch(begun, move |pause| pauses.write().pauses.push(pause));
    tokio::select! {
        // It looks at the clock before anything is connected to.
        biased;
        () = paused => {}
        () = go_the_way(options, args, bucket, (notebook, watch), deadline) => {}
    }
}

/// Goes the whole way, and notes when it has come to its end.
async fn go_the_way(
    mut options: Options,
    args: &Args,
    bucket: Option<Bucket>,
    (notebook, watch): (&Notebook, &Watch),
    deadline: Instant,
) {
    if let Some(srv) = options.srv().filter(|_| options.seeds().is_empty()).cloned() {
        let found = probe::dns::look_up(&options, &srv, &args.name_server, args.limit).await;
        let is_cut = found.lookups.is_cut();
        notebook.write().lookups = Some(found.lookups);
        match found.options {
            Some(complete) => options = complete,
            None => return notebook.write().complete = !is_cut,
        }
        notebook.write().options = options_seen(&Ok(options.clone()));
    }
    let means = match Means::new(options, (deadline, args.limit)) {
        Ok(means) => means,
        Err(error) => return notebook.fail(&error),
    };
    let watcher = match Watcher::start(&means) {
        Ok(watcher) => watcher,
        Err(error) => return notebook.fail(&error),
    };
    let look = async |progress: &dyn Fn(&[ServerSeen])| {
        let servers = probe::server::all(&means, watcher.client(), progress);
        tokio::join!(servers, watcher.settled(deadline))
    };
    let noted = |servers: &[ServerSeen]| note(notebook, &watcher, servers, false);
    let (mut servers, mut is_settled) = look(&noted).await;
    note(notebook, &watcher, &servers, is_settled);
    let latest = deadline - LOGIN.min(args.limit / 3);
    if Instant::now() < latest
        && awaits_election(&means, &servers)
        && watcher.has_primary(latest).await
    {
        // An election has ended meanwhile.
        let (again, settled) = look(&|_| {}).await;
        (servers, is_settled) = (better(servers, again), settled);
    }
    note(notebook, &watcher, &servers, is_settled);
    if let Some(bucket) = &bucket {
        let noted = |seen: &BucketSeen| notebook.write().bucket = Some(seen.clone());
        probe::gridfs::look(watcher.client(), &means, bucket, &noted).await;
    }
    if args.watch {
        watch.until(deadline).await;
        note(notebook, &watcher, &servers, is_settled);
    }
    notebook.write().complete = !servers.iter().any(ServerSeen::is_cut);
    watcher.close().await;
}

/// Returns whether members of a set were found, and none of them is primary yet.
fn awaits_election(means: &Means, servers: &[ServerSeen]) -> bool {
    let mut roles = servers.iter().filter_map(|it| it.greeting()).map(|it| it.role);
    !means.options().direct_connection()
        && roles.clone().any(Role::is_member)
        && !roles.any(|role| role == Role::Primary)
}

/// Returns the second look, or the first one if there was too little time for the second.
fn better(first: Vec<ServerSeen>, second: Vec<ServerSeen>) -> Vec<ServerSeen> {
    if second.iter().any(ServerSeen::is_cut) { first } else { second }
}

fn note(notebook: &Notebook, watcher: &Watcher, servers: &[ServerSeen], is_settled: bool) {
    let mut evidence = notebook.write();
    evidence.client = watcher.seen(is_settled);
    evidence.servers = servers.to_vec();
    let view = watcher.client().view();
    for server in &mut evidence.servers {
        let known = view.server(&server.address);
        server.server_type = known.map(|it| it.server_type);
        let answered = server.way.failure.is_none();
        server.lost = known.filter(|_| answered).and_then(|it| it.error.clone());
    }
}

/// Says what of the options matters.
fn options_seen(parsed: &Result<Options, OptionsError>) -> OptionsSeen {
    let options = match parsed {
        Ok(options) => options,
        Err(error) => {
            return OptionsSeen { error: Some(error.to_string()), ..OptionsSeen::default() };
        }
    };
    let (faults, other): (Vec<_>, Vec<_>) = options.warnings().iter().partition(|it| is_fault(it));
    let login = options.credential().map(|credential| Identity {
        user: credential.username.clone(),
        source: credential.source.clone(),
        mechanism: credential.mechanism.map(|it| it.name().to_owned()),
    });
    let pool = options.pool();
    let mechanism_fault = faults.iter().find(|it| is_about_mechanism(it));
    OptionsSeen {
        uri: Some(options.to_uri()),
        error: None,
        faults: faults.iter().map(ToString::to_string).collect(),
        mechanism_fault: mechanism_fault.map(ToString::to_string),
        notes: other
            .iter()
            .map(ToString::to_string)
            .chain(options.notices().iter().map(ToString::to_string))
            .collect(),
        replica_set: options.replica_set().map(ToString::to_string),
        direct: options.direct_connection(),
        load_balanced: options.load_balanced(),
        tls: options.tls().is_some(),
        certificate: options.tls().is_some_and(|tls| tls.certificate_key_file.is_some()),
        proxy: options.proxy().map(ProxyOptions::address),
        login,
        other_timeout: other_timeout(options),
        connect_timeout: options.connect_timeout(),
        wait_queue_timeout: pool.wait_queue_timeout.or(options.timeout()),
        max_pool_size: pool.max_pool_size,
        max_connecting: pool.max_connecting,
    }
}

/// Returns whether the mechanism of the login is another one than its writer meant.
fn is_about_mechanism(warning: &Warning) -> bool {
    matches!(warning, Warning::InvalidValue { option, .. } if *option == "authMechanism")
}

/// Returns whether a part of the options does not do what its writer meant.
const fn is_fault(warning: &Warning) -> bool {
    !matches!(
        warning,
        Warning::DeprecatedOption { .. }
            | Warning::DeprecatedBoolean { .. }
            | Warning::NotInThisBuild { .. }
            | Warning::SingleThreadedOnly { .. }
    )
}
