//! The concerns that commands above this layer declare.

use std::time::Duration;

use bson::{RawDocumentBuf, cstr};

use super::OptionsError;

/// The number of servers that must have a write, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledgment {
    /// This many; 0 asks for no acknowledgment.
    Servers(u32),
    /// `majority`, or a mode that the replica set's configuration defines.
    Named(String),
}

/// The condition of a successful write: `w`, `journal` and `wTimeoutMS`; absent parts are not sent.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WriteConcern {
    /// The members that must have the write: `w`.
    pub w: Option<Acknowledgment>,
    /// True if it must be in the journal: `journal`.
    pub journal: Option<bool>,
    /// The time that the servers may take, zero for ever: `wTimeoutMS`, deprecated in favour of
    /// `timeoutMS`.
    pub timeout: Option<Duration>,
}

/// The data that reads may see: `readConcernLevel`; what is absent is not sent.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReadConcern {
    /// `local`, `available`, `majority`, `linearizable` or `snapshot`, or what later servers know.
    pub level: Option<String>,
}

impl ReadConcern {
    /// Returns whether the server decides, so that commands need no `readConcern` (Read and Write
    /// Concern, "Server's Default ReadConcern").
    pub const fn is_server_default(&self) -> bool {
        self.level.is_none()
    }

    /// Returns what a command declares as `readConcern`.
    ///
    /// ```
    /// use sdam_core::bson::rawdoc;
    /// use sdam_core::config::ReadConcern;
    ///
    /// let concern = ReadConcern::default().with_level(Some("majority".to_owned()));
    /// assert_eq!(concern.document(), rawdoc! { "level": "majority" });
    /// ```
    pub fn document(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        if let Some(level) = &self.level {
            document.append(cstr!("level"), level.as_str());
        }
        document
    }

    /// Replaces [`level`](Self::level).
    #[must_use]
    pub fn with_level(mut self, level: Option<String>) -> Self {
        self.level = level;
        self
    }
}

impl WriteConcern {
    /// Returns whether the server decides, so that commands need no `writeConcern` (Read and Write
    /// Concern, "Server's Default WriteConcern").
    pub const fn is_server_default(&self) -> bool {
        self.w.is_none() && self.journal.is_none() && self.timeout.is_none()
    }

    /// Returns whether the server answers a write that declares this.
    pub const fn is_acknowledged(&self) -> bool {
        !matches!(self.w, Some(Acknowledgment::Servers(0))) || matches!(self.journal, Some(true))
    }

    /// Returns what a command declares as `writeConcern`. Numbers are of 32 bits where they fit.
    ///
    /// ```
    /// use sdam_core::bson::rawdoc;
    /// use sdam_core::config::{Acknowledgment, WriteConcern};
    ///
    /// let w = Some(Acknowledgment::Servers(3));
    /// let concern = WriteConcern::default().with_w(w).with_journal(Some(true));
    /// assert_eq!(concern.document(), rawdoc! { "w": 3, "j": true });
    /// ```
    pub fn document(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        match &self.w {
            None => {}
            Some(Acknowledgment::Servers(count)) => match i32::try_from(*count) {
                Ok(count) => document.append(cstr!("w"), count),
                Err(_) => document.append(cstr!("w"), i64::from(*count)),
            },
            Some(Acknowledgment::Named(name)) => document.append(cstr!("w"), name.as_str()),
        }
        if let Some(journal) = self.journal {
            document.append(cstr!("j"), journal);
        }
        if let Some(timeout) = self.timeout {
            // "wtimeout must be a 32-bit integer", says MongoDB 6.0.
            let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
            document.append(cstr!("wtimeout"), millis);
        }
        document
    }

    /// Read and Write Concern: what cannot be acknowledged cannot be journaled.
    pub(in crate::config) fn check(&self) -> Result<(), OptionsError> {
        match self.w {
            Some(Acknowledgment::Servers(0)) if self.journal == Some(true) => {
                Err(OptionsError::Conflict { option: "w=0", with: "journal=true" })
            }
            _ => Ok(()),
        }
    }

    /// Replaces [`w`](Self::w).
    #[must_use]
    pub fn with_w(mut self, w: Option<Acknowledgment>) -> Self {
        self.w = w;
        self
    }

    /// Replaces [`journal`](Self::journal).
    #[must_use]
    pub fn with_journal(mut self, journal: Option<bool>) -> Self {
        self.journal = journal;
        self
    }

    /// Replaces [`timeout`](Self::timeout).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }
}
