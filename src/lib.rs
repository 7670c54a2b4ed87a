#![doc = include_str!("../README.md")]

pub use sdam_core::{
    address, address_map, bson, description, event, failure, hello, host, id, machine, metadata,
    operation, options, pool, rng, selection, time, topology, transport, uri, wire,
};
#[cfg(feature = "tokio")]
pub use sdam_tokio as tokio;
