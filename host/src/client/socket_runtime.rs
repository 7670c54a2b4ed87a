//! The runtime of clients that reach their servers over the sockets of a reactor.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bson::DateTime;

use sdam_core::auth::{CredentialRequest, GssapiProvider};
use sdam_core::config::ServerAddress;
use sdam_core::time::Instant;

use crate::machines::alarm::Deadlines;
use crate::machines::runtime::{Offloaded, Runtime, Task, Work};
use crate::machines::tasks::{Link, PendingConnection, Rescan};
use crate::net::credentials::sources::Provider;
use crate::net::credentials::{Answering, ask_provider};
use crate::net::dns::{HostValidator, Records, srv_records};
use crate::net::reactor::{Lane, Reactor};
use crate::net::streams::Streams;
use crate::system::{self, WallClock};

/// The runtime made of the sockets, timers and tasks of a [`Reactor`].
#[derive(Debug)]
pub struct SocketRuntime<R> {
    pub(crate) reactor: R,
    /// The reactor that has taken over, of monitors for several clients.
    pub(crate) successor: ArcSwapOption<R>,
    pub(crate) deadlines: Deadlines,
    pub(crate) streams: Arc<Streams>,
    pub(crate) records: Records,
    pub(crate) validator: Option<HostValidator>,
    pub(crate) provider: Arc<Provider>,
    pub(crate) gssapi: Option<Arc<dyn GssapiProvider>>,
    /// The time of the wall clock when the reactor's clock began.
    pub(crate) origin: WallClock,
}

impl<R> SocketRuntime<R> {
    /// Returns whose sockets, timers and tasks they are.
    pub const fn reactor(&self) -> &R {
        &self.reactor
    }
}

impl<R: Reactor> SocketRuntime<R> {
    /// Returns the reactor of monitors, which may be one that has taken over.
    pub(crate) fn monitoring(&self) -> R {
        let successor = self.successor.load();
        successor.as_deref().unwrap_or(&self.reactor).clone()
    }
}

impl<R: Reactor> Runtime for SocketRuntime<R> {
    type Socket = R::Socket;

    fn now(&self) -> Instant {
        self.reactor.now()
    }

    fn open(&self, link: Link<Self>, address: ServerAddress) {
        let (reactor, streams, progress) =
            (self.monitoring(), Arc::clone(&self.streams), link.progress());
        let reached = move |stage| progress.reached(stage);
        let spawner = reactor.clone();
        // Boxed, so that an idle link holds no memory for how it was opened.
        let opening = Box::pin(async move { streams.open(&reactor, address, reached).await });
        spawner.spawn(link.run(opening));
    }

    #[cfg(feature = "ocsp")]
    fn certificate_expiry(&self, address: &ServerAddress) -> Option<u64> {
        self.streams.certificate_expiry(address)
    }

    fn establish(&self, pending: PendingConnection<Self>, address: ServerAddress) {
        let (reactor, streams, progress) =
            (self.reactor.clone(), Arc::clone(&self.streams), pending.progress());
        let reached = move |stage| progress.reached(stage);
        let opening = async move { streams.open(&reactor, address, reached).await };
        self.reactor.spawn(pending.run(opening, system::nonce));
    }

    fn resolve(&self, rescan: Rescan<Self>) {
        let (reactor, records) = (self.monitoring(), self.records.clone());
        let validator = self.validator.clone();
        reactor.clone().spawn(async move {
            let question = rescan.question().clone();
            let lookup = |question| records.look_up(&reactor, question);
            let found = srv_records(question, lookup, |time| reactor.sleep(time)).await;
            rescan.ended(match validator {
                Some(validator) => found.map(|records| validator.judge(records)),
                None => found,
            });
        });
    }

    fn spawn(&self, task: Task) {
        self.reactor.spawn(task);
    }

    fn alarm(&self, deadline: Option<Instant>) {
        self.deadlines.set(deadline);
    }

    fn wall_clock(&self) -> Option<DateTime> {
        Some(system::wall_clock())
    }

    fn session_seeds(&self) -> Option<[u64; 2]> {
        let random = system::nonce().ok()?;
        let (first, rest) = random.split_first_chunk()?;
        Some([u64::from_le_bytes(*first), u64::from_le_bytes(*rest.first_chunk()?)])
    }

    fn offload(&self, lane: Lane, work: Work) -> Offloaded {
        let reactor = self.reactor.clone();
        // If there is no thread for it, the host finds that the work was not done.
        Box::pin(async move { drop(reactor.block(lane, work).await) })
    }

    fn answer(&self, question: CredentialRequest) -> Answering {
        let (reactor, provider) = (self.reactor.clone(), Arc::clone(&self.provider));
        Box::pin(async move {
            let ask = |question| provider.answer(&reactor, question);
            ask_provider(question, ask, |time| reactor.sleep(time)).await
        })
    }

    fn gssapi_provider(&self) -> Option<Arc<dyn GssapiProvider>> {
        self.gssapi.clone()
    }
}
