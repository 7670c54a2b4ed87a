//! The pure core of sdam: bytes and ticks in, actions out.
//!
//! Nothing in here does I/O, reads a clock, starts a thread or draws randomness that was not handed
//! in. A runtime feeds a [`Machine`](machine::Machine) what happened and performs what it answers:
//!
//! ```
//! use std::sync::Arc;
//! use sdam_core::machine::Machine;
//! use sdam_core::config::Options;
//! use sdam_core::time::{Instant, Time};
//! use sdam_core::topology::{Action, Input, Topology};
//!
//! let options = Options::parse("mongodb://localhost")?;
//! let mut topology = Topology::new(Arc::new(options), 1);
//! let mut actions = Vec::new();
//! topology.tick(Time::ZERO, &mut actions);
//! for action in std::mem::take(&mut actions) {
//!     if let Action::Open { link, .. } = action {
//!         // A real runtime opens a socket; here it is up two milliseconds later.
//!         topology.handle(Instant::from_millis(2).into(), Input::Opened { link }, &mut actions);
//!     }
//! }
//! assert!(actions.iter().any(|action| matches!(action, Action::Send { .. })), "it says hello");
//! # Ok::<(), sdam_core::config::OptionsError>(())
//! ```
//!
//! # The map
//!
//! - [`machine`], [`time`], [`id`], [`rng`]: what determinism is made of.
//! - [`config`]: what the user asks for.
//! - [`wire`], [`hello`]: bytes, and the one command that this layer lives on.
//! - [`handshake`], [`auth`]: what is said first on a connection of the application.
//! - [`transport`]: the bytes below those, of a proxy and of TLS.
//! - [`description`]: what is known of servers and of the deployment, and how that changes.
//! - [`topology`]: the root machine, with one monitor for every server.
//! - [`operation`]: what operations tell the topology.
//! - [`pool`]: the pool of one server, another machine; the topology tells it when it may be used.
//! - [`selection`]: which server an operation uses, and why.
//! - [`dns`]: looking up the hosts of a deployment, and which of them to trust.
//! - [`failure`]: what went wrong, as plain data; what happened is told by [`topology::Event`].
//! - `harness` (feature `harness`): a topology in virtual time, whose servers answer what they are
//!   made to answer.
//! - `trace` (feature `trace`): what a topology was told and did, as text that can be replayed.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod auth;
pub mod config;
pub mod description;
pub mod dns;
pub mod failure;
pub mod handshake;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
pub mod hello;
pub mod id;
pub mod machine;
pub mod operation;
pub mod pool;
pub mod process;
pub mod rng;
pub mod selection;
pub mod time;
pub mod topology;
#[cfg(feature = "trace")]
pub mod trace;
pub mod transport;
pub mod wire;

pub use bson;
