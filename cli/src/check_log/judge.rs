//! Judges a log: every record by the rules for its topology, and topologies by how they end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerType, TopologyType};

use super::changes::Changes;
use super::clock::{Clock, Limits, REORDERED_RECORDS, REORDERING};
use super::finding::{Broken, Counts, Finding};
use super::heartbeats::Heartbeats;
use super::read::Log;
use super::record::{Found, Record, What};
use super::rule::Rule;
use super::shape::ServerShape;

/// The interval at which stuck steps are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// One topology of a log.
#[derive(Debug, Default)]
struct Topology<'a> {
    number: usize,
    /// Its records, in order, and how many of them were judged.
    records: Vec<&'a Record>,
    judged: usize,
    heartbeats: Heartbeats,
    changes: Changes<'a>,
    /// The servers that are to be checked, by all that was logged.
    members: BTreeSet<&'a ServerAddress>,
    /// The types of servers that were reported last, by events about servers.
    types: BTreeMap<&'a ServerAddress, ServerType>,
    /// The record that has closed it.
    closed: Option<&'a Record>,
}

/// Finds every step of a log that breaks a rule, in the order of their lines.
pub(super) fn judge(log: &Log, limits: &Limits) -> (Vec<Finding>, Counts) {
    let mut counts = Counts {
        lines: log.lines,
        passed_over: log.passed_over,
        unreadable: log.unreadable,
        topologies: log.topologies.len(),
        timed: log.records.iter().any(|record| record.at.is_some()),
        tells_errors: log.records.iter().any(tells_errors),
        ..Counts::default()
    };
    let mut records = vec![Vec::new(); log.topologies.len()];
    log.records.iter().for_each(|record| records[record.topology].push(record));
    let topologies = records.into_iter().enumerate();
    let stated = counts.tells_errors;
    let mut topologies: Vec<_> =
        topologies.map(|(it, own)| Topology::new(it, own, stated)).collect();
    let (mut clock, mut findings, mut awake) = (Clock::default(), Vec::new(), None);
    let mut looked = None;
    for (index, record) in log.records.iter().enumerate() {
        awake = clock.advance(record, limits);
        let topology = &mut topologies[record.topology];
        if is_loss(record) {
            topology.lose();
            continue;
        }
        // More may have been lost while that message was written, before this record.
        if log.records.get(index + 1).is_some_and(is_loss) {
            topology.record(record, awake, &mut counts);
            continue;
        }
        if let Some(now) = awake.filter(|now| looked.is_none_or(|then| *now >= then + LOOK)) {
            looked = awake;
            for topology in topologies.iter_mut().filter(|topology| topology.closed.is_none()) {
                findings.extend(topology.heartbeats.find_stuck(limits, record, now));
            }
        }
        findings.extend(topologies[record.topology].record(record, awake, &mut counts));
    }
    for topology in &mut topologies {
        let is_closed = topology.closed.is_some();
        findings.extend(topology.heartbeats.never_ended(limits, awake, is_closed));
    }
    findings.sort_by_key(|finding| finding.line);
    (findings, counts)
}

impl<'a> Topology<'a> {
    fn new(number: usize, records: Vec<&'a Record>, tells_errors: bool) -> Self {
        let opens = |record: &&Record| matches!(record.what, What::TopologyOpening);
        let is_whole = records.iter().any(opens);
        let changes = Changes::new(number, is_whole, set_name(&records), tells_errors);
        let heartbeats = Heartbeats::new(number, is_whole);
        Self { number, records, changes, heartbeats, ..Self::default() }
    }

    fn finding(&self, record: &Record, rule: Rule, expected: String, found: &str) -> Finding {
        Finding::of(record, self.number, Broken::new(rule, expected, found))
    }

    /// Forgets all that messages which are missing may have changed.
    fn lose(&mut self) {
        self.judged += 1;
        self.changes.lose();
        self.heartbeats = Heartbeats::new(self.number, false);
        self.members.clear();
        self.types.clear();
    }

    /// Returns what follows, as far as nothing is missing in between.
    fn ahead(&self) -> &[&'a Record] {
        let ahead = &self.records[self.judged..];
        let loss = ahead.iter().position(|record| is_loss(record));
        // The one before the message may come after what is missing.
        &ahead[..loss.map_or(ahead.len(), |loss| loss.saturating_sub(1))]
    }

