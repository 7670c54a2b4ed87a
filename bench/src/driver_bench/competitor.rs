//! Those who are measured: one module for each that is written in Rust, and the programs of the
//! others.

mod codec;
mod floor;
mod foreign;
mod official;
mod own;
mod sdam_threads;
mod sdam_tokio;

use clap::ValueEnum;
use sdam_bench::Failure;

pub(crate) use self::foreign::{Foreign, Words};
use crate::setting::Setting;

/// Those who are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Competitor {
    /// This library under tokio.
    Sdam,
    /// This library without a runtime.
    SdamBlocking,
    /// The official driver for Rust.
    Mongodb,
    /// The official driver for Python, with its extension in C.
    Pymongo,
    /// The official driver for Node.js.
    Node,
    /// The official driver for C.
    Libmongoc,
    /// Raw sockets, and bytes that were prepared.
    Floor,
}

impl Competitor {
    /// Returns whether it is this library.
    pub(crate) const fn is_own(self) -> bool {
        matches!(self, Self::Sdam | Self::SdamBlocking)
    }

    /// Returns whether it is another driver.
    pub(crate) const fn is_peer(self) -> bool {
        !self.is_own() && !matches!(self, Self::Floor)
    }

    /// Returns the program of a driver of another language.
    pub(crate) const fn foreign(self) -> Option<Foreign> {
        match self {
            Self::Pymongo => Some(Foreign::Pymongo),
            Self::Node => Some(Foreign::Node),
            Self::Libmongoc => Some(Foreign::Libmongoc),
            _ => None,
        }
    }

    /// Does a task in this process, one iteration for each line of the input.
    pub(crate) fn serve(self, setting: Setting) -> Result<(), Failure> {
        match self {
            Self::Sdam => sdam_tokio::serve(setting),
            Self::SdamBlocking => sdam_threads::serve(setting),
            Self::Mongodb => official::serve(setting),
            Self::Floor => floor::serve(&setting),
            Self::Pymongo | Self::Node | Self::Libmongoc => {
                Err("it is a program of its own".into())
            }
        }
    }
}
