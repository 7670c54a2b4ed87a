//! Options of databases and collections, as configurations have them.

use std::time::Duration;

use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};

use super::perform::Concerns;

/// The concerns of a database, where they are not those of its client.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct DatabaseOptions {
    /// Sets which servers reads may use.
    pub read_preference: Option<ReadPreference>,
    /// Sets which data reads see.
    pub read_concern: Option<ReadConcern>,
    /// Sets under which condition writes succeed.
    pub write_concern: Option<WriteConcern>,
    /// Sets `timeoutMS` of each operation; zero lifts the limit.
    pub timeout: Option<Duration>,
}

/// The concerns of a collection, where they are not those of its database.
pub type CollectionOptions = DatabaseOptions;

impl DatabaseOptions {
    /// Starts with nothing set.
    pub fn builder() -> DatabaseOptionsBuilder {
        DatabaseOptionsBuilder::default()
    }

    /// Changes the concerns that are set.
    pub(crate) fn apply(self, concerns: &mut Concerns) {
        let Self { read_preference, read_concern, write_concern, timeout } = self;
        if let Some(preference) = read_preference {
            concerns.read_preference = preference;
        }
        if let Some(concern) = read_concern {
            concerns.read_concern = concern;
        }
        if let Some(concern) = write_concern {
            concerns.write_concern = concern;
        }
        concerns.timeout = timeout.or(concerns.timeout);
    }
}

/// Options of a database or a collection while they are set.
#[derive(Clone, Debug, Default)]
pub struct DatabaseOptionsBuilder(DatabaseOptions);

/// Options of a collection while they are set.
pub type CollectionOptionsBuilder = DatabaseOptionsBuilder;

impl DatabaseOptionsBuilder {
    /// Sets which servers reads may use.
    #[must_use]
    pub fn read_preference(mut self, preference: impl Into<Option<ReadPreference>>) -> Self {
        self.0.read_preference = preference.into();
        self
    }

    /// Sets which data reads see.
    #[must_use]
    pub fn read_concern(mut self, concern: impl Into<Option<ReadConcern>>) -> Self {
        self.0.read_concern = concern.into();
        self
    }

    /// Sets under which condition writes succeed.
    #[must_use]
    pub fn write_concern(mut self, concern: impl Into<Option<WriteConcern>>) -> Self {
        self.0.write_concern = concern.into();
        self
    }

    /// Sets `timeoutMS` of each operation; zero lifts the limit.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.0.timeout = timeout.into();
        self
    }

    /// Returns the options.
    pub fn build(self) -> DatabaseOptions {
        self.0
    }
}
