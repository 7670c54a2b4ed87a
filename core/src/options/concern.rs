//! What commands above this layer declare: concerns and compressors.

use std::time::Duration;

use super::OptionsError;

/// How many servers must have a write, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledgment {
    /// This many; 0 asks for no acknowledgment.
    Servers(u32),
    /// `majority`, or a mode that the replica set's configuration defines.
    Named(String),
}

/// What makes a write successful: `w`, `journal` and `wTimeoutMS`; what is absent is not sent.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WriteConcern {
    /// Who must have the write: `w`.
    pub w: Option<Acknowledgment>,
    /// Whether it must be in the journal: `journal`.
    pub journal: Option<bool>,
    /// How long the servers may take, zero for ever: `wTimeoutMS`, deprecated in favour of
    /// `timeoutMS`.
    pub timeout: Option<Duration>,
}

impl WriteConcern {
    /// Read and Write Concern: what cannot be acknowledged cannot be journaled.
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        match self.w {
            Some(Acknowledgment::Servers(0)) if self.journal == Some(true) => {
                Err(OptionsError::Conflict { option: "w=0", with: "journal=true" })
            }
            _ => Ok(()),
        }
    }
}

/// An algorithm that messages may be compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// Snappy.
    Snappy,
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Compressor {
    /// Returns the name in `compressors` and in the handshake.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Snappy, Self::Zlib, Self::Zstd].into_iter().find(|known| known.name() == name)
    }
}
