//! The setting of a task: what a competitor's process is given, and what it holds in memory.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use bson::Document;
use sdam_bench::Failure;

use crate::data::{self, LARGE_FILE, LINES};
use crate::task::Task;

/// The names of the database, of the collection, and of the file of 50 MB in the bucket.
pub(crate) const DATABASE: &str = "perftest";
pub(crate) const CORPUS: &str = "corpus";
pub(crate) const STORED: &str = "gridfstest";

/// The number of commands of an iteration.
pub(crate) const COMMANDS: usize = 10_000;

/// The collections of the bulk write with operations of all kinds.
const COLLECTIONS: usize = 10;

/// The task of a competitor, and the places that it needs.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The task.
    pub(crate) task: Task,
    /// The server.
    pub(crate) address: SocketAddr,
    /// The folder of the data.
    pub(crate) data: PathBuf,
    /// The folder for what is written.
    pub(crate) scratch: PathBuf,
    /// The number of things that are done at once.
    pub(crate) workers: usize,
}

/// The documents that a task holds in memory from its beginning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Material {
    /// The documents of one iteration, all the same.
    pub(crate) documents: Vec<Document>,
    /// The content of the file of 50 MB.
    pub(crate) bytes: Vec<u8>,
    /// The files that are read or written at once.
    pub(crate) files: Vec<PathBuf>,
}

impl Setting {
    /// Names the server to a client.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true&w=1", self.address)
    }

    /// Reads what the task works with.
    pub(crate) fn material(&self) -> Result<Material, Failure> {
        let mut material = Material::default();
        if let Some((file, times)) = self.task.material() {
            material.documents = vec![data::document(&self.data.join(file))?; times];
        }
        match self.task {
            Task::GridfsUpload | Task::GridfsDownload => {
                material.bytes = fs::read(self.data.join(LARGE_FILE))?;
            }
            Task::LdjsonMultiImport | Task::LdjsonMultiExport => {
                material.files = data::line_files(&self.data)?;
            }
            Task::GridfsMultiUpload | Task::GridfsMultiDownload => {
                material.files = data::bucket_files(&self.data)?;
            }
            _ => {}
        }
        Ok(material)
    }
}

impl Material {
    /// Returns the length of the file that is read, and fails unless so many bytes have come.
    pub(crate) fn check(&self, came: usize) -> Result<(), Failure> {
        match came == self.bytes.len() {
            true => Ok(()),
            false => Err(format!("{came} bytes have come, and not {}", self.bytes.len()).into()),
        }
    }
}

/// Fails unless so many documents were inserted or found.
pub(crate) fn check(count: usize, expected: usize) -> Result<(), Failure> {
    match count == expected {
        true => Ok(()),
        false => Err(format!("{count} documents instead of {expected}").into()),
    }
}

/// Returns the name of the collection of a document in the mixed bulk write of the client.
pub(crate) fn collection(number: usize) -> String {
    format!("{CORPUS}_{}", number % COLLECTIONS + 1)
}

/// Returns the names of all of those.
pub(crate) fn collections() -> impl Iterator<Item = String> {
    (0..COLLECTIONS).map(collection)
}

/// Returns the filter of the documents that a file is made of.
pub(crate) fn filter_of_file(file: usize) -> Document {
    let [from, to] = [file, file + 1].map(|file| i64::try_from(file * LINES).unwrap_or(i64::MAX));
    bson::doc! { "_id": { "$gte": from, "$lt": to } }
}
