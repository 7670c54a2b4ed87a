//! What the host asks of a runtime.

use std::sync::{Arc, Weak};

use sdam_core::address::ServerAddress;
use sdam_core::auth::{PAUSE_AFTER_REFUSAL, Question};
use sdam_core::bson::DateTime;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::host::{Answering, Connected, Host, Link, Rescan, Runtime, Slot};
use sdam_core::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time;

use crate::application::ApplicationSocket;
use crate::connector::{Connection, Connector};
use crate::dns::{Resolver, lookup_srv};
use crate::provider::CredentialProvider;
use crate::pump::pump;

/// What the host asks of a runtime, by tokio.
#[derive(Debug)]
pub struct Tokio {
    handle: Handle,
    epoch: time::Instant,
    alarm: watch::Sender<Option<Instant>>,
    connector: Arc<Connector>,
    resolver: Arc<dyn Resolver>,
    provider: Arc<dyn CredentialProvider>,
}

impl Tokio {
    /// Creates the runtime, and the receiver of the alarms that it sets; the first is due at once.
    pub(crate) fn new(
        handle: Handle,
        connector: Connector,
        resolver: Arc<dyn Resolver>,
        provider: Arc<dyn CredentialProvider>,
    ) -> (Self, watch::Receiver<Option<Instant>>) {
        let (alarm, receiver) = watch::channel(Some(Instant::ZERO));
        let connector = Arc::new(connector);
        let epoch = time::Instant::now();
        (Self { handle, epoch, alarm, connector, resolver, provider }, receiver)
    }

    pub(crate) const fn epoch(&self) -> time::Instant {
        self.epoch
    }
}

impl Runtime for Tokio {
    type Socket = ApplicationSocket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    fn open(&self, link: Link<Self>, address: ServerAddress) {
        self.handle.spawn(pump(link, Arc::clone(&self.connector), address));
    }

    fn establish(&self, slot: Slot<Self>, address: ServerAddress) {
        let (connector, epoch, progress) =
            (Arc::clone(&self.connector), self.epoch, slot.progress());
        let handle = self.handle.clone();
        self.handle.spawn(slot.run(async move {
            let reached = |stage| progress.reached(stage);
            let connection = connector.connect(&address, &reached).await?;
            let mut nonce = [0; 24];
            getrandom::fill(&mut nonce).map_err(|error| {
                let detail = format!("the operating system gave no random bytes: {error}");
                Failure::new(Stage::Connect, Cause::Configuration, detail)
            })?;
            let Connection { socket, transport, wire } = connection;
            let socket = ApplicationSocket::new(socket, handle, epoch);
            Ok(Connected { socket, transport, wire, nonce })
        }));
    }

    fn wall_clock(&self) -> Option<DateTime> {
        Some(DateTime::now())
    }

    fn answer(&self, question: Question) -> Answering {
        let provider = Arc::clone(&self.provider);
        let Question::Oidc(asked) = &question else { return provider.answer(question) };
        let (after_refusal, limit) = (asked.refused.is_some(), asked.timeout);
        Box::pin(async move {
            if after_refusal {
                time::sleep(PAUSE_AFTER_REFUSAL).await;
            }
            let answer = time::timeout(limit, provider.answer(question)).await;
            answer.unwrap_or_else(|_| {
                let detail = format!("the provider of tokens gave none within {limit:?}");
                Err(Failure::new(Stage::Authenticate, Cause::Timeout, detail))
            })
        })
    }

    fn resolve(&self, rescan: Rescan<Self>) {
        let resolver = Arc::clone(&self.resolver);
        self.handle.spawn(async move {
            let records = lookup_srv(&*resolver, rescan.question().clone()).await;
            rescan.ended(records);
        });
    }

    fn alarm(&self, deadline: Option<Instant>) {
        self.alarm.send_replace(deadline);
    }
}

/// Closes a client whose runtime has ended: without an alarm nobody's deadline would be met.
struct CloseOnDrop(Weak<Host<Tokio>>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(host) = self.0.upgrade() {
            host.close();
        }
    }
}

/// Rings the host at each deadline; ends when the host is dropped, which it does not prevent.
pub(crate) async fn keep_time(
    epoch: time::Instant,
    host: Weak<Host<Tokio>>,
    mut alarm: watch::Receiver<Option<Instant>>,
) {
    let host = CloseOnDrop(host);
    loop {
        let deadline = *alarm.borrow_and_update();
        let changed = match deadline {
            // tokio rounds up to a millisecond, so the deadline has passed when this returns.
            Some(deadline) => {
                time::timeout_at(epoch + deadline.since_origin(), alarm.changed()).await
            }
            None => Ok(alarm.changed().await),
        };
        match changed {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_elapsed) => match host.0.upgrade() {
                Some(host) => host.ring(),
                None => return,
            },
        }
    }
}
