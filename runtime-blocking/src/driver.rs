//! The interface for drivers, as that of [`sdam_host::driver`]: those who build typed operations
//! above a topology have the futures of its host, and the thread that waits for them.

use sdam_host as host;

use crate::runtime::Blocking;
use crate::topology::Topology;

/// The methods of a [`Topology`] that drivers call, and applications do without: those who build
/// typed operations above it import this trait.
pub trait DriverTopology: sealed::Topology {
    /// Returns the topology of this process as it is for every runtime that waits with futures;
    /// those of this one can be waited for with [`block_on`](crate::block_on), unless the callers
    /// of this topology do all work: then they make progress only during such calls.
    ///
    /// In a process that is forked off later it is of no use, see [`host::Topology`].
    fn host_topology(&self) -> host::Topology<Blocking>;

    /// Waits for a future of [`host_topology`](Self::host_topology): an operation, for one. Where
    /// the callers of this topology do all work, this call does it meanwhile.
    fn wait<F: Future>(&self, future: F) -> F::Output;
}

mod sealed {
    /// Only this crate has a topology.
    pub trait Topology {}

    impl Topology for crate::Topology {}
}

impl DriverTopology for Topology {
    fn host_topology(&self) -> host::Topology<Blocking> {
        self.here().clone()
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.here().engine().wait(future)
    }
}
