//! Real servers and a real proxy, where they are installed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::mongod::{Availability, Binary, Options, ReplicaSet, Tls, User};
use crate::proxy::Proxy;
use sdam_cluster::certificates::Authority;

use super::fixture::Outcome;

/// The time that the set may take to settle after a test.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// A part that tests need and this machine may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The replica set of real servers.
    Mongod,
    /// The real proxy.
    Microsocks,
}

/// The parts that this machine has.
pub(super) struct Parts {
    /// The newest version that there is.
    binary: Option<Binary>,
    has_proxy: bool,
    /// The set that the next test is to use.
    set: Mutex<Option<RealSet>>,
}

/// Three real members with TLS and users, and the authority that issued their certificates.
pub(super) struct RealSet {
    pub(super) set: ReplicaSet,
    pub(super) authority: Authority,
}

/// The user of the set, who may do everything, and the password.
pub(super) const USER: &str = "sdam";

impl Parts {
    pub(super) fn look() -> Self {
        let binary = Availability::look().binaries().last().cloned();
        Self { binary, has_proxy: Proxy::is_installed(), set: Mutex::default() }
    }

    /// For a process that runs no test.
    pub(super) fn none() -> Self {
        Self { binary: None, has_proxy: false, set: Mutex::default() }
    }

    /// Returns why a part is missing, if it is.
    pub(super) fn lacks(&self, part: Part) -> Option<&'static str> {
        match part {
            Part::Mongod if self.binary.is_none() => {
                Some("there is no mongod: run scripts/fetch-mongod, or set SDAM_MONGOD")
            }
            Part::Microsocks if !self.has_proxy => {
                Some("microsocks is not installed: install the package")
            }
            Part::Mongod | Part::Microsocks => None,
        }
    }

    /// Lends the set to one test at a time; one that does not come back is replaced.
    pub(super) fn with_set<T>(
        self: &Arc<Self>,
        test: impl FnOnce(RealSet) -> (Option<RealSet>, T),
    ) -> Outcome<T> {
        let mut slot = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let set = match slot.take() {
            Some(set) => set,
            None => self.start()?,
        };
        set.set.wait_until_settled(SETTLE_LIMIT)?;
        let (set, outcome) = test(set);
        *slot = set;
        Ok(outcome)
    }

    fn start(&self) -> Outcome<RealSet> {
        let binary = self.binary.as_ref().ok_or("there is no mongod")?;
        let authority = Authority::new("the authority")?;
        let key = authority.issue("server", &["127.0.0.1"])?;
        let tls = Some(Tls::new(key, authority.file()));
        let mut set = ReplicaSet::start(binary, 3, &Options { tls, ..Options::default() })?;
        set.enable_auth(&[User::new(USER, USER)])?;
        Ok(RealSet { set, authority })
    }
}

impl RealSet {
    /// Returns the connection string of all members, with the login and what follows it.
    pub(super) fn uri(&self, more: &str) -> String {
        let seeds: Vec<String> = self.set.seed_list().iter().map(ToString::to_string).collect();
        let (seeds, name) = (seeds.join(","), self.set.set_name());
        format!("mongodb://{USER}:{USER}@{seeds}/?replicaSet={name}&heartbeatFrequencyMS=500{more}")
    }
}
