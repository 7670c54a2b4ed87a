//! The files of TLS: read for every connection, and applied when they have changed.

mod contents;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::ClientError;
use sdam_core::config::{Secret, TlsOptions};
use sdam_core::failure::{Cause, Failure, Stage};
#[cfg(feature = "ocsp")]
use sdam_core::revocation::StatusCache;
use sdam_core::transport::{TlsConfig, TlsConfigError, TlsMaterial, TrustAnchors};

#[cfg(feature = "ocsp")]
use super::Statuses;
use crate::sync::{AsyncMutex, AsyncMutexGuard};
use contents::{Contents, Digest, Pem};
use store::{Reading, Store};

/// The source of the configuration of TLS.
#[derive(Clone, Debug)]
pub struct Certificates(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The application.
    Given(TlsConfig),
    /// Files, and the system's store if no file says whom to trust.
    Files(Arc<Files>),
}

/// The application's own source of the client's certificate and private key: those that are in no
/// file, such as what a vault gives out for an hour.
#[derive(Clone)]
pub struct CertificateKeyProvider(Arc<dyn Fn() -> Result<Secret, String> + Send + Sync>);

impl CertificateKeyProvider {
    /// Makes one of a function, which returns what a file of `tlsCertificateKeyFile` has: the
    /// certificate and its private key, in PEM.
    pub fn new<E: fmt::Display>(
        provider: impl Fn() -> Result<Secret, E> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move || provider().map_err(|error| error.to_string())))
    }

    fn ask(&self) -> Result<Secret, String> {
        (self.0)()
    }
}

impl fmt::Debug for CertificateKeyProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateKeyProvider")
    }
}

/// The files that the options name, and what they contained at last.
struct Files {
    options: TlsOptions,
    provider: Option<CertificateKeyProvider>,
    store: Store,
    last: Mutex<Last>,
    /// The turn to read them.
    turn: Arc<AsyncMutex>,
}

/// The last configuration made of the files.
#[derive(Default)]
struct Last {
    good: Option<Good>,
    /// The last reading of the system's store, if it was needed.
    store: Option<Reading>,
    /// The last fault of them that was reported.
    told: Option<String>,
}

/// A configuration, and what it was made of: digests, as the private key is not needed any more.
struct Good {
    digest: Digest,
    config: TlsConfig,
}

impl Certificates {
    /// Takes what the application has given, or else the files that the options name, if these
    /// ask for TLS at all; a provider takes the place of one of those files.
    ///
    /// # Errors
    ///
    /// Fails if the options do not ask for TLS but something was given, and if two of them say how.
    pub fn choose(
        files: Option<&TlsOptions>,
        given: Option<TlsConfig>,
        provider: Option<CertificateKeyProvider>,
    ) -> Result<Option<Self>, ClientError> {
        let Some(files) = files else {
            return match given.is_some() || provider.is_some() {
                true => Err(ClientError::TlsNotAskedFor),
                false => Ok(None),
            };
        };
        match given {
            Some(_) if *files != TlsOptions::default() || provider.is_some() => {
                Err(ClientError::TlsConfiguredTwice)
            }
            Some(given) => Ok(Some(Self(Source::Given(given)))),
            None if provider.is_some() && files.certificate_key_file.is_some() => {
                Err(ClientError::CertificateKeyTwice)
            }
            None => Ok(Some(Self::of(files.clone(), provider, Store::of_system()))),
        }
    }

    /// Takes the files that `options` name; they are read for each connection.
    pub fn of_files(options: TlsOptions) -> Self {
        Self::of(options, None, Store::of_system())
    }

    fn of(options: TlsOptions, provider: Option<CertificateKeyProvider>, store: Store) -> Self {
        let (last, turn) = (Mutex::default(), Arc::default());
        Self(Source::Files(Arc::new(Files { options, provider, store, last, turn })))
    }

    /// Returns the same, but for what was read already: a process that was forked off shares no
    /// locks with the one it came from.
    #[must_use]
    pub fn for_fork(&self) -> Self {
        match &self.0 {
            Source::Given(config) => Self(Source::Given(config.clone())),
            Source::Files(files) => {
                let Files { options, provider, store, .. } = &**files;
                Self::of(options.clone(), provider.clone(), store.clone())
            }
        }
    }

    /// Returns the configuration if it needs no reading.
    pub const fn given(&self) -> Option<&TlsConfig> {
        match &self.0 {
            Source::Given(config) => Some(config),
            Source::Files(_) => None,
        }
    }

    /// Waits for the turn to [`load`](Self::load): of two that read at once, the one that began
    /// first might end last, and a provider that hangs would hold a thread for each connection.
    pub(crate) async fn turn(&self) -> Option<AsyncMutexGuard> {
        match &self.0 {
            Source::Given(_) => None,
            Source::Files(files) => Some(files.turn.take().await),
        }
    }

