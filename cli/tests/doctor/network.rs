//! A network of our own: host names, name servers and ways that no other process sees.
//!
//! Single commands see another `/etc/hosts` or `/etc/resolv.conf`, or are on a machine of their
//! own.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

pub(crate) use sdam_conformance::network::{BLACK_HOLE, HERE, Machine, enter, is_own};
use tempfile::TempDir;

use crate::support::{Failure, until};

/// The files that a command sees in place of the system's.
#[derive(Debug)]
pub(crate) struct Sight {
    folder: TempDir,
}

impl Sight {
    /// Sees this `/etc/resolv.conf`, and nothing but `localhost` in `/etc/hosts`.
    pub(crate) fn of(resolv_conf: &str) -> io::Result<Self> {
        let folder = TempDir::new()?;
        fs::write(folder.path().join("resolv.conf"), resolv_conf)?;
        fs::write(folder.path().join("hosts"), "127.0.0.1 localhost\n")?;
        // Only files and DNS are asked, whatever this machine is set up for.
        fs::write(folder.path().join("nsswitch.conf"), "hosts: files dns\n")?;
        Ok(Self { folder })
    }

    /// Returns a command that runs `program` with that.
    pub(crate) fn command(&self, program: &str) -> Command {
        let script = "
            for file in resolv.conf hosts nsswitch.conf; do
                mount --bind \"$0/$file\" \"$(readlink -f /etc/$file)\" || exit 125
            done
            exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(self.folder.path()).arg(program);
        command
    }
}

/// Leads connections to `port` of [`HERE`] to the same port of the loopback interface.
pub(crate) fn lead_in(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((HERE, port))?;
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            if let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else {
                        break;
                    };
                    thread::spawn(move || {
                        // How it ends makes no difference.
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        }
    });
    Ok(())
}

/// A name server, Debian's `nsd`, on port 53 of an address of the loopback interface.
pub(crate) struct NameServer {
    process: Child,
    _folder: TempDir,
}

impl NameServer {
    /// Serves the zone `shop.test` with these records.
    pub(crate) fn start(address: &str, records: &str) -> Result<Self, Failure> {
        let folder = TempDir::new()?;
        let zone = format!(
            "$ORIGIN shop.test.\n$TTL 60\n@ IN SOA ns root 1 3600 900 604800 60\n@ IN NS ns\n\
             ns IN A {address}\n{records}"
        );
        let configuration = format!(
            "server:\n ip-address: {address}@53\n server-count: 1\n zonesdir: \".\"\n \
             username: \"\"\n chroot: \"\"\n pidfile: \"\"\n database: \"\"\n xfrdfile: \"\"\n \
             zonelistfile: \"zone.list\"\n reuseport: no\nremote-control:\n control-enable: no\n\
             zone:\n name: shop.test\n zonefile: shop.test.zone\n"
        );
        fs::write(folder.path().join("shop.test.zone"), zone)?;
        fs::write(folder.path().join("nsd.conf"), configuration)?;
        let installed = Path::new("/usr/sbin/nsd");
        let program = if installed.exists() { installed.to_owned() } else { PathBuf::from("nsd") };
        let mut command = Command::new(program);
        command.args(["-d", "-c", "nsd.conf"]).current_dir(folder.path());
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { process: process.spawn()?, _folder: folder };
        until("nsd did not listen", || Ok(TcpStream::connect((address, 53)).ok()))?;
        Ok(server)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        // It ends its own children when it is asked to end.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.process.wait();
    }
}

/// Says what of the system these tests need and miss.
pub(crate) fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    let has = |program: &str, argument: &str| {
        Command::new(program)
            .arg(argument)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    if !Path::new("/usr/sbin/nsd").exists() && !has("nsd", "-v") {
        missing.push("a name server: install nsd".to_owned());
    }
    if !has("openssl", "version") {
        missing.push("certificates with a responder: install openssl".to_owned());
    }
    missing
}
