//! What the host asks of a runtime.

use std::future::Future;
use std::sync::Arc;

use sdam_core::auth::Question;
use sdam_core::bson::DateTime;
use sdam_core::config::ServerAddress;
#[cfg(feature = "tls")]
use sdam_core::failure::Cause;
use sdam_core::failure::{Failure, Stage};
use sdam_core::time::Instant;
#[cfg(feature = "tls")]
use sdam_core::transport::TlsConfig;
use sdam_core::transport::TransportConfig;
#[cfg(feature = "tls")]
use sdam_host::system::Certificates;
use sdam_host::system::nonce;
use sdam_host::{
    Answering, Connected, Connector, CredentialProvider, Deadlines, Link, Offloaded, Rescan,
    Resolver, Runtime, Slot, Work, ask_provider, srv_records,
};
use tokio::runtime::Handle;
use tokio::time;

use crate::connect::connect;
use crate::dialer::Dialer;
use crate::socket::{Socket, Stream};

/// What the host asks of a runtime, by tokio.
#[derive(Debug)]
pub struct Tokio {
    pub(crate) handle: Handle,
    pub(crate) epoch: time::Instant,
    pub(crate) deadlines: Deadlines,
    pub(crate) streams: Arc<Streams>,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) provider: Arc<dyn CredentialProvider>,
}

/// How the streams of one client are opened.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) connector: Connector,
    pub(crate) dialer: Option<Arc<dyn Dialer>>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Certificates>,
}

impl Streams {
    /// Opens a stream towards the server that advertises `address`.
    ///
    /// `reached` is told how far that has come.
    async fn open(
        self: Arc<Self>,
        address: ServerAddress,
        (handle, epoch): (Handle, time::Instant),
        reached: impl Fn(Stage) + Send,
    ) -> Result<Connected<Socket>, Failure> {
        let route = self.connector.route(&address, &self.filters().await?)?;
        let reached = route.stages(reached);
        reached(if self.dialer.is_none() { route.first_stage() } else { Stage::Connect });
        let stream = match &self.dialer {
            None => connect(route.dial(), reached).await,
            Some(dialer) => match dialer.dial(route.dial()).await {
                Ok(stream) => Ok(Stream::dialled(stream)),
                Err(error) => Err(Failure::from_io(Stage::Connect, &error)),
            },
        };
        route.opened(stream.map(|stream| Socket::new(stream, handle, epoch)))
    }

    #[cfg(feature = "tls")]
    async fn filters(&self) -> Result<TransportConfig, Failure> {
        let tls = match &self.tls {
            None => None,
            Some(certificates) => match certificates.given() {
                Some(config) => Some(config.clone()),
                None => Some(read(certificates.clone()).await?),
            },
        };
        Ok(TransportConfig { tls, ..self.connector.filters() })
    }

    #[cfg(not(feature = "tls"))]
    async fn filters(&self) -> Result<TransportConfig, Failure> {
        Ok(self.connector.filters())
    }
}

impl Tokio {
    fn open_stream<F: Fn(Stage) + Send>(
        &self,
        address: ServerAddress,
        reached: F,
    ) -> impl Future<Output = Result<Connected<Socket>, Failure>> + use<F> {
        let clock = (self.handle.clone(), self.epoch);
        Arc::clone(&self.streams).open(address, clock, reached)
    }
}

impl Runtime for Tokio {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    fn open(&self, link: Link<Self>, address: ServerAddress) {
        let progress = link.progress();
        let opening = self.open_stream(address, move |stage| progress.reached(stage));
        // Boxed, so that an idle link holds no memory for how it was opened.
        self.handle.spawn(link.run(Box::pin(opening)));
    }

    fn establish(&self, slot: Slot<Self>, address: ServerAddress) {
        let progress = slot.progress();
        let reached = move |stage| progress.reached(stage);
        let opening = self.open_stream(address, reached);
        self.handle.spawn(slot.run(opening, nonce));
    }

    fn wall_clock(&self) -> Option<DateTime> {
        Some(DateTime::now())
    }

    fn answer(&self, question: Question) -> Answering {
        let provider = Arc::clone(&self.provider);
        Box::pin(ask_provider(question, move |question| provider.answer(question), time::sleep))
    }

    fn offload(&self, work: Work) -> Offloaded {
        let done = self.handle.spawn_blocking(work);
        // If the runtime ends, the host finds that the work was not done.
        Box::pin(async { drop(done.await) })
    }

    fn resolve(&self, rescan: Rescan<Self>) {
        let resolver = Arc::clone(&self.resolver);
        self.handle.spawn(async move {
            let question = rescan.question().clone();
            let records = srv_records(question, |question| resolver.lookup(question), time::sleep);
            rescan.ended(records.await);
        });
    }

    fn alarm(&self, deadline: Option<Instant>) {
        self.deadlines.set(deadline);
    }
}

/// Waits for a time of the clock that began at `epoch`. tokio rounds up to a millisecond, so that
/// the time has passed when this ends.
pub(crate) fn sleep_until(epoch: time::Instant, at: Instant) -> impl Future<Output = ()> {
    time::sleep_until(epoch + at.since_origin())
}

#[cfg(feature = "tls")]
pub(crate) async fn read(certificates: Certificates) -> Result<TlsConfig, Failure> {
    let loaded = tokio::task::spawn_blocking(move || certificates.load()).await;
    loaded.unwrap_or_else(|_| {
        let detail = "the runtime is shutting down";
        Err(Failure::new(Stage::Tls, Cause::Configuration, detail))
    })
}
