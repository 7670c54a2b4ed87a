//! Seeds, small worlds, planted bugs, the inputs of fuzz targets, applications in virtual time, and
//! the specifications' prose tests in it.

#[cfg(feature = "fuzz")]
mod fuzz_corpora;
mod planted;
mod prose;
mod sharing;
#[cfg(feature = "runner")]
mod sim;
mod storm;
mod virtual_time;
mod warm_pools;
mod worlds;
