//! Simulation: clients, a deployment and a faulty network in virtual time, seed by seed.
//!
//! Applications begin with [`virtual_time`], whose page has a program; the rest is this project's
//! own.
//!
//! # Contents
//!
//! - [`sim`]: clients under random faults, what must hold after every step, and what must happen in
//!   time; a failure is reduced to the faults and clients that it takes.
//! - [`virtual_time`]: applications of one's own, with real clients inside.
//! - [`histories`]: the anomalies that a history of transactions shows.
//! - [`storm`]: thousands of clients that come back to one member at once.
//! - [`worlds`]: small worlds, in every order of messages, timers and a few faults.
//! - `fuzz`, with the feature of this name: what must hold of every input, for a fuzzer and for
//!   `cargo test`.
//!
//! # Features
//!
//! - `fuzz`: the bodies of the fuzz targets, which panic if a law is broken.
//! - `runner`: the command-line tool that runs seeds, reduces what fails, and searches small
//!   worlds.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod histories;
pub mod sim;
pub use sim::{storm, virtual_time};
pub mod worlds;

/// The page on virtual time, whose example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/virtual-time.md")]
struct Page;
