//! Load: limits of connections, connections that are slow to establish, and processes with too
//! many clients.

use std::time::Duration;

use sdam_core::diagnosis::{SLOW_LOOKUP, Verdict};
use sdam_core::failure::Stage;

use crate::doctor::evidence::{Evidence, ServerSeen, Way};
use crate::doctor::finding::Finding;

/// The time from which establishing a connection is slow.
const SLOW: Duration = Duration::from_secs(1);

/// The number of clients of one process from which they are many.
const MANY: u64 = 20;

pub(super) fn judge(evidence: &Evidence, findings: &mut Vec<Finding>) {
    for server in &evidence.servers {
        connections(server, findings);
    }
    slow(evidence, findings);
    clients(evidence, findings);
}

fn connections(server: &ServerSeen, findings: &mut Vec<Finding>) {
    let Some(found) = server.login.as_ref().and_then(|login| login.connections) else { return };
    if found.available > found.current / 20 {
        return;
    }
    let cause = format!(
        "{} has {} connections open and takes {} more",
        server.address, found.current, found.available
    );
    let open = usize::try_from(found.current).unwrap_or_default();
    let verdict = Verdict::ConnectionLimit { server: server.address.clone(), open };
    findings.push(Finding::warning(verdict).because(cause));
}

/// Finds that pools fill slowly, whatever their size.
fn slow(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let quickest = |server: &ServerSeen| {
        let ways = server.more.iter().chain([&server.way]);
        let times = |way: &Way| {
            let (opened, hello) = (way.opened?, way.hello?);
            Some((opened + hello, way.resolved.unwrap_or_default(), opened, hello))
        };
        ways.filter_map(times).min()
    };
    let mut times = evidence.servers.iter().filter_map(|it| Some((it, quickest(it)?)));
    // A lookup that is slow by itself is a finding of its own.
    let is_slow = |(_, (whole, resolved, ..)): &(_, (Duration, Duration, _, _))| {
        *whole >= SLOW && !(*resolved * 2 > *whole && *resolved >= SLOW_LOOKUP)
    };
    let Some((server, (whole, resolved, opened, hello))) = times.find(is_slow) else { return };
    let stage = match () {
        () if resolved * 2 > whole => Stage::Resolve,
        () if hello > opened => Stage::Hello,
        () => Stage::Connect,
    };
    let options = &evidence.options;
    let verdict = Verdict::EstablishmentSlow {
        server: server.address.clone(),
        takes: whole,
        stage: Some(stage),
        max_connecting: options.max_connecting,
        in_use: 0,
        max_pool_size: options.max_pool_size,
    };
    let fails = options.wait_queue_timeout.is_some_and(|limit| limit < whole * 2);
    findings.push(Finding::error(verdict).warning_if(!fails));
}

/// Finds that one process has many clients. Processes elsewhere may be one or many: what clients
/// say of themselves does not name them.
fn clients(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let groups = evidence.servers.iter().flat_map(|server| {
        let clients = server.login.iter().flat_map(|login| &login.clients);
        clients.filter_map(|group| Some((&server.address, group, group.process?)))
    });
    let Some((address, most, process)) = groups.max_by_key(|(_, group, _)| group.monitors) else {
        return;
    };
    if most.monitors < MANY {
        return;
    }
    let cause = format!(
        "process {process} has {} clients that call themselves {:?}, each with connections of its \
         own for monitoring alone",
        most.monitors, most.name
    );
    let clients = usize::try_from(most.monitors).unwrap_or(usize::MAX);
    let hosts = vec![address.clone()];
    let verdict = Verdict::ManyClients { clients, connections: clients, hosts };
    findings.push(Finding::warning(verdict).because(cause));
}
