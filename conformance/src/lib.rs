//! Proof that sdam behaves as the specifications say: against their tests and against real servers.

pub mod mongod;
