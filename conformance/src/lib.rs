//! conformance

pub mod cluster;
pub mod spec;
