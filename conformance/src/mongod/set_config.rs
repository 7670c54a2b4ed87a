//! The configuration of a replica set for a test.

use std::time::Duration;

use bson::{Document, doc};
use sdam_core::config::ServerAddress;

use super::{Config, Tls, Version};

/// The options of a whole replica set.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the set.
    pub set_name: String,
    /// The time that the members miss a primary before they elect another.
    pub election_timeout: Duration,
    /// The interval of heartbeats between members.
    pub heartbeat_interval: Duration,
    /// More arguments for the command line of every member.
    pub arguments: Vec<String>,
    /// Host names that only the members have for each other, or none; one for each member there
    /// will ever be, see [`Config`](super::Config).
    pub private_names: Vec<String>,
    /// The certificates of all members, if they speak TLS.
    pub tls: Option<Tls>,
    /// The compressors that all members offer, see [`Config`](super::Config).
    pub compressors: Vec<String>,
}

impl Default for Options {
    /// A set named `rs` that notices a lost primary within about two seconds.
    fn default() -> Self {
        Self {
            set_name: "rs".to_owned(),
            election_timeout: Duration::from_secs(2),
            heartbeat_interval: Duration::from_millis(500),
            arguments: Vec::new(),
            private_names: Vec::new(),
            tls: None,
            compressors: Vec::new(),
        }
    }
}

impl Options {
    /// Returns the options of a set whose primary stays however busy the machine is, unless a test
    /// has it step down.
    pub fn calm() -> Self {
        Self { election_timeout: Duration::from_secs(30), ..Self::default() }
    }

    /// Returns how to start the server that becomes member number `id`, counted from 0.
    pub(super) fn config(&self, id: usize) -> Config {
        let names = self.private_names.iter().cycle().skip(id);
        Config {
            replica_set: Some(self.set_name.clone()),
            arguments: self.arguments.clone(),
            private_names: names.take(self.private_names.len()).cloned().collect(),
            tls: self.tls.clone(),
            compressors: self.compressors.clone(),
        }
    }

    pub(super) fn settings(&self) -> Document {
        let millis = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        doc! {
            "electionTimeoutMillis": millis(self.election_timeout),
            "heartbeatIntervalMillis": millis(self.heartbeat_interval),
            "catchUpTimeoutMillis": 0,
        }
    }
}

/// The options of one member of a replica set.
#[derive(Clone, Debug)]
pub struct Member {
    /// The member's priority; 0 is never primary. Without effect on an arbiter.
    pub priority: f64,
    /// True if hello keeps silent about the member; the server then wants priority 0.
    pub hidden: bool,
    /// The time by which the member is behind the others on purpose, in whole seconds; the server
    /// then wants priority 0.
    pub delay: Duration,
    /// True if the member votes but holds no data.
    pub arbiter_only: bool,
    /// The tags that read preferences choose by.
    pub tags: Document,
}

impl Default for Member {
    /// A member with data, priority 1, and no tags.
    fn default() -> Self {
        let (delay, tags) = (Duration::ZERO, Document::new());
        Self { priority: 1.0, hidden: false, delay, arbiter_only: false, tags }
    }
}

impl Member {
    /// Returns whether the member may become primary.
    pub fn is_electable(&self) -> bool {
        self.priority > 0.0 && !self.arbiter_only
    }

    pub(super) fn document(&self, id: i32, address: &ServerAddress, of: Version) -> Document {
        let mut member = doc! { "_id": id, "host": address.to_string() };
        if self.arbiter_only {
            member.insert("arbiterOnly", true);
        } else {
            member.extend(doc! {
                "priority": self.priority, "hidden": self.hidden, "tags": self.tags.clone(),
            });
            if !self.delay.is_zero() {
                let name = if of.major < 5 { "slaveDelay" } else { "secondaryDelaySecs" };
                let seconds = i64::try_from(self.delay.as_secs()).unwrap_or(i64::MAX);
                member.insert(name, seconds);
            }
        }
        member
    }
}
