//! Threads that block.

use std::future::Future;
use std::net::SocketAddr;

use sdam::Error;
use sdam::blocking::{Blocking as Runtime, Client, Events, block_on};
use sdam::core::config::Options;
use sdam_conformance::adapter::{Adapter, Feature, Subject};

/// The runtime without a runtime.
pub(crate) struct Blocking;

fn subject((client, events): (Client, Events)) -> Subject<Runtime> {
    (client.host_client(), events.into_host().expect("this process has made it"))
}

impl Adapter for Blocking {
    type Runtime = Runtime;

    fn name(&self) -> &str {
        "blocking"
    }

    fn client(&self, options: Options) -> Result<Subject<Runtime>, Error> {
        Client::with_events(options).map(subject)
    }

    async fn connect(
        &self,
        options: Options,
        name_servers: Vec<SocketAddr>,
    ) -> Result<Subject<Runtime>, Error> {
        let builder = Client::builder(options).name_servers(name_servers);
        builder.connect_with_events().map(subject)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(future)
    }

    fn lacks(&self, feature: Feature) -> Option<&str> {
        match feature {
            Feature::GivingUp => Some("its lookups block the calling thread"),
            Feature::SingleThreaded => Some("the calls of its own `Client` drive them"),
            _ => None,
        }
    }
}
