//! Buckets of GridFS, and the streams of their files.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bson::Bson;
use bytes::Bytes;
use sdam_blocking::Blocking;
use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};

use sdam_host::driver::ThreadSession as _;

use super::client::Shared;
use super::{ClientSession, Threads};
use crate::command::action::{Action, PerformsActions, sealed};
use crate::command::find::{Find, FindOne};
use crate::command::views::{Many, One};
use crate::error::Error;
use crate::files::{FilesCollectionDocument, UploadCheckpoint};
use crate::handle::concerns;
use crate::handle::gridfs::{
    DeleteByName, DeleteFile, DownloadToWriter, DropBucket, GridFsBucket as Futures,
    GridFsDownloadStream as Downloading, GridFsPreparedFile as Prepared,
    GridFsUploadStream as Uploading, OpenDownloadStream, OpenUploadStream, Parts, PerformInBucket,
    RenameByName, RenameFile, ResumeUploadStream, UploadFromReader, actions_of_buckets,
};

/// The number of bytes that are read at once.
const READ_LEN: usize = 64 * 1024;

/// A bucket of GridFS, each operation of which has its thread wait: see
/// [`GridFsBucket`](crate::generic::GridFsBucket) of futures.
#[derive(Clone, Debug)]
pub struct GridFsBucket {
    shared: Shared,
    parts: Arc<Parts>,
}

impl GridFsBucket {
    pub(super) const fn new(shared: Shared, parts: Arc<Parts>) -> Self {
        Self { shared, parts }
    }

    concerns!(shared, ClientSession);

    actions_of_buckets!(Self);

    /// Uploads what a reader has, to its end, and returns the `_id` of the file.
    ///
    /// `timeoutMS` does not interrupt a reader that waits: it is looked at between its pieces.
    ///
    /// Options: those of [`open_upload_stream`](Self::open_upload_stream).
    ///
    /// # Errors
    ///
    /// Fails as the streams do. If the reader fails, the upload is aborted, and the error is that
    /// of the reader.
    pub fn upload_from_reader<S: Read>(
        &self,
        filename: impl Into<String>,
        reader: S,
    ) -> Action<UploadFromReader<S>, Self> {
        let upload = OpenUploadStream::new(filename.into());
        self.act(UploadFromReader { upload, reader })
    }

    /// Downloads a file into a writer, which is flushed, and returns the number of bytes.
    ///
    /// `timeoutMS` does not interrupt a writer that waits.
    ///
    /// Options: those of [`open_download_stream`](Self::open_download_stream).
    ///
    /// # Errors
    ///
    /// Fails as the streams do, and as the writer does.
    pub fn download_to_writer<D: Write>(
        &self,
        id: impl Into<Bson>,
        writer: D,
    ) -> Action<DownloadToWriter<D>, Self> {
        let download = OpenDownloadStream::of_id(id.into());
        self.act(DownloadToWriter { download, writer })
    }

    /// As [`download_to_writer`](Self::download_to_writer), a file by its name: the newest of those
    /// that have it, unless `revision` says otherwise.
    ///
    /// # Errors
    ///
    /// Fails as [`download_to_writer`](Self::download_to_writer) does.
    pub fn download_to_writer_by_name<D: Write>(
        &self,
        filename: impl Into<String>,
        writer: D,
    ) -> Action<DownloadToWriter<D>, Self> {
        let download = OpenDownloadStream::of_name(filename.into());
        self.act(DownloadToWriter { download, writer })
    }

    /// Looks for the documents of files, as
    /// [`GridFsBucket::find`](crate::generic::GridFsBucket::find) does.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub fn find(
        &self,
        filter: impl Into<Find>,
    ) -> Action<Find, Threads<'_>, Many<FilesCollectionDocument>> {
        Action::new(filter.into(), Threads::new(&self.shared, self.parts.files()))
    }

    /// Looks for the document of a file, as
    /// [`GridFsBucket::find_one`](crate::generic::GridFsBucket::find_one) does.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub fn find_one(
        &self,
        filter: impl Into<FindOne>,
    ) -> Action<FindOne, Threads<'_>, One<FilesCollectionDocument>> {
        Action::new(filter.into(), Threads::new(&self.shared, self.parts.files()))
    }

    fn act<O>(&self, operation: O) -> Action<O, Self> {
        Action::new(operation, self.clone())
    }

    fn over(&self, shared: Shared) -> Self {
        Self { shared, parts: Arc::clone(&self.parts) }
    }

    /// Has this thread wait for an operation.
    fn wait<O: PerformInBucket>(&self, operation: O) -> Result<O::Returned<Blocking>, Error> {
        let bucket = Futures::new(self.shared.handle(), Arc::clone(&self.parts)).limited()?;
        self.shared.wait(operation.perform(bucket))
    }
}

