//! The data of the chapter: archives that are unpacked for a run, and what tasks take from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bson::Document;
use sdam_bench::Failure;
use tempfile::TempDir;

/// The archives, each with a folder of its name.
const ARCHIVES: [&str; 3] = ["extended_bson", "single_and_multi_document", "parallel"];

/// The file of 50 MB.
pub(crate) const LARGE_FILE: &str = "single_and_multi_document/gridfs_large.bin";

/// The documents in each file of lines.
pub(crate) const LINES: usize = 5_000;

/// The folder that has the data, unpacked.
pub(crate) struct Data {
    folder: PathBuf,
    _unpacked: Option<TempDir>,
}

impl Data {
    /// Takes a folder as it is, or unpacks its archives into another one, which is removed in the
    /// end.
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        if ARCHIVES.iter().all(|name| folder.join(name).is_dir()) {
            return Ok(Self { folder: folder.canonicalize()?, _unpacked: None });
        }
        let unpacked = TempDir::new()?;
        for name in ARCHIVES {
            let archive = folder.join(name).with_extension("tgz");
            let mut tar = Command::new("tar");
            let status = tar.arg("-xzf").arg(&archive).arg("-C").arg(unpacked.path()).status()?;
            if !status.success() {
                return Err(format!("{} cannot be unpacked", archive.display()).into());
            }
        }
        Ok(Self { folder: unpacked.path().to_owned(), _unpacked: Some(unpacked) })
    }

    /// Returns the folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Reads a document that is written as extended JSON.
pub(crate) fn document(path: &Path) -> Result<Document, Failure> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

/// Returns the files of lines.
pub(crate) fn line_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    files(&folder.join("parallel/ldjson_multi"))
}

/// Returns the files of 5 MB.
pub(crate) fn bucket_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    files(&folder.join("parallel/gridfs_multi"))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = files.collect::<Result<Vec<_>, Failure>>()?;
    files.sort();
    Ok(files)
}

/// Returns the name that a file has in a bucket.
pub(crate) fn name(path: &Path) -> Result<&str, Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| format!("{} has no name", path.display()).into())
}

/// Makes a folder empty.
pub(crate) fn empty(folder: &Path) -> Result<(), Failure> {
    for file in files(folder)? {
        fs::remove_file(file)?;
    }
    Ok(())
}
