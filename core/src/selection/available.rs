//! Readable and writable servers of a topology description.
//!
//! Implements "Determining If A Topology Has Readable/Writable Servers" of the SDAM Logging and
//! Monitoring specification.

use super::criteria::Criteria;
use super::snapshot::Snapshot;
use crate::config::{ReadMode, ReadPreference};
use crate::description::{ServerType, TopologyDescription, TopologyType};

impl TopologyDescription {
    /// Returns whether there is a server to read from; without a read preference, from the primary.
    ///
    /// Where there is no replica set, the read preference decides nothing, and a server is
    /// available that is not Unknown. Nothing is available while a server and the client share no
    /// [wire version](Self::incompatibility).
    ///
    /// The least maxStaleness that a deployment allows is not asked for: a selection with less than
    /// that fails, although there may be a server that is fresh enough.
    ///
    /// ```
    /// use sdam_core::topology::transitions;
    /// use sdam_core::config::Options;
    ///
    /// let known = transitions::initial(&Options::parse("mongodb://a,b/?replicaSet=rs")?);
    /// assert!(!known.has_readable_server(None), "nothing was heard of it yet");
    /// # Ok::<(), sdam_core::config::OptionsError>(())
    /// ```
    pub fn has_readable_server(&self, preference: Option<&ReadPreference>) -> bool {
        match self.topology_type {
            TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
                let primary = || ReadPreference::new(ReadMode::Primary);
                let criteria = Criteria::read(preference.cloned().unwrap_or_else(primary));
                self.incompatibility.is_none() && Snapshot::has_suitable(self, &criteria)
            }
            TopologyType::Unknown
            | TopologyType::Single
            | TopologyType::Sharded
            | TopologyType::LoadBalanced => self.is_available(),
        }
    }

    /// Returns whether there is a server to write to.
    pub fn has_writable_server(&self) -> bool {
        match self.topology_type {
            TopologyType::ReplicaSetNoPrimary => false,
            TopologyType::ReplicaSetWithPrimary => self.incompatibility.is_none(),
            TopologyType::Unknown
            | TopologyType::Single
            | TopologyType::Sharded
            | TopologyType::LoadBalanced => self.is_available(),
        }
    }

    /// Outside replica sets, where any server that is known will do.
    fn is_available(&self) -> bool {
        let is_known = || self.servers().iter().any(|it| it.server_type != ServerType::Unknown);
        match self.topology_type {
            TopologyType::LoadBalanced => true,
            TopologyType::Unknown => false,
            TopologyType::Single
            | TopologyType::Sharded
            | TopologyType::ReplicaSetNoPrimary
            | TopologyType::ReplicaSetWithPrimary => self.incompatibility.is_none() && is_known(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{DateTime, RawDocumentBuf, rawdoc};

    use super::{ReadMode, ReadPreference, TopologyDescription};
    use crate::config::Options;
    use crate::config::TagSet;
    use crate::failure::{Cause, Failure, Stage};
    use crate::topology::transitions;

    /// Returns the description of this connection string's deployment after these replies; a server
    /// that gives none has failed.
    fn after(uri: &str, replies: &[(&str, Option<RawDocumentBuf>)]) -> TopologyDescription {
        let options = Options::parse(uri).unwrap();
        let mut known = transitions::initial(&options);
        for (address, reply) in replies {
            let address = address.parse().unwrap();
            known = match reply {
                Some(reply) => transitions::after_reply(&known, &options, &address, reply).unwrap(),
                None => {
                    let failure = Failure::new(Stage::Connect, Cause::Refused, "refused");
                    transitions::after_failure(&known, &options, &address, failure)
                }
            };
        }
        known
    }

    /// The reply of a member of a set of two that has seen a write at that second.
    fn member(is_primary: bool, written: i64, dc: &str) -> Option<RawDocumentBuf> {
        let mut reply = rawdoc! { "ok": 1, "setName": "rs", "hosts": ["a:27017", "b:27017"] };
        reply.append(bson::cstr!("isWritablePrimary"), is_primary);
        reply.append(bson::cstr!("secondary"), !is_primary);
        reply.append(bson::cstr!("tags"), rawdoc! { "dc": dc });
        let date = DateTime::from_millis(written * 1000);
        reply.append(bson::cstr!("lastWrite"), rawdoc! { "lastWriteDate": date });
        reply.append(bson::cstr!("minWireVersion"), 0);
        reply.append(bson::cstr!("maxWireVersion"), 17);
        Some(reply)
    }

    fn plain(max_wire_version: i32) -> Option<RawDocumentBuf> {
        let wire = max_wire_version;
        Some(rawdoc! { "ok": 1, "isWritablePrimary": true, "maxWireVersion": wire })
    }

    fn mongos() -> Option<RawDocumentBuf> {
        Some(rawdoc! { "ok": 1, "msg": "isdbgrid", "maxWireVersion": 17 })
    }

    /// Returns whether it can be read from without a preference and with each mode in turn, and
    /// written to.
    fn abilities(known: &TopologyDescription) -> ([bool; 6], bool) {
        use ReadMode::{Nearest, Primary, PrimaryPreferred, Secondary, SecondaryPreferred};
        let read = |mode| known.has_readable_server(Some(&ReadPreference::new(mode)));
        let modes = [Primary, PrimaryPreferred, Secondary, SecondaryPreferred, Nearest].map(read);
        let [a, b, c, d, e] = modes;
        ([known.has_readable_server(None), a, b, c, d, e], known.has_writable_server())
    }

    const SET: &str = "mongodb://a,b/?replicaSet=rs";

    #[test]
    fn readable_and_writable_servers_unknown_has_none() {
        assert_eq!(abilities(&after("mongodb://a,b", &[])), ([false; 6], false));
        assert_eq!(abilities(&TopologyDescription::default()), ([false; 6], false));
        // A member of a set that was not initiated says nothing about the deployment.
        let ghost = Some(rawdoc! { "ok": 1, "isreplicaset": true, "maxWireVersion": 17 });
        assert_eq!(abilities(&after("mongodb://a,b", &[("a", ghost)])), ([false; 6], false));
    }

    #[test]
    fn readable_and_writable_servers_single_has_one_that_is_available() {
        let direct = "mongodb://a/?directConnection=true";
        assert_eq!(abilities(&after(direct, &[])), ([false; 6], false));
        assert_eq!(abilities(&after(direct, &[("a", plain(17))])), ([true; 6], true));
        let gone = after(direct, &[("a", plain(17)), ("a", None)]);
        assert_eq!(abilities(&gone), ([false; 6], false));
        assert_eq!(gone.servers()[0].error.as_ref().unwrap().cause, Cause::Refused);
        assert_eq!(abilities(&after(direct, &[("a", plain(5))])), ([false; 6], false), "too old");
    }

    #[test]
    fn readable_and_writable_servers_without_primary_by_read_preference_and_never_writable() {
        let known = after(SET, &[("a", member(false, 100, "x"))]);
        assert_eq!(abilities(&known), ([false, false, true, true, true, true], false));
        assert_eq!(abilities(&after(SET, &[])), ([false; 6], false));
    }

    #[test]
    fn readable_and_writable_servers_with_primary_by_read_preference_and_writable() {
        let alone = after(SET, &[("a", member(true, 100, "x"))]);
        assert_eq!(abilities(&alone), ([true, true, true, false, true, true], true));
        let both = after(SET, &[("a", member(true, 500, "x")), ("b", member(false, 100, "y"))]);
        assert_eq!(abilities(&both), ([true; 6], true));
        let tagged = |dc: &str| {
            let tags = TagSet::from([("dc".to_owned(), dc.to_owned())]);
            ReadPreference::new(ReadMode::Secondary).with_tag_sets(vec![tags]).unwrap()
        };
        assert!(both.has_readable_server(Some(&tagged("y"))));
        assert!(!both.has_readable_server(Some(&tagged("x"))), "those are the tags of the primary");
    }

    #[test]
    fn readable_and_writable_servers_are_judged_by_their_staleness_too() {
        let known = after(SET, &[("a", member(false, 500, "x")), ("b", member(false, 100, "y"))]);
        let fresh = |seconds| {
            let tags = TagSet::from([("dc".to_owned(), "y".to_owned())]);
            let preference = ReadPreference::new(ReadMode::Nearest).with_tag_sets(vec![tags]);
            preference.unwrap().with_max_staleness(Duration::from_secs(seconds)).unwrap()
        };
        assert!(known.has_readable_server(Some(&fresh(410))), "400 s, and a heartbeat");
        assert!(!known.has_readable_server(Some(&fresh(409))));
    }

    #[test]
    fn readable_and_writable_servers_sharded_has_one_mongos_at_least() {
        let sharded = after("mongodb://a,b", &[("a", mongos())]);
        assert_eq!(abilities(&sharded), ([true; 6], true));
        let down = after("mongodb://a,b", &[("a", mongos()), ("a", None)]);
        assert_eq!(abilities(&down), ([false; 6], false));
    }

    #[test]
    fn readable_and_writable_servers_behind_a_load_balancer_there_always_are() {
        let balanced = after("mongodb://a/?loadBalanced=true", &[]);
        assert_eq!(abilities(&balanced), ([true; 6], true));
    }
}
