//! A client as applications have it: it monitors, and logs in where they would.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdam_core::description::{ServerType, TopologyDescription, TopologyType};
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant as ClientTime;
use sdam_core::topology::{Event, EventKind};
use sdam_host::{Error, ErrorKind, Events};
use sdam_tokio::Topology;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::{Means, commands};
use crate::doctor::evidence::{
    ClientSeen, Login, LoginError, Role, ServerSeen, Stale, is_conclusive,
};
use crate::duration::precise;

/// A client that watches.
#[derive(Debug)]
pub(in crate::doctor) struct Watcher {
    client: Topology,
    log: Arc<Mutex<Log>>,
    reader: JoinHandle<()>,
}

/// The facts that events have reported.
#[derive(Debug, Default)]
struct Log {
    seen: ClientSeen,
    /// The time since which there has been no primary.
    lost: Option<ClientTime>,
}

impl Log {
    fn note(&mut self, event: Event) {
        let at = event.at;
        let seen = &mut self.seen;
        match event.kind {
            EventKind::ServerHeartbeatSucceeded { address, awaited, duration, .. } => {
                seen.checks += 1;
                if awaited {
                    seen.has_waited(&address, duration);
                }
            }
            EventKind::ServerDescriptionChanged { new, .. } => {
                let failure = new.error.as_ref().filter(|it| it.cause == Cause::StalePrimary);
                if let Some(failure) = failure
                    && seen.stale.iter().all(|stale| stale.address != new.address)
                {
                    let (address, detail) = (new.address.clone(), failure.detail.to_string());
                    seen.stale.push(Stale { address, detail });
                }
            }
            EventKind::TopologyDescriptionChanged { new, .. } => {
                let is_lost = new.topology_type == TopologyType::ReplicaSetNoPrimary
                    && !new.servers().iter().any(|server| is_open(server));
                let since = match is_lost {
                    true => *self.lost.get_or_insert(at),
                    false => self.lost.take().unwrap_or(at),
                };
                seen.without_primary = seen.without_primary.max(at - since);
            }
            EventKind::Diagnosed { verdict } => seen.find(verdict),
            _ => {}
        }
    }
}

impl Watcher {
    /// Begins to watch.
    pub(in crate::doctor) fn start(means: &Means) -> Result<Self, Error> {
        let (client, events) = Topology::with_events(means.options().clone())?;
        let log = Arc::<Mutex<Log>>::default();
        let reader = tokio::spawn(read(events, Arc::clone(&log)));
        Ok(Self { client, log, reader })
    }

    /// Waits until each server has answered or failed, or until all is over.
    pub(in crate::doctor) async fn settled(&self, deadline: Instant) -> bool {
        self.until(deadline, |view| {
            view.topology_type == TopologyType::LoadBalanced
                || !view.servers().iter().any(|server| is_open(server))
        })
        .await
    }

    /// Waits until there is a primary, or until all is over.
    pub(in crate::doctor) async fn has_primary(&self, deadline: Instant) -> bool {
        self.until(deadline, |view| {
            view.servers().iter().any(|server| server.server_type == ServerType::RsPrimary)
        })
        .await
    }

    async fn until(&self, deadline: Instant, holds: impl Fn(&TopologyDescription) -> bool) -> bool {
        let mut views = self.client.watch_topology();
        let waiting = async {
            while let Some(view) = views.next().await {
                if holds(&view) {
                    return true;
                }
            }
            false
        };
        timeout_at(deadline, waiting).await.unwrap_or(false)
    }

    /// Returns the client.
    pub(in crate::doctor) const fn client(&self) -> &Topology {
        &self.client
    }

    /// Returns what was seen so far.
    pub(in crate::doctor) fn seen(&self, is_settled: bool) -> ClientSeen {
        let (view, mut seen) = (self.client.view(), lock(&self.log).seen.clone());
        let why_not = self.client.diagnose(&Criteria::write());
        seen.is_settled = is_settled;
        seen.topology = view.topology_type.to_string();
        seen.is_writable = why_not.is_none();
        seen.why_not = why_not.map(|error| error.verdict);
        let reads = Criteria::read(self.client.options().read_preference().clone());
        seen.why_not_read = self.client.diagnose(&reads).map(|error| error.verdict);
        seen.watched = self.client.now().since_origin();
        seen
    }

    /// Ends the client.
    pub(in crate::doctor) async fn close(self) {
        self.client.close().await;
        // It ends with the last event.
        let _ = self.reader.await;
    }
}

