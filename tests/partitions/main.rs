//! A partition that swallows every packet between clients of all runtimes and a real server, and
//! says so to neither end.
//!
//! The server is on a machine of its own, in a network that takes root or user namespaces.

use std::error::Error;
use std::net::TcpStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use sdam::bson::rawdoc;
use sdam::core::config::{Options, TcpOptions};
use sdam::core::description::ServerType;
use sdam::host::Topology;
use sdam_conformance::adapter::Adapter;
use sdam_conformance::mongod::{Availability, Binary};
use sdam_conformance::network::{self, Machine, THERE};
use sdam_conformance::runtimes::{AsyncStd, Blocking, Smol, Tokio};
use tempfile::TempDir;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The time that steps may take which depend on the load of the machine.
const GENEROUS: Duration = Duration::from_secs(90);

/// The port of the server, in a network where no other process has any.
const PORT: u16 = 27017;

/// The time in which connections notice a partition whose options say so.
const LIMIT: Duration = Duration::from_secs(4);

fn main() -> ExitCode {
    let without_network = match network::enter() {
        Ok(Some(code)) => return code,
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    let availability = Availability::look();
    let binary = availability.binaries().last().cloned();
    let is_left_out = binary.is_none() || without_network.is_some();
    let trial = Trial::test("connections_notice_a_silent_partition_as_options_say", move || {
        let binary = binary.ok_or("there is no mongod")?;
        noticed(&binary).map_err(|error| Failed::from(error.to_string()))
    });
    let trials = vec![trial.with_ignored_flag(is_left_out)];
    let passed = !libtest_mimic::run(&Arguments::from_args(), trials).has_failed();
    let on_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    if let Some(reason) = &without_network {
        eprintln!("left out: {reason}");
    }
    availability.conclude(passed && (without_network.is_none() || !on_ci))
}

/// A report of a client.
enum News {
    /// It has used its server.
    Ready,
    /// It has noticed the partition then, and an operation that was under way has failed.
    Noticed { name: String, has_option: bool, at: Instant },
    /// It has used its server again.
    Back,
}

fn noticed(binary: &Binary) -> Outcome {
    let machine = Machine::start()?;
    let _server = Server::start(&machine, binary)?;
    let (tell, told) = channel();
    let (mut clients, mut starts) = (Vec::new(), Vec::new());
    for has_option in [false, true] {
        start(Tokio::multi_thread, has_option, &tell, &mut clients, &mut starts);
        start(|| Smol, has_option, &tell, &mut clients, &mut starts);
        start(|| AsyncStd, has_option, &tell, &mut clients, &mut starts);
        start(|| Blocking, has_option, &tell, &mut clients, &mut starts);
    }
    drop(tell);
    for _ in &clients {
        ensure(matches!(told.recv_timeout(GENEROUS)?, News::Ready), "a client is ahead")?;
    }
    machine.cut()?;
    let cut = Instant::now();
    for start in &starts {
        start.send(())?;
    }
    let mut noticed = Vec::new();
    for _ in &clients {
        if let News::Noticed { name, has_option, at } = told.recv_timeout(GENEROUS)? {
            println!("{name}, {}: {:.1?}", if has_option { "option" } else { "default" }, at - cut);
            noticed.push((at - cut, has_option));
        }
    }
    machine.mend()?;
    for _ in &clients {
        ensure(matches!(told.recv_timeout(GENEROUS)?, News::Back), "a client is behind")?;
    }
    for client in clients {
        client.join().map_err(|_| "a client has panicked")??;
    }
    judge(&noticed)
}

/// With the option a partition is noticed in less than 5 s, without it in less than 25 s. How much
/// later a process finds that out which gets no processor is not the options' fault; that all with
/// the option are earlier than any without holds on every machine.
fn judge(noticed: &[(Duration, bool)]) -> Outcome {
    let times = |with: bool| noticed.iter().filter(move |it| it.1 == with).map(|it| it.0);
    let (last, first) = (times(true).max(), times(false).min());
    ensure(last.is_some() && last < first, "the option has made no difference")?;
    let late = Duration::from_secs(3);
    ensure(last < Some(Duration::from_secs(5) + late), "the option was too slow")?;
    ensure(times(false).max() < Some(Duration::from_secs(25) + late), "a monitor was too slow")
}

/// Starts a client on a thread, which reports what it comes to; it goes on when `starts` says so.
fn start<A: Adapter>(
    adapter: impl FnOnce() -> A + Send + 'static,
    has_option: bool,
    tell: &Sender<News>,
    clients: &mut Vec<thread::JoinHandle<Outcome>>,
    starts: &mut Vec<Sender<()>>,
) {
    let (start, started) = channel();
    starts.push(start);
    let tell = tell.clone();
    clients.push(thread::spawn(move || client(&adapter(), has_option, &tell, &started)));
}

fn client<A: Adapter>(
    adapter: &A,
    has_option: bool,
    tell: &Sender<News>,
    started: &Receiver<()>,
) -> Outcome {
    let uri = format!("mongodb://{THERE}:{PORT}/?directConnection=true&retryReads=false");
    let mut options = Options::builder().uri(&uri)?;
    if has_option {
        options = options.tcp(TcpOptions::noticing_within(LIMIT));
    }
    let (client, _events) = adapter.client(options.build()?)?;
    ping(adapter, &client)?;
    tell.send(News::Ready)?;
    started.recv_timeout(GENEROUS)?;
    let mut views = client.watch_topology();
    // What the pool has sent is never acknowledged, and its reply is awaited without a limit.
    let lost = ping(adapter, &client);
    ensure(lost.is_err(), "a command has passed the partition")?;
    adapter.block_on(async {
        while let Some(view) = views.next().await {
            if view.servers().iter().all(|server| server.server_type == ServerType::Unknown) {
                return Ok(());
            }
        }
        Err("the client was closed")
    })?;
    let (name, at) = (adapter.name().to_owned(), Instant::now());
    tell.send(News::Noticed { name, has_option, at })?;
    let end = Instant::now() + GENEROUS;
    while let Err(error) = ping(adapter, &client) {
        ensure(Instant::now() < end, &error.to_string())?;
    }
    tell.send(News::Back)?;
    adapter.block_on(client.close());
    Ok(())
}

fn ping<A: Adapter>(adapter: &A, client: &Topology<A::Runtime>) -> Outcome {
    adapter.block_on(client.run_command("admin", &rawdoc! { "ping": 1 }))?;
    Ok(())
}

/// A server on the machine at the other end.
struct Server {
    process: Child,
    _folder: TempDir,
}

impl Server {
    fn start(machine: &Machine, binary: &Binary) -> Outcome<Self> {
        let folder = TempDir::new()?;
        let mut command: Command = machine.command(&binary.path().to_string_lossy());
        command.envs(binary.libraries().map(|folder| ("LD_LIBRARY_PATH", folder)));
        command.arg("--dbpath").arg(folder.path()).args(["--port", &PORT.to_string()]);
        command.args(["--bind_ip", &THERE.to_string(), "--unixSocketPrefix"]).arg(folder.path());
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let server = Self { process, _folder: folder };
        let end = Instant::now() + GENEROUS;
        while TcpStream::connect((THERE, PORT)).is_err() {
            ensure(Instant::now() < end, "mongod does not listen")?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ensure(condition: bool, otherwise: &str) -> Outcome {
    if condition { Ok(()) } else { Err(otherwise.into()) }
}
