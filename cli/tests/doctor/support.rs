//! The doctor as a process, and deployments for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bson::doc;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_conformance::mongod::{Binary, Config, HarnessError, Options, ReplicaSet, Server, Tls};
use sdam_core::config::ServerAddress;
use serde_json::Value;

use crate::GENEROUS;

pub(crate) type Failure = Box<dyn std::error::Error>;

/// The path of the tool.
pub(crate) const SDAM: &str = env!("CARGO_BIN_EXE_sdam");

/// Looks again and again until there is something, and fails if that takes too long.
pub(crate) fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + crate::GENEROUS;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(format!("{what} within {:?}", crate::GENEROUS).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An embedded member that keeps data, and is primary.
pub(crate) struct Embedded {
    pub(crate) address: ServerAddress,
    pub(crate) uri: String,
    _cluster: EmbeddedCluster,
    _runtime: tokio::runtime::Runtime,
}

impl Embedded {
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        let options = EmbeddedOptions::default().with_members(1).with_keeps_data(true);
        let cluster = runtime.block_on(async {
            let cluster = EmbeddedCluster::start(options).await?;
            cluster.elected().await?;
            Ok::<_, std::io::Error>(cluster)
        })?;
        let address = cluster.addresses()[0].to_string().parse()?;
        Ok(Self { address, uri: cluster.uri(), _cluster: cluster, _runtime: runtime })
    }
}

/// The report of a doctor.
pub(crate) struct Report {
    pub(crate) code: Option<i32>,
    pub(crate) json: Value,
    pub(crate) took: Duration,
}

/// The number of times that a doctor is run whose times the machine may have made.
pub(crate) const TIMES: usize = 5;

/// The finding that this machine has stopped a doctor, which says nothing of a deployment.
const PAUSED: &str = "processPaused";

/// Runs a doctor as `command` says, and again if the machine has stopped it meanwhile: what it has
/// waited for then may have come in time.
pub(crate) fn run(mut command: Command, arguments: &[&str]) -> Result<Report, Failure> {
    prepare(&mut command, arguments);
    let mut report = finish((command.spawn()?, Instant::now()))?;
    for _ in 1..TIMES {
        if !report.was_paused() {
            break;
        }
        report = finish((command.spawn()?, Instant::now()))?;
    }
    Ok(report)
}

/// Starts a doctor.
pub(crate) fn start(mut command: Command, arguments: &[&str]) -> Result<(Child, Instant), Failure> {
    prepare(&mut command, arguments);
    Ok((command.spawn()?, Instant::now()))
}

/// A doctor that watches.
pub(crate) struct Watching {
    process: Child,
    begun: Instant,
    /// Its words besides the report.
    err: BufReader<std::process::ChildStderr>,
}

impl Watching {
    /// Starts one, and waits until it has looked at everything.
    pub(crate) fn start(uri: &str) -> Result<Self, Failure> {
        let arguments = ["--watch", "--for", "250s", uri];
        let (mut process, begun) = start(Command::new(SDAM), &arguments)?;
        let err = BufReader::new(process.stderr.take().ok_or("no pipe")?);
        let mut watching = Self { process, begun, err };
        let mut line = String::new();
        while !line.contains("watching until") {
            line.clear();
            if watching.err.read_line(&mut line)? == 0 {
                return Err("it does not watch".into());
            }
        }
        Ok(watching)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) -> Result<(), Failure> {
        Command::new("kill").args([name, &self.process.id().to_string()]).status()?;
        Ok(())
    }

    /// Ends the watch when another doctor, which came later, has seen all there is.
    pub(crate) fn report(self, uri: &str) -> Result<Report, Failure> {
        doctor(&["--for", "60s", uri])?;
        self.end()
    }

    /// Ends the watch as Ctrl-C does.
    pub(crate) fn end(mut self) -> Result<Report, Failure> {
        self.signal("-INT")?;
        let report = finish((self.process, self.begun));
        report.map_err(|error| {
            let mut said = String::new();
            let said = self.err.read_to_string(&mut said).map(|_| said);
            format!("{error}; {said:?}").into()
        })
    }
}

fn prepare(command: &mut Command, arguments: &[&str]) {
    command.args(["doctor", "--json"]);
    if !arguments.contains(&"--for") {
        // As long as a busy machine may need.
        command.args(["--for", "30s"]);
    }
    command.args(arguments).env_remove("SDAM_URI");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

/// Waits for its report.
pub(crate) fn finish((child, begun): (Child, Instant)) -> Result<Report, Failure> {
    let output = child.wait_with_output()?;
    let took = begun.elapsed();
    let said = String::from_utf8(output.stdout)?;
    let json = serde_json::from_str(&said).map_err(|error| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("no report but {said:?} ({error}): {complaint}")
    })?;
    Ok(Report { code: output.status.code(), json, took })
}

/// Runs a doctor on this machine.
pub(crate) fn doctor(arguments: &[&str]) -> Result<Report, Failure> {
    run(Command::new(SDAM), arguments)
}

