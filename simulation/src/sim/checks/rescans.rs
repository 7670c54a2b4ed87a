//! Rescans, by Polling SRV Records for mongos Discovery: DNS is asked again when it is time to, its
//! verified hosts are followed, and what brings none changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::{ServerDescription, TopologyType};
use sdam_core::dns::DnsError;
use sdam_core::dns::srv::SrvRecord;
use sdam_core::selection::Snapshot;
use sdam_core::time::Instant;
use sdam_core::topology::{Event, EventKind};

use super::{Checks, Finding, ensure};
use crate::sim::coverage::Sign;

#[cfg(test)]
mod tests;

/// "MUST NOT be lower than 60 seconds"
const LEAST: Duration = Duration::from_secs(60);

const IN_TIME: &str = "DNS is asked again when it is time to";
const FAILED: &str = "a rescan that fails changes nothing";
const FOLLOWED: &str = "the hosts are those that DNS names";

/// The result of a lookup.
type RescanOutcome = Result<Vec<SrvRecord>, DnsError>;

/// The rescans of one client, seen from outside.
#[derive(Debug)]
pub(super) struct Rescans {
    /// The end of the names of hosts that may be used; `None` if the hosts did not come from DNS,
    /// or can change there no more.
    domain: Option<String>,
    max_hosts: usize,
    heartbeat: Duration,
    /// The time when the next one is to begin, `None` during one.
    due: Option<Instant>,
    /// Until when the first one waits.
    first: Duration,
    /// True if one is in progress.
    looking: bool,
    /// True if the last one has failed.
    was_failing: bool,
    /// The number of reports since the last answer that one has failed, and that a host is refused.
    failed: usize,
    refused: usize,
}

impl Rescans {
    pub(super) fn new(options: &Options) -> Self {
        // Of a name with three parts or more, the first one may be another one.
        let parent = |hostname: &str| hostname.split_once('.').map(|it| format!(".{}", it.1));
        Self {
            domain: options.srv().and_then(|srv| parent(&srv.hostname)),
            max_hosts: options.srv().map_or(0, |srv| srv.max_hosts),
            heartbeat: options.heartbeat_frequency(),
            due: None,
            first: options.rescan_interval(),
            looking: false,
            was_failing: false,
            failed: 0,
            refused: 0,
        }
    }

    /// "This feature is only available when [...] the TopologyType is Sharded, or Unknown."
    pub(super) fn published(&mut self, topology_type: TopologyType) {
        if !matches!(topology_type, TopologyType::Sharded | TopologyType::Unknown) {
            self.end();
        }
    }

    fn end(&mut self) {
        (self.domain, self.due, self.looking) = (None, None, false);
    }

    pub(super) fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::TopologyOpening if self.domain.is_some() => {
                self.due = Some(event.at + self.first);
            }
            EventKind::TopologyClosed => self.end(),
            EventKind::SrvRescanFailed { .. } => self.failed += 1,
            EventKind::SrvHostRefused { .. } => self.refused += 1,
            _ => {}
        }
    }

    /// DNS is asked.
    pub(super) fn begun(&mut self, now: Instant) -> Finding {
        let (due, is_right) = (self.due.take(), !std::mem::replace(&mut self.looking, true));
        ensure(is_right && due.is_some_and(|due| due <= now), IN_TIME, || {
            format!("it is asked at {now:?}, and was to be at {due:?}")
        })
    }

    /// A step is over: the next rescan is not forgotten.
    pub(super) fn after_step(&self, deadline: Option<Instant>) -> Finding {
        let Some(due) = self.due else { return Ok(()) };
        ensure(deadline.is_some_and(|deadline| deadline <= due), IN_TIME, || {
            format!("it is to be at {due:?}, and {deadline:?} is the next deadline")
        })
    }

    /// The client has received the result of a lookup, and has another view than `before` or not.
    fn ended(
        &mut self,
        now: Instant,
        answer: &RescanOutcome,
        before: &Snapshot,
        after: &Snapshot,
    ) -> Finding {
        let unchanged = std::ptr::eq(before, after);
        let domain = self.domain.clone().filter(|_| std::mem::take(&mut self.looking));
        let Some(domain) = domain else {
            let silent = unchanged && self.failed == 0 && self.refused == 0;
            return ensure(silent, FAILED, || format!("nothing has asked for {answer:?}"));
        };
        let records = answer.as_deref().unwrap_or_default();
        let is_ours = |record: &&SrvRecord| record.host.ends_with(&domain);
        let hosts: BTreeSet<ServerAddress> = records.iter().filter(is_ours).map(address).collect();
        let strangers = records.iter().filter(|record| !is_ours(record)).count();
        // "SHOULD log the non-compliance, including the host name"
        ensure(self.refused == strangers, FOLLOWED, || {
            format!("{} hosts are refused of {answer:?}", self.refused)
        })?;
        self.was_failing = hosts.is_empty();
        if hosts.is_empty() {
            self.due = Some(now + self.heartbeat);
            // "MUST NOT change the topology [...] SHOULD log this situation"
            return ensure(unchanged && self.failed == 1, FAILED, || {
                format!("unchanged: {unchanged}, reported {} times: {answer:?}", self.failed)
            });
        }
        // "MUST be set to the lowest of the individual TTL values"
        let shortest = records.iter().map(|record| record.ttl).min().unwrap_or_default();
        self.due = Some(now + shortest.max(LEAST));
        let right = self.failed == 0 && self.follows(&hosts, before, after);
        ensure(right, FOLLOWED, || {
            format!(
                "{hosts:?} of {answer:?}: from {before:?} to {after:?}, reported {}",
                self.failed
            )
        })
    }

    /// "Hosts that have not changed, MUST be left alone", others are removed, and new ones are
    /// added until there are srvMaxHosts, or all.
    fn follows(
        &self,
        hosts: &BTreeSet<ServerAddress>,
        before: &Snapshot,
        after: &Snapshot,
    ) -> bool {
        let (before, after) = (before.description().servers(), after.description().servers());
        let listed = |it: &&Arc<ServerDescription>| hosts.contains(&it.address);
        let what = |it: &ServerDescription| (it.id, it.address.clone(), it.server_type);
        let is_left_alone =
            |known: &Arc<ServerDescription>| after.iter().any(|it| what(it) == what(known));
        let kept = before.iter().filter(listed).count();
        let count = match self.max_hosts {
            0 => hosts.len(),
            most => hosts.len().min(most.max(kept)),
        };
        after.len() == count
            && after.iter().all(|it| listed(&it))
            && before.iter().filter(listed).all(is_left_alone)
    }
}

fn address(record: &SrvRecord) -> ServerAddress {
    ServerAddress::Tcp { host: record.host.as_ref().into(), port: record.port }
}

impl Checks {
    /// The client is about to receive the result of a lookup.
    pub(crate) fn resolving(&mut self) {
        self.scans.iter_mut().for_each(|scans| scans.resolves(false));
        (self.rescans.failed, self.rescans.refused) = (0, 0);
    }

    /// The client has received the result of a lookup, and had the first view before that.
    pub(crate) fn resolved(
        &mut self,
        now: Instant,
        answer: &RescanOutcome,
        (before, after): (&Snapshot, &Snapshot),
    ) {
        let (was_looking, was_failing) = (self.rescans.looking, self.rescans.was_failing);
        let finding = self.rescans.ended(now, answer, before, after);
        self.judge(finding);
        match (was_failing, self.rescans.was_failing) {
            (_, true) if was_looking => self.note(Sign::RescanFailed),
            (true, false) => self.note(Sign::RescanRecovered),
            _ => {}
        }
    }
}
