//! Topologies whose tasks run on the executor of async-std; [`builder_on`] names another one.

use sdam_host as host;

use crate::runtime::{AsyncIo, AsyncIoReactor};

pub use crate::dialer::{ByteStream, Dialer, Dialing};
pub use crate::executor::{AsyncStd, Executor, Task};
pub use crate::runtime::{Setup, builder_on};

/// The type parameter of whatever in [`sdam_host`] is for every runtime.
pub type Runtime = AsyncIo<AsyncStd>;

/// The deployment below a client: it discovers servers and watches them, selects one, checks out
/// connections and runs commands, until its last clone is dropped.
///
/// Its tasks run on the executor of async-std,
/// whichever executor polls the futures of its methods.
///
/// ```no_run
/// use sdam_async_std::async_std::Topology;
/// use sdam_core::bson::rawdoc;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let topology = Topology::connect("mongodb://localhost/?replicaSet=rs0").await?;
/// let reply = topology.run_command("admin", &rawdoc! { "buildInfo": 1 }).await?;
/// println!("version {}", reply.get_str("version")?);
/// # Ok(())
/// # }
/// ```
pub type Topology = host::Topology<Runtime>;

/// Creates topologies that differ from what [`Topology::connect`](host::Topology::connect) creates:
/// with a [`Dialer`], for instance.
pub type ClientBuilder = host::ClientBuilder<AsyncIoReactor<AsyncStd>>;

/// The monitors that clients share which are [made with it](ClientBuilder::registry).
pub type Registry = host::Registry<AsyncIoReactor<AsyncStd>>;

/// A server that was selected, or that the application has named.
pub type SelectedServer = host::SelectedServer<Runtime>;

/// A connection in use, until it is dropped.
pub type CheckedOut = host::CheckedOut<Runtime>;

/// The replies to one command, as they come.
pub type Exhaust<'a> = host::Exhaust<'a, Runtime>;
