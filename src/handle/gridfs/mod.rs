//! Buckets of GridFS, and the streams of their files.

mod bucket;
mod download;
mod indexes;
mod operations;
mod perform;
mod prepared;
mod remains;
mod streams;
mod upload;

pub(crate) use bucket::Parts;
pub use bucket::{GridFsBucket, GridFsBucketOptions, GridFsBucketOptionsBuilder, InBucket};
pub use download::GridFsDownloadStream;
#[cfg(feature = "blocking")]
pub(crate) use operations::actions_of_buckets;
pub use operations::{
    DeleteByName, DeleteFile, DownloadToWriter, DropBucket, OpenDownloadStream, OpenUploadStream,
    RenameByName, RenameFile, ResumeUploadStream, UploadFromReader,
};
pub use perform::PerformInBucket;
pub use prepared::GridFsPreparedFile;
pub use upload::GridFsUploadStream;
