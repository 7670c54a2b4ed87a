//! Drives the machines of [`sdam_core`] from threads, without an async runtime inside.
//!
//! ```no_run
//! use sdam_blocking::Client;
//! use sdam_core::bson::rawdoc;
//! use sdam_core::options::Options;
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(Options::parse("mongodb://localhost/?replicaSet=rs0")?)?;
//! let reply = client.run_command("admin", &rawdoc! { "buildInfo": 1 })?;
//! println!("version {}", reply.get_str("version")?);
//! # Ok(())
//! # }
//! ```
//!
//! A client has one thread in the background, however many servers there are: it waits for the
//! sockets of all monitors at once, and establishes connections. A second one comes and goes when
//! something blocks, as the system's resolver does. A connection on loan is used by the thread that
//! has it, with plain reads and writes.
//!
//! What is the same in every runtime is in [`sdam_core::host`]. The map: `client`, `loan` and
//! `subscription` are what applications hold, `builder` creates it from a `blueprint`, and
//! `process` is what a fork makes of it. `engine` runs tasks, on a thread of its own or on the
//! caller's, and `helper` what blocks; `block_on` has a thread wait for a future. `runtime`
//! supplies what [`host::Runtime`](sdam_core::host::Runtime) asks for: `connect` resolves names and
//! opens sockets unless the application has a `dialer`, `socket` is what is open then, and `dns`
//! talks to name servers.

mod block_on;
mod blueprint;
mod builder;
mod client;
mod connect;
mod dialer;
mod dns;
mod engine;
mod helper;
mod loan;
mod process;
mod runtime;
mod socket;
mod subscription;

pub use block_on::block_on;
pub use builder::ClientBuilder;
pub use client::{Client, Server};
pub use dialer::{ByteStream, Dialer};
pub use loan::{CheckedOut, Exhaust};
pub use runtime::Blocking;
pub use sdam_core::host::{ClientError, CredentialProvider};
pub use sdam_system::environment;
pub use socket::Socket;
pub use subscription::{Events, Source, Subscription, Views};
