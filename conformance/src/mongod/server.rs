//! One mongod process: started, killed, frozen, and gone in the end.

use std::env;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use rustix::process::{Pid, Signal, kill_process};
use sdam_core::config::ServerAddress;
use tempfile::TempDir;

use super::error::poll;
use super::{
    Binary, CommandError, HarnessError, Tls, TlsMode, auth, command, private_names, process,
};

/// The time that a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The time that a server may take to answer a question about itself.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// The number of attempts to start when somebody else took the port.
const MAX_STARTS: usize = 5;

/// The amount of the log's end that an error shows, in bytes.
const LOG_TAIL: u64 = 16_384;

/// The configuration of a server.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The replica set that the server is to belong to; without one it is a standalone.
    pub replica_set: Option<String>,
    /// More arguments for the command line.
    pub arguments: Vec<String>,
    /// Host names that mean this machine to the server and to no other process; the first is its
    /// own.
    ///
    /// They need what [`private_names_work`](super::private_names_work) looks for.
    pub private_names: Vec<String>,
    /// The certificates, if it speaks TLS.
    pub tls: Option<Tls>,
    /// The compressors that it offers, such as `snappy`; those of its version if none is given.
    pub compressors: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerState {
    Running,
    Frozen,
    Killed,
}

/// A mongod of its own, on a loopback port and a Unix domain socket, in a folder of its own.
///
/// When it is dropped, the process is killed and the folder removed. Where `setpriv` is installed,
/// the process does not outlive the one that started it either.
#[derive(Debug)]
pub struct Server {
    binary: Binary,
    pub(super) config: Config,
    /// Users must prove who they are, and members, too.
    pub(super) authenticates: bool,
    port: u16,
    child: Child,
    state: ServerState,
    /// The folder of data, log and socket; short, as the path of a socket has at most 107 bytes.
    folder: TempDir,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`HarnessError::EndedEarly`] with the end of the log, or [`HarnessError::TimedOut`] after a
    /// minute.
    pub fn start(binary: &Binary, config: Config) -> Result<Self, HarnessError> {
        for _ in 1..MAX_STARTS {
            match Self::start_once(binary, config.clone()) {
                Err(HarnessError::EndedEarly { log, .. }) if port_was_taken(&log) => {}
                result => return result,
            }
        }
        Self::start_once(binary, config)
    }

    fn start_once(binary: &Binary, config: Config) -> Result<Self, HarnessError> {
        let folder = tempfile::Builder::new()
            .prefix("sdam-mongod-")
            .tempdir_in(temporary_folder())
            .map_err(HarnessError::io("create a folder for a server"))?;
        fs::create_dir(folder.path().join("data"))
            .map_err(HarnessError::io("create a data folder"))?;
        let port = free_port().map_err(HarnessError::io("find a free port"))?;
        let child = spawn(binary, &config, false, port, &folder)?;
        let mut server = Self {
            binary: binary.clone(),
            config,
            authenticates: false,
            port,
            child,
            state: ServerState::Running,
            folder,
        };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Returns the address on the loopback interface.
    pub fn address(&self) -> ServerAddress {
        parse(&format!("127.0.0.1:{}", self.port))
    }

    /// Returns the address by which other servers know it: with its private name if it has one.
    pub fn advertised(&self) -> ServerAddress {
        match self.config.private_names.first() {
            Some(name) => parse(&format!("{name}:{}", self.port)),
            None => self.address(),
        }
    }

    /// Returns the address of the Unix domain socket.
    pub fn socket(&self) -> ServerAddress {
        let file = format!("mongodb-{}.sock", self.port);
        parse(&self.folder.path().join(file).to_string_lossy())
    }

    /// Returns the process id, also after the process has been killed.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process is there and not frozen, as far as this harness disturbed it.
    pub fn is_running(&self) -> bool {
        self.state == ServerState::Running
    }

    /// Runs a command on the `admin` database and returns the reply.
    ///
    /// # Errors
    ///
    /// See [`command()`].
    pub fn command(&self, command: &Document, limit: Duration) -> Result<Document, CommandError> {
        self::command(&self.address(), "admin", command, limit)
    }

    /// Asks the server what it is, with the legacy hello that every version knows.
    ///
    /// # Errors
    ///
    /// See [`command()`].
    pub fn hello(&self) -> Result<Document, CommandError> {
        self.command(&doc! { "isMaster": 1 }, ANSWER_LIMIT)
    }

    /// Ends the process at once (SIGKILL), as a power failure would.
    ///
    /// # Errors
    ///
    /// [`HarnessError::Io`] if the operating system refuses.
    pub fn kill(&mut self) -> Result<(), HarnessError> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map_err(HarnessError::io("kill mongod"))?;
        self.state = ServerState::Killed;
        Ok(())
    }

    /// Kills the process if it is there, and starts one with the same port and data.
    ///
    /// # Errors
    ///
    /// As those of [`start`](Self::start).
    pub fn restart(&mut self) -> Result<(), HarnessError> {
        self.kill()?;
        self.child =
            spawn(&self.binary, &self.config, self.authenticates, self.port, &self.folder)?;
        self.state = ServerState::Running;
        self.wait_until_it_answers()
    }

    /// Stops the process (SIGSTOP): connections stay open, new ones are accepted by the kernel, and
    /// nothing is answered.
    ///
    /// # Errors
    ///
    /// [`HarnessError::Io`] if the process is not there.
    pub fn freeze(&mut self) -> Result<(), HarnessError> {
        self.signal(Signal::STOP, "freeze mongod")?;
        self.state = ServerState::Frozen;
        Ok(())
    }

    /// Continues a frozen process (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`HarnessError::Io`] if the process is not there.
    pub fn thaw(&mut self) -> Result<(), HarnessError> {
        self.signal(Signal::CONT, "thaw mongod")?;
        self.state = ServerState::Running;
        Ok(())
    }

    fn signal(&self, signal: Signal, doing: &str) -> Result<(), HarnessError> {
        // The number of a process that was waited for may belong to another one by now.
        let result = match self.state {
            ServerState::Killed => Err(io::ErrorKind::NotFound.into()),
            ServerState::Running | ServerState::Frozen => {
                kill_process(Pid::from_child(&self.child), signal).map_err(io::Error::from)
            }
        };
        result.map_err(HarnessError::io(doing))
    }

    fn wait_until_it_answers(&mut self) -> Result<(), HarnessError> {
        let ended = poll("an answer from mongod", START_LIMIT, || {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                None => self.answers_itself().map(|()| None),
                Some(status) => Ok(Some(status)),
            }
        })?;
        match ended {
            None => Ok(()),
            Some(status) => Err(HarnessError::EndedEarly { status, log: self.log_tail() }),
        }
    }

    /// Asks for the data folder: on this port another server may answer while ours is failing.
    ///
    /// A server that does not answer that is known by its socket, which is in a folder of its own.
    fn answers_itself(&self) -> Result<(), String> {
        if self.config.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Require) {
            let own = UnixStream::connect(self.socket().host()).map(drop);
            let any = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).map(drop);
            return own.and_then(|()| any()).map_err(|error| error.to_string());
        }
        if self.authenticates {
            let own = self::command(&self.socket(), "admin", &doc! { "isMaster": 1 }, ANSWER_LIMIT);
            let any = || self.hello();
            return own.and_then(|_| any()).map(drop).map_err(|error| error.to_string());
        }
        let options = self.command(&doc! { "getCmdLineOpts": 1 }, ANSWER_LIMIT);
        let options = options.map_err(|error| error.to_string())?;
        let data = self.folder.path().join("data");
        let found = options
            .get_document("parsed")
            .and_then(|parsed| parsed.get_document("storage"))
            .and_then(|storage| storage.get_str("dbPath"));
        match found {
            Ok(path) if path == data.to_string_lossy() => Ok(()),
            other => Err(format!("another server answers: {other:?}")),
        }
    }

    /// Returns the end of the log, or why there is none.
    pub(super) fn log_tail(&self) -> String {
        let read = || {
            let mut file = File::open(self.folder.path().join("mongod.log"))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
            let mut tail = Vec::new();
            file.read_to_end(&mut tail)?;
            io::Result::Ok(String::from_utf8_lossy(&tail).into_owned())
        };
        read().unwrap_or_else(|error| format!("(no log: {error})"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL ends a frozen process, too.
        if self.state != ServerState::Killed {
            let _ = self.kill();
        }
    }
}

/// Else each server writes 300 MB before it has any data, and many of them run at once.
const SMALL_JOURNAL: &str = "log=(prealloc=false,file_max=4MB)";

/// The fewest that servers take: with their defaults, a login computes three times as long, and
/// without optimisation most of what tests with short limits allow.
const FEW_ITERATIONS: [&str; 2] = ["scramIterationCount=5000", "scramSHA256IterationCount=5000"];

fn spawn(
    binary: &Binary,
    config: &Config,
    authenticates: bool,
    port: u16,
    folder: &TempDir,
) -> Result<Child, HarnessError> {
    // Not with --logpath, as complaints about the command line do not go there.
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.path().join("mongod.log"))
        .map_err(HarnessError::io("create a log"))?;
    let mut command = binary.command();
    command
        .args(["--bind_ip", "127.0.0.1", "--port", &port.to_string()])
        .arg("--dbpath")
        .arg(folder.path().join("data"))
        .arg("--unixSocketPrefix")
        .arg(folder.path())
        .args(["--wiredTigerCacheSizeGB", "0.25"])
        .args(["--wiredTigerEngineConfigString", SMALL_JOURNAL])
        .args(["--setParameter", "enableTestCommands=1"])
        .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
        .args(FEW_ITERATIONS.iter().flat_map(|parameter| ["--setParameter", parameter]))
        .args(&config.arguments)
        .args(config.tls.iter().flat_map(Tls::arguments));
    if !config.compressors.is_empty() {
        command.args(["--networkMessageCompressors", &config.compressors.join(",")]);
    }
    match &config.replica_set {
        Some(name) if authenticates => {
            let key = folder.path().join("key");
            auth::write_key(&key).map_err(HarnessError::io("write a key"))?;
            command.args(["--replSet", name]).arg("--keyFile").arg(key);
        }
        Some(name) => drop(command.args(["--replSet", name])),
        None if authenticates => drop(command.arg("--auth")),
        None => {}
    }
    if !config.private_names.is_empty() {
        let hosts = folder.path().join("hosts");
        private_names::write_hosts(&hosts, &config.private_names)
            .map_err(HarnessError::io("write private names"))?;
        command = private_names::with_hosts(&hosts, &command);
    }
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(HarnessError::io("share the log"))?)
        .stderr(log);
    process::spawn(command).map_err(HarnessError::io("start mongod"))
}

