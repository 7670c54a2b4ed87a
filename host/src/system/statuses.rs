//! The statuses of certificates that this process knows, whichever of its clients has asked.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use sdam_core::revocation::{CertificateId, Register, Status, StatusCache, Verdict};
use sdam_core::rustls::pki_types::UnixTime;

use crate::process::Process;
use crate::sync::Gate;

static OF_PROCESS: ArcSwapOption<Statuses> = ArcSwapOption::const_empty();

/// The number of parts of the register: those who wait for one certificate are woken by what is
/// found out about few others.
const PARTS: usize = 64;

/// The register of one process, and those who wait for what another connection finds out.
#[derive(Debug)]
pub struct Statuses {
    process: Process,
    parts: Vec<Gate<Register>>,
}

impl Default for Statuses {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| Gate::default()).collect();
        Self { process: Process::current(), parts }
    }
}

impl Statuses {
    /// Returns those of this process: one that was forked off begins without any, as it shares no
    /// locks with the one it came from.
    pub fn of_process() -> Arc<Self> {
        let is_ours = |it: &Arc<Self>| it.process.is_current();
        loop {
            let found = OF_PROCESS.load_full();
            if let Some(found) = found.clone().filter(is_ours) {
                return found;
            }
            let own = Arc::new(Self::default());
            let before = OF_PROCESS.compare_and_swap(&found, Some(Arc::clone(&own)));
            if before.as_ref().map(Arc::as_ptr) == found.as_ref().map(Arc::as_ptr) {
                return own;
            }
        }
    }
}

impl Statuses {
    /// Returns the part of the register that a certificate is in.
    pub(crate) fn of(&self, id: &CertificateId) -> &Gate<Register> {
        &self.parts[id.part(PARTS)]
    }
}

impl StatusCache for Statuses {
    fn status(&self, id: &CertificateId, now: UnixTime) -> Option<Status> {
        self.of(id).lock().inner.status(id, now).cloned()
    }

    fn learn(&self, id: &CertificateId, verdict: Verdict, now: UnixTime) {
        self.of(id).change(|register| register.learn(id, verdict, now));
    }
}