fn is_open(server: &sdam_core::description::ServerDescription) -> bool {
    server.server_type == ServerType::Unknown && server.error.is_none()
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(mut events: Events, log: Arc<Mutex<Log>>) {
    while let Some(event) = events.next().await {
        lock(&log).note(event);
    }
}

/// Logs in to a server that has answered, where applications would and as soon as the client knows
/// it too, and asks it questions.
pub(super) async fn log_in(client: &Topology, means: &Means, server: &mut ServerSeen) {
    let role = server.greeting().map(|greeting| greeting.role);
    let Some(role) = role.filter(|role| !matches!(role, Role::Arbiter | Role::Ghost)) else {
        return;
    };
    let is_known = timeout_at(means.deadline(), known(client, server)).await.is_ok();
    let Some(member) = client.member(&server.address) else { return };
    if !is_known {
        return server.is_login_cut = true;
    }
    if member.description().server_type == ServerType::Unknown {
        return;
    }
    // Something is left to say what has come of it.
    let (begun, limit) = (Instant::now(), means.left() * 9 / 10);
    let checked_out = member.with_deadline(Some(client.now() + limit)).check_out().await;
    let took = begun.elapsed();
    match checked_out {
        Ok(connection) => {
            server.login = Some(Login { established: Some(took), ..Login::default() });
            commands::ask(connection, means, role, server).await;
        }
        Err(error) if error.kind() == ErrorKind::Timeout && took >= limit => {
            // The way that has led to hello is gone once more before that.
            let waited = took.saturating_sub(server.way.took);
            if !is_conclusive(Stage::Authenticate, waited) {
                return server.is_login_cut = true;
            }
            let text = format!("no connection within {}", precise(limit));
            let kind = error.kind().name().to_owned();
            // Where the client waits for the server, there is nothing to be said but that.
            let is_elsewhere = |it: &&Verdict| {
                matches!(it, Verdict::EstablishmentSlow { stage: Some(stage), .. }
                    if stage.is_elsewhere())
            };
            let verdict = error.verdict().filter(is_elsewhere).cloned();
            let error = LoginError { kind, is_of_network: false, verdict, text };
            server.login = Some(Login { error: Some(error), ..Login::default() });
        }
        Err(error) => {
            server.login = Some(Login { error: Some(refused(&error)), ..Login::default() });
        }
    }
}

/// Waits until the client has heard of a server, or has no such server: any more, if it is a seed
/// or the set has another name for it.
async fn known(client: &Topology, server: &ServerSeen) {
    let me = server.greeting().and_then(|greeting| greeting.me.as_ref());
    let may_come = !server.is_seed && me.is_none_or(|me| *me == server.address);
    let mut views = client.watch_topology();
    while let Some(view) = views.next().await {
        let is_open = match view.server(&server.address) {
            Some(server) => is_open(server),
            None => may_come && view.servers().iter().any(|server| is_open(server)),
        };
        if !is_open || view.topology_type == TopologyType::LoadBalanced {
            return;
        }
    }
}

fn refused(error: &Error) -> LoginError {
    LoginError {
        kind: error.kind().name().to_owned(),
        is_of_network: error.failure().is_some_and(Failure::is_network_error),
        verdict: error.verdict().cloned(),
        // What the library advises besides is for applications.
        text: error.as_check_out().map_or_else(|| error.to_string(), ToString::to_string),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Log;
    use crate::fixture::{Fixture, member};

    /// A set whose primary dies after a second, and which has another one three seconds later.
    #[test]
    fn the_time_without_a_primary_goes_from_the_end_of_one_to_the_next() {
        let hosts = ["a:27017", "b:27017", "c:27017"];
        let says = |me, primary| member("rs", &hosts, me, primary);
        let uri = "mongodb://a,b,c/?replicaSet=rs&heartbeatFrequencyMS=1000";
        let mut set = Fixture::new(uri);
        for host in hosts {
            set.reply(host, &says(host, Some("a:27017")));
        }
        set.at(1000).refuse("a:27017", "it died");
        for host in ["b:27017", "c:27017"] {
            set.reply(host, &says(host, None));
        }
        let mut log = Log::default();
        let mut heard = 0;
        let mut without_primary = |set: &Fixture| {
            set.events[heard..].iter().for_each(|event| log.note(event.clone()));
            heard = set.events.len();
            log.seen.without_primary
        };
        assert_eq!(without_primary(&set), Duration::ZERO);
        set.at(4000).reply("b:27017", &says("b:27017", Some("b:27017")));
        assert_eq!(without_primary(&set), Duration::from_secs(3));
    }
}
