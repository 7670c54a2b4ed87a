//! The files of TLS: read for every connection, and used anew when they have changed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::host::ClientError;
use sdam_core::options::{Secret, TlsOptions};
use sdam_core::transport::{TlsConfig, TlsConfigError, TlsMaterial, TrustAnchors};

/// The greatest size of a file of certificates; those of distributions have 250 kB.
const MAX_FILE_LEN: u64 = 4 * 1024 * 1024;

/// Where the configuration of TLS comes from.
#[derive(Clone, Debug)]
pub struct Certificates(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The application.
    Given(TlsConfig),
    /// Files, and the system's store if no file says whom to trust.
    Files(Arc<Files>),
}

/// The files that the options name, and what they contained at last.
struct Files {
    options: TlsOptions,
    last: Mutex<Last>,
}

/// What the files were good for at last.
#[derive(Default)]
struct Last {
    good: Option<(Contents, TlsConfig)>,
    /// What has been wrong with them since, and was told.
    told: Option<String>,
}

/// What the files contain.
#[derive(PartialEq)]
struct Contents {
    authorities: Option<Vec<u8>>,
    certificate_key: Option<Vec<u8>>,
}

impl Certificates {
    /// Takes what the application has given, or else the files that the options name, if these
    /// ask for TLS at all.
    ///
    /// # Errors
    ///
    /// Fails if the options do not ask for TLS but something was given, and if both say how.
    pub fn choose(
        files: Option<&TlsOptions>,
        given: Option<TlsConfig>,
    ) -> Result<Option<Self>, ClientError> {
        match (files, given) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(ClientError::TlsNotAskedFor),
            (Some(files), Some(_)) if *files != TlsOptions::default() => {
                Err(ClientError::TlsConfiguredTwice)
            }
            (Some(_), Some(given)) => Ok(Some(Self(Source::Given(given)))),
            (Some(files), None) => Ok(Some(Self::of_files(files.clone()))),
        }
    }

    /// Takes the files that `options` name; they are read for each connection.
    pub fn of_files(options: TlsOptions) -> Self {
        Self(Source::Files(Arc::new(Files { options, last: Mutex::default() })))
    }

    /// Returns the same, but for what was read already: a process that was forked off shares no
    /// locks with the one it came from.
    #[must_use]
    pub fn anew(&self) -> Self {
        match &self.0 {
            Source::Given(config) => Self(Source::Given(config.clone())),
            Source::Files(files) => Self::of_files(files.options.clone()),
        }
    }

    /// Returns the configuration if it needs no reading.
    pub const fn given(&self) -> Option<&TlsConfig> {
        match &self.0 {
            Source::Given(config) => Some(config),
            Source::Files(_) => None,
        }
    }

    /// Returns the configuration for a new connection; may take as long as opening files does.
    ///
    /// # Errors
    ///
    /// Fails if there are no good files, and never were.
    pub fn load(&self) -> Result<TlsConfig, Failure> {
        match &self.0 {
            Source::Given(config) => Ok(config.clone()),
            Source::Files(files) => files
                .load()
                .map_err(|detail| Failure::new(Stage::Tls, Cause::Configuration, detail)),
        }
    }
}

impl Files {
    /// Reads the files, and makes a configuration of them if they have changed.
    ///
    /// While they are being replaced they may be missing, cut short, or not belong together; until
    /// they are good again, the last good ones serve, and the log tells why.
    fn load(&self) -> Result<TlsConfig, String> {
        let contents = self.read();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = contents.and_then(|contents| match &last.good {
            Some((known, config)) if *known == contents => Ok((contents, config.clone())),
            _ => match self.configure(&contents) {
                Ok(config) => Ok((contents, config)),
                Err(error) => Err(error.to_string()),
            },
        });
        match (loaded, &last.good) {
            (Ok(loaded), _) => {
                last.told = None;
                Ok(last.good.insert(loaded).1.clone())
            }
            (Err(error), Some((_, config))) => {
                let config = config.clone();
                if last.told.as_ref() != Some(&error) {
                    tracing::warn!(target: "sdam", "TLS goes on with the earlier files: {error}");
                    last.told = Some(error);
                }
                Ok(config)
            }
            (Err(error), None) => Err(error),
        }
    }

    fn read(&self) -> Result<Contents, String> {
        let read_file = |option: &str, path: &Option<String>| match path {
            None => Ok(None),
            Some(path) => read_file(path)
                .map(Some)
                .map_err(|error| format!("cannot read the {option} {path}: {error}")),
        };
        Ok(Contents {
            authorities: read_file("tlsCAFile", &self.options.ca_file)?,
            certificate_key: read_file(
                "tlsCertificateKeyFile",
                &self.options.certificate_key_file,
            )?,
        })
    }

    fn configure(&self, contents: &Contents) -> Result<TlsConfig, TlsConfigError> {
        let system;
        let anchors = match &contents.authorities {
            Some(pem) => TrustAnchors::Pem(pem),
            None if self.options.allow_invalid_certificates => TrustAnchors::default(),
            None => {
                system = rustls_native_certs::load_native_certs().certs;
                TrustAnchors::Der(&system)
            }
        };
        TlsConfig::from_pem(&TlsMaterial {
            anchors,
            certificate_key: contents.certificate_key.as_deref(),
            password: self.options.certificate_key_file_password.as_ref().map(Secret::expose),
            allow_invalid_certificates: self.options.allow_invalid_certificates,
            allow_invalid_hostnames: self.options.allow_invalid_hostnames,
        })
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("options", &self.options).finish_non_exhaustive()
    }
}

fn read_file(path: &str) -> io::Result<Vec<u8>> {
    // Opening a pipe could wait for ever.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut contents = Vec::new();
    File::open(path)?.take(MAX_FILE_LEN + 1).read_to_end(&mut contents)?;
    match contents.len() as u64 > MAX_FILE_LEN {
        true => Err(io::Error::other(format!("it has more than {MAX_FILE_LEN} bytes"))),
        false => Ok(contents),
    }
}
