//! What the host asks of a runtime.

use std::future::Future;
use std::sync::Arc;
use std::time;

use async_io::Timer;
use sdam_core::auth::Question;
use sdam_core::bson::DateTime;
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Failure, Stage};
use sdam_core::time::Instant;
use sdam_core::transport::TransportConfig;
use sdam_host::{
    Answering, Connected, Connector, CredentialProvider, Deadlines, Link, Offloaded, Rescan,
    Resolver, Runtime, Slot, Work, ask_provider, srv_records,
};

use crate::connect::{connect, sleep};
use crate::dialer::Dialer;
use crate::executor::Executor;
use crate::socket::Socket;

/// What the host asks of a runtime, by async-io and an executor.
#[derive(Debug)]
pub struct AsyncIo {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) epoch: time::Instant,
    pub(crate) deadlines: Deadlines,
    pub(crate) streams: Arc<Streams>,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) provider: Arc<dyn CredentialProvider>,
}

/// How the streams of one client are opened.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) epoch: time::Instant,
    pub(crate) connector: Connector,
    pub(crate) dialer: Option<Arc<dyn Dialer>>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<sdam_host::system::Certificates>,
}

impl Streams {
    /// Opens a stream towards the server that advertises `address`.
    ///
    /// `reached` is told how far that has come.
    async fn open(
        self: Arc<Self>,
        address: ServerAddress,
        reached: impl Fn(Stage) + Send,
    ) -> Result<Connected<Socket>, Failure> {
        let route = self.connector.route(&address, &self.filters().await?)?;
        let reached = route.stages(reached);
        reached(if self.dialer.is_none() { route.first_stage() } else { Stage::Connect });
        let stream = match &self.dialer {
            None => connect(route.dial(), reached).await,
            Some(dialer) => match dialer.dial(route.dial().clone()).await {
                Ok(stream) => Ok(Box::new(stream) as Box<_>),
                Err(error) => Err(Failure::from_io(Stage::Connect, &error)),
            },
        };
        route.opened(stream.map(|stream| Socket::new(stream, self.epoch)))
    }

    async fn filters(&self) -> Result<TransportConfig, Failure> {
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS is added"))]
        let mut filters = self.connector.filters();
        #[cfg(feature = "tls")]
        if let Some(certificates) = self.tls.clone() {
            filters.tls = Some(match certificates.given() {
                Some(config) => config.clone(),
                None => blocking::unblock(move || certificates.load()).await?,
            });
        }
        Ok(filters)
    }
}

impl Runtime for AsyncIo {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    fn open(&self, link: Link<Self>, address: ServerAddress) {
        let progress = link.progress();
        let reached = move |stage| progress.reached(stage);
        // Boxed, so that an idle link holds no memory for how it was opened.
        let opening = Box::pin(Arc::clone(&self.streams).open(address, reached));
        self.executor.spawn(Box::pin(link.run(opening)));
    }

    fn establish(&self, slot: Slot<Self>, address: ServerAddress) {
        let progress = slot.progress();
        let opening = Arc::clone(&self.streams).open(address, move |stage| progress.reached(stage));
        self.executor.spawn(Box::pin(slot.run(opening, sdam_host::system::nonce)));
    }

    fn offload(&self, work: Work) -> Offloaded {
        Box::pin(blocking::unblock(work))
    }

    fn resolve(&self, rescan: Rescan<Self>) {
        let resolver = Arc::clone(&self.resolver);
        self.executor.spawn(Box::pin(async move {
            let lookup = |question| resolver.lookup(question);
            let records = srv_records(rescan.question().clone(), lookup, sleep).await;
            rescan.ended(records);
        }));
    }

    fn alarm(&self, deadline: Option<Instant>) {
        self.deadlines.set(deadline);
    }

    fn answer(&self, question: Question) -> Answering {
        let provider = Arc::clone(&self.provider);
        Box::pin(ask_provider(question, move |question| provider.answer(question), sleep))
    }

    fn wall_clock(&self) -> Option<DateTime> {
        Some(DateTime::now())
    }
}

/// Waits for a time of the clock that began at `epoch`.
pub(crate) fn sleep_until(epoch: time::Instant, at: Instant) -> impl Future<Output = ()> {
    let timer = Timer::at(epoch + at.since_origin());
    async {
        timer.await;
    }
}
