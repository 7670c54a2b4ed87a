//! The pure core of sdam.
#![doc = ""]

pub mod address;
pub mod id;
pub mod machine;
pub mod rng;
pub mod time;
pub mod wire;

pub use bson;
