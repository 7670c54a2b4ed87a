//! The needs of an operation.

use std::fmt;
use std::sync::Arc;

use crate::config::ServerAddress;
use crate::config::{ReadMode, ReadPreference};
use crate::description::ServerDescription;

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
    deprioritized: Vec<ServerAddress>,
    predicate: Option<Predicate>,
}

impl Criteria {
    /// Needs a server that takes writes.
    pub const fn write() -> Self {
        Self { read_preference: None, deprioritized: Vec::new(), predicate: None }
    }

    /// Needs a server that takes reads with that preference.
    pub const fn read(preference: ReadPreference) -> Self {
        Self { read_preference: Some(preference), deprioritized: Vec::new(), predicate: None }
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

    /// Returns the read preference, or `None` for a write.
    pub const fn read_preference(&self) -> Option<&ReadPreference> {
        self.read_preference.as_ref()
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
    pub(crate) fn mode(&self) -> ReadMode {
        self.read_preference.as_ref().map_or(ReadMode::Primary, ReadPreference::mode)
    }

    /// Returns whether nothing but the mode decides.
    pub(super) fn is_plain(&self) -> bool {
        let plain = |preference: &ReadPreference| {
            preference.tag_sets().is_empty() && preference.max_staleness().is_none()
        };
        self.deprioritized.is_empty()
            && self.predicate.is_none()
            && self.read_preference.as_ref().is_none_or(plain)
    }
}

impl fmt::Debug for Criteria {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Criteria")
            .field("read_preference", &self.read_preference)
            .field("deprioritized", &self.deprioritized)
            .field("predicate", &self.predicate.is_some())
            .finish()
    }
}

impl fmt::Display for Criteria {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.read_preference {
            None => f.write_str("a write"),
            Some(preference) => write!(f, "a read with preference {preference}"),
        }
    }
}
