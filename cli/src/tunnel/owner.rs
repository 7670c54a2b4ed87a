//! The owner of a listening socket, as far as the system says.

#[cfg(target_os = "linux")]
use std::{fs, io};

/// Returns whether a process, or one that it has started, listens at a TCP port of IPv4; also if
/// the system does not say.
#[cfg(target_os = "linux")]
pub(super) fn listens(process: u32, port: u16) -> bool {
    let Ok(sockets) = fs::read_to_string("/proc/net/tcp") else { return true };
    let sockets: Vec<String> = sockets.lines().filter_map(|it| listening(it, port)).collect();
    let (mut processes, mut next) = (vec![process.to_string()], 0);
    while let Some(process) = processes.get(next) {
        if has_any(process, &sockets).unwrap_or(true) {
            return true;
        }
        // One that has ended has none.
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        let children = children.unwrap_or_default();
        processes.extend(children.split_whitespace().map(str::to_owned));
        next += 1;
    }
    false
}

/// Returns whether a process, or one that it has started, listens at a TCP port of IPv4; also if
/// the system does not say.
#[cfg(not(target_os = "linux"))]
pub(super) const fn listens(_process: u32, _port: u16) -> bool {
    true
}

/// Returns the name among open files of the socket that a line of `/proc/net/tcp` is about, if it
/// listens at the port.
#[cfg(target_os = "linux")]
fn listening(line: &str, port: u16) -> Option<String> {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let (_, local_port) = local.split_once(':')?;
    let state = fields.nth(1)?;
    let is_it = state == "0A" && u16::from_str_radix(local_port, 16) == Ok(port);
    is_it.then(|| fields.nth(5).map(|inode| format!("socket:[{inode}]")))?
}

/// Returns whether a process has one of these files open.
#[cfg(target_os = "linux")]
fn has_any(process: &str, files: &[String]) -> io::Result<bool> {
    let open = match fs::read_dir(format!("/proc/{process}/fd")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        open => open?,
    };
    let mut names = open.map_while(Result::ok).filter_map(|it| fs::read_link(it.path()).ok());
    Ok(names.any(|name| files.iter().any(|file| name.as_os_str() == file.as_str())))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::listens;

    #[test]
    fn a_port_is_that_of_the_process_that_listens_and_of_its_parent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(std::process::id(), port));
        // Descriptors are not passed on.
        let mut other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!listens(other.id(), port));
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(!listens(other.id(), port));
    }
}
