//! The places where reports come from: traces, which `replay` could do again, and logs of other
//! drivers, which `check_log` reads.

pub(super) mod judged;
pub(super) mod log;
pub(super) mod trace;
mod words;

/// The number of hosts in the name of a deployment.
const MAX_HOSTS: usize = 3;

/// Names a deployment by its set, if it is one, and some of its hosts.
fn deployment(set: Option<&str>, hosts: &[String]) -> String {
    if hosts.is_empty() {
        return "a deployment without any known server".to_owned();
    }
    let mut named = hosts.iter().take(MAX_HOSTS).cloned().collect::<Vec<_>>().join(", ");
    if hosts.len() > MAX_HOSTS {
        named += &format!(" and {} more", hosts.len() - MAX_HOSTS);
    }
    match set {
        Some(set) => format!("{set} ({named})"),
        None => named,
    }
}
