//! The answers of DNS when a client looks up the hosts of its deployment once more, and their
//! faults with that.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sdam_core::dns::srv::SrvRecord;
use sdam_core::dns::{
    DnsCause, DnsError, NameError, Question, ServerFailure, Transport, Unanswered,
};
use sdam_core::time::Instant;

use super::fault::{Fault, FaultKind};
use super::random::Random;
use super::world::{Event, World};

/// The name by which clients find the deployment.
pub(super) const HOSTNAME: &str = "cluster.sim.example";

/// The time that a question, or its answer, is under way unless something is wrong.
pub(super) const WAY: Duration = Duration::from_millis(5);

/// The time that an answer is waited for before the question is asked again.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The time that a lookup takes at most: the one name server is asked twice.
pub(super) const LONGEST_LOOKUP: Duration = Duration::from_secs(10);

/// Hosts that are not in the domain of the deployment, although some look like it.
const STRANGERS: [&str; 4] =
    ["m0.sim.example.org", "m0.notsim.example", "sim.example", "m0.cluster.sim"];

impl World {
    /// A client's question has reached DNS, unless it is lost.
    pub(super) fn look_up(&mut self, client: usize) {
        let Some(srv) = self.plan.clients[client].options.srv() else { return };
        let question = Question::srv(&srv.service_name, &srv.hostname);
        let spoilt = self.spoilt_lookups(client).filter(|it| self.network.now < it.ends).last();
        let lost = || (LONGEST_LOOKUP - WAY, Err(unanswered(ServerFailure::Timeout(TIMEOUT))));
        let (delay, records) = match spoilt.map(|it| (it.kind, it.bits)) {
            Some((FaultKind::DnsLoss, _)) => lost(),
            _ if self.network.is_cut_off(client) => lost(),
            Some((FaultKind::DnsError, bits)) => (WAY, Err(cause(bits))),
            Some((FaultKind::DnsDelay, bits)) => {
                let mut random = Random::new(bits ^ self.network.now.as_nanos());
                (random.between(WAY, LONGEST_LOOKUP - WAY), Ok(self.records()))
            }
            Some((FaultKind::DnsStrangers, bits)) => (WAY, Ok(self.with_strangers(bits))),
            Some((FaultKind::DnsEmpty, _)) => (WAY, Ok(Vec::new())),
            _ => (WAY, Ok(self.records())),
        };
        let records = records.map_err(|cause| DnsError::new(question, cause));
        self.network.plan(delay, Event::Resolved { client, records });
    }

    /// Returns since when nothing has been wrong with the lookups of a client, `None` if something
    /// is.
    pub(super) fn lookups_calm_since(&self, client: usize) -> Option<Instant> {
        let last = self.spoilt_lookups(client).map(|it| it.ends).max().unwrap_or_default();
        (last <= self.network.now).then_some(last)
    }

    /// Returns what has gone wrong with a client's lookups, and what does.
    fn spoilt_lookups(&self, client: usize) -> impl Iterator<Item = &Fault> {
        let faults = self.plan.faults.iter().enumerate();
        let faults = faults.filter(|(index, _)| self.plan.reduction.has_fault(*index));
        faults.map(|(_, fault)| fault).filter(move |fault| {
            fault.kind.spoils_lookups()
                && fault.begins <= self.network.now
                && fault.clients.contains(&client)
        })
    }

    /// Returns the records of the deployment.
    fn records(&self) -> Vec<SrvRecord> {
        let members = self.plan.cluster.members.iter().map(|it| &it.address);
        let listed = members.zip(&self.listed).filter(|(_, listed)| **listed);
        listed.map(|(address, _)| record(address.host(), address.port().unwrap_or(27017))).collect()
    }

    /// Returns records of hosts elsewhere, between those of the deployment if there are any.
    fn with_strangers(&self, bits: u64) -> Vec<SrvRecord> {
        let mut records = if bits.is_multiple_of(2) { self.records() } else { Vec::new() };
        let strangers = STRANGERS.iter().enumerate();
        for (number, stranger) in strangers.filter(|(number, _)| bits >> (1 + number) & 1 == 0) {
            records.insert(number.min(records.len()), record(stranger, 27017));
        }
        records
    }
}

fn record(host: &str, port: u16) -> SrvRecord {
    SrvRecord::new(host, port, Duration::ZERO)
}

/// Returns why a lookup fails, at once.
fn cause(bits: u64) -> DnsCause {
    let server = name_server();
    match bits % 8 {
        0 => DnsCause::NoSuchName { server },
        1 => DnsCause::NoRecords { server },
        2 => DnsCause::NoNameServer,
        3 => DnsCause::Resolver(Arc::from("it does not want to")),
        4 => DnsCause::Name(NameError::EmptyPart),
        5 => unanswered(ServerFailure::Unreachable(Arc::from("network unreachable"))),
        6 => unanswered(ServerFailure::Refused("SERVFAIL")),
        _ => unanswered(ServerFailure::Malformed("it is too short")),
    }
}

fn unanswered(failure: ServerFailure) -> DnsCause {
    let unanswered = Unanswered::new(name_server(), Transport::Udp, failure);
    DnsCause::Unanswered { servers: vec![unanswered] }
}

fn name_server() -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, 53), 53).into()
}
