//! The example of `docs/write-your-own-runtime.md`.

#[expect(unreachable_pub, reason = "it is a library where it is an example")]
#[path = "../../examples/own_runtime.rs"]
pub(crate) mod own_runtime;

use std::future::Future;

use sdam::Error;
use sdam::core::config::Options;
use sdam_conformance::adapter::{Adapter, Feature, Subject};

use own_runtime::Threads;

/// A thread for every task.
pub(crate) struct Example;

impl Adapter for Example {
    type Runtime = Threads;

    fn name(&self) -> &str {
        "example"
    }

    fn client(&self, options: Options) -> Result<Subject<Threads>, Error> {
        Ok(own_runtime::client(options)?)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }

    fn lacks(&self, feature: Feature) -> Option<&str> {
        match feature {
            Feature::GivingUp | Feature::Lookups => Some("it looks nothing up"),
            Feature::Offloading => Some("its tasks have threads of their own"),
            Feature::Sharing => Some("it has no registry"),
            Feature::Tls => Some("it loads no certificates"),
            Feature::UnixSockets => Some("it opens TCP sockets only"),
            _ => None,
        }
    }
}
