//! conformance

pub mod cluster;