impl PerformsActions for GridFsBucket {
    type Session = ClientSession;
}

impl sealed::Changes<ClientSession> for GridFsBucket {
    fn with_session(self, session: &ClientSession) -> Self {
        self.over(self.shared.with_session(session))
    }

    fn with_read_preference(self, preference: ReadPreference) -> Self {
        self.over(self.shared.with(|concerns| concerns.read_preference = preference))
    }

    fn with_read_concern(self, concern: ReadConcern) -> Self {
        self.over(self.shared.with(|concerns| concerns.read_concern = concern))
    }

    fn with_write_concern(self, concern: WriteConcern) -> Self {
        self.over(self.shared.with(|concerns| concerns.write_concern = concern))
    }

    fn with_timeout(self, timeout: Duration) -> Self {
        self.over(self.shared.with(|concerns| {
            concerns.timeout = Some(timeout);
            concerns.of_action.timeout = true;
        }))
    }
}

/// An operation of a bucket that a thread runs.
///
/// Operations of this crate are the only ones.
pub trait RunInBucket: Sized {
    /// The form of the outcome.
    type Waited;

    #[doc(hidden)]
    fn run(self, bucket: &GridFsBucket) -> Result<Self::Waited, Error>;
}

macro_rules! without_outcome {
    ($($operation:ty)+) => {
        $(impl RunInBucket for $operation {
            type Waited = ();

            fn run(self, bucket: &GridFsBucket) -> Result<(), Error> {
                bucket.wait(self)
            }
        })+
    };
}

without_outcome! { DeleteFile DeleteByName RenameFile RenameByName DropBucket }

impl RunInBucket for OpenUploadStream {
    type Waited = GridFsUploadStream;

    fn run(self, bucket: &GridFsBucket) -> Result<GridFsUploadStream, Error> {
        let stream = bucket.wait(self)?;
        Ok(GridFsUploadStream { stream, shared: bucket.shared.clone() })
    }
}

impl RunInBucket for ResumeUploadStream {
    type Waited = GridFsUploadStream;

    fn run(self, bucket: &GridFsBucket) -> Result<GridFsUploadStream, Error> {
        let stream = bucket.wait(self)?;
        Ok(GridFsUploadStream { stream, shared: bucket.shared.clone() })
    }
}

impl RunInBucket for OpenDownloadStream {
    type Waited = GridFsDownloadStream;

    fn run(self, bucket: &GridFsBucket) -> Result<GridFsDownloadStream, Error> {
        let stream = bucket.wait(self)?;
        Ok(GridFsDownloadStream { stream, shared: bucket.shared.clone() })
    }
}

impl<S: Read> RunInBucket for UploadFromReader<S> {
    type Waited = Bson;

    fn run(mut self, bucket: &GridFsBucket) -> Result<Bson, Error> {
        let mut stream = self.upload.run(bucket)?;
        let mut buffer = vec![0; READ_LEN];
        loop {
            match self.reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => stream.wait_write_all(&buffer[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // "the original error should be re-raised"
                    let _ = stream.abort();
                    return Err(error.into());
                }
            }
        }
        stream.close()?;
        Ok(stream.id().clone())
    }
}

impl<D: Write> RunInBucket for DownloadToWriter<D> {
    type Waited = u64;

    fn run(mut self, bucket: &GridFsBucket) -> Result<u64, Error> {
        let mut stream = self.download.sequential().run(bucket)?;
        while let Some(bytes) = stream.try_next()? {
            self.writer.write_all(&bytes)?;
        }
        self.writer.flush()?;
        Ok(stream.bytes_done())
    }
}

/// The writing of a file, as a [`Write`]: see
/// [`GridFsUploadStream`](crate::generic::GridFsUploadStream) of futures. The file is there once it
/// is [closed](Self::close).
#[derive(Debug)]
pub struct GridFsUploadStream {
    stream: Uploading<Blocking>,
    shared: Shared,
}

impl GridFsUploadStream {
    /// Returns the `_id` of the file.
    pub const fn id(&self) -> &Bson {
        self.stream.id()
    }

    /// Returns the number of bytes that servers have acknowledged so far.
    pub const fn bytes_done(&self) -> u64 {
        self.stream.bytes_done()
    }

    /// Returns the number of bytes that were written so far.
    pub const fn bytes_written(&self) -> u64 {
        self.stream.bytes_written()
    }

    /// Sends what is left, and stores the document of the file; once this has succeeded, another
    /// call does nothing.
    ///
    /// # Errors
    ///
    /// Fails if the stream was aborted, and if a batch or the document cannot be stored.
    pub fn close(&mut self) -> Result<(), Error> {
        self.shared.wait(self.stream.close())
    }

