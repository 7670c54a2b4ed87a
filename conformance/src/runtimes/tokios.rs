//! tokio, with several threads and with one.

use std::future::{Future, pending};
use std::net::SocketAddr;
use std::thread;

use crate::adapter::{Adapter, Subject};
use sdam::Error;
use sdam::core::auth::GssapiProvider;
use sdam::core::config::Options;
use sdam::core::logging::LogSettings;
use sdam::core::spans::SpanSettings;
use sdam::host::{CredentialProvider, Tracer};
use sdam::tokio::{Registry, Tokio as Runtime, Topology};
use tokio::runtime::{Builder, Handle};

/// A runtime of tokio, for as long as the process lives.
pub struct Tokio {
    name: &'static str,
    handle: Handle,
}

impl Tokio {
    /// Starts one with two threads.
    ///
    /// # Panics
    ///
    /// Panics if the system has no threads or sockets left.
    pub fn multi_thread() -> Self {
        Self::start("tokio", Builder::new_multi_thread().worker_threads(2))
    }

    /// Starts one with one thread.
    ///
    /// # Panics
    ///
    /// Panics if the system has no threads or sockets left.
    pub fn current_thread() -> Self {
        Self::start("tokio-1", &mut Builder::new_current_thread())
    }

    fn start(name: &'static str, builder: &mut Builder) -> Self {
        let runtime = builder.enable_all().build().expect("the system has threads and sockets");
        let handle = runtime.handle().clone();
        // The task that waits need not drive it.
        thread::spawn(move || runtime.block_on(pending::<()>()));
        Self { name, handle }
    }
}

impl Adapter for Tokio {
    type Runtime = Runtime;

    fn name(&self) -> &str {
        self.name
    }

    fn client(&self, options: Options) -> Result<Subject<Runtime>, Error> {
        let _entered = self.handle.enter();
        let (client, events) = Topology::with_events(options)?;
        Ok((client, events))
    }

    fn logging_client(
        &self,
        options: Options,
        settings: LogSettings,
    ) -> Result<Subject<Runtime>, Error> {
        let _entered = self.handle.enter();
        Topology::builder(options).log(settings).build_with_events()
    }

    fn traced_client(
        &self,
        options: Options,
        settings: SpanSettings,
        tracer: impl Tracer,
    ) -> Result<Subject<Runtime>, Error> {
        let _entered = self.handle.enter();
        Topology::builder(options).spans(settings).tracer(tracer).build_with_events()
    }

    fn provided_client(
        &self,
        options: Options,
        provider: impl CredentialProvider,
    ) -> Result<Subject<Runtime>, Error> {
        let _entered = self.handle.enter();
        Topology::builder(options).credential_provider(provider).build_with_events()
    }

    fn gssapi_client(
        &self,
        options: Options,
        provider: impl GssapiProvider,
    ) -> Result<Subject<Runtime>, Error> {
        let _entered = self.handle.enter();
        Topology::builder(options).gssapi_provider(provider).build_with_events()
    }

    fn sharing_clients(&self, options: Vec<Options>) -> Result<Vec<Subject<Runtime>>, Error> {
        let (_entered, registry) = (self.handle.enter(), Registry::new());
        let client = |options| Topology::builder(options).registry(&registry).build_with_events();
        options.into_iter().map(client).collect()
    }

    async fn connect(
        &self,
        options: Options,
        name_servers: Vec<SocketAddr>,
    ) -> Result<Subject<Runtime>, Error> {
        let builder = Topology::builder(options).name_servers(name_servers);
        let (client, events) = builder.connect_with_events().await?;
        Ok((client, events))
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }
}