    /// Returns the configuration for a new connection; may take as long as opening files does.
    ///
    /// The system's store is read again an hour after it was, a minute after some of it could not
    /// be, and each time while it gives no certificate.
    ///
    /// # Errors
    ///
    /// Fails if there are no good files, and never were.
    pub fn load(&self) -> Result<TlsConfig, Failure> {
        self.load_at(Instant::now())
    }

    fn load_at(&self, now: Instant) -> Result<TlsConfig, Failure> {
        match &self.0 {
            Source::Given(config) => Ok(config.clone()),
            Source::Files(files) => files
                .load(now)
                .map_err(|detail| Failure::new(Stage::Certificates, Cause::Configuration, detail)),
        }
    }
}

impl Files {
    /// Reads the files, and makes a configuration of them if they have changed.
    ///
    /// While they are being replaced they may be missing, cut short, or not belong together; until
    /// they are good again, the last good ones serve, and the log says why.
    fn load(&self, now: Instant) -> Result<TlsConfig, String> {
        let contents = Contents::read(&self.options, self.provider.as_ref());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Last { good, store, told } = &mut *last;
        let made = contents.and_then(|contents| {
            let store = match self.needs_store() {
                true => Some(self.store.read_if_due(store, now)),
                false => None,
            };
            self.make(&contents, store, good.as_ref())
        });
        match (made, good) {
            (Ok(made), good) => {
                *told = None;
                Ok(good.insert(made).config.clone())
            }
            (Err(error), Some(good)) => {
                if told.as_ref() != Some(&error) {
                    tracing::warn!(
                        target: "sdam",
                        "TLS goes on with the earlier certificates: {error}",
                    );
                    *told = Some(error);
                }
                Ok(good.config.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Returns whether nothing else says whom to trust.
    const fn needs_store(&self) -> bool {
        self.options.ca_file.is_none() && !self.options.allow_invalid_certificates
    }

    /// Makes a configuration, or takes the last one if that was made of the same.
    fn make(
        &self,
        contents: &Contents,
        store: Option<&Reading>,
        last: Option<&Good>,
    ) -> Result<Good, String> {
        if let Some(store) = store {
            store.check()?;
        }
        let digest = contents.digest(store.map(Reading::digest));
        let config = match last {
            Some(last) if last.digest == digest => last.config.clone(),
            _ => self.configure(contents, store).map_err(|error| self.describe(contents, error))?,
        };
        Ok(Good { digest, config })
    }

    fn configure(
        &self,
        contents: &Contents,
        store: Option<&Reading>,
    ) -> Result<TlsConfig, TlsConfigError> {
        let anchors = match (&contents.authorities, store) {
            (Some(pem), _) => TrustAnchors::Pem(pem.bytes()),
            (None, Some(store)) => TrustAnchors::Der(store.certificates()),
            (None, None) => TrustAnchors::default(),
        };
        let password = self.options.certificate_key_file_password.as_ref();
        let material = TlsMaterial::default()
            .with_anchors(anchors)
            .with_certificate_key(contents.certificate_key.as_ref().map(Pem::bytes))
            .with_password(password.map(Secret::expose))
            .with_allow_invalid_certificates(self.options.allow_invalid_certificates)
            .with_allow_invalid_hostnames(self.options.allow_invalid_hostnames)
            .with_revocation_lists(contents.revocation_lists.as_ref().map(Pem::bytes));
        #[cfg(feature = "ocsp")]
        let statuses: Arc<dyn StatusCache> = Statuses::of_process();
        #[cfg(feature = "ocsp")]
        let is_checked = !self.options.disable_certificate_revocation_check;
        #[cfg(feature = "ocsp")]
        let material = material
            .with_statuses(is_checked.then_some(&statuses))
            .with_disable_ocsp_endpoint_check(self.options.disable_ocsp_endpoint_check);
        TlsConfig::from_pem(&material)
    }

    /// Names the file that an error is about, and what was found in it.
    fn describe(&self, contents: &Contents, error: TlsConfigError) -> String {
        match (error, &contents.authorities, &contents.certificate_key) {
            (TlsConfigError::NoAnchors, Some(pem), _) => {
                format!("{pem} has no certificate of an authority: {}", pem.found())
            }
            (TlsConfigError::NoAnchors, None, _) => {
                "the system's store has no certificate of an authority; name a tlsCAFile".into()
            }
            (error @ TlsConfigError::RevocationLists(_), _, _) => {
                let pem = contents.revocation_lists.as_ref();
                let named =
                    pem.map(|pem| format!("{pem} cannot be used: {error} ({})", pem.found()));
                named.unwrap_or_else(|| error.to_string())
            }
            (error @ TlsConfigError::AnchorsPem(_), Some(pem), _) | (error, _, Some(pem)) => {
                format!("{pem} cannot be used: {error} ({})", pem.found())
            }
            (error, _, None) => error.to_string(),
        }
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("options", &self.options).finish_non_exhaustive()
    }
}
