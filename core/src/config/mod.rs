//! The configuration of a client, as values that are valid once constructed.
//!
//! - [`Options`] is all of it, and [`OptionsBuilder`] the way there; [`uri`] is the form that
//!   connection strings have.
//! - [`ServerAddress`] names a server, and [`address_map`] says where the bytes for it go, if not
//!   to the address it advertises.
//! - [`ReadPreference`], [`ReadConcern`] and [`WriteConcern`] are what commands declare.
//! - [`Credential`] says who the client is, and [`metadata`] is what it sends to servers about
//!   itself, with a [`DriverInfo`] for each library around the client.
//!
//! Nothing in here knows what a client does with it: every other part of this crate may use this
//! one.

mod address;
pub mod address_map;
mod allowed_hosts;
mod concern;
mod credential;
pub mod metadata;
mod options;
mod read_preference;
mod secret;
pub mod uri;

pub use address::{AddressError, DEFAULT_PORT, MAX_HOST_LEN, ServerAddress};
pub use allowed_hosts::AllowedHosts;
pub use concern::{Acknowledgment, ReadConcern, WriteConcern};
pub use credential::{AuthMechanism, Credential, CredentialError};
pub use metadata::DriverInfo;
pub use options::{
    MAX_SEEDS, MIN_HEARTBEAT_FREQUENCY, MIN_RESCAN_INTERVAL, MonitoringMode, Notice, OpeningHello,
    Options, OptionsBuilder, OptionsError, PoolOptions, ProxyOptions, ServerApi, ServerApiVersion,
    SrvOptions, TcpOptions, TlsOptions, Warning,
};
pub use read_preference::{ReadMode, ReadPreference, ReadPreferenceError, TagSet};
pub use secret::Secret;
