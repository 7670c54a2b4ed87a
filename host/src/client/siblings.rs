//! The clients of one process that are for the same deployment, of which there should be one: each
//! keeps monitors and pools of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

use sdam_core::config::ServerAddress;
use sdam_core::diagnosis::Verdict;

use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::process::Process;

/// The number of clients for the same hosts that is no accident any more.
const MANY: usize = 10;

/// The clients of this process, by the hosts that they were created with.
static LIVE: Mutex<BTreeMap<Vec<ServerAddress>, Siblings>> = Mutex::new(BTreeMap::new());

/// The clients for the same hosts.
#[derive(Default)]
struct Siblings {
    clients: Vec<(Process, Weak<dyn Connected>)>,
    /// True if the finding was returned once.
    is_told: bool,
}

/// A client, whatever its runtime.
trait Connected: Send + Sync {
    /// Returns how many connections are open or being opened; `None` if the client is closed.
    fn connections(&self) -> Option<usize>;
}

impl<R: Runtime> Connected for Host<R> {
    fn connections(&self) -> Option<usize> {
        let open = |links: usize, pools: Vec<Arc<_>>| {
            let counts = pools
                .iter()
                .map(|pool: &Arc<crate::machines::server::Server<R>>| pool.counts().total());
            links + counts.sum::<usize>()
        };
        let state =
            self.with_topology(|state| (!state.closed).then(|| (state.links.len(), state.pools())));
        state.map(|(links, pools)| open(links, pools))
    }
}

/// Takes note of a new client; returns what to warn of if it is the tenth for its hosts, once in
/// the life of the process as long as any of them is left.
pub(crate) fn note<R: Runtime>(host: &Arc<Host<R>>) -> Option<Verdict> {
    let mut hosts = host.options().seeds().to_vec();
    hosts.sort_unstable();
    let (weak, process) = (Arc::downgrade(host), Process::current());
    let clients = {
        // Its holder may be a thread that a fork has left behind in the parent.
        let mut live = match LIVE.try_lock() {
            Ok(live) => live,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // Those of a parent are not this process's.
        live.values_mut().for_each(|siblings| {
            siblings.clients.retain(|(of, client)| *of == process && client.strong_count() > 0);
        });
        live.retain(|_, siblings| !siblings.clients.is_empty());
        let siblings = live.entry(hosts.clone()).or_default();
        siblings.clients.push((process, weak));
        if siblings.clients.len() < MANY || siblings.is_told {
            return None;
        }
        siblings.clients.iter().filter_map(|(_, client)| client.upgrade()).collect::<Vec<_>>()
    };
    // Each takes locks of its own, and the last of a client may end it.
    let open: Vec<usize> = clients.iter().filter_map(|client| client.connections()).collect();
    if open.len() < MANY {
        return None;
    }
    let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let siblings = live.get_mut(&hosts).filter(|siblings| !siblings.is_told)?;
    siblings.is_told = true;
    drop(live);
    Some(Verdict::ManyClients { clients: open.len(), connections: open.iter().sum(), hosts })
}
