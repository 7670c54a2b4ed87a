//! Descriptions: what heartbeats have found moves our model, and has to explain every change that
//! the log reports.
//!
//! Drivers log concurrently: a heartbeat's end may be logged a moment before or after the change
//! that it causes, and those of other servers in between. So what was found is pending until a
//! change is explained by it, or until time has shown that it changes nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sdam_core::bson::RawDocumentBuf;
use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerType, TopologyType};

use super::clock::{FEWEST_RECORDS, REORDERED_RECORDS, REORDERING};
use super::fields::{Fields, Fresh};
use super::finding::{Broken, Counts, Finding};
use super::laws;
use super::model::{Model, described};
use super::record::{Found, Record, What};
use super::rule::Rule;
use super::shape::{ServerShape, Shape};

/// The number of outcomes that may be pending; the oldest is judged early if there are more.
const MAX_PENDING: usize = 128;

/// The number of further records in which a cause is looked for.
const MAX_AHEAD: usize = 32;

/// The finding of a heartbeat that no change has been explained by yet.
#[derive(Debug)]
struct Pending<'a> {
    record: &'a Record,
    /// The number of earlier records of the topology.
    number: usize,
    address: &'a ServerAddress,
    found: &'a Found,
}

impl Pending<'_> {
    /// Returns whether there was a reply, and its server is Unknown without any reason.
    fn is_unseen_and_unknown(&self, reported: &Shape) -> bool {
        let server = reported.servers.as_ref().and_then(|servers| servers.get(self.address));
        matches!(self.found, Found::UnseenReply)
            && server.is_some_and(|it| it.server_type == ServerType::Unknown && !it.has_error)
    }
}

/// The descriptions of one topology.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    topology: usize,
    set_name: Option<String>,
    /// The last description that the log reports.
    reported: Option<&'a Shape>,
    model: Option<Model>,
    pending: VecDeque<Pending<'a>>,
    /// The last reply of each server.
    replies: BTreeMap<ServerAddress, RawDocumentBuf>,
    /// The fields of each server that replies have named, besides its type.
    fields: Fields<'a>,
    /// Servers that an operation's error has made Unknown: by its topologyVersion, which is not
    /// logged, the driver may ignore replies that are older.
    unsure: BTreeSet<ServerAddress>,
    /// True for servers of which a check is in progress, false for those of which one has ended.
    checks: BTreeMap<&'a ServerAddress, bool>,
    /// Lines of heartbeats that have explained a change which was logged before them.
    foreseen: BTreeSet<usize>,
    /// The number of records that there were.
    number: usize,
    /// The number of those before the description that the model began with, which may or may not
    /// show what they say.
    before: usize,
    /// True if the log begins before its topology opens, and the first record.
    is_whole: bool,
    first: Option<&'a Record>,
    is_closing: bool,
    /// True if descriptions of this log say why servers are Unknown.
    tells_errors: bool,
}

impl<'a> Changes<'a> {
    /// Begins a topology; `set_name` is that of its replica set, where descriptions do not say.
    pub(super) fn new(
        topology: usize,
        is_whole: bool,
        set_name: Option<String>,
        tells_errors: bool,
    ) -> Self {
        Self { topology, is_whole, set_name, tells_errors, ..Self::default() }
    }

    /// Forgets everything, as messages are missing: what follows is like a log of its own.
    pub(super) fn lose(&mut self) {
        *self = Self::new(self.topology, false, self.set_name.take(), self.tells_errors);
    }

