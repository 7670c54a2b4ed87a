//! The servers of a run, and what they hold before a task.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use bson::{Document, doc};
use sdam::blocking::{Client, Database};
use sdam_bench::{Failure, runtime, server};
use sdam_cluster::{Deployment, EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_conformance::mongod::Server;
use tokio::runtime::Runtime;

use crate::data::{self, LARGE_FILE};
use crate::json::lines;
use crate::setting::{CORPUS, DATABASE, STORED};
use crate::steps::on_threads;
use crate::task::Task;

/// The writes that the embedded server remembers, of which one may have megabytes.
const OPLOG_ENTRIES: usize = 100;

/// A real server, and an embedded one of version 8.0 in this process, for what needs that.
pub(crate) struct Deployments {
    real: SocketAddr,
    embedded: EmbeddedCluster,
    _server: Option<Server>,
    _runtime: Runtime,
}

impl Deployments {
    /// Starts them; the real one only if there is none at an address.
    pub(crate) fn start(address: Option<SocketAddr>) -> Result<Self, Failure> {
        let (real, server) = server(address)?;
        let runtime = runtime(1)?;
        let options = EmbeddedOptions::default()
            .with_deployment(Deployment::Standalone)
            .with_members(1)
            .with_version(ServerVersion::V8_0)
            .with_keeps_data(true)
            .with_oplog_entries(OPLOG_ENTRIES);
        let embedded = runtime.block_on(EmbeddedCluster::start(options))?;
        Ok(Self { real, embedded, _server: server, _runtime: runtime })
    }

    /// Returns the server of a task.
    pub(crate) fn address(&self, task: Task) -> SocketAddr {
        match task.needs_8_0() {
            true => self.embedded.addresses()[0],
            false => self.real,
        }
    }

    /// Empties the database, and fills it with what a task reads: once, for all competitors.
    pub(crate) fn fill(&self, task: Task, folder: &Path, workers: usize) -> Result<(), Failure> {
        let database = self.empty(task)?;
        let corpus = database.collection::<Document>(CORPUS);
        match task {
            Task::FindOneById | Task::FindMany => {
                let (file, times) = task.material().ok_or("a task has no material")?;
                let document = data::document(&folder.join(file))?;
                let numbered = |id| match task {
                    Task::FindOneById => with_id(id, document.clone()),
                    _ => document.clone(),
                };
                corpus.insert_many((1..).map(numbered).take(times)).run()?;
            }
            Task::GridfsDownload => {
                let file = fs::File::open(folder.join(LARGE_FILE))?;
                database.gridfs_bucket().upload_from_reader(STORED, file).run()?;
            }
            Task::GridfsMultiDownload => {
                let bucket = database.gridfs_bucket();
                for path in data::bucket_files(folder)? {
                    let file = fs::File::open(&path)?;
                    bucket.upload_from_reader(data::name(&path)?, file).run()?;
                }
            }
            Task::LdjsonMultiExport => {
                let files = data::line_files(folder)?;
                on_threads(workers, files.len(), |file| {
                    let read = lines::<Document>(&fs::read_to_string(&files[file])?)?;
                    let number = |(number, line)| {
                        let id = i64::try_from(file * data::LINES + number)?;
                        Ok(with_id(id, line))
                    };
                    let numbered = read.into_iter().enumerate().map(number);
                    let numbered = numbered.collect::<Result<Vec<_>, Failure>>()?;
                    corpus.insert_many(numbered).ordered(false).run()?;
                    Ok(())
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Drops the database, and returns it.
    pub(crate) fn empty(&self, task: Task) -> Result<Database, Failure> {
        let uri = format!("mongodb://{}/?directConnection=true&w=1", self.address(task));
        let database = Client::connect(uri)?.database(DATABASE);
        database.drop().run()?;
        Ok(database)
    }
}

/// Puts an `_id` in front of the fields of a document.
fn with_id(id: i64, document: Document) -> Document {
    let mut numbered = doc! { "_id": id };
    numbered.extend(document);
    numbered
}
