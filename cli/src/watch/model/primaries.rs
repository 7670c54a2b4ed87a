//! The primaries of a replica set: since when there is one, and how long there was none.

use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::description::{TopologyDescription, TopologyType};
use sdam_core::time::Instant;

use crate::duration::{precise, rounded};
use crate::text::escaped;

/// The primaries of a replica set, as far as they were seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Primaries {
    is_set: bool,
    /// The last primary.
    last: Option<ServerAddress>,
    /// Since when it is primary, or there is none.
    since: Instant,
    has_primary: bool,
    /// The time without one before the last one.
    gap: Duration,
    /// The number of those that have followed another, and the time without one between them.
    elections: u32,
    without: Duration,
}

impl Primaries {
    /// Takes notice of a change.
    pub(super) fn see(&mut self, at: Instant, view: &TopologyDescription) {
        use TopologyType::{ReplicaSetNoPrimary, ReplicaSetWithPrimary};
        self.is_set = matches!(view.topology_type, ReplicaSetNoPrimary | ReplicaSetWithPrimary);
        match view.primary().map(|server| &server.address) {
            None if self.has_primary => (self.has_primary, self.since) = (false, at),
            None => {}
            Some(primary) if self.has_primary && self.last.as_ref() == Some(primary) => {}
            Some(primary) => {
                let gap = if self.has_primary { Duration::ZERO } else { at - self.since };
                if self.last.is_some() {
                    self.gap = gap;
                    self.elections += 1;
                    self.without += gap;
                }
                (self.has_primary, self.since) = (true, at);
                self.last = Some(primary.clone());
            }
        }
    }

    /// Says since when there is a primary, or none, and what was before; `None` if the deployment
    /// is no replica set.
    pub(crate) fn sentence(&self, now: Instant) -> Option<String> {
        if !self.is_set {
            return None;
        }
        let lasts = rounded(now - self.since);
        let mut sentence = match (&self.last, self.has_primary) {
            (None, _) => format!("no primary for {lasts}, since the start"),
            (Some(last), false) => {
                let last = last.to_string();
                format!("no primary for {lasts}; the last one was {}", escaped(&last))
            }
            (Some(last), true) => {
                let last = last.to_string();
                let mut sentence = format!("primary {} for {lasts}", escaped(&last));
                match (self.elections, self.gap) {
                    (0, _) => {}
                    (_, Duration::ZERO) => sentence += ", elected while there was another",
                    (_, gap) => {
                        sentence += &format!(", elected after {} without one", precise(gap));
                    }
                }
                sentence
            }
        };
        if self.elections > 1 {
            let (elections, without) = (self.elections, rounded(self.without));
            sentence += &format!("; {elections} elections seen, {without} without a primary");
        }
        Some(sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, member};

    const HOSTS: [&str; 2] = ["a:27017", "b:27017"];

    #[test]
    fn elections_are_counted_and_the_time_between_them_is_added_up() {
        let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs0&heartbeatFrequencyMS=500");
        let mut primaries = Primaries::default();
        assert_eq!(primaries.sentence(fixture.now()), None);
        let mut see = |fixture: &Fixture| {
            primaries.see(fixture.now(), &fixture.view());
            primaries.sentence(fixture.now()).expect("a replica set")
        };
        assert_eq!(see(&fixture), "no primary for 0s, since the start");
        let primary = |host| member("rs0", &HOSTS, host, Some(host));
        fixture.at(1000).reply("a:27017", &primary(HOSTS[0]));
        fixture.reply("b:27017", &member("rs0", &HOSTS, HOSTS[1], Some(HOSTS[0])));
        assert_eq!(see(&fixture), "primary a:27017 for 0s");
        fixture.at(5000).refuse("a:27017", "closed");
        see(&fixture);
        fixture.at(7500);
        assert_eq!(see(&fixture), "no primary for 2s; the last one was a:27017");
        fixture.reply("b:27017", &primary(HOSTS[1]));
        assert_eq!(see(&fixture), "primary b:27017 for 0s, elected after 2.50 s without one");
        fixture.at(12_000).reply("a:27017", &primary(HOSTS[0]));
        let again = "primary a:27017 for 0s, elected while there was another; 2 elections seen, \
                     2s without a primary";
        assert_eq!(see(&fixture), again);
    }
}