    /// Returns the last description that was reported.
    pub(super) const fn reported(&self) -> Option<&'a Shape> {
        self.reported
    }

    /// Notes that a heartbeat has ended.
    pub(super) fn heard(
        &mut self,
        record: &'a Record,
        address: &'a ServerAddress,
        found: &'a Found,
    ) {
        self.fields.heard(record, self.number, self.reported);
        if let Found::Reply(reply) = found {
            self.replies.insert(address.clone(), reply.clone());
        }
        if !self.foreseen.remove(&record.line) && !self.is_closing {
            self.pending.push_back(Pending { record, number: self.number, address, found });
        }
    }

    /// Goes on to a record, and judges what should have changed the description by now.
    pub(super) fn advance(&mut self, record: &'a Record) -> Vec<Finding> {
        self.number += 1;
        self.first.get_or_insert(record);
        match &record.what {
            What::Started { address, .. } => _ = self.checks.insert(address, true),
            What::Ended { address, .. } => _ = self.checks.insert(address, false),
            _ => {}
        }
        let mut findings = Vec::new();
        while let Some(oldest) = self.pending.front() {
            let since = self.number - oldest.number;
            let is_late = match (oldest.record.at, record.at) {
                (Some(then), Some(now)) => since >= FEWEST_RECORDS && now > then + REORDERING,
                _ => since > REORDERED_RECORDS,
            };
            if !is_late && self.pending.len() <= MAX_PENDING {
                break;
            }
            let oldest = self.pending.pop_front().expect("it was just looked at");
            findings.extend(self.settle(&oldest, record.line).filter(|_| is_late));
        }
        while let Some(late) = self.fields.next_late(record, self.number) {
            findings.extend(self.ignored_fields(late, record.line));
        }
        findings
    }

    /// Lets go of what no change was explained by: that may change nothing one can see.
    fn settle(&mut self, late: &Pending<'_>, line: usize) -> Option<Finding> {
        let (model, reported) = (self.model.as_ref()?, self.reported?);
        let next = model.after(late.address, late.found, reported);
        let expected = match next.agrees_with(reported) {
            true if self.tells_errors && late.is_unseen_and_unknown(reported) => {
                format!("{} of a type that it has replied with", late.address)
            }
            true => {
                self.model = Some(next);
                return None;
            }
            false => next.shape().to_string(),
        };
        let may_be_older = self.unsure.contains(late.address) && late.found.may_be_streamed();
        let found = format!("{reported}, still in line {line}");
        (!may_be_older && late.number > self.before)
            .then(|| self.finding(late.record, Rule::IgnoredOutcome, expected, found))
    }

    /// Judges a description that the log reports; `ahead` is what follows of its topology.
    pub(super) fn changed(
        &mut self,
        record: &'a Record,
        (previous, new): (Option<&'a Shape>, Option<&'a Shape>),
        ahead: &[&'a Record],
        counts: &mut Counts,
    ) -> Vec<Finding> {
        counts.description_changes += 1;
        let mut findings = Vec::new();
        let Some(new) = new.filter(|new| new.servers.is_some()) else {
            counts.not_compared(record.line, "its form is not known, or its servers are left out");
            (self.model, self.reported) = (None, None);
            return findings;
        };
        let ahead = &ahead[..ahead.len().min(MAX_AHEAD)];
        let closes = |record: &&Record| matches!(record.what, What::TopologyClosed);
        // The log may end before it reports that the topology is closed.
        let is_last = ahead.is_empty() || ahead.iter().any(closes);
        self.is_closing |= new.is_blank() && is_last;
        if let Some(reported) = self.reported {
            findings.extend(self.findings(record, laws::broken(reported, previous, new)));
            if self.is_closing {
                (self.model, self.pending) = (None, VecDeque::new());
            } else if self.model.is_some() && !self.explain(record, reported, new, ahead, counts) {
                let cause_is_missing =
                    self.has_just_begun(record) || self.is_to_be_explained(record, new, ahead);
                findings
                    .extend((!cause_is_missing).then(|| self.unexplained(record, reported, new)));
                (self.model, self.before) = (None, self.number);
            } else if !self.has_just_begun(record) {
                let mut broken = laws::wrong(reported, new);
                broken.extend(self.fields.judge(reported, new, near(record, ahead).as_deref()));
                broken.retain(|it| it.rule != Rule::NoError || self.tells_errors);
                findings.extend(self.findings(record, broken));
            }
        }
        if self.reported.replace(new).is_none() {
            self.before = self.number;
            self.doubt_unknown(new);
        }
        if self.model.is_none() && !self.is_closing {
            self.model = Model::reported(new, self.set_name.as_deref(), &self.replies);
            if self.model.is_none() {
                counts.not_compared(
                    record.line,
                    "no replies lead to such a state; without setName that may be why",
                );
            }
        }
        findings
    }

    /// An operation's error may have made servers Unknown before this log begins.
    fn doubt_unknown(&mut self, new: &Shape) {
        let unknown = new.types().filter(|(_, known)| *known == ServerType::Unknown);
        let unknown = unknown.filter(|_| !self.is_whole).map(|(address, _)| address.clone());
        self.unsure.extend(unknown);
    }

    /// Returns whether what has caused a change may have been logged before this log begins.
    fn has_just_begun(&self, record: &Record) -> bool {
        match (self.first.and_then(|first| first.at), record.at) {
            _ if self.is_whole => false,
            (Some(first), Some(now)) => now <= first + REORDERING,
            _ => self.number <= REORDERED_RECORDS,
        }
    }

    /// Returns whether the log ends before it reports the end of a check which may explain a
    /// change.
    fn is_to_be_explained(&self, record: &Record, new: &Shape, ahead: &[&Record]) -> bool {
        let (Some(model), None) = (&self.model, near(record, ahead)) else { return false };
        let ended = ahead.iter().filter_map(|later| match &later.what {
            What::Ended { address, .. } => Some(address),
            _ => None,
        });
        let ended: BTreeSet<&ServerAddress> = ended.collect();
        let goes_on = |address: &&ServerAddress| {
            self.checks.get(address).copied().unwrap_or(!self.is_whole) && !ended.contains(address)
        };
        let explains = |address: &ServerAddress| {
            model.after(address, &Found::UnseenReply, new).agrees_with(new)
                || model.after_error(address).agrees_with(new)
        };
        model.addresses().filter(goes_on).any(explains)
    }

    /// Judges what an event about a server says of it.
    pub(super) fn server_changed(
        &self,
        record: &'a Record,
        servers: (&ServerAddress, Option<&ServerShape>, &ServerShape),
        ahead: &[&'a Record],
    ) -> Vec<Finding> {
        if self.has_just_begun(record) || self.is_closing {
            return Vec::new();
        }
        let ahead = &ahead[..ahead.len().min(MAX_AHEAD)];
        let broken = self.fields.judge_event(servers, near(record, ahead).as_deref());
        self.findings(record, broken)
    }

    /// A reply that descriptions should show by now, in all that they say of its server, which is
    /// the same as before.
    fn ignored_fields(&self, late: Fresh<'_>, line: usize) -> Option<Finding> {
        let Fresh { record, number, before } = late;
        let What::Ended { address, found: Found::Reply(reply), .. } = &record.what else {
            return None;
        };
        let (Some(_), Some(reported)) = (&self.model, self.reported) else { return None };
        if number <= self.before || self.unsure.contains(address) || self.is_closing {
            return None;
        }
        let server = reported.servers.as_ref()?.get(address)?;
        let is_same = before?.servers.as_ref()?.get(address)?.says_the_same_as(server);
        if !is_same || described(address, reply)?.server_type != server.server_type {
            return None;
        }
        let (expected, found) = self.fields.wrong((address, server), number, Some(&[]))?;
        let found = format!("{found}, still in line {line}");
        Some(self.finding(record, Rule::IgnoredOutcome, expected, found))
    }

    fn findings(&self, record: &Record, broken: Vec<Broken>) -> Vec<Finding> {
        broken.into_iter().map(|broken| Finding::of(record, self.topology, broken)).collect()
    }

    fn finding(&self, record: &Record, rule: Rule, expected: String, found: String) -> Finding {
        Finding::of(record, self.topology, Broken::new(rule, expected, found))
    }

    /// Looks for what has caused a change, and moves the model by it.
    fn explain(
        &mut self,
        record: &'a Record,
        reported: &Shape,
        new: &Shape,
        ahead: &[&'a Record],
        counts: &mut Counts,
    ) -> bool {
        if self.explain_by_heartbeat(reported, new) {
            return true;
        }
        let Some(model) = &self.model else { return true };
        let was_known = |address: &ServerAddress| {
            reported.type_of(address).is_some_and(|it| it != ServerType::Unknown)
        };
        let servers = new.servers.iter().flatten();
        let failed = servers
            .filter(|(_, server)| server.has_error || !self.tells_errors)
            .filter(|(address, _)| was_known(address))
            .filter(|(_, server)| server.server_type == ServerType::Unknown)
            .map(|(address, _)| (address, model.after_error(address)))
            .find(|(_, next)| next.agrees_with(new));
        if let Some((address, next)) = failed {
            counts.operation_errors += 1;
            self.unsure.insert(address.clone());
            self.model = Some(next);
            return true;
        }
        let next = rescanned(model, reported, new);
        let next = next.or_else(|| {
            let (line, next) = foreseen(model, record, ahead, new)?;
            self.foreseen.insert(line);
            Some(next)
        });
        let is_explained = next.is_some();
        self.model = next.or(self.model.take());
        is_explained
    }

    /// Goes through what was found and is pending, in order: what changes nothing that is reported
    /// is taken for digested, until one explains the change.
    fn explain_by_heartbeat(&mut self, reported: &Shape, new: &Shape) -> bool {
        let Some(mut model) = self.model.take() else { return true };
        let changes_nothing = reported.agrees_with(new);
        let (mut left, mut cause) = (VecDeque::new(), None);
        while let Some(pending) = self.pending.pop_front() {
            let next = model.after(pending.address, pending.found, new);
            if !changes_nothing && next.agrees_with(new) {
                (model, cause) = (next, Some(pending.address));
                break;
            }
            match next.agrees_with(reported) {
                true => model = next,
                false => left.push_back(pending),
            }
        }
        if let Some(address) = cause {
            self.unsure.remove(address);
        }
        left.append(&mut self.pending);
        (self.model, self.pending) = (Some(model), left);
        changes_nothing || cause.is_some()
    }

    /// Says what was to be expected instead of a change that nothing explains.
    fn unexplained(&self, record: &Record, reported: &Shape, new: &Shape) -> Finding {
        let differs = |address: &ServerAddress| reported.type_of(address) != new.type_of(address);
        let fallback = || (reported.to_string(), Rule::UnexplainedChange);
        let last = self.pending.iter().rev().find(|pending| differs(pending.address));
        let heard = last.map(|pending| (pending.address, pending.found.clone()));
        // A reply that was digested long ago may be the one that should not have been.
        let heard = heard.or_else(|| {
            let mut changed = new.types().map(|(address, _)| address).filter(|it| differs(it));
            let (address, reply) = changed.find_map(|it| self.replies.get_key_value(it))?;
            Some((address, Found::Reply(reply.clone())))
        });
        let judged = heard.zip(self.model.as_ref()).map(|((address, found), model)| {
            let next = model.after(address, &found, new);
            let is_stale = next.holds_for_stale(address)
                && new.type_of(address) == Some(ServerType::RsPrimary);
            let rule = if is_stale { Rule::StalePrimary } else { Rule::UnexplainedChange };
            (next.shape().to_string(), rule)
        });
        let (expected, rule) = judged.unwrap_or_else(fallback);
        self.finding(record, rule, expected, new.to_string())
    }
}

/// Returns as much of what comes later as may be of the same time.
fn soon<'a>(record: &Record, ahead: &[&'a Record]) -> Vec<&'a Record> {
    let is_soon = |later: &&&Record| match (record.at, later.at) {
        (Some(now), Some(then)) => then <= now + REORDERING,
        _ => true,
    };
    ahead.iter().take_while(is_soon).copied().collect()
}

