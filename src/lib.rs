//! The layer of MongoDB below CRUD, without a runtime inside.
#![cfg_attr(feature = "tokio", doc = include_str!("../README.md"))]

#[cfg(any(feature = "smol", feature = "async-std"))]
pub use sdam_async_std as async_std;
#[cfg(feature = "blocking")]
pub use sdam_blocking as blocking;
#[doc = include_str!("../docs/write-your-own-runtime.md")]
pub use sdam_core::host;
pub use sdam_core::{
    address, address_map, auth, bson, description, dns, event, failure, handshake, hello, id,
    machine, metadata, operation, options, pool, rng, selection, srv, time, topology, trace,
    transport, uri, wire,
};
pub use sdam_system::flight_recorder;
#[cfg(feature = "tokio")]
pub use sdam_tokio as tokio;
