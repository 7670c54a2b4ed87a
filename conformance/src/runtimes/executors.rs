//! smol and async-std.

use std::future::Future;
use std::net::SocketAddr;

use crate::adapter::{Adapter, Subject};
use sdam::Error;
use sdam::Options;
use sdam::core::auth::GssapiProvider;
use sdam::core::logging::LogSettings;
use sdam::core::spans::SpanSettings;
use sdam::host::{CredentialProvider, CurrentReactor, Registry, SocketRuntime, Topology, Tracer};

/// smol's global executor.
pub struct Smol;

/// async-std's executor.
pub struct AsyncStd;

type OfSmol = sdam::smol::Runtime;
type OfAsyncStd = sdam::async_std::Runtime;

async fn connect<R: CurrentReactor<Setup: Default>>(
    options: Options,
    name_servers: Vec<SocketAddr>,
) -> Result<Subject<SocketRuntime<R>>, Error> {
    let builder = Topology::<SocketRuntime<R>>::builder(options).name_servers(name_servers);
    builder.connect_with_events().await
}

fn sharing<R: CurrentReactor<Setup: Default>>(
    options: Vec<Options>,
) -> Result<Vec<Subject<SocketRuntime<R>>>, Error> {
    let registry = Registry::new();
    let client = |options| {
        Topology::<SocketRuntime<R>>::builder(options).registry(&registry).build_with_events()
    };
    options.into_iter().map(client).collect()
}

impl Adapter for Smol {
    type Runtime = OfSmol;

    fn name(&self) -> &str {
        "smol"
    }

    fn client(&self, options: Options) -> Result<Subject<OfSmol>, Error> {
        Topology::with_events(options)
    }

    fn logging_client(
        &self,
        options: Options,
        settings: LogSettings,
    ) -> Result<Subject<OfSmol>, Error> {
        Topology::<OfSmol>::builder(options).log(settings).build_with_events()
    }

    fn traced_client(
        &self,
        options: Options,
        settings: SpanSettings,
        tracer: impl Tracer,
    ) -> Result<Subject<OfSmol>, Error> {
        Topology::<OfSmol>::builder(options).spans(settings).tracer(tracer).build_with_events()
    }

    fn provided_client(
        &self,
        options: Options,
        provider: impl CredentialProvider,
    ) -> Result<Subject<OfSmol>, Error> {
        let builder = Topology::<OfSmol>::builder(options).credential_provider(provider);
        builder.build_with_events()
    }

    fn gssapi_client(
        &self,
        options: Options,
        provider: impl GssapiProvider,
    ) -> Result<Subject<OfSmol>, Error> {
        Topology::<OfSmol>::builder(options).gssapi_provider(provider).build_with_events()
    }

    fn sharing_clients(&self, options: Vec<Options>) -> Result<Vec<Subject<OfSmol>>, Error> {
        sharing(options)
    }

    async fn connect(
        &self,
        options: Options,
        name_servers: Vec<SocketAddr>,
    ) -> Result<Subject<OfSmol>, Error> {
        connect(options, name_servers).await
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }
}

impl Adapter for AsyncStd {
    type Runtime = OfAsyncStd;

    fn name(&self) -> &str {
        "async-std"
    }

    fn client(&self, options: Options) -> Result<Subject<OfAsyncStd>, Error> {
        Topology::with_events(options)
    }

    fn logging_client(
        &self,
        options: Options,
        settings: LogSettings,
    ) -> Result<Subject<OfAsyncStd>, Error> {
        Topology::<OfAsyncStd>::builder(options).log(settings).build_with_events()
    }

    fn traced_client(
        &self,
        options: Options,
        settings: SpanSettings,
        tracer: impl Tracer,
    ) -> Result<Subject<OfAsyncStd>, Error> {
        let builder = Topology::<OfAsyncStd>::builder(options).spans(settings).tracer(tracer);
        builder.build_with_events()
    }

    fn provided_client(
        &self,
        options: Options,
        provider: impl CredentialProvider,
    ) -> Result<Subject<OfAsyncStd>, Error> {
        let builder = Topology::<OfAsyncStd>::builder(options).credential_provider(provider);
        builder.build_with_events()
    }

    fn gssapi_client(
        &self,
        options: Options,
        provider: impl GssapiProvider,
    ) -> Result<Subject<OfAsyncStd>, Error> {
        Topology::<OfAsyncStd>::builder(options).gssapi_provider(provider).build_with_events()
    }

    fn sharing_clients(&self, options: Vec<Options>) -> Result<Vec<Subject<OfAsyncStd>>, Error> {
        sharing(options)
    }

    async fn connect(
        &self,
        options: Options,
        name_servers: Vec<SocketAddr>,
    ) -> Result<Subject<OfAsyncStd>, Error> {
        connect(options, name_servers).await
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        async_std::task::block_on(future)
    }
}
