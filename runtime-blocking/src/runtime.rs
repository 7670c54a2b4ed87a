//! What the host asks of a runtime.

use std::sync::{Arc, Mutex, PoisonError};
use std::time;

use sdam_core::auth::Question;
use sdam_core::bson::DateTime;
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Failure, Stage};
use sdam_core::time::Instant;
use sdam_core::transport::TransportConfig;
use sdam_host::{
    Answering, Connected, Connector, CredentialProvider, Deadlines, Link, Offloaded, Rescan,
    Runtime, Slot, Work, ask_provider, srv_records,
};

use crate::connect::connect;
use crate::dialer::Dialer;
use crate::dns::{Source, lookup};
use crate::engine::Engine;
use crate::helper::{Helper, Lane};
use crate::socket::Socket;

/// What the host asks of a runtime, by the tasks of an engine and by threads that block.
#[derive(Debug)]
pub struct Blocking {
    pub(crate) epoch: time::Instant,
    /// Until the client is closed.
    pub(crate) deadlines: Mutex<Option<Deadlines>>,
    pub(crate) streams: Arc<Streams>,
    pub(crate) records: Source,
    pub(crate) provider: Arc<dyn CredentialProvider>,
}

/// How the streams of one client are opened.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) engine: Arc<Engine>,
    pub(crate) helper: Helper,
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
        let lane = Lane::Server(address);
        let reached = route.stages(reached);
        reached(if self.dialer.is_none() { route.first_stage() } else { Stage::Connect });
        let stream = match &self.dialer {
            None => connect(&self.engine, (&self.helper, lane), route.dial(), reached).await,
            Some(dialer) => {
                let (dialer, address) = (Arc::clone(dialer), route.dial().clone());
                let dialled = self.helper.call(lane, move || dialer.dial(address)).await.flatten();
                let stream = dialled.map(|stream| Arc::new(stream.0));
                stream.map_err(|error| Failure::from_io(Stage::Connect, &error))
            }
        };
        let socket = stream.and_then(|stream| {
            Socket::new(stream, Arc::clone(&self.engine), self.epoch)
                .map_err(|error| Failure::from_io(Stage::Connect, &error))
        });
        route.opened(socket)
    }

    async fn filters(&self) -> Result<TransportConfig, Failure> {
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS is added"))]
        let mut filters = self.connector.filters();
        #[cfg(feature = "tls")]
        if let Some(certificates) = self.tls.clone() {
            filters.tls = Some(match certificates.given() {
                Some(config) => config.clone(),
                None => {
                    let loaded =
                        self.helper.call(Lane::Certificates, move || certificates.load()).await;
                    loaded.map_err(|error| Failure::from_io(Stage::Tls, &error))??
                }
            });
        }
        Ok(filters)
    }
}

impl Blocking {
    /// Returns what runs its tasks.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.streams.engine
    }

    /// Ends the task that keeps time, once the client is closed.
    pub(crate) fn end_time(&self) {
        let deadlines = self.deadlines.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(deadlines);
    }
}

impl Runtime for Blocking {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    fn open(&self, link: Link<Self>, address: ServerAddress) {
        let progress = link.progress();
        let reached = move |stage| progress.reached(stage);
        // Boxed, so that an idle link holds no memory for how it was opened.
        let opening = Box::pin(Arc::clone(&self.streams).open(address, reached));
        self.streams.engine.spawn(Box::pin(link.run(opening)));
    }

    fn establish(&self, slot: Slot<Self>, address: ServerAddress) {
        let progress = slot.progress();
        let opening = Arc::clone(&self.streams).open(address, move |stage| progress.reached(stage));
        self.streams.engine.spawn(Box::pin(slot.run(opening, sdam_host::system::nonce)));
    }

    fn offload(&self, work: Work) -> Offloaded {
        let streams = Arc::clone(&self.streams);
        // If the system gives no thread, the host finds that the work was not done.
        Box::pin(async move { drop(streams.helper.call(Lane::Keys, work).await) })
    }

    fn resolve(&self, rescan: Rescan<Self>) {
        let (streams, records) = (Arc::clone(&self.streams), self.records.clone());
        self.streams.engine.spawn(Box::pin(async move {
            let Streams { engine, helper, .. } = &*streams;
            let lookup = |question| lookup(engine, helper, question, records.clone());
            let sleep = |time| engine.sleep(time);
            let found = srv_records(rescan.question().clone(), lookup, sleep).await;
            rescan.ended(found);
        }));
    }

    fn alarm(&self, deadline: Option<Instant>) {
        let deadlines = self.deadlines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(deadlines) = &*deadlines {
            deadlines.set(deadline);
        }
    }

    fn wall_clock(&self) -> Option<DateTime> {
        Some(DateTime::now())
    }

    fn answer(&self, question: Question) -> Answering {
        let (streams, provider) = (Arc::clone(&self.streams), Arc::clone(&self.provider));
        Box::pin(async move {
            let Streams { engine, helper, .. } = &*streams;
            let ask = |question| async {
                let answering = async move { provider.answer(question).await };
                let answer = helper.run(Lane::Credentials, answering).await;
                answer.map_err(|error| Failure::from_io(Stage::Authenticate, &error))?
            };
            ask_provider(question, ask, |time| engine.sleep(time)).await
        })
    }
}