/// The folder for those of servers: `TMPDIR`, unless the path of a socket has no room there.
fn temporary_folder() -> PathBuf {
    const MAX_LEN: usize = 60;
    let folder = env::temp_dir();
    match folder.as_os_str().len() <= MAX_LEN {
        true => folder,
        false => PathBuf::from("/tmp"),
    }
}

/// Finds a port that nothing listens on, outside the kernel's ephemeral ports.
///
/// Not with port 0: that yields one the kernel may also give to an outgoing connection while
/// the server is down, so that a restart would fail.
///
/// # Errors
///
/// Fails if many ports were tried without success, or the system has no socket.
pub fn free_port() -> io::Result<u16> {
    const BELOW_EPHEMERAL: std::ops::Range<u64> = 20_000..32_000;
    let mut last_error = io::ErrorKind::AddrInUse.into();
    for _ in 0..100 {
        let random = RandomState::new().hash_one(Instant::now());
        let offset = random % (BELOW_EPHEMERAL.end - BELOW_EPHEMERAL.start);
        let port = u16::try_from(BELOW_EPHEMERAL.start + offset).expect("the range fits");
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn port_was_taken(log: &str) -> bool {
    log.contains("Address already in use") || log.contains("addrinuse")
}

fn parse(address: &str) -> ServerAddress {
    address.parse().expect("a loopback address or a path is an address")
}
