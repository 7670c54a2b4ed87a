//! Polling SRV Records for mongos Discovery: when to look the hosts up again, and what follows.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::update::Update;
use super::{Action, Topology};
use crate::config::{Options, ServerAddress, SrvOptions};
use crate::description::TopologyType;
use crate::dns::srv::{self, SrvError, SrvRecord};
use crate::dns::{DnsError, MAX_RECORDS, Question};
use crate::time::Instant;
use crate::topology::EventKind;

/// The time when the hosts are looked up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Rescan {
    /// Never: the hosts did not come from DNS, or the deployment is none whose hosts can change
    /// there.
    Never,
    /// The next rescan is due at this time.
    At(Instant),
    /// Right now.
    InProgress,
}

impl Rescan {
    /// Begins when the topology is opened, which is the end of the initial lookup.
    pub(super) fn first(options: &Options, now: Instant) -> Self {
        match options.srv() {
            Some(_) => Self::At(now + options.rescan_interval()),
            None => Self::Never,
        }
    }

    pub(super) const fn is_in_progress(self) -> bool {
        matches!(self, Self::InProgress)
    }

    pub(super) const fn deadline(self) -> Option<Instant> {
        match self {
            Self::At(due) => Some(due),
            Self::Never | Self::InProgress => None,
        }
    }
}

impl Topology {
    /// "Drivers MUST NOT rescan SRV DNS records when the Topology is not Sharded", or not Unknown;
    /// a type that is neither stays what it is.
    pub(super) fn stop_rescans_unless_sharded(&mut self) {
        match self.description.topology_type {
            TopologyType::Unknown | TopologyType::Sharded => {}
            TopologyType::Single
            | TopologyType::ReplicaSetNoPrimary
            | TopologyType::ReplicaSetWithPrimary
            | TopologyType::LoadBalanced => self.rescan = Rescan::Never,
        }
    }

    /// Looks the hosts up again if that is due.
    pub(super) fn fire_rescan(&mut self, out: &mut Vec<Action>) {
        if self.rescan.deadline().is_some_and(|due| due <= self.now.judged)
            && let Some(srv) = self.options.srv()
        {
            self.rescan = Rescan::InProgress;
            let question = Question::srv(&srv.service_name, &srv.hostname);
            out.push(Action::Resolve { question });
        }
    }

    /// Adds and removes servers as DNS says; if that is nothing that can be used, all stays as it
    /// is.
    pub(super) fn resolved(
        &mut self,
        records: Result<Vec<SrvRecord>, DnsError>,
        out: &mut Vec<Action>,
    ) {
        let options = Arc::clone(&self.options);
        let (Rescan::InProgress, Some(srv)) = (self.rescan, options.srv()) else { return };
        let verified = records.map_err(SrvError::from).and_then(|records| {
            let hosts = self.verified(srv, &records, out)?;
            Ok((hosts, srv::rescan_interval(&records)))
        });
        // The next one is counted "from the end of the previous rescan", which is now, however late
        // it is judged what is due.
        match verified {
            Ok((hosts, interval)) => {
                self.rescan = Rescan::At(self.now.clock + interval);
                self.follow(srv, hosts, out);
            }
            Err(error) => {
                self.rescan = Rescan::At(self.now.clock + options.heartbeat_frequency());
                self.context(out).emit(EventKind::SrvRescanFailed { error });
            }
        }
    }

    /// Returns the hosts that may be used, and reports those that may not.
    fn verified(
        &self,
        srv: &SrvOptions,
        records: &[SrvRecord],
        out: &mut Vec<Action>,
    ) -> Result<BTreeSet<ServerAddress>, SrvError> {
        let hostname = &srv.hostname;
        if records.len() > MAX_RECORDS {
            let (hostname, found) = (hostname.clone(), records.len());
            return Err(SrvError::TooManyRecords { hostname, found });
        }
        let mut hosts = BTreeSet::new();
        for record in records {
            match srv::verify(srv, record) {
                Ok(host) => drop(hosts.insert(host)),
                Err(error) => self.context(out).emit(EventKind::SrvHostRefused { error }),
            }
        }
        match hosts.is_empty() {
            true => Err(SrvError::NoRecords { hostname: hostname.clone() }),
            false => Ok(hosts),
        }
    }

    /// "Hosts that have not changed, MUST be left alone and unchanged."
    fn follow(&mut self, srv: &SrvOptions, hosts: BTreeSet<ServerAddress>, out: &mut Vec<Action>) {
        let known = || self.description.servers().iter().map(|server| &server.address);
        let removed: Vec<ServerAddress> =
            known().filter(|address| !hosts.contains(address)).cloned().collect();
        let kept = known().count() - removed.len();
        let total = hosts.len();
        let mut added: Vec<ServerAddress> =
            hosts.into_iter().filter(|host| self.description.server(host).is_none()).collect();
        if srv.max_hosts > 0 && srv.max_hosts < total {
            srv::draw(&mut added, srv.max_hosts.saturating_sub(kept), &mut self.rng);
        }
        if !(added.is_empty() && removed.is_empty()) {
            let options = Arc::clone(&self.options);
            let update =
                Update::of_hosts(&self.description, &options, self.now.judged, &added, &removed);
            self.publish(update, out);
        }
        self.remember_listed();
    }
}
