//! Probes: what touches the network, and returns plain values.

pub(super) mod certificate;
pub(super) mod client;
pub(super) mod commands;
pub(super) mod dns;
pub(super) mod gridfs;
mod local;
pub(super) mod pause;
mod revocation;
pub(super) mod server;
mod talk;
mod transactions;
mod way;

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::Options;
use sdam_core::failure::Failure;
use sdam_core::transport::{TlsConfig, TlsMaterial, TransportConfig};
use sdam_host::Connector;
use sdam_host::system::Certificates;
use tokio::time::Instant;

/// The longest time that one step towards a server may take: more than the five seconds that the
/// system's resolver waits for the first name server.
const MAX_STEP: Duration = Duration::from_secs(7);

/// The longest time that all steps towards one server may take.
const MAX_SERVER: Duration = Duration::from_secs(20);

/// The means of probes.
#[derive(Clone, Debug)]
pub(super) struct Means {
    shared: Arc<Shared>,
    deadline: Instant,
}

/// The means that all probes share.
#[derive(Debug)]
struct Shared {
    options: Options,
    connector: Connector,
    /// The configuration that the options ask for, or why it cannot be had.
    tls: Option<Result<TlsConfig, Failure>>,
    /// The configuration that accepts any certificate; over it nothing is said but hello.
    any_tls: TlsConfig,
    step: Duration,
}

impl Means {
    /// Prepares probes that are over at `deadline`, which is `limit` from now.
    pub(super) fn new(
        options: Options,
        (deadline, limit): (Instant, Duration),
    ) -> Result<Self, sdam_host::Error> {
        let connector = Connector::new(&options).map_err(sdam_host::Error::from)?;
        let tls = options.tls().map(|tls| Certificates::of_files(tls.clone()).load());
        let lax = TlsMaterial::default().with_allow_invalid_certificates(true);
        let any_tls = TlsConfig::from_pem(&lax).expect("it needs no files");
        let step = MAX_STEP.min(limit * 2 / 3);
        let shared = Shared { options, connector, tls, any_tls, step };
        Ok(Self { shared: Arc::new(shared), deadline })
    }

    /// Returns the means for all steps towards one server, which begin now.
    fn of_one_server(&self) -> Self {
        let deadline = self.deadline.min(Instant::now() + MAX_SERVER);
        Self { shared: Arc::clone(&self.shared), deadline }
    }

    /// Returns the options.
    pub(super) fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Returns the time that one step may take that begins now.
    pub(super) fn step(&self) -> Duration {
        self.shared.step.min(self.left())
    }

    /// Returns the time until all is over.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns the time when all is over.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the filters of a stream, with TLS as the options ask for it, or the reverse.
    fn filters(&self, reverse: bool) -> Result<TransportConfig, Failure> {
        let filters = self.shared.connector.filters();
        match (&self.shared.tls, reverse) {
            (None, false) | (Some(_), true) => Ok(filters),
            (None, true) => Ok(filters.with_tls(self.shared.any_tls.clone())),
            (Some(tls), false) => Ok(filters.with_tls(tls.clone()?)),
        }
    }
}