    /// Judges a record.
    fn record(
        &mut self,
        record: &'a Record,
        awake: Option<Duration>,
        counts: &mut Counts,
    ) -> Vec<Finding> {
        self.judged += 1;
        let mut findings = self.changes.advance(record);
        if let Some(closed) = self.closed {
            let expected = format!("nothing after line {}, in which it was closed", closed.line);
            findings.push(self.finding(record, Rule::AfterClosed, expected, said(&record.what)));
        }
        match &record.what {
            What::TopologyOpening => {
                if self.judged > 1 {
                    let expected = "this as the first line of its topology".to_owned();
                    let found = "others before it";
                    findings.push(self.finding(record, Rule::BeforeOpening, expected, found));
                }
            }
            What::TopologyClosed => self.closed = Some(record),
            What::TopologyChanged { previous, new } => {
                let descriptions = (previous.as_deref(), new.as_deref());
                let ahead = self.ahead().to_vec();
                findings.extend(self.changes.changed(record, descriptions, &ahead, counts));
                self.follow(record, awake);
            }
            What::ServerOpening { address } => self.join(record, awake, address),
            What::ServerClosed { address } => self.leave(address),
            What::ServerChanged { address, previous, new } => {
                let (previous, new) = (previous.as_deref(), new.as_deref());
                counts.server_changed(new.is_none().then_some(record.line));
                let type_of = |it: Option<&ServerShape>| it.map(|server| server.server_type);
                let types = (type_of(previous), type_of(new));
                findings.extend(self.server_changed(record, address, types));
                findings.extend(new.into_iter().flat_map(|new| {
                    self.changes.server_changed(record, (address, previous, new), self.ahead())
                }));
            }
            What::Started { address, awaited } => {
                counts.heartbeats += 1;
                findings.extend(self.stranger(record, address));
                findings.extend(self.heartbeats.started(record, awake, (address, *awaited)));
            }
            What::Ended { address, found, awaited, .. } => {
                findings.extend(self.heartbeats.awaited_otherwise(record, address, *awaited));
                findings.extend(self.ended(record, awake, (address, found), counts));
            }
            What::Lost => {}
        }
        findings
    }

    fn join(&mut self, record: &Record, awake: Option<Duration>, address: &'a ServerAddress) {
        self.members.insert(address);
        self.heartbeats.joined(record, awake, address);
    }

    fn leave(&mut self, address: &ServerAddress) {
        self.members.remove(address);
        self.types.remove(address);
        self.heartbeats.left(address);
    }

    /// Servers of a new description are to be checked, and others are not.
    fn follow(&mut self, record: &Record, awake: Option<Duration>) {
        let Some(reported) = self.changes.reported() else { return };
        if reported.topology_type == TopologyType::LoadBalanced {
            return;
        }
        let Some(servers) = &reported.servers else { return };
        let leave = |address: &&&ServerAddress| !servers.contains_key(**address);
        let left: Vec<_> = self.members.iter().filter(leave).copied().collect();
        left.into_iter().for_each(|address| self.leave(address));
        servers.keys().for_each(|address| self.join(record, awake, address));
    }

    fn ended(
        &mut self,
        record: &'a Record,
        awake: Option<Duration>,
        (address, found): (&'a ServerAddress, &'a Found),
        counts: &mut Counts,
    ) -> Option<Finding> {
        counts.failed_heartbeats += usize::from(matches!(found, Found::Failure(_)));
        let reported = self.changes.reported().and_then(|reported| reported.type_of(address));
        let was_known = reported.is_some_and(|it| it != ServerType::Unknown);
        self.changes.heard(record, address, found);
        self.heartbeats.ended(record, awake, (address, found), was_known)
    }

