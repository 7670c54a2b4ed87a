//! The ways in which an application observes a client: events, recordings, metrics and spans.

pub(crate) mod meter;
#[cfg(feature = "otel")]
pub mod otel;
pub(crate) mod recording;
pub(crate) mod spans;
pub(crate) mod subscription;
