//! Host names that some servers can resolve, and no other process on this machine.
//!
//! A server that is given such names sees another `/etc/hosts` than everybody else, in a mount
//! namespace of its own (Linux). That is what a deployment behind a tunnel looks like to a client.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::process;

/// Replaces `/etc/hosts` by the file `$0`, then becomes what the other arguments say.
const SCRIPT: &str = r#"mount --bind "$0" /etc/hosts && exec "$@""#;

/// Returns why no server can have private names here; that takes `unshare` and the right to use it.
///
/// # Errors
///
/// The reason, in words.
pub fn private_names_work() -> Result<(), String> {
    let mut command = Command::new("getent");
    command.args(["hosts", "localhost"]);
    let output = process::run(with_hosts(Path::new("/etc/hosts"), &command))
        .map_err(|error| format!("cannot run unshare: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            Err(format!("cannot replace /etc/hosts for a server: {}", complaint.trim()))
        }
    }
}

/// Writes the file that says that all these names are this machine.
pub(crate) fn write_hosts(path: &Path, names: &[String]) -> io::Result<()> {
    let lines = names.iter().map(|name| format!("127.0.0.1 {name}\n"));
    fs::write(path, "127.0.0.1 localhost\n".to_owned() + &lines.collect::<String>())
}

/// Returns a command that does the same, in the same process, with another `/etc/hosts`.
pub(crate) fn with_hosts(hosts: &Path, command: &Command) -> Command {
    let mut outer = Command::new("unshare");
    outer.args(["--map-root-user", "--mount", "sh", "-c", SCRIPT]).arg(hosts);
    outer.arg(command.get_program()).args(command.get_args());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer
}
