//! The client metadata of the handshake: who is connecting, from what, and where it runs.
//!
//! Implements `client` of the [MongoDB Handshake specification], with what is newer: metadata can
//! be appended later, and FaaS and container details are both sent. All of it is data that the
//! caller collected; nothing here looks at the process.
//!
//! [MongoDB Handshake specification]: https://github.com/mongodb/specifications/blob/master/source/mongodb-handshake/handshake.md

mod document;
mod environment;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bson::RawDocumentBuf;

pub use environment::Environment;

/// The longest `client` document that a server accepts, in bytes with all BSON overhead.
pub const MAX_DOCUMENT_LEN: usize = 512;

/// The longest application name that a server accepts, in bytes.
pub const MAX_APPLICATION_NAME_LEN: usize = 128;

/// The delimiter between our own part of a field and those of wrapping libraries.
const DELIMITER: char = '|';

const DRIVER_NAME: &str = "sdam";
const DRIVER_VERSION: &str = env!("CARGO_PKG_VERSION");
const PLATFORM: &str = "Rust";

/// The reason why a value cannot be part of the client metadata.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// The application name exceeds [`MAX_APPLICATION_NAME_LEN`].
    #[error(
        "the application name is {0} bytes long; at most {MAX_APPLICATION_NAME_LEN} are allowed"
    )]
    ApplicationName(usize),
    /// The name of a wrapping library is empty.
    #[error("the name of a wrapping library is empty; it must have at least one character")]
    EmptyName,
    /// A part of a driver info contains the delimiter that joins the parts.
    #[error("the {part} of a wrapping library contains '|', which separates the libraries")]
    Delimiter {
        /// `name`, `version` or `platform`.
        part: &'static str,
    },
    /// A part of a driver info exceeds [`MAX_DOCUMENT_LEN`], so that it could never be sent.
    #[error(
        "the {part} of a wrapping library is {len} bytes long; \
         at most {MAX_DOCUMENT_LEN} are allowed"
    )]
    TooLong {
        /// `name`, `version` or `platform`.
        part: &'static str,
        /// Its length in bytes.
        len: usize,
    },
}

/// The operating system that the client runs on.
///
/// ```
/// use sdam_core::config::metadata::Os;
///
/// let os = Os::current().with_name("Debian GNU/Linux 13").with_version("13");
/// assert!(!os.kind().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Os {
    kind: String,
    name: Option<String>,
    architecture: Option<String>,
    version: Option<String>,
}

impl Os {
    /// Describes a system by its type, as `uname -s` prints it; an empty one becomes `unknown`.
    pub fn new(kind: impl Into<String>) -> Self {
        let kind = Some(kind.into()).filter(|kind| !kind.is_empty());
        Self {
            kind: kind.unwrap_or_else(|| "unknown".to_owned()),
            name: None,
            architecture: None,
            version: None,
        }
    }

    /// Describes the system that this library was compiled for: its type and architecture.
    pub fn current() -> Self {
        let kind = match std::env::consts::OS {
            "linux" | "android" => "Linux",
            "macos" | "ios" => "Darwin",
            "windows" => "Windows",
            "freebsd" => "FreeBSD",
            "netbsd" => "NetBSD",
            "openbsd" => "OpenBSD",
            "dragonfly" => "DragonFly",
            "solaris" | "illumos" => "SunOS",
            other => other,
        };
        Self::new(kind).with_architecture(std::env::consts::ARCH)
    }

    /// Sets the detailed name, such as `PRETTY_NAME` of `/etc/os-release`.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        let name = Some(name.into());
        Self { name, ..self }
    }

    /// Sets the machine's architecture, as `uname -m` prints it.
    #[must_use]
    pub fn with_architecture(self, architecture: impl Into<String>) -> Self {
        let architecture = Some(architecture.into());
        Self { architecture, ..self }
    }

    /// Sets the version of the operating system.
    #[must_use]
    pub fn with_version(self, version: impl Into<String>) -> Self {
        let version = Some(version.into());
        Self { version, ..self }
    }

    /// Returns the type, as `uname -s` prints it.
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

/// The addition of a wrapping library to the metadata.
///
/// ```
/// use sdam_core::config::DriverInfo;
///
/// let info = DriverInfo::new("sdam-tokio", Some("0.1.0"), Some("tokio"))?;
/// // An empty part is the same as none.
/// assert_eq!(DriverInfo::new("odm", Some(""), None)?, DriverInfo::new("odm", None, None)?);
/// assert!(DriverInfo::new("a|b", None, None).is_err());
/// # Ok::<(), sdam_core::config::metadata::MetadataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    name: String,
    version: Option<String>,
    platform: Option<String>,
}

