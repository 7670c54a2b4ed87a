//! The transactions of a client that are still open when it is closed: they hold locks at servers.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::process::Process;
use crate::sync::{Activity, Mutex, Running, lock};

/// A session that has transactions.
pub(crate) trait HasTransactions: Send + Sync {
    /// Has a task abort the transaction that is left open, if one is.
    fn abort_left(self: Arc<Self>);
}

/// The sessions of a client that have had transactions, and the tasks that abort some.
pub(crate) struct OpenTransactions {
    sessions: Mutex<BTreeMap<usize, Weak<dyn HasTransactions>>>,
    aborts: Arc<Activity>,
}

impl OpenTransactions {
    pub(crate) fn new(process: Process) -> Self {
        Self { sessions: Mutex::default(), aborts: Arc::new(Activity::new(process)) }
    }

    /// Takes note of a session; it is removed by the same key.
    pub(crate) fn add(&self, key: usize, session: Weak<dyn HasTransactions>) {
        lock(&self.sessions).insert(key, session);
    }

    pub(crate) fn remove(&self, key: usize) {
        lock(&self.sessions).remove(&key);
    }

    /// Begins an abort that nothing waits for but the end of the client.
    pub(crate) fn begin_abort(&self) -> Running {
        self.aborts.begin()
    }

    /// Returns whether there may be something to be aborted.
    pub(crate) fn are_there(&self) -> bool {
        !lock(&self.sessions).is_empty() || self.aborts.is_running()
    }

    /// Aborts all that are left open, and waits for that.
    pub(crate) async fn abort(&self) {
        let sessions: Vec<_> = lock(&self.sessions).values().filter_map(Weak::upgrade).collect();
        sessions.into_iter().for_each(HasTransactions::abort_left);
        self.aborts.idle().await;
    }
}
