//! Files of GridFS as values: an upload, which takes bytes and yields batches of chunks; a
//! download, which yields ranges of chunks; the search for one, and the check of each chunk.

mod checkpoint;
mod chunks;
mod download;
mod file;
mod find;
mod upload;

pub use checkpoint::UploadCheckpoint;
pub(crate) use chunks::ChunkRange;
pub(crate) use download::Download;
pub use file::FilesCollectionDocument;
pub(crate) use file::StoredFile;
pub(crate) use find::FindChunks;
pub(crate) use upload::{Batch, Upload};
