//! A real SSH server: the sshd of OpenSSH, as Debian's package openssh-server has it.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::mongod::free_port;
use crate::mongod::private_names::{with_hosts, write_hosts};

/// The path of the server, which refuses to be called without one.
const SSHD: &str = "/usr/sbin/sshd";

/// The time that the server may take to listen.
const LIMIT: Duration = Duration::from_secs(30);

/// The name by which the configuration for clients knows the server.
pub const ALIAS: &str = "bastion";

/// A server on a loopback port of its own; dropping it ends it, though not its connections.
///
/// It runs as the user that stands for all unknown ones, as whom alone one can log in.
#[derive(Debug)]
pub struct SshServer {
    process: Child,
    folder: TempDir,
    port: u16,
}

impl SshServer {
    /// Returns whether there are a server and a client.
    pub fn is_installed() -> bool {
        let version = Command::new("ssh").arg("-V").stderr(Stdio::null()).output();
        Path::new(SSHD).exists() && version.is_ok()
    }

    /// Starts a server that alone knows these names, all of this machine, and waits until it
    /// listens. That takes what [`private_names_work`](crate::mongod::private_names_work) looks
    /// for.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be started, or does not listen within 30 s.
    pub fn start(names: &[String]) -> io::Result<Self> {
        let (port, folder) = (free_port()?, TempDir::new()?);
        // Its user is another one.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let path = |name: &str| folder.path().join(name);
        for name in ["host", "user"] {
            make_key(&path(name))?;
        }
        write_hosts(&path("hosts"), names)?;
        let server = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n{}",
            path("host").display(),
            path("user.pub").display(),
            "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\n",
        );
        fs::write(path("sshd_config"), server)?;
        let host_key = fs::read_to_string(path("host.pub"))?;
        fs::write(path("known_hosts"), format!("{ALIAS} {host_key}"))?;
        let client = format!(
            "Host {ALIAS}\nHostName 127.0.0.1\nHostKeyAlias {ALIAS}\nPort {port}\nUser nobody\n\
             IdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\nBatchMode yes\n",
            path("user").display(),
            path("known_hosts").display(),
        );
        fs::write(path("config"), client)?;
        let mut command = Command::new("unshare");
        command.args(["--user", SSHD, "-D", "-e", "-f"]).arg(path("sshd_config"));
        let mut command = with_hosts(&path("hosts"), &command);
        let log = File::create(path("log"))?;
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let server = Self { process, folder, port };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    fn wait_until_it_listens(&self) -> io::Result<()> {
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if start.elapsed() > LIMIT {
                let reason = format!("the SSH server does not listen: {}", self.log());
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Returns the configuration by which a client knows it as [`ALIAS`].
    pub fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// Returns what the server says it did.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

fn make_key(path: &Path) -> io::Result<()> {
    let mut command = Command::new("ssh-keygen");
    let made = command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).output()?;
    match made.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned())),
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
