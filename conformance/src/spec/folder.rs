//! Finds the suites in a copy of the specifications.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::report::{Report, SuiteReport};
use super::{SKIPS, SUITES, Suite, pooling, run_file, seedlist, skip_reason};

/// The maximum depth of folders, in case links make them a circle.
const MAX_DEPTH: usize = 16;

/// The reason why there are no suites to run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The folder, or one in it, cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable {
        /// The path of the folder or file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Folders that lie too deep within each other.
    #[error("{} lies more than {MAX_DEPTH} folders deep", .0.display())]
    TooDeep(PathBuf),
    /// There is nothing this runner knows.
    #[error(
        "{} holds none of the suites known here; it must have the layout of the folder `source` \
         of the MongoDB specifications, as in {}/*.json",
        .0.display(),
        SUITES[0].folder
    )]
    NoSuites(PathBuf),
    /// The suite that was asked for is not one this runner knows.
    #[error("there is no suite {0:?}; known are {known}", known = known_names())]
    UnknownSuite(String),
    /// The suite that was asked for is not there.
    #[error("{} has no file of suite {name:?}", path.display())]
    MissingSuite {
        /// The folder.
        path: PathBuf,
        /// The suite.
        name: String,
    },
}

fn known_names() -> String {
    SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ")
}

/// A copy of the specifications, and what was found in it.
#[derive(Debug)]
pub struct Folder {
    /// The suites that this runner knows, those with no file here included.
    pub suites: Vec<FoundSuite>,
    /// The suites that it does not know.
    pub not_covered: Vec<NotCovered>,
}

/// A suite, and its files here.
#[derive(Debug)]
pub struct FoundSuite {
    /// The suite.
    pub suite: &'static Suite,
    /// Its files, by name.
    pub files: Vec<FoundFile>,
}

/// A file of a suite.
#[derive(Clone, Debug)]
pub struct FoundFile {
    /// Its path below the folder of the specifications, with slashes.
    pub name: String,
    /// The path of the file.
    pub path: PathBuf,
}

impl FoundFile {
    /// Returns why the file is not run, if it is not.
    pub fn skip_reason(&self) -> Option<&'static str> {
        skip_reason(SKIPS, &self.name).or_else(|| seedlist::skip_reason(&self.name))
    }
}

/// A folder of cases that this runner does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotCovered {
    /// The folder's path below that of the specifications.
    pub folder: String,
    /// The number of JSON files in it, folders within it not counted.
    pub files: usize,
}

impl Folder {
    /// Finds all suites below `root`, whose layout is that of the folder `source` of the public
    /// specifications.
    ///
    /// # Errors
    ///
    /// A folder cannot be read, or there is no suite that this runner knows.
    pub fn open(root: &Path) -> Result<Self, FolderError> {
        let files = files(root)?;
        let mut suites: Vec<FoundSuite> =
            SUITES.iter().map(|suite| FoundSuite { suite, files: Vec::new() }).collect();
        let mut not_covered = BTreeMap::new();
        for file in files {
            let folder = file.name.rsplit_once('/').map_or("", |(folder, _)| folder);
            match suites.iter_mut().find(|found| is_below(folder, found.suite.folder)) {
                Some(found) => found.files.push(file),
                None => *not_covered.entry(folder.to_owned()).or_insert(0) += 1,
            }
        }
        if suites.iter().all(|found| found.files.is_empty()) {
            return Err(FolderError::NoSuites(root.to_owned()));
        }
        let not_covered = not_covered.into_iter();
        let not_covered = not_covered.map(|(folder, files)| NotCovered { folder, files }).collect();
        Ok(Self { suites, not_covered })
    }

    /// Finds one suite, or a group of suites by what their names begin with, as in
    /// `server-selection`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and if there is no such suite, here or at all.
    pub fn open_suite(root: &Path, name: &str) -> Result<Self, FolderError> {
        let wanted = |suite: &Suite| is_below(suite.name, name);
        if !SUITES.iter().any(wanted) {
            return Err(FolderError::UnknownSuite(name.to_owned()));
        }
        let mut folder = Self::open(root)?;
        folder.suites.retain(|found| wanted(found.suite));
        folder.not_covered.clear();
        if folder.suites.iter().all(|found| found.files.is_empty()) {
            return Err(FolderError::MissingSuite { path: root.to_owned(), name: name.to_owned() });
        }
        Ok(folder)
    }

    /// Runs every file.
    pub fn run(&self) -> Report {
        let suites = self.suites.iter().map(|found| SuiteReport {
            name: found.suite.name,
            files: found.files.iter().map(|file| run_file(found.suite, file)).collect(),
            not_compared: match found.suite.folder {
                folder if folder.starts_with(seedlist::FOLDER) => Some(seedlist::NOT_COMPARED),
                pooling::FOLDER => Some(pooling::NOT_COMPARED),
                _ => None,
            },
        });
        Report { suites: suites.collect(), not_covered: self.not_covered.clone() }
    }
}

/// Finds the JSON files of all suites below `root`, in order.
pub(crate) fn files(root: &Path) -> Result<Vec<FoundFile>, FolderError> {
    let mut files = Vec::new();
    for (name, path) in entries(root)? {
        let tests = path.join("tests");
        if tests.is_dir() {
            walk(&tests, &format!("{name}/tests"), 2, &mut files)?;
        }
    }
    Ok(files)
}

/// Returns whether a path is another one, or leads into it.
pub(crate) fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Collects the JSON files in a folder and in those within it, in order.
fn walk(
    folder: &Path,
    name: &str,
    depth: usize,
    files: &mut Vec<FoundFile>,
) -> Result<(), FolderError> {
    if depth > MAX_DEPTH {
        return Err(FolderError::TooDeep(folder.to_owned()));
    }
    for (entry, path) in entries(folder)? {
        let name = format!("{name}/{entry}");
        if path.is_dir() {
            walk(&path, &name, depth + 1, files)?;
        } else if path.extension().is_some_and(|extension| extension == "json") {
            files.push(FoundFile { name, path });
        }
    }
    Ok(())
}

/// Lists a folder by name.
fn entries(folder: &Path) -> Result<BTreeMap<String, PathBuf>, FolderError> {
    let unreadable = |error| FolderError::Unreadable { path: folder.to_owned(), error };
    let mut entries = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        entries.insert(entry.file_name().to_string_lossy().into_owned(), entry.path());
    }
    Ok(entries)
}