/// The findings that a busy machine brings about, as they are about lengths of time: a second to
/// connect, two to look up a name, and the time that the doctor itself has.
const OF_TIME: [&str; 3] = ["establishmentSlow", "lookupSlow", "notCheckedYet"];

/// The words about a command whose reply has not come in time.
const NOT_ANSWERED: &str = "not answered within";

/// Expects that nothing is wrong, and returns the report. What was slow once is looked at again: a
/// deployment that is well is not slow each time, whatever else the machine does.
pub(crate) fn all_is_well(look: impl Fn() -> Result<Report, Failure>) -> Result<Report, Failure> {
    let mut report = look()?;
    for _ in 1..TIMES {
        let findings = report.findings();
        if findings.is_empty() || !findings.iter().all(Said::is_of_time) {
            break;
        }
        report = look()?;
    }
    report.healthy()?;
    Ok(report)
}

/// One finding.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) verdict: String,
    pub(crate) severity: String,
    pub(crate) cause: String,
    pub(crate) advice: String,
    pub(crate) lines: Vec<String>,
}

impl Said {
    /// Returns whether it is about lengths of time, which a busy machine makes.
    pub(crate) fn is_of_time(&self) -> bool {
        let is_late = self.verdict == "operationFailed" && self.cause.contains(NOT_ANSWERED);
        is_late || OF_TIME.contains(&&*self.verdict)
    }
}

impl Report {
    /// Returns what is found of the deployment, the first cause first.
    pub(crate) fn findings(&self) -> Vec<Said> {
        let mut findings = self.all_findings();
        findings.retain(|finding| finding.verdict != PAUSED && finding.severity != "note");
        findings
    }

    /// Returns the note `verdict`, which says of nothing that it is wrong.
    pub(crate) fn noted(&self, verdict: &str) -> Result<Said, Failure> {
        let is_meant = |it: &Said| it.verdict == verdict && it.severity == "note";
        let found = self.all_findings().into_iter().find(is_meant);
        found.ok_or_else(|| format!("{verdict} is not noted: {}", self.json).into())
    }

    /// Returns whether the machine has stopped this doctor.
    fn was_paused(&self) -> bool {
        self.all_findings().iter().any(|finding| finding.verdict == PAUSED)
    }

    /// Returns that the doctor itself was stopped, which must be said first.
    pub(crate) fn paused(&self) -> Result<Said, Failure> {
        match self.all_findings().into_iter().next() {
            Some(said) if said.verdict == PAUSED && self.code == Some(1) => Ok(said),
            _ => Err(format!("a pause is not what is said first: {}", self.json).into()),
        }
    }

    /// Returns all that is said, notes included.
    pub(crate) fn all_findings(&self) -> Vec<Said> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let findings = self.json["findings"].as_array().map_or(&[][..], Vec::as_slice);
        findings
            .iter()
            .map(|finding| Said {
                verdict: text(&finding["verdict"]),
                severity: text(&finding["severity"]),
                cause: text(&finding["cause"]),
                advice: text(&finding["advice"]),
                lines: finding["lines"].as_array().into_iter().flatten().map(text).collect(),
            })
            .collect()
    }

    /// Returns the first finding, which must be `verdict`.
    pub(crate) fn first(&self, verdict: &str) -> Result<Said, Failure> {
        match self.findings().into_iter().next() {
            Some(said) if said.verdict == verdict && self.code == Some(1) => Ok(said),
            _ => Err(format!("{verdict} is not what is said first: {}", self.json).into()),
        }
    }

    /// Returns the finding `verdict`, wherever it stands.
    pub(crate) fn any(&self, verdict: &str) -> Result<Said, Failure> {
        let found = self.findings().into_iter().find(|it| it.verdict == verdict);
        found.ok_or_else(|| format!("{verdict} is not said: {}", self.json).into())
    }

    /// Fails if anything is wrong.
    pub(crate) fn healthy(&self) -> Result<(), Failure> {
        match (self.code, self.findings().as_slice(), self.was_paused()) {
            (Some(0), [], false) | (Some(1), [], true) => Ok(()),
            _ => Err(format!("something is wrong: {}", self.json).into()),
        }
    }
}

/// Returns the port of an address.
pub(crate) fn port(address: &ServerAddress) -> Result<u16, Failure> {
    Ok(address.port().ok_or("a socket has no port")?)
}

/// Does something while commands fail.
pub(crate) fn with_fail_point(
    server: &Server,
    data: bson::Document,
    work: impl FnOnce() -> Result<Report, Failure>,
) -> Result<Report, Failure> {
    // Servers have one fail point of this name.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let configure = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data };
    server.command(&configure, GENEROUS)?;
    let report = work();
    let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    server.command(&off, GENEROUS)?;
    report
}

/// A deployment of `sdam cluster`, which takes steps as lines.
pub(crate) struct Cluster {
    process: Child,
    pub(crate) uri: String,
    pub(crate) members: Vec<String>,
    out: BufReader<std::process::ChildStdout>,
}