    /// A server is checked that is in no description: neither now nor in a moment.
    fn stranger(&self, record: &Record, address: &ServerAddress) -> Option<Finding> {
        let reported = self.changes.reported()?.servers.as_ref()?;
        if self.members.contains(address) || reported.contains_key(address) {
            return None;
        }
        let is_near = |other: &&&Record| match (record.at, other.at) {
            (Some(one), Some(other)) => one.abs_diff(other) <= REORDERING,
            _ => true,
        };
        let (before, after) = self.records.split_at(self.judged);
        let before = before.iter().rev().take(REORDERED_RECORDS).take_while(is_near);
        let after = after.iter().take(REORDERED_RECORDS).take_while(is_near);
        let is_named = before.chain(after).any(|record| match &record.what {
            What::TopologyChanged { previous, new } => {
                [previous, new].into_iter().flatten().any(|shape| shape.type_of(address).is_some())
            }
            What::ServerOpening { address: other } => other == address,
            _ => false,
        });
        let expected = format!("no check of {address}, which is not in the topology");
        let found = "a heartbeat of it starts";
        (!is_named).then(|| self.finding(record, Rule::NotAMember, expected, found))
    }

    /// The description of a server changes, from what it was.
    fn server_changed(
        &mut self,
        record: &Record,
        address: &'a ServerAddress,
        (previous, new): (Option<ServerType>, Option<ServerType>),
    ) -> Option<Finding> {
        let known = match new {
            Some(new) => self.types.insert(address, new),
            None => self.types.remove(address),
        };
        let (known, previous) = known.zip(previous)?;
        // Some logs report a server that another's change has made Unknown in the topology's only.
        let described = self.changes.reported().and_then(|reported| reported.type_of(address));
        (known != previous && described != Some(previous)).then(|| {
            let expected = format!("{address} previously {known}");
            self.finding(record, Rule::DescriptionChain, expected, previous.name())
        })
    }
}

const fn is_loss(record: &Record) -> bool {
    matches!(record.what, What::Lost)
}

/// Returns whether a line says of a server that it has an error, or none.
fn tells_errors(record: &Record) -> bool {
    let stated = |server: &ServerShape| server.tells_error;
    match &record.what {
        What::TopologyChanged { previous, new } => {
            let shapes = [previous, new].into_iter().flatten();
            shapes
                .flat_map(|shape| shape.servers.iter().flatten())
                .any(|(_, server)| stated(server))
        }
        What::ServerChanged { previous, new, .. } => {
            [previous, new].into_iter().flatten().any(|server| stated(server))
        }
        _ => false,
    }
}

/// Finds the name of the replica set, where descriptions of the topology do not say: that of the
/// first reply of a server that was believed to be a member, or else of any, or else that of a
/// member's description.
fn set_name(records: &[&Record]) -> Option<String> {
    let is_member = |it: ServerType| {
        use ServerType as T;
        matches!(it, T::RsPrimary | T::RsSecondary | T::RsArbiter | T::RsOther)
    };
    let described = || {
        let shapes = records.iter().filter_map(|record| match &record.what {
            What::TopologyChanged { new: Some(new), .. } => Some(new.servers.iter().flatten()),
            _ => None,
        });
        shapes.flatten().filter(|(_, server)| is_member(server.server_type))
    };
    let members: BTreeSet<_> = described().map(|(address, _)| address).collect();
    let replied = || {
        records.iter().filter_map(|record| match &record.what {
            What::Ended { address, found: Found::Reply(reply), .. } => {
                Some((address, reply.get_str("setName").ok()?))
            }
            _ => None,
        })
    };
    let of_member = replied().find(|(address, _)| members.contains(address));
    let name = of_member.or_else(|| replied().next()).map(|(_, name)| name);
    let stated = || described().find_map(|(_, server)| server.details.get("setName")?.as_str());
    name.or_else(stated).map(str::to_owned)
}

const fn said(what: &What) -> &'static str {
    match what {
        What::TopologyOpening => "the topology opens",
        What::TopologyClosed => "the topology is closed once more",
        What::TopologyChanged { .. } => "the description of the topology changes",
        What::ServerOpening { .. } => "a server opens",
        What::ServerClosed { .. } => "a server is closed",
        What::ServerChanged { .. } => "the description of a server changes",
        What::Started { .. } => "a heartbeat starts",
        What::Ended { found: Found::Failure(_), .. } => "a heartbeat fails",
        What::Ended { .. } => "a heartbeat succeeds",
        What::Lost => "messages are missing",
    }
}
