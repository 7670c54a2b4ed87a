//! The number of files that this process may have open, connections among them.

use rustix::process::{Resource, getrlimit, setrlimit};

/// The number of files that may be open, if the system allows so many: as many as the connections
/// of a full replica set, and some besides.
const MAX_FILES: u64 = 40_000;

/// Lets this process have as many connections as the deployments that it plays, or leads to, may
/// need, if the system allows that: many systems begin with fewer than a thousand files.
pub(crate) fn allow_many() {
    let mut files = getrlimit(Resource::Nofile);
    let wanted = files.maximum.map_or(MAX_FILES, |most| most.min(MAX_FILES));
    if files.current.is_some_and(|current| current < wanted) {
        files.current = Some(wanted);
        // With fewer files, there are fewer connections.
        let _ = setrlimit(Resource::Nofile, files);
    }
}
