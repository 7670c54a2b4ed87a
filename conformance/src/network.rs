//! A network of a test process's own, and a machine at the other end of a wire (Linux).
//!
//! The whole process runs in a network namespace, in which it may do all that root may: its ports,
//! its loopback interface and its ways are its own.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

/// Says that this process is in its network already.
const INSIDE: &str = "SDAM_TEST_NETWORK";

/// An address without a machine: packets to it vanish.
pub const BLACK_HOLE: &str = "10.9.9.2";

/// This process's address, as a [`Machine`] sees it.
pub const HERE: Ipv4Addr = Ipv4Addr::new(10, 8, 8, 1);

/// The address of a [`Machine`].
pub const THERE: Ipv4Addr = Ipv4Addr::new(10, 8, 8, 2);

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
pub fn enter() -> Result<Option<ExitCode>, String> {
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
pub fn is_own() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// A machine at the other end of a wire, with a loopback interface of its own.
#[derive(Debug)]
pub struct Machine {
    holder: Child,
}

impl Machine {
    /// Starts one that reaches this process at [`HERE`], and is reached at [`THERE`].
    ///
    /// # Errors
    ///
    /// Fails outside a network of our own, and if there is such a machine already.
    pub fn start() -> io::Result<Self> {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 3600"]);
        let mut holder = holder.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut byte = [0];
        io::Read::read_exact(holder.stdout.as_mut().expect("a pipe"), &mut byte)?;
        let machine = Self { holder };
        let pid = machine.holder.id().to_string();
        let (here, there) = (format!("{HERE}/24"), format!("{THERE}/24"));
        let outside = |arguments: &[&str]| run(Command::new("ip"), arguments);
        let inside = |arguments: &[&str]| run(machine.command("ip"), arguments);
        outside(&["link", "add", "wire", "type", "veth", "peer", "name", "plug", "netns", &pid])?;
        outside(&["addr", "add", &here, "dev", "wire"])?;
        outside(&["link", "set", "wire", "up"])?;
        inside(&["addr", "add", &there, "dev", "plug"])?;
        inside(&["link", "set", "plug", "up"])?;
        Ok(machine)
    }

    /// Returns a command that runs `program` there.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.holder.id().to_string(), program]);
        command
    }

    /// Has every packet between there and here vanish, without a word to either end.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses.
    pub fn cut(&self) -> io::Result<()> {
        // They go to a device that is not there.
        self.neighbours("replace", &["lladdr", "02:00:00:00:00:02"])
    }

    /// Has packets arrive again.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses.
    pub fn mend(&self) -> io::Result<()> {
        self.neighbours("del", &[])
    }

    fn neighbours(&self, change: &str, to: &[&str]) -> io::Result<()> {
        let ip = |command: Command, address: Ipv4Addr, device: &str| {
            let address = address.to_string();
            run(command, &[&["neigh", change, &address][..], to, &["dev", device]].concat())
        };
        ip(Command::new("ip"), THERE, "wire")?;
        ip(self.command("ip"), HERE, "plug")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended with the test before.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn run(mut command: Command, arguments: &[&str]) -> io::Result<()> {
    let status = command.args(arguments).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ip {arguments:?} ends with {status}"))),
    }
}
