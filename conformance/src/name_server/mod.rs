//! A real name server on this machine, which serves the zones of the official tests: Debian's
//! `nsd`.

mod lookup;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sdam_core::dns::{NameServers, Question};
use tempfile::TempDir;

use crate::mongod::free_port;
use crate::mongod::process::{dying_with_us, spawn};

pub use lookup::lookup;

/// The environment variable that names the folder of the zones, in which `nsd.conf` is.
pub const ZONES: &str = "SDAM_DNS_ZONES";

/// The configuration in that folder, and what it says of the address.
const CONFIGURATION: &str = "nsd.conf";
const ADDRESS: &str = "127.0.0.1@5353";

/// The time that the server may take to answer.
const START_LIMIT: Duration = Duration::from_secs(30);

/// The number of ports that are tried because somebody else took one.
const START_ATTEMPTS: usize = 5;

/// The reason why there is no name server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameServerError {
    /// The operating system refused something.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The activity that failed.
        doing: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server ended before it answered.
    #[error("nsd ended early with {status}:\n{log}")]
    EndedEarly {
        /// The exit status of the process.
        status: ExitStatus,
        /// The log.
        log: String,
    },
    /// The server does not answer.
    #[error("nsd does not answer within {} s", START_LIMIT.as_secs())]
    Silent,
}

/// A name server on a port of its own; dropping it ends it.
#[derive(Debug)]
pub struct NameServer {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

fn failed_to(doing: impl Into<String>) -> impl FnOnce(io::Error) -> NameServerError {
    let doing = doing.into();
    |source| NameServerError::Io { doing, source }
}

impl NameServer {
    /// Serves a copy of the zones in a folder, and waits until that answers.
    ///
    /// # Errors
    ///
    /// There is no `nsd`, the folder cannot be read, or the server does not start.
    pub fn start(zones: &Path) -> Result<Self, NameServerError> {
        let mut attempt = 1;
        loop {
            match Self::start_once(zones) {
                Err(NameServerError::EndedEarly { .. }) if attempt < START_ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    fn start_once(zones: &Path) -> Result<Self, NameServerError> {
        let folder = tempfile::tempdir().map_err(failed_to("create a folder"))?;
        let reading = || failed_to(format!("read {}", zones.display()));
        for entry in fs::read_dir(zones).map_err(reading())? {
            let entry = entry.map_err(reading())?;
            fs::copy(entry.path(), folder.path().join(entry.file_name())).map_err(reading())?;
        }
        let address = free_address().map_err(failed_to("find a free port"))?;
        let configuration = folder.path().join(CONFIGURATION);
        let text = fs::read_to_string(&configuration).map_err(reading())?;
        let text = text.replace(ADDRESS, &format!("{}@{}", address.ip(), address.port()));
        fs::write(&configuration, text).map_err(failed_to("write nsd.conf"))?;
        let log = fs::File::create(folder.path().join("log")).map_err(failed_to("write a log"))?;
        let mut command = dying_with_us(nsd());
        command.args(["-d", "-c", CONFIGURATION]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = spawn(command).map_err(failed_to("run nsd"))?;
        let mut server = Self { process, address, folder };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    fn wait_until_it_answers(&mut self) -> Result<(), NameServerError> {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if let Some(status) = self.process.try_wait().map_err(failed_to("wait for nsd"))? {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                return Err(NameServerError::EndedEarly { status, log });
            }
            let servers = self.name_servers().timeout(Duration::from_millis(200)).attempts(1);
            match lookup(Question::txt("test.build.10gen.cc"), servers) {
                Err(error) if !error.is_absence() => thread::sleep(Duration::from_millis(5)),
                _ => return Ok(()),
            }
        }
        Err(NameServerError::Silent)
    }

    /// Returns where it listens, over UDP and TCP.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what asks it.
    pub fn name_servers(&self) -> NameServers {
        NameServers::new([self.address])
    }

    /// Changes the text of a zone file, in which the serial number must rise, and notifies the
    /// server, which takes a moment to notice.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written, or the server is gone.
    pub fn edit(
        &self,
        zone: &str,
        edit: impl FnOnce(String) -> String,
    ) -> Result<(), NameServerError> {
        let path = self.folder.path().join(zone);
        let text = fs::read_to_string(&path).map_err(failed_to(format!("read {zone}")))?;
        fs::write(&path, edit(text)).map_err(failed_to(format!("write {zone}")))?;
        self.signal(Signal::HUP).map_err(failed_to("signal nsd"))
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        // It ends its own children when it is asked to end.
        let _ = self.signal(Signal::TERM);
        let _ = self.process.wait();
    }
}

/// Daemons are not in the path of every user.
fn nsd() -> PathBuf {
    let installed = Path::new("/usr/sbin/nsd");
    if installed.exists() { installed.to_owned() } else { "nsd".into() }
}

fn free_address() -> io::Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}
