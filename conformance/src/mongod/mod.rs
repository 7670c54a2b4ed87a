//! Real `mongod` processes for integration tests: found, started, disturbed and cleaned away.
//!
//! `scripts/fetch-mongod` puts a range of versions into `.mongod/`; a [`Server`] is one process and
//! a [`ReplicaSet`] several. All of it blocks, and all of it is for Unix.
//!
//! ```no_run
//! use std::time::Duration;
//! use sdam_conformance::mongod::{Availability, Options, ReplicaSet};
//!
//! let availability = Availability::look();
//! for binary in availability.binaries() {
//!     let mut set = ReplicaSet::start(binary, 3, &Options::default())?;
//!     let primary = set.primary()?;
//!     set.kill(primary)?;
//!     assert_ne!(set.wait_for_primary(Duration::from_secs(30))?, primary);
//! }
//! # Ok::<(), sdam_conformance::mongod::HarnessError>(())
//! ```
//!
//! All servers take test commands, `configureFailPoint` among them. With authentication:
//!
//! ```no_run
//! # use sdam_conformance::mongod::{Availability, Config, Server, User};
//! # let availability = Availability::look();
//! # for binary in availability.binaries() {
//! let mut server = Server::start(binary, Config::default())?;
//! let users = [User::new("sha256", "sha256").with_mechanisms(&["SCRAM-SHA-256"])];
//! server.enable_auth(&users)?;
//! let uri = format!("mongodb://sha256:sha256@{}/", server.address());
//! # }
//! # Ok::<(), sdam_conformance::mongod::HarnessError>(())
//! ```

mod auth;
mod availability;
mod binary;
mod command;
mod error;
mod failover;
mod hello;
pub(crate) mod private_names;
pub(crate) mod process;
mod replica_set;
mod server;
mod set_config;
mod sync_source;
mod through_tunnel;
mod tls;

pub use auth::User;
pub use availability::Availability;
pub use binary::{Binary, Version};
pub use command::{CommandError, Connection, command};
pub use error::HarnessError;
pub use failover::log_failovers;
pub use private_names::private_names_work;
pub use replica_set::ReplicaSet;
pub use server::free_port;
pub use server::{Config, Server};
pub use set_config::{Member, Options};
pub use through_tunnel::follow_through_tunnel;
pub use tls::{Tls, TlsMode};
