//! The mongod binaries that there are, and their versions.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use super::HarnessError;
use super::process;

/// The version of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The release series, with [`minor`](Self::minor).
    pub major: u32,
    /// The release series, with [`major`](Self::major).
    pub minor: u32,
    /// The release within its series.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = String;

    /// Reads `6.0.5`, and `7.0.0-rc1` as 7.0.0.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split('-').next().unwrap_or_default().split('.');
        let numbers: Result<Vec<u32>, _> = numbers.map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[major, minor, patch]) => Ok(Self { major, minor, patch }),
            _ => Err(format!("{text:?} is not a version such as 6.0.5")),
        }
    }
}

/// A mongod that has been seen to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    path: PathBuf,
    libraries: Option<PathBuf>,
    version: Version,
}

impl Binary {
    /// Returns the binaries of `.mongod/` at the root of the repository, or of the folder that
    /// `SDAM_MONGOD_DIR` names, the oldest first; of one that does not run, the reason, at the end.
    ///
    /// Without that folder there are none.
    pub fn all() -> Vec<Result<Self, HarnessError>> {
        let folder = env::var_os("SDAM_MONGOD_DIR").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../.mongod"),
            PathBuf::from,
        );
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut binaries: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|release| release.join("bin/mongod").is_file())
            .map(|release| {
                let libraries = Some(release.join("lib")).filter(|folder| folder.is_dir());
                Self::open(release.join("bin/mongod"), libraries)
            })
            .collect();
        binaries.sort_by_key(|binary| match binary {
            Ok(binary) => (false, Some(binary.version)),
            Err(_) => (true, None),
        });
        binaries
    }

    /// Returns the user's own mongod: the one that `SDAM_MONGOD` names, or else one on the `PATH`.
    ///
    /// # Errors
    ///
    /// [`HarnessError::Binary`] if the file is no mongod that runs.
    pub fn user() -> Option<Result<Self, HarnessError>> {
        let named = env::var_os("SDAM_MONGOD").map(PathBuf::from);
        let path = named.or_else(|| find_on_path(env::var_os("PATH")?.as_os_str()))?;
        Some(Self::open(path, None))
    }

    /// Returns the version.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of the libraries that it needs besides those of the system
    /// (`LD_LIBRARY_PATH`).
    pub fn libraries(&self) -> Option<&Path> {
        self.libraries.as_deref()
    }

    /// Returns a command that runs this mongod, with the libraries it needs.
    pub(super) fn command(&self) -> Command {
        command(&self.path, self.libraries.as_deref())
    }

    fn open(path: PathBuf, libraries: Option<PathBuf>) -> Result<Self, HarnessError> {
        match version(&path, libraries.as_deref()) {
            Ok(version) => Ok(Self { path, libraries, version }),
            Err(reason) => Err(HarnessError::Binary { path, reason }),
        }
    }
}

fn find_on_path(folders: &OsStr) -> Option<PathBuf> {
    env::split_paths(folders).map(|folder| folder.join("mongod")).find(|path| path.is_file())
}

fn command(path: &Path, libraries: Option<&Path>) -> Command {
    let mut command = process::dying_with_us(path);
    if let Some(libraries) = libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

fn version(path: &Path, libraries: Option<&Path>) -> Result<Version, String> {
    let mut command = command(path, libraries);
    command.arg("--version");
    let output = process::run(command).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find_map(|line| line.strip_prefix("db version v")) {
        Some(version) if output.status.success() => version.trim().parse(),
        _ => Err(format!(
            "`mongod --version` ends with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_are_read_written_and_ordered() {
        let version: Version = "6.0.5".parse().unwrap();
        assert_eq!(version.to_string(), "6.0.5");
        assert!(version > "4.12.6".parse().unwrap());
        assert_eq!("7.0.0-rc1".parse::<Version>().unwrap().to_string(), "7.0.0");
        for text in ["", "6", "6.0", "6.0.5.1", "6.0.x", "-1.0.0"] {
            assert!(text.parse::<Version>().is_err(), "{text:?}");
        }
    }
}