impl Cluster {
    /// Starts one that ends by itself if a test hangs, and waits for the first primary of a set: a
    /// doctor that comes before it says so.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, Failure> {
        let mut process = Command::new(SDAM)
            .args(["cluster", "--json", "--for", "300s"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = BufReader::new(process.stdout.take().ok_or("no pipe")?);
        let mut cluster = Self { process, uri: String::new(), members: Vec::new(), out };
        let ready = cluster.wait_for("ready")?;
        cluster.uri = ready["uri"].as_str().ok_or("no uri")?.to_owned();
        let members = ready["members"].as_object().ok_or("no members")?;
        cluster.members = members.values().filter_map(Value::as_str).map(str::to_owned).collect();
        if cluster.uri.contains("replicaSet=") {
            cluster.wait_for("elected")?;
        }
        Ok(cluster)
    }

    /// Waits for an event.
    pub(crate) fn wait_for(&mut self, event: &str) -> Result<Value, Failure> {
        self.wait_for_any(&[event])
    }

    fn wait_for_any(&mut self, events: &[&str]) -> Result<Value, Failure> {
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line)? == 0 {
                return Err(format!("the deployment has ended before {events:?}").into());
            }
            let object: Value = serde_json::from_str(&line)?;
            if events.iter().any(|event| object["event"] == *event) {
                return Ok(object);
            }
        }
    }

    /// Takes a step, as soon as it can be taken.
    pub(crate) fn take(&mut self, step: &str) -> Result<(), Failure> {
        until(&format!("{step} could not be done"), || {
            writeln!(self.process.stdin.as_mut().ok_or("no pipe")?, "{step}")?;
            let answer = self.wait_for_any(&["done", "refused"])?;
            Ok((answer["event"] == "done").then_some(()))
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server that several tests share, started when the first one needs it.
pub(crate) struct Lazy<T>(Mutex<Option<Arc<T>>>);

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Lazy<T> {
    /// Returns it.
    pub(crate) fn get(&self, make: impl FnOnce() -> Result<T, Failure>) -> Result<Arc<T>, Failure> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = &*slot {
            return Ok(Arc::clone(there));
        }
        Ok(Arc::clone(slot.insert(Arc::new(make()?))))
    }
}

/// The servers that tests share.
pub(crate) struct Fixture {
    pub(crate) binaries: Vec<Binary>,
    standalone: Lazy<Server>,
    set: Lazy<ReplicaSet>,
    frozen: Lazy<Server>,
}

impl Fixture {
    pub(crate) fn new(binaries: &[Binary]) -> Self {
        Self {
            binaries: binaries.to_vec(),
            standalone: Lazy::default(),
            set: Lazy::default(),
            frozen: Lazy::default(),
        }
    }

    /// Returns the newest server there is.
    pub(crate) fn newest(&self) -> Result<&Binary, Failure> {
        Ok(self.binaries.last().ok_or("no mongod")?)
    }

    /// Starts a standalone of the newest version.
    pub(crate) fn server(&self, config: Config) -> Result<Server, Failure> {
        Ok(Server::start(self.newest()?, config)?)
    }

    /// Returns a standalone that answers.
    pub(crate) fn standalone(&self) -> Result<Arc<Server>, Failure> {
        self.standalone.get(|| self.server(Config::default()))
    }

    /// Returns a replica set of one member, which is called `rs`.
    pub(crate) fn set(&self) -> Result<Arc<ReplicaSet>, Failure> {
        self.set.get(|| Ok(ReplicaSet::start(self.newest()?, 1, &Options::default())?))
    }

    /// Returns a standalone that is frozen: connections to it are accepted by the kernel.
    pub(crate) fn frozen(&self) -> Result<Arc<Server>, Failure> {
        self.frozen.get(|| {
            let mut server = self.server(Config::default())?;
            let freeze: Result<(), HarnessError> = server.freeze();
            freeze?;
            Ok(server)
        })
    }
}

/// Starts a server whose certificate is good for so many days, and names a responder of OCSP;
/// returns the folder of its files, and its connection string.
pub(crate) fn with_responder(
    fixture: &Fixture,
    responder: &str,
    days: u32,
) -> Result<(tempfile::TempDir, Server, String), Failure> {
    let folder = tempfile::tempdir()?;
    let script = format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 30 -subj \
         /CN=authority 2>&1 && openssl req -newkey rsa:2048 -nodes -keyout key -out request -subj \
         /CN=server 2>&1 && printf 'subjectAltName=IP:127.0.0.1\\nauthorityInfoAccess=OCSP;\
         URI:http://{responder}/ocsp\\n' > extensions && openssl x509 -req -in request -CA ca.pem \
         -CAkey ca.key -CAcreateserial -days {days} -extfile extensions -out leaf 2>&1 && cat leaf \
         key > server.pem"
    );
    let made = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output()?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stdout).into_owned().into());
    }
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let tls = Some(Tls::new(path("server.pem"), path("ca.pem")));
    // The server itself asks no responder.
    let arguments = ["--setParameter", "ocspEnabled=false"].map(str::to_owned).to_vec();
    let server = fixture.server(Config { tls, arguments, ..Config::default() })?;
    let authority = path("ca.pem").replace('/', "%2F");
    let uri = format!("mongodb://{}/?tls=true&tlsCAFile={authority}", server.address());
    Ok((folder, server, uri))
}
