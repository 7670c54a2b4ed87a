//! The system's store of certificates.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls_native_certs::{CertificateResult, load_native_certs};
use sdam_core::transport::rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

use super::Digest;

/// The time that what was read holds: updates of the store come into effect, and not every
/// connection pays for reading some hundred certificates.
pub(super) const INTERVAL: Duration = Duration::from_secs(3600);

/// The time that it holds if some of it could not be read.
pub(super) const INTERVAL_AFTER_ERRORS: Duration = Duration::from_secs(60);

/// The number of errors that are reported; a broken folder has as many as files.
const MAX_ERRORS: usize = 3;

/// Reads the system's store.
#[derive(Clone)]
pub(super) struct Store(Arc<dyn Fn() -> CertificateResult + Send + Sync>);

/// The result of reading the store.
pub(super) struct Reading {
    certificates: Vec<CertificateDer<'static>>,
    digest: Digest,
    /// The errors.
    errors: Option<String>,
    at: Instant,
}

impl Store {
    pub(super) fn of_system() -> Self {
        Self(Arc::new(load_native_certs))
    }

    #[cfg(test)]
    pub(super) fn of(read: impl Fn() -> CertificateResult + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns what was read last if that still holds, or else reads the store; what cannot be read
    /// goes to the log, once.
    pub(super) fn read_if_due<'a>(
        &self,
        last: &'a mut Option<Reading>,
        now: Instant,
    ) -> &'a Reading {
        if !last.as_ref().is_some_and(|last| last.holds(now)) {
            let told = last.take().and_then(|last| last.errors);
            let reading = Reading::new((self.0)(), now);
            if let Some(errors) = &reading.errors
                && reading.errors != told
                && !reading.certificates.is_empty()
            {
                tracing::warn!(
                    target: "sdam",
                    "some certificates of the system's store cannot be read: {errors}",
                );
            }
            *last = Some(reading);
        }
        last.as_ref().expect("the store was read just now, or before")
    }
}

impl Reading {
    fn new(result: CertificateResult, at: Instant) -> Self {
        let CertificateResult { certs, errors, .. } = result;
        let mut digest = Sha256::new();
        for certificate in &certs {
            digest.update((certificate.len() as u64).to_be_bytes());
            digest.update(certificate);
        }
        let count = errors.len();
        let mut texts: Vec<_> = errors.iter().take(MAX_ERRORS).map(ToString::to_string).collect();
        if count > MAX_ERRORS {
            texts.push(format!("and {} more", count - MAX_ERRORS));
        }
        let errors = (count > 0).then(|| texts.join("; "));
        Self { certificates: certs, digest: digest.finalize().into(), errors, at }
    }

    fn holds(&self, now: Instant) -> bool {
        let interval = match &self.errors {
            _ if self.certificates.is_empty() => return false,
            None => INTERVAL,
            Some(_) => INTERVAL_AFTER_ERRORS,
        };
        now.saturating_duration_since(self.at) < interval
    }

    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    pub(super) const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Says why there is nothing in the store, if so.
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.certificates.is_empty() {
            return Ok(());
        }
        let reason = self.errors.as_deref().unwrap_or("it has none, or is nowhere to be found");
        Err(format!(
            "there is no authority to trust: no certificate of the system's store could be read \
             ({reason}); name a tlsCAFile, or install the system's certificates"
        ))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}
