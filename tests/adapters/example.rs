//! The example of `docs/write-your-own-runtime.md`, and other reactors that are created as it is.

#[expect(unreachable_pub, reason = "it is a library where it is an example")]
#[path = "../../examples/own_runtime.rs"]
pub(crate) mod own_runtime;

use std::future::Future;
use std::marker::PhantomData;

use sdam::core::auth::GssapiProvider;
use sdam::core::config::Options;
use sdam::core::logging::LogSettings;
use sdam::core::spans::SpanSettings;
use sdam::host::{
    ClientBuilder, CredentialProvider, CurrentReactor, Registry, SocketRuntime, Topology, Tracer,
};
use sdam::{Error, Events};
use sdam_conformance::adapter::{Adapter, Feature, Subject};

use own_runtime::Threads;

/// A runtime whose reactor opens TCP sockets only, by the name of its column.
pub(crate) struct Own<R> {
    name: &'static str,
    of: PhantomData<fn() -> R>,
}

/// A thread for every task.
pub(crate) const EXAMPLE: Own<Threads> = Own::new("example");

impl<R> Own<R> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, of: PhantomData }
    }
}

type Made<R> = Result<(Topology<SocketRuntime<R>>, Events), Error>;

impl<R: CurrentReactor<Setup: Default>> Own<R> {
    fn builder(options: Options) -> ClientBuilder<R> {
        Topology::<SocketRuntime<R>>::builder(options)
    }
}

impl<R: CurrentReactor<Setup: Default>> Adapter for Own<R> {
    type Runtime = SocketRuntime<R>;

    fn name(&self) -> &str {
        self.name
    }

    fn client(&self, options: Options) -> Made<R> {
        Self::builder(options).build_with_events()
    }

    fn logging_client(&self, options: Options, settings: LogSettings) -> Made<R> {
        Self::builder(options).log(settings).build_with_events()
    }

    fn traced_client(
        &self,
        options: Options,
        settings: SpanSettings,
        tracer: impl Tracer,
    ) -> Made<R> {
        Self::builder(options).spans(settings).tracer(tracer).build_with_events()
    }

    fn provided_client(&self, options: Options, provider: impl CredentialProvider) -> Made<R> {
        Self::builder(options).credential_provider(provider).build_with_events()
    }

    fn gssapi_client(&self, options: Options, provider: impl GssapiProvider) -> Made<R> {
        Self::builder(options).gssapi_provider(provider).build_with_events()
    }

    fn sharing_clients(
        &self,
        options: Vec<Options>,
    ) -> Result<Vec<Subject<SocketRuntime<R>>>, Error> {
        let registry = Registry::new();
        let client = |options| Self::builder(options).registry(&registry).build_with_events();
        options.into_iter().map(client).collect()
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }

    fn lacks(&self, feature: Feature) -> Option<&str> {
        match feature {
            Feature::GivingUp | Feature::Lookups => Some("it asks no name server"),
            Feature::UnixSockets => Some("it opens TCP sockets only"),
            _ => None,
        }
    }
}
