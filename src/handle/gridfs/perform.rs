//! The operations of buckets as they are performed, within the time of one.
//!
//! Implements "File Deletion", "File deletion by filename", "Renaming stored files", "Renaming
//! stored files by filename" and "Dropping an entire GridFS bucket" of GridFS.

use std::future::poll_fn;
use std::pin::Pin;

use bson::{Bson, doc};
use futures_io::{AsyncRead, AsyncWrite};
use sdam_core::config::{ReadConcern, ReadMode, ReadPreference};
use sdam_host::Runtime;
use serde::Deserialize;

use super::bucket::GridFsBucket;
use super::download::GridFsDownloadStream;
use super::operations::{
    DeleteByName, DeleteFile, DownloadToWriter, DropBucket, OpenDownloadStream, OpenUploadStream,
    RenameByName, RenameFile, ResumeUploadStream, UploadFromReader,
};
use super::upload::GridFsUploadStream;
use crate::error::{Error, GridFsErrorKind, GridFsFileIdentifier};

/// The number of files that are deleted with one command.
const DELETED_AT_ONCE: usize = 10_000;

/// The number of bytes that are read at once.
const READ_LEN: usize = 64 * 1024;

/// An operation of a bucket.
///
/// Operations of this crate are the only ones.
pub trait PerformInBucket: Send + Sized {
    /// The form of the outcome, for a runtime.
    type Returned<R: Runtime>;

    #[doc(hidden)]
    fn perform<R: Runtime>(
        self,
        bucket: GridFsBucket<R>,
    ) -> impl Future<Output = Result<Self::Returned<R>, Error>> + Send;
}

impl PerformInBucket for OpenUploadStream {
    type Returned<R: Runtime> = GridFsUploadStream<R>;

    async fn perform<R: Runtime>(
        self,
        bucket: GridFsBucket<R>,
    ) -> Result<GridFsUploadStream<R>, Error> {
        GridFsUploadStream::open(bucket, self)
    }
}

impl PerformInBucket for ResumeUploadStream {
    type Returned<R: Runtime> = GridFsUploadStream<R>;

    async fn perform<R: Runtime>(
        self,
        bucket: GridFsBucket<R>,
    ) -> Result<GridFsUploadStream<R>, Error> {
        GridFsUploadStream::resume(bucket, self).await
    }
}

impl PerformInBucket for OpenDownloadStream {
    type Returned<R: Runtime> = GridFsDownloadStream<R>;

    async fn perform<R: Runtime>(
        self,
        bucket: GridFsBucket<R>,
    ) -> Result<GridFsDownloadStream<R>, Error> {
        GridFsDownloadStream::open(bucket, self).await
    }
}

impl<S: AsyncRead + Unpin + Send> PerformInBucket for UploadFromReader<S> {
    type Returned<R: Runtime> = Bson;

    async fn perform<R: Runtime>(mut self, bucket: GridFsBucket<R>) -> Result<Bson, Error> {
        let mut stream = GridFsUploadStream::open(bucket, self.upload)?;
        let mut buffer = vec![0; READ_LEN];
        loop {
            match poll_fn(|cx| Pin::new(&mut self.reader).poll_read(cx, &mut buffer)).await {
                Ok(0) => break,
                Ok(count) => stream.write_all(&buffer[..count]).await?,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // "the original error should be re-raised"
                    let _ = stream.abort().await;
                    return Err(error.into());
                }
            }
        }
        stream.close().await?;
        Ok(stream.id().clone())
    }
}

impl<D: AsyncWrite + Unpin + Send> PerformInBucket for DownloadToWriter<D> {
    type Returned<R: Runtime> = u64;

    async fn perform<R: Runtime>(mut self, bucket: GridFsBucket<R>) -> Result<u64, Error> {
        let mut stream = GridFsDownloadStream::open(bucket, self.download.sequential()).await?;
        while let Some(bytes) = stream.try_next().await? {
            let mut left = &bytes[..];
            while !left.is_empty() {
                match poll_fn(|cx| Pin::new(&mut self.writer).poll_write(cx, left)).await {
                    Ok(0) => return Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into()),
                    Ok(count) => left = &left[count..],
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        poll_fn(|cx| Pin::new(&mut self.writer).poll_flush(cx)).await?;
        Ok(stream.bytes_done())
    }
}

impl PerformInBucket for DeleteFile {
    type Returned<R: Runtime> = ();

    async fn perform<R: Runtime>(self, bucket: GridFsBucket<R>) -> Result<(), Error> {
        let id = self.0;
        let deleted = bucket.files().delete_one(doc! { "_id": { "$eq": id.clone() } }).await?;
        bucket.delete_chunks(&id).await?;
        match deleted.acknowledged && deleted.deleted_count == 0 {
            true => Err(bucket.error_of(&id, GridFsErrorKind::FileNotFound)),
            false => Ok(()),
        }
    }
}

impl PerformInBucket for DeleteByName {
    type Returned<R: Runtime> = ();

    async fn perform<R: Runtime>(self, bucket: GridFsBucket<R>) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct File {
            #[serde(rename = "_id")]
            id: Bson,
        }
        let filter = doc! { "filename": &self.0 };
        // Another member may have a name that a file has no more.
        let files = bucket.files().with_read_concern(ReadConcern::local());
        let primary = ReadPreference::new(ReadMode::Primary);
        let found = files.find(filter).read_preference(primary);
        let found = found.projection(doc! { "_id": 1 }).with_type::<File>();
        let found: Vec<File> = found.await?.try_collect().await?;
        if found.is_empty() {
            let name = GridFsFileIdentifier::Filename(self.0);
            return Err(bucket.error(name, GridFsErrorKind::FileNotFound));
        }
        let ids: Vec<Bson> = found.into_iter().map(|file| file.id).collect();
        for ids in ids.chunks(DELETED_AT_ONCE) {
            bucket.files().delete_many(doc! { "_id": { "$in": ids } }).await?;
            bucket.chunks().delete_many(doc! { "files_id": { "$in": ids } }).await?;
        }
        Ok(())
    }
}

impl PerformInBucket for RenameFile {
    type Returned<R: Runtime> = ();

    async fn perform<R: Runtime>(self, bucket: GridFsBucket<R>) -> Result<(), Error> {
        let update = doc! { "$set": { "filename": self.to } };
        let filter = doc! { "_id": { "$eq": self.id.clone() } };
        let renamed = bucket.files().update_one(filter, update).await?;
        match renamed.acknowledged && renamed.matched_count == 0 {
            true => Err(bucket.error_of(&self.id, GridFsErrorKind::FileNotFound)),
            false => Ok(()),
        }
    }
}

impl PerformInBucket for RenameByName {
    type Returned<R: Runtime> = ();

    async fn perform<R: Runtime>(self, bucket: GridFsBucket<R>) -> Result<(), Error> {
        let update = doc! { "$set": { "filename": self.to } };
        let filter = doc! { "filename": &self.filename };
        let renamed = bucket.files().update_many(filter, update).await?;
        match renamed.acknowledged && renamed.matched_count == 0 {
            true => {
                let name = GridFsFileIdentifier::Filename(self.filename);
                Err(bucket.error(name, GridFsErrorKind::FileNotFound))
            }
            false => Ok(()),
        }
    }
}

impl PerformInBucket for DropBucket {
    type Returned<R: Runtime> = ();

    /// "Drivers should drop the files collection first, and then the chunks collection."
    async fn perform<R: Runtime>(self, bucket: GridFsBucket<R>) -> Result<(), Error> {
        bucket.parts.set_prepared(false);
        bucket.files().drop().await?;
        bucket.chunks().drop().await
    }
}
