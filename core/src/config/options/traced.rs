//! What a trace tells of options: those few that a topology looks at.

use super::{MonitoringMode, Options, Settings, TlsOptions};
use crate::config::metadata::{ClientMetadata, Os};

impl Options {
    /// Returns options by which a topology does the same, and that say nothing else: put together
    /// from the defaults, so that nothing is told because it was forgotten.
    pub(crate) fn traced(&self) -> Self {
        let known = &self.settings;
        let settings = Settings {
            seeds: known.seeds.clone(),
            srv: known.srv.clone(),
            rescan_interval: known.rescan_interval,
            replica_set: known.replica_set.clone(),
            direct_connection: known.direct_connection,
            load_balanced: known.load_balanced,
            single_threaded: known.single_threaded,
            heartbeat_frequency: known.heartbeat_frequency,
            connect_timeout: known.connect_timeout,
            local_threshold: known.local_threshold,
            server_selection_try_once: known.server_selection_try_once,
            // What the environment decides is decided.
            monitoring_mode: match self.streaming() {
                true => MonitoringMode::Stream,
                false => MonitoringMode::Poll,
            },
            server_api: known.server_api,
            opening_hello: known.opening_hello,
            tls: Some(known.tls_options.is_some()),
            tls_options: known.tls_options.as_ref().map(|_| TlsOptions::default()),
            ..Settings::default()
        };
        let metadata =
            ClientMetadata::new(None, Os::new(""), None).expect("no name is not too long a name");
        let address_map = self.address_map.clone();
        Self { settings, credential: None, metadata, address_map, warnings: Vec::new() }
    }
}
