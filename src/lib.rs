#![doc = include_str!("../README.md")]

pub use sdam_core::{
    address, address_map, auth, bson, description, dns, event, failure, handshake, hello, host, id,
    machine, metadata, operation, options, pool, rng, selection, srv, time, topology, transport,
    uri, wire,
};
#[cfg(feature = "tokio")]
pub use sdam_tokio as tokio;
