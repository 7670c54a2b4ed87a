//! The layer of MongoDB below CRUD, without a runtime inside: Server Discovery And Monitoring as a
//! pure state machine, pools of connections, and thin adapters that drive them.
#![cfg_attr(feature = "tokio", doc = "\n")]
#![cfg_attr(feature = "tokio", doc = include_str!("front_page.md"))]

#[cfg(any(feature = "smol", feature = "async-std"))]
pub use sdam_async_std as async_std;
#[cfg(feature = "blocking")]
pub use sdam_blocking as blocking;
pub use sdam_core::{
    auth, bson, config, description, dns, failure, handshake, hello, id, machine, operation, pool,
    rng, selection, time, topology, trace, transport, wire,
};
#[doc = include_str!("../docs/write-your-own-runtime.md")]
pub use sdam_host as host;
pub use sdam_host::system::flight_recorder;
#[cfg(feature = "tokio")]
pub use sdam_tokio as tokio;

/// The README, whose examples are tests; its links are for the repository, so it is no page here.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