    /// Returns the place that another stream can go on from, as
    /// [`checkpoint`](crate::generic::GridFsUploadStream::checkpoint) of futures does.
    pub fn checkpoint(&mut self) -> UploadCheckpoint {
        self.stream.checkpoint()
    }

    /// Waits for the batches under way, ends the stream, and returns the place that another one can
    /// go on from, as [`suspend`](crate::generic::GridFsUploadStream::suspend) of futures does.
    ///
    /// # Errors
    ///
    /// Fails if the stream was closed or aborted, and if a batch cannot be stored.
    pub fn suspend(&mut self) -> Result<UploadCheckpoint, Error> {
        self.shared.wait(self.stream.suspend())
    }

    /// Sends what is left, ends the stream, and returns the file without its document, which a
    /// transaction stores, as
    /// [`prepare_close`](crate::generic::GridFsUploadStream::prepare_close) of futures does.
    ///
    /// # Errors
    ///
    /// Fails if the stream was closed or aborted, and if a batch cannot be stored.
    pub fn prepare_close(&mut self) -> Result<GridFsPreparedFile, Error> {
        let file = self.shared.wait(self.stream.prepare_close())?;
        Ok(GridFsPreparedFile { file, shared: self.shared.clone() })
    }

    /// Gives the file up, and removes the chunks that were stored.
    ///
    /// # Errors
    ///
    /// Fails if the file is stored already, and if its chunks cannot be removed.
    pub fn abort(&mut self) -> Result<(), Error> {
        self.shared.wait(self.stream.abort())
    }

    fn wait_write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.shared.wait(self.stream.write_all(bytes))
    }
}

impl Write for GridFsUploadStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = &mut self.stream;
        let writing = std::future::poll_fn(|cx| {
            futures_io::AsyncWrite::poll_write(Pin::new(&mut *stream), cx, bytes)
        });
        self.shared.wait(writing)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file without its document, which a transaction stores: see
/// [`GridFsPreparedFile`](crate::generic::GridFsPreparedFile) of futures.
#[derive(Debug)]
pub struct GridFsPreparedFile {
    file: Prepared<Blocking>,
    shared: Shared,
}

impl GridFsPreparedFile {
    /// Returns the `_id` of the file.
    pub const fn id(&self) -> &Bson {
        self.file.id()
    }

    /// Returns the length of the file in bytes.
    pub const fn length(&self) -> u64 {
        self.file.length()
    }

    /// Stores the document of the file in the transaction of a session: the file is there once that
    /// is committed. A transaction that is run again calls it again.
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub fn store_in(&self, session: &ClientSession) -> Result<(), Error> {
        self.shared.wait(self.file.store_in(session.session()))
    }

    /// Gives the file up, and removes its chunks: for a transaction of which it is certain that it
    /// was not committed.
    ///
    /// # Errors
    ///
    /// Fails if the file is stored already, and if its chunks cannot be removed.
    pub fn abort(&self) -> Result<(), Error> {
        self.shared.wait(self.file.abort())
    }
}

/// The reading of a file, as a [`Read`] and a [`Seek`]: see
/// [`GridFsDownloadStream`](crate::generic::GridFsDownloadStream) of futures.
#[derive(Debug)]
pub struct GridFsDownloadStream {
    stream: Downloading<Blocking>,
    shared: Shared,
}

impl GridFsDownloadStream {
    /// Returns the `_id` of the file.
    pub const fn id(&self) -> &Bson {
        self.stream.id()
    }

    /// Returns the length of the file in bytes.
    pub const fn length(&self) -> u64 {
        self.stream.length()
    }

    /// Returns the number of bytes that were handed out so far.
    pub const fn bytes_done(&self) -> u64 {
        self.stream.bytes_done()
    }

    /// Reads the document of the file.
    ///
    /// # Errors
    ///
    /// Fails if one of its fields is of another type.
    pub fn document(&self) -> Result<FilesCollectionDocument, Error> {
        self.stream.document()
    }

    /// Returns the next bytes, those of a chunk at most; `None` at the end.
    ///
    /// # Errors
    ///
    /// Fails if a chunk is missing, or is not what it should be; if no server answers in time, or
    /// with an error.
    pub fn try_next(&mut self) -> Result<Option<Bytes>, Error> {
        self.shared.wait(self.stream.try_next())
    }
}

impl Read for GridFsDownloadStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let stream = &mut self.stream;
        let reading = std::future::poll_fn(|cx| {
            futures_io::AsyncRead::poll_read(Pin::new(&mut *stream), cx, buffer)
        });
        self.shared.wait(reading)
    }
}

impl Seek for GridFsDownloadStream {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.stream.seek_to(to)
    }
}
