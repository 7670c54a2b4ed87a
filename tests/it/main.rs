//! The facade: its examples as processes, and what all runtimes have in common.

mod conversions;
#[cfg(feature = "tokio")]
mod examples;
#[cfg(all(feature = "tokio", feature = "smol", feature = "blocking", feature = "tls"))]
mod log_lines;
#[cfg(all(feature = "tokio", feature = "smol", feature = "async-std", feature = "blocking"))]
mod logging;
mod own_runtime;
mod runtimes;
#[cfg(all(feature = "tokio", feature = "smol", feature = "blocking"))]
mod seeds;
mod support;