impl DriverInfo {
    /// Describes a wrapping library.
    ///
    /// # Errors
    ///
    /// The name is empty, or a part contains `|` or exceeds [`MAX_DOCUMENT_LEN`].
    pub fn new(
        name: &str,
        version: Option<&str>,
        platform: Option<&str>,
    ) -> Result<Self, MetadataError> {
        let checked = |part, text: Option<&str>| match text {
            None | Some("") => Ok(None),
            Some(text) if text.contains(DELIMITER) => Err(MetadataError::Delimiter { part }),
            Some(text) if text.len() > MAX_DOCUMENT_LEN => {
                Err(MetadataError::TooLong { part, len: text.len() })
            }
            Some(text) => Ok(Some(text.to_owned())),
        };
        Ok(Self {
            name: checked("name", Some(name))?.ok_or(MetadataError::EmptyName)?,
            version: checked("version", version)?,
            platform: checked("platform", platform)?,
        })
    }

    /// Returns the name, the version and the platform.
    pub fn parts(&self) -> (&str, Option<&str>, Option<&str>) {
        (&self.name, self.version.as_deref(), self.platform.as_deref())
    }
}

/// The client metadata that every new connection announces in its handshake.
///
/// ```
/// use sdam_core::config::metadata::{ClientMetadata, DriverInfo, Environment, Os};
///
/// let environment = Environment::detect(|_| None, |_| false);
/// let mut metadata = ClientMetadata::new(Some("shop"), Os::current(), environment)?;
/// metadata.append(&DriverInfo::new("odm", Some("2.0"), None)?);
/// let client = metadata.document();
/// assert_eq!(client.get_document("driver")?.get_str("name")?, "sdam|odm");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMetadata {
    application: Option<Arc<str>>,
    os: Os,
    /// `None` until it is set.
    environment: Option<Environment>,
    appended: Vec<DriverInfo>,
}

impl ClientMetadata {
    /// Collects the metadata; an empty application name is the same as none.
    ///
    /// # Errors
    ///
    /// The application name exceeds [`MAX_APPLICATION_NAME_LEN`].
    pub fn new(
        application: Option<&str>,
        os: Os,
        environment: impl Into<Option<Environment>>,
    ) -> Result<Self, MetadataError> {
        let application = application.filter(|name| !name.is_empty());
        match application.map_or(0, str::len) {
            0..=MAX_APPLICATION_NAME_LEN => Ok(Self {
                application: application.map(Into::into),
                os,
                environment: environment.into(),
                appended: Vec::new(),
            }),
            len => Err(MetadataError::ApplicationName(len)),
        }
    }

    /// Returns the operating system, the environment and what wrapping libraries have said.
    pub(super) fn into_parts(self) -> (Os, Option<Environment>, Vec<DriverInfo>) {
        (self.os, self.environment, self.appended)
    }

    /// Appends what a wrapping library says of itself; connections made from now on carry it.
    ///
    /// An info that was appended before changes nothing. Neither does one behind so many others
    /// that no byte of it could be sent, so that a client that keeps appending does not grow.
    pub fn append(&mut self, info: &DriverInfo) {
        let names: usize = self.appended.iter().map(|info| 1 + info.name.len()).sum();
        if names < MAX_DOCUMENT_LEN && !self.appended.contains(info) {
            self.appended.push(info.clone());
        }
    }

    /// Returns the `client` document, never longer than [`MAX_DOCUMENT_LEN`].
    ///
    /// What does not fit is left out in the order of the specification's "Limitations": the
    /// fields of `env` but its name and its agent, that agent, the fields of `os` but its type,
    /// `env`, the end of `platform`.
    /// If that is not enough, because wrapping libraries said much, the ends of `driver.version`,
    /// `driver.name` and `os.type` follow; our own name and version always stay. Texts are cut
    /// between characters.
    pub fn document(&self) -> RawDocumentBuf {
        document::fitting(self)
    }

    /// Returns the application's name.
    pub fn application(&self) -> Option<&str> {
        self.application.as_deref()
    }

    /// Returns the environment that the client runs in, if somebody has said.
    pub const fn environment(&self) -> Option<&Environment> {
        self.environment.as_ref()
    }

    /// Takes the environment that `detect` finds, unless somebody has said.
    pub(crate) fn or_environment(&mut self, detect: impl FnOnce() -> Environment) {
        self.environment.get_or_insert_with(detect);
    }
}
