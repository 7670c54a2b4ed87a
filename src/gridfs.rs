//! GridFS: files of any length, which are stored as chunks (GridFS). A bucket is two collections,
//! `files` and `chunks`.
//!
//! ```no_run
//! # #[cfg(feature = "tokio")]
//! # async fn example(client: sdam::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let bucket = client.database("shop").gridfs_bucket();
//!
//! let mut upload = bucket.open_upload_stream("catalogue.pdf").await?;
//! upload.write_all(b"%PDF-1.7 ..").await?;
//! upload.close().await?;
//!
//! let mut download = bucket.open_download_stream(upload.id().clone()).await?;
//! while let Some(bytes) = download.try_next().await? {
//!     println!("{} bytes", bytes.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The streams are those of tokio (`AsyncRead`, `AsyncSeek`, `AsyncWrite`), of `futures`, and of
//! threads ([`blocking`](crate::blocking)), so that `tokio::io::copy` stores a file of the disk.
//!
//! Stored files are found by [`find`](GridFsBucket::find), whose filters are about the fields of
//! [`FilesCollectionDocument`]: `doc! { "metadata.owner": "Emma" }` for one of the metadata.

pub use crate::error::{GridFsError, GridFsErrorKind, GridFsFileIdentifier};
pub use crate::files::{FilesCollectionDocument, UploadCheckpoint};
pub use crate::handle::gridfs::{
    DeleteByName, DeleteFile, DownloadToWriter, DropBucket, GridFsBucket, GridFsBucketOptions,
    GridFsBucketOptionsBuilder, GridFsDownloadStream, GridFsPreparedFile, GridFsUploadStream,
    InBucket, OpenDownloadStream, OpenUploadStream, PerformInBucket, RenameByName, RenameFile,
    ResumeUploadStream, UploadFromReader,
};
