//! The needs of an operation.

use std::fmt;
use std::sync::Arc;

use crate::config::ServerAddress;
use crate::config::{ReadMode, ReadPreference};
use crate::description::{ServerDescription, ServerType, TopologyDescription, TopologyType};

/// A condition of the application's own on suitable servers.
pub type Predicate = Arc<dyn Fn(&ServerDescription) -> bool + Send + Sync>;

/// The needs of an operation.
///
/// ```
/// use sdam_core::selection::Criteria;
/// use sdam_core::config::{ReadMode, ReadPreference};
///
/// let write = Criteria::write();
/// let read = Criteria::read(ReadPreference::new(ReadMode::Nearest))
///     .with_predicate(|server| server.address.host().ends_with(".example"));
/// assert!(write.read_preference().is_none() && read.read_preference().is_some());
/// ```
#[derive(Clone, Default)]
pub struct Criteria {
    /// `None` for a write.
    read_preference: Option<ReadPreference>,
    /// The wire version that the servers need for the read preference to count.
    since: Option<i32>,
    deprioritized: Vec<ServerAddress>,
    predicate: Option<Predicate>,
    /// The only server that will do.
    member: Option<ServerAddress>,
}

impl Criteria {
    /// Needs a server that takes writes.
    pub const fn write() -> Self {
        Self {
            read_preference: None,
            since: None,
            deprioritized: Vec::new(),
            predicate: None,
            member: None,
        }
    }

    /// Needs a server that takes reads with that preference.
    pub const fn read(preference: ReadPreference) -> Self {
        Self {
            read_preference: Some(preference),
            since: None,
            deprioritized: Vec::new(),
            predicate: None,
            member: None,
        }
    }

    /// Needs a server that takes reads with that preference, or the primary while a server is
    /// available that does not speak this wire version.
    ///
    /// CRUD, "Read preferences and server selection", for pipelines that write: "if there are
    /// either no available servers", all of them are new enough, "or the topology type is
    /// LoadBalanced", the preference counts. Each attempt to select a server judges that again.
    ///
    /// ```
    /// use sdam_core::config::{ReadMode, ReadPreference};
    /// use sdam_core::selection::Criteria;
    ///
    /// let merge = Criteria::read_since(ReadPreference::new(ReadMode::Secondary), 13);
    /// assert!(merge.to_string().ends_with("or of the primary below wire version 13"));
    /// ```
    pub const fn read_since(preference: ReadPreference, wire_version: i32) -> Self {
        Self {
            read_preference: Some(preference),
            since: Some(wire_version),
            deprioritized: Vec::new(),
            predicate: None,
            member: None,
        }
    }

    /// Avoids these servers while any other is suitable, as a retry avoids the server that failed.
    #[must_use]
    pub fn deprioritize(mut self, servers: impl IntoIterator<Item = ServerAddress>) -> Self {
        self.deprioritized.extend(servers);
        self
    }

    /// Takes only those suitable servers that `predicate` approves of.
    ///
    /// It is called under no lock by selections that need not wait, but under the topology's lock
    /// for those that do: it must be quick, and must not call into the client.
    #[must_use]
    pub fn with_predicate(
        mut self,
        predicate: impl Fn(&ServerDescription) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }

    /// Takes the member at this address, in whatever role, once something is known of it, and no
    /// other: the next command of a cursor must reach the server where that was opened, whether it
    /// is suitable for another operation or not.
    ///
    /// ```
    /// use sdam_core::selection::Criteria;
    ///
    /// let here = Criteria::write().at("a.example:27017".parse()?);
    /// assert_eq!(here.to_string(), "a write at a.example:27017");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn at(mut self, member: ServerAddress) -> Self {
        self.member = Some(member);
        self
    }

    /// Returns the only member that will do, if there is one such.
    pub const fn member(&self) -> Option<&ServerAddress> {
        self.member.as_ref()
    }

    /// Returns the read preference, or `None` for a write.
    pub const fn read_preference(&self) -> Option<&ReadPreference> {
        self.read_preference.as_ref()
    }

    /// Returns the wire version below which the read preference does not count; `None` if it
    /// always does.
    pub const fn since(&self) -> Option<i32> {
        self.since
    }

    /// Returns the read preference that counts with what is known of a deployment, or `None` where
    /// a server that takes writes is needed.
    pub fn preference_in(&self, known: &TopologyDescription) -> Option<&ReadPreference> {
        let is_too_old = |server: &ServerDescription, version: i32| {
            server.server_type != ServerType::Unknown && server.max_wire_version < version
        };
        let has_older = |version: i32| {
            known.topology_type != TopologyType::LoadBalanced
                && known.servers().iter().any(|server| is_too_old(server, version))
        };
        self.read_preference.as_ref().filter(|_| !self.since.is_some_and(has_older))
    }

    /// Returns the servers to avoid.
    pub fn deprioritized(&self) -> &[ServerAddress] {
        &self.deprioritized
    }

    /// Returns whether the application has a condition of its own.
    pub const fn has_predicate(&self) -> bool {
        self.predicate.is_some()
    }

    pub(crate) fn predicate(&self) -> Option<&Predicate> {
        self.predicate.as_ref()
    }

    /// The mode that decides among the members of a replica set; a write needs the primary.
    pub(crate) fn mode_in(&self, known: &TopologyDescription) -> ReadMode {
        self.preference_in(known).map_or(ReadMode::Primary, ReadPreference::mode)
    }

    /// Returns whether nothing but the mode decides, whatever is known.
    pub(super) fn is_plain(&self) -> bool {
        let plain = |preference: &ReadPreference| {
            preference.tag_sets().is_empty() && preference.max_staleness().is_none()
        };
        self.deprioritized.is_empty()
            && self.predicate.is_none()
            && self.member.is_none()
            && self.read_preference.as_ref().is_none_or(plain)
    }
}

