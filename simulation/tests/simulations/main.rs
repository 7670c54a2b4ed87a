//! Seeds, small worlds, planted bugs, the inputs of fuzz targets, and applications in virtual time.

#[cfg(feature = "fuzz")]
mod fuzz_corpora;
mod planted;
#[cfg(feature = "runner")]
mod sim;
mod virtual_time;
mod worlds;
