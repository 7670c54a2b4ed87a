//! The deployment that a command is about: its connection string, and addresses to dial instead.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use sdam_core::config::address_map::{AddressMap, AddressMapError};

use crate::file;

/// The variable that has the connection string if no argument does.
pub(crate) const VARIABLE: &str = "SDAM_URI";

/// The maximum length of a file with a connection string, in bytes.
const MAX_URI_FILE_LEN: u64 = 1 << 16;

/// A deployment.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The connection string, mongodb://… or mongodb+srv://…; without it, that of --uri-file, or
    /// else of the variable SDAM_URI
    ///
    /// Anyone who lists the processes of this machine can read this argument: a string with a
    /// password belongs in a file or in the variable.
    #[arg(conflicts_with = "uri_file")]
    uri: Option<String>,
    /// Read the connection string from this file; - is standard input
    #[arg(long, value_name = "FILE")]
    uri_file: Option<PathBuf>,
    /// Dial TO for the server that advertises FROM; may be repeated, and the first that matches
    /// counts. As in --map db1.internal:27017=127.0.0.1:30001, or --map '*.internal=*.example.com'
    ///
    /// FROM is HOST, for any port, or HOST:PORT, with * for any run of characters. TO is HOST, for
    /// the same port, HOST:PORT or the path of a socket; * in HOST is what the first * matched.
    /// Servers are still shown, and distinguished, by the addresses they advertise.
    #[arg(long, value_name = "FROM=TO")]
    map: Vec<String>,
}

/// The reason why the connection string cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    /// The file cannot be read.
    #[error("cannot read the connection string from {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// There is no text.
    #[error("{0} has no connection string, it is empty")]
    Empty(String),
    /// There is more than one line.
    #[error("{0} has more than one line; it has to hold one connection string, and nothing else")]
    Lines(String),
    /// The text is not UTF-8.
    #[error("{0} is not text in UTF-8")]
    NotText(String),
    /// Nothing says which deployment.
    #[error(
        "no deployment is named: write its connection string as an argument, in the file of \
         --uri-file, or in the variable {VARIABLE}"
    )]
    Missing,
    /// The addresses to dial are not clear.
    #[error("--map: {0}")]
    Map(AddressMapError),
}

impl From<AddressMapError> for TargetError {
    fn from(error: AddressMapError) -> Self {
        Self::Map(error)
    }
}

impl Target {
    /// Returns the connection string that stands among the arguments, if one does.
    pub(crate) fn argument(&self) -> Option<&str> {
        self.uri.as_deref()
    }

    /// Returns whether `--map` was given.
    pub(crate) const fn is_mapped(&self) -> bool {
        !self.map.is_empty()
    }

    /// Returns the connection string; `None` if none is given.
    pub(crate) fn uri(&self) -> Result<Option<String>, TargetError> {
        match (&self.uri, &self.uri_file) {
            (Some(uri), _) => Ok(Some(uri.clone())),
            (None, Some(path)) => of_file(path).map(Some),
            (None, None) => std::env::var_os(VARIABLE).map(of_variable).transpose(),
        }
    }

    /// Returns what is dialled for which address.
    pub(crate) fn address_map(&self) -> Result<AddressMap, TargetError> {
        let rules: Result<Vec<_>, _> = self.map.iter().map(|rule| rule.parse()).collect();
        Ok(AddressMap::new(rules?)?)
    }
}

fn of_file(path: &Path) -> Result<String, TargetError> {
    let content = file::read_or_standard_input(path, MAX_URI_FILE_LEN)
        .map_err(|error| TargetError::Read { path: path.to_owned(), error })?;
    let name = path.display().to_string();
    let text = String::from_utf8(content).map_err(|_| TargetError::NotText(name.clone()))?;
    one_line(text.trim_end_matches(['\r', '\n']), name)
}

fn of_variable(value: OsString) -> Result<String, TargetError> {
    let name = format!("the variable {VARIABLE}");
    let text = value.into_string().map_err(|_| TargetError::NotText(name.clone()))?;
    one_line(&text, name)
}

/// Refuses what cannot be one connection string, without quoting it.
fn one_line(text: &str, name: String) -> Result<String, TargetError> {
    match text {
        "" => Err(TargetError::Empty(name)),
        text if text.contains(['\r', '\n']) => Err(TargetError::Lines(name)),
        text => Ok(text.to_owned()),
    }
}
