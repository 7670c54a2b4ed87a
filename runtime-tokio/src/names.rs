//! The names that applications know.

use sdam_host as host;

use crate::runtime::{Tokio, TokioReactor};

/// The deployment below a client: it discovers servers and watches them, selects one, checks out
/// connections and runs commands, until its last clone is dropped.
///
/// It is created inside a tokio runtime, or else that fails, and its tasks run there; they panic if
/// the runtime has neither its I/O nor its time driver enabled
/// ([`enable_all`](tokio::runtime::Builder::enable_all)).
///
/// ```no_run
/// use sdam_core::bson::rawdoc;
/// use sdam_tokio::Topology;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let topology = Topology::connect("mongodb://localhost/?replicaSet=rs0").await?;
/// let reply = topology.run_command("admin", &rawdoc! { "buildInfo": 1 }).await?;
/// println!("version {}", reply.get_str("version")?);
/// # Ok(())
/// # }
/// ```
pub type Topology = host::Topology<Tokio>;

/// Creates topologies that differ from what [`Topology::connect`](host::Topology::connect) creates.
///
/// ```no_run
/// # use sdam_core::config::Options;
/// # use sdam_tokio::Topology;
/// # async fn example() -> Result<Topology, Box<dyn std::error::Error>> {
/// let options = Options::parse("mongodb+srv://cluster0.example.com")?;
/// let builder = Topology::builder(options).name_servers([([192, 0, 2, 53], 53).into()]);
/// Ok(builder.connect().await?)
/// # }
/// ```
///
/// A [`Dialer`](crate::Dialer) opens streams in place of sockets.
pub type ClientBuilder = host::ClientBuilder<TokioReactor>;

/// The monitors that clients share which are [made with it](ClientBuilder::registry).
pub type Registry = host::Registry<TokioReactor>;

/// A server that was selected, or that the application has named.
pub type SelectedServer = host::SelectedServer<Tokio>;

/// A connection in use, until it is dropped.
pub type CheckedOut = host::CheckedOut<Tokio>;

/// The replies to one command, as they come.
pub type Exhaust<'a> = host::Exhaust<'a, Tokio>;
