//! A network of our own: ports, name servers, host names and black holes that nobody else sees.
//!
//! The whole process runs in a network namespace (Linux), in which it may do all that root may;
//! single commands see another `/etc/hosts` or `/etc/resolv.conf`, or are on a machine of their
//! own.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use tempfile::TempDir;

use crate::support::{Failure, until};

/// Says that this process is in its network already.
const INSIDE: &str = "SDAM_TEST_NETWORK";

/// Names that resolve to nobody's machine: packets to it vanish.
pub(crate) const BLACK_HOLE: &str = "10.9.9.2";

/// The machine of its own, and this one as it sees it.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(10, 8, 8, 1);
const THERE: &str = "10.8.8.2";

/// Brings the network up, then becomes what the arguments say. Where the credentials of a virtual
/// machine of AWS would be is a black hole, too.
const SCRIPT: &str = "
ip link set lo up &&
ip link add hole type veth peer name holepeer &&
ip addr add 10.9.9.1/24 dev hole &&
ip link set hole up && ip link set holepeer up &&
ip neigh add 10.9.9.2 lladdr 02:00:00:00:00:02 dev hole &&
ip route add 169.254.169.254/32 dev hole &&
ip neigh add 169.254.169.254 lladdr 02:00:00:00:00:02 dev hole &&
exec \"$@\"";

fn unshared(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--mount", "sh", "-c", SCRIPT, "sh"]).arg(program);
    command
}

/// Runs this process again in a network of its own, and returns how that ended; `None` if this is
/// it already.
///
/// # Errors
///
/// The reason, in words, why there can be none here.
pub(crate) fn enter() -> Result<Option<ExitCode>, String> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(None);
    }
    let tried = unshared(Path::new("true")).stderr(Stdio::piped()).output();
    let tried = tried.map_err(|error| format!("unshare cannot be run: {error}"))?;
    if !tried.status.success() {
        let complaint = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
        return Err(format!("no network of our own can be made: {complaint}"));
    }
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = unshared(&program).args(std::env::args_os().skip(1)).env(INSIDE, "1").status();
    let code = status.map_err(|error| error.to_string())?.code().unwrap_or(1);
    Ok(Some(ExitCode::from(u8::try_from(code).unwrap_or(1))))
}

/// Returns whether this process is in a network of its own.
pub(crate) fn is_own() -> bool {
    std::env::var_os(INSIDE).is_some()
}

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

/// A machine of its own, with a loopback interface of its own.
pub(crate) struct Machine {
    holder: Child,
}

impl Machine {
    /// Starts one that reaches this machine at [`HERE`].
    pub(crate) fn start() -> io::Result<Self> {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 3600"]);
        let mut holder = holder.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut byte = [0];
        io::Read::read_exact(holder.stdout.as_mut().expect("a pipe"), &mut byte)?;
        let machine = Self { holder };
        let pid = machine.holder.id().to_string();
        run("ip", &["link", "add", "wire", "type", "veth", "peer", "name", "plug", "netns", &pid])?;
        run("ip", &["addr", "add", &format!("{HERE}/24"), "dev", "wire"])?;
        run("ip", &["link", "set", "wire", "up"])?;
        let inside = |arguments: &[&str]| machine.command("ip").args(arguments).status().map(drop);
        inside(&["addr", "add", &format!("{THERE}/24"), "dev", "plug"])?;
        inside(&["link", "set", "plug", "up"])?;
        Ok(machine)
    }

    /// Returns a command that runs `program` there.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.holder.id().to_string(), program]);
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended with the test before.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let status = Command::new(program).args(arguments).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{program} {arguments:?} ends with {status}"))),
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