impl fmt::Debug for Criteria {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Criteria")
            .field("read_preference", &self.read_preference)
            .field("since", &self.since)
            .field("deprioritized", &self.deprioritized)
            .field("predicate", &self.predicate.is_some())
            .field("member", &self.member)
            .finish()
    }
}

impl fmt::Display for Criteria {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.read_preference, self.since) {
            (None, _) => f.write_str("a write"),
            (Some(preference), None) => write!(f, "a read with preference {preference}"),
            (Some(preference), Some(version)) => write!(
                f,
                "a read with preference {preference}, or of the primary below wire version \
                 {version}"
            ),
        }?;
        self.member.as_ref().map_or(Ok(()), |member| write!(f, " at {member}"))
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::{Criteria, ReadMode, ReadPreference};
    use crate::config::{Options, TagSet};
    use crate::description::TopologyDescription;
    use crate::selection::{Reason, Snapshot};
    use crate::topology::transitions;

    const SET: &str = "mongodb://a,b,c/?replicaSet=rs";

    fn member(role: &str, wire_version: i32) -> RawDocumentBuf {
        let mut reply = rawdoc! {
            "ok": 1, "setName": "rs", "hosts": ["a:27017", "b:27017", "c:27017"],
            "minWireVersion": 0,
        };
        reply.append(bson::cstr!("maxWireVersion"), wire_version);
        reply.append(bson::cstr!("isWritablePrimary"), role == "primary");
        reply.append(bson::cstr!("secondary"), role == "secondary");
        reply.append(bson::cstr!("arbiterOnly"), role == "arbiter");
        reply
    }

    fn after(uri: &str, replies: &[(&str, RawDocumentBuf)]) -> TopologyDescription {
        let options = Options::parse(uri).unwrap();
        let mut known = transitions::initial(&options);
        for (address, reply) in replies {
            let address = address.parse().unwrap();
            known = transitions::after_reply(&known, &options, &address, reply).unwrap();
        }
        known
    }

    fn secondary() -> Criteria {
        Criteria::read_since(ReadPreference::new(ReadMode::Secondary), 13)
    }

    /// CRUD, "Read preferences and server selection": "if there are either no available servers,
    /// all available servers are 5.0+, or the topology type is LoadBalanced, drivers MUST use the
    /// available read preference", and else a primary one.
    #[test]
    fn a_preference_with_a_wire_version_counts_unless_a_server_that_is_available_is_older() {
        let counts = |known: &TopologyDescription| secondary().preference_in(known).is_some();
        let of = |role: &str, version| [("a", member("primary", 13)), ("b", member(role, version))];
        assert!(counts(&after(SET, &[])), "no server is available");
        assert!(counts(&after(SET, &of("secondary", 13))));
        assert!(!counts(&after(SET, &of("secondary", 12))));
        assert!(!counts(&after(SET, &of("arbiter", 12))), "of whatever type but Unknown");
        assert!(counts(&after("mongodb://a/?loadBalanced=true", &[])));
        assert!(Criteria::write().preference_in(&after(SET, &[])).is_none());
        let plain = Criteria::read(ReadPreference::new(ReadMode::Secondary));
        assert!(plain.preference_in(&after(SET, &of("secondary", 12))).is_some());
    }

    /// The same: the "logic can be enforced within a single server selection attempt".
    #[test]
    fn each_selection_judges_anew_whether_the_preference_counts() {
        let tags = TagSet::from([("dc".to_owned(), "east".to_owned())]);
        let tagged = ReadPreference::new(ReadMode::Secondary).with_tag_sets(vec![tags]).unwrap();
        let tagged = Criteria::read_since(tagged, 13);
        let chosen = |criteria: &Criteria, version: Option<i32>| {
            let mut replies = vec![("a", member("primary", 17))];
            replies.extend(version.map(|version| ("b", member("secondary", version))));
            let known = after(SET, &replies).into();
            let snapshot = Snapshot::new(known, &Options::parse(SET).unwrap());
            let explained = snapshot.explain(criteria).servers;
            let suitable = explained.iter().position(|server| server.reason.is_suitable());
            let chosen = snapshot.select(criteria, |_| 0, 0).unwrap();
            assert_eq!(chosen, suitable, "{explained:?}");
            (chosen, explained[1].reason.clone())
        };
        assert_eq!(chosen(&secondary(), None), (None, Reason::Unknown));
        assert_eq!(chosen(&secondary(), Some(17)), (Some(1), Reason::InWindow));
        assert_eq!(chosen(&secondary(), Some(9)), (Some(0), Reason::WrongType));
        assert_eq!(chosen(&tagged, Some(17)), (None, Reason::NoTagMatch));
        assert_eq!(chosen(&tagged, Some(9)), (Some(0), Reason::WrongType));
    }
}