/// The same, or `None` if the log ends before all of that is reported.
fn near<'a>(record: &Record, ahead: &[&'a Record]) -> Option<Vec<&'a Record>> {
    let near = soon(record, ahead);
    (near.len() < ahead.len() || ahead.len() == MAX_AHEAD).then_some(near)
}

/// Explains a change by other hosts in DNS, or by seeds that take the place of no servers at all.
fn rescanned(model: &Model, reported: &Shape, new: &Shape) -> Option<Model> {
    let is_polled = matches!(reported.topology_type, TopologyType::Unknown | TopologyType::Sharded);
    if !is_polled && !reported.is_empty() {
        return None;
    }
    let without = |one: &Shape, other: &Shape| -> Vec<ServerAddress> {
        let addresses = one.types().map(|(address, _)| address);
        addresses.filter(|it| other.type_of(it).is_none()).cloned().collect()
    };
    let next = model.after_rescan(&without(new, reported), &without(reported, new));
    next.agrees_with(new).then_some(next)
}

/// Explains a change by a heartbeat whose end is logged a moment later, and returns its line.
fn foreseen(
    model: &Model,
    record: &Record,
    ahead: &[&Record],
    new: &Shape,
) -> Option<(usize, Model)> {
    soon(record, ahead).into_iter().find_map(|later| {
        let What::Ended { address, found, .. } = &later.what else { return None };
        let next = model.after(address, found, new);
        next.agrees_with(new).then_some((later.line, next))
    })
}
