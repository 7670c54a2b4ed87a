//! What a client is told of its deployment's records in DNS, and what it makes of them.

use std::sync::Arc;

use sdam_core::dns::DnsError;
use sdam_core::dns::srv::SrvRecord;
use sdam_core::machine::Machine;
use sdam_core::topology::Input;

use super::Client;
use crate::sim::network::Network;

impl Client {
    /// A lookup has ended.
    pub(super) fn resolved(
        &mut self,
        network: &mut Network,
        records: Result<Vec<SrvRecord>, DnsError>,
    ) {
        // What is due anyway does not come of the lookup.
        let now = self.not_yet_due(self.topology.deadline());
        self.run(network, |topology, _, out| topology.tick(now, out));
        self.checks.resolving();
        let (before, answer) = (Arc::clone(&self.view), records.clone());
        self.tell(network, Input::Resolved { records });
        self.checks.resolved(self.now, &answer, (&before, &self.view));
    }
}
