//! A real SOCKS5 proxy: microsocks, a package of Debian and others.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::mongod::free_port;
use crate::mongod::private_names::{with_hosts, write_hosts};

/// The time that the proxy may take to listen.
const LIMIT: Duration = Duration::from_secs(30);

/// A proxy on a loopback port of its own; dropping it ends it.
#[derive(Debug)]
pub struct Proxy {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Proxy {
    /// Returns whether there is a `microsocks` on the `PATH`.
    pub fn is_installed() -> bool {
        // It prints its usage.
        let usage = Command::new("microsocks").arg("-h").stderr(Stdio::null()).output();
        usage.is_ok()
    }

    /// Starts a proxy that demands a login, if one is given, and waits until it listens.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be started, or does not listen within 30 s.
    pub fn start(login: Option<(&str, &str)>) -> io::Result<Self> {
        Self::start_among(&[], login)
    }

    /// Does the same with a proxy that alone knows these names, all of this machine.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_among(names: &[String], login: Option<(&str, &str)>) -> io::Result<Self> {
        let port = free_port()?;
        let folder = TempDir::new()?;
        let mut command = Command::new("microsocks");
        command.args(["-i", "127.0.0.1", "-p", &port.to_string()]);
        if let Some((username, password)) = login {
            command.args(["-u", username, "-P", password]);
        }
        if !names.is_empty() {
            let hosts = folder.path().join("hosts");
            write_hosts(&hosts, names)?;
            command = with_hosts(&hosts, &command);
        }
        let log = File::create(folder.path().join("log"))?;
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let proxy = Self { process, port, folder };
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if start.elapsed() > LIMIT {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the proxy does not listen"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(proxy)
    }

    /// Returns where it listens on the loopback interface.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns what the proxy says it did.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
