//! Threads that block.

use std::future::Future;
use std::net::SocketAddr;

use crate::adapter::{Adapter, Feature, Subject};
use sdam::Error;
use sdam::blocking::driver::DriverTopology;
use sdam::blocking::{Blocking as Runtime, Events, Registry, Topology, block_on};
use sdam::core::auth::GssapiProvider;
use sdam::core::config::Options;
use sdam::core::logging::LogSettings;
use sdam::core::spans::SpanSettings;
use sdam::host::{CredentialProvider, Tracer};

/// The runtime without a runtime.
pub struct Blocking;

fn subject((client, events): (Topology, Events)) -> Subject<Runtime> {
    (client.host_topology(), events.into_host().expect("this process has made it"))
}

impl Adapter for Blocking {
    type Runtime = Runtime;

    fn name(&self) -> &str {
        "blocking"
    }

    fn client(&self, options: Options) -> Result<Subject<Runtime>, Error> {
        Topology::with_events(options).map(subject)
    }

    fn logging_client(
        &self,
        options: Options,
        settings: LogSettings,
    ) -> Result<Subject<Runtime>, Error> {
        Topology::builder(options).log(settings).build_with_events().map(subject)
    }

    fn traced_client(
        &self,
        options: Options,
        settings: SpanSettings,
        tracer: impl Tracer,
    ) -> Result<Subject<Runtime>, Error> {
        let builder = Topology::builder(options).spans(settings).tracer(tracer);
        builder.build_with_events().map(subject)
    }

    fn provided_client(
        &self,
        options: Options,
        provider: impl CredentialProvider,
    ) -> Result<Subject<Runtime>, Error> {
        Topology::builder(options).credential_provider(provider).build_with_events().map(subject)
    }

    fn gssapi_client(
        &self,
        options: Options,
        provider: impl GssapiProvider,
    ) -> Result<Subject<Runtime>, Error> {
        Topology::builder(options).gssapi_provider(provider).build_with_events().map(subject)
    }

    fn sharing_clients(&self, options: Vec<Options>) -> Result<Vec<Subject<Runtime>>, Error> {
        let registry = Registry::new();
        let client = |options| {
            Topology::builder(options).registry(&registry).build_with_events().map(subject)
        };
        options.into_iter().map(client).collect()
    }

    async fn connect(
        &self,
        options: Options,
        name_servers: Vec<SocketAddr>,
    ) -> Result<Subject<Runtime>, Error> {
        let builder = Topology::builder(options).name_servers(name_servers);
        builder.connect_with_events().map(subject)
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(future)
    }

    fn lacks(&self, feature: Feature) -> Option<&str> {
        match feature {
            Feature::GivingUp => Some("its lookups block the calling thread"),
            Feature::SingleThreaded => Some("the calls of its own `Topology` drive them"),
            _ => None,
        }
    }
}
