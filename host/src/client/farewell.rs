//! The end of a topology whose last handle was dropped: a task has servers close its cursors and
//! forget its sessions, and closes it then.
//!
//! Implements of Driver Sessions: "endSessions ... MUST be run once when the MongoClient instance
//! is shut down".

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::selection::Criteria;

use crate::client::Topology;
use crate::machines::Host;
use crate::machines::client_tasks::ClientTasks;
use crate::machines::runtime::Runtime;
use crate::machines::sleep::sleep_until;
use crate::process::Own;
use crate::sync::{before, lock};

/// Begins the task, which ends the tasks of the topology when it has ended itself, done or not;
/// returns false if servers keep nothing, or none is known.
pub(crate) fn begin<R: Runtime>(host: &Arc<Host<R>>, tasks: &Arc<ClientTasks>) -> bool {
    let shared = &host.shared;
    if !shared.process.is_current() || !is_kept(host) || host.is_closed() || !is_reached(host) {
        return false;
    }
    let running = shared.activity.begin();
    let topology = Topology::of_task(Arc::clone(host), Arc::clone(tasks));
    let farewell = async move {
        let _running = running;
        // The last reference, unless the host has been kept elsewhere: then it goes on.
        let topology = topology;
        topology.release().await;
    };
    host.runtime().spawn(Box::pin(Own::new(Box::pin(farewell), shared.process)));
    true
}

/// Returns the rule by which a server is chosen for `endSessions`: "primaryPreferred".
pub(crate) fn criteria() -> Criteria {
    Criteria::read(ReadPreference::new(ReadMode::PrimaryPreferred))
}

/// The time that servers get to abort transactions.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Has the transactions aborted that are left open, if a server is known.
pub(super) async fn abort_transactions<R: Runtime>(topology: &Topology<R>) {
    let host = &topology.host;
    let is_there = host.shared.process.is_current() && host.transactions.are_there();
    if is_there && is_reached(host) {
        let late = sleep_until(&host.shared, topology.now() + ABORT_TIMEOUT);
        before(late, host.transactions.abort()).await;
    }
}

/// Returns whether servers keep anything for the topology.
fn is_kept<R: Runtime>(host: &Host<R>) -> bool {
    host.transactions.are_there()
        || !lock(&host.sessions).is_empty()
        || host.cursors_to_kill.lock().inner.servers().next().is_some()
}

/// Returns whether a server is known that would hear of it.
fn is_reached<R: Runtime>(host: &Host<R>) -> bool {
    host.diagnose(&criteria()).is_none()
}
