//! Buckets.
//!
//! Implements "Configurable GridFSBucket class" of GridFS.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam_core::config::{ReadConcern, ReadMode, ReadPreference, WriteConcern};
use sdam_host::driver::DriverTopology as _;
use sdam_host::{ClientSession, Runtime};

use super::operations::{
    DownloadToWriter, OpenDownloadStream, OpenUploadStream, UploadFromReader, actions_of_buckets,
};
use super::perform::PerformInBucket;
use crate::command::action::{Action, PerformsActions, sealed};
use crate::command::find::{Find, FindOne};
use crate::command::insert::InsertOne;
use crate::command::views::{Many, One};
use crate::error::{Error, GridFsError, GridFsErrorKind, GridFsFileIdentifier};
use crate::files::{FilesCollectionDocument, Upload};
use crate::handle::awaiting::{ActionFuture, Async, Place};
use crate::handle::collection::Collection;
use crate::handle::options::DatabaseOptions;
use crate::handle::perform::Handle;

/// The length of a chunk, in bytes, unless the options say otherwise.
const CHUNK_SIZE: u32 = 255 * 1024;

/// The options of a bucket, where they are not those of its database.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GridFsBucketOptions {
    /// Sets the name, which stands before those of its collections; `fs` unless it is set.
    pub bucket_name: Option<String>,
    /// Sets the length of the chunks of new files, in bytes; 255 KiB unless it is set.
    pub chunk_size_bytes: Option<u32>,
    /// Sets under which condition writes succeed.
    pub write_concern: Option<WriteConcern>,
    /// Sets which data reads see.
    pub read_concern: Option<ReadConcern>,
    /// Sets which servers reads may use.
    pub read_preference: Option<ReadPreference>,
    /// Sets `timeoutMS` of each operation, and of each stream as a whole; zero lifts the limit.
    pub timeout: Option<Duration>,
}

impl GridFsBucketOptions {
    /// Starts with nothing set.
    pub fn builder() -> GridFsBucketOptionsBuilder {
        GridFsBucketOptionsBuilder::default()
    }

    pub(crate) fn split(self) -> (Option<String>, Option<u32>, DatabaseOptions) {
        let concerns = DatabaseOptions {
            read_preference: self.read_preference,
            read_concern: self.read_concern,
            write_concern: self.write_concern,
            timeout: self.timeout,
        };
        (self.bucket_name, self.chunk_size_bytes, concerns)
    }
}

/// Options of a bucket while they are set.
#[derive(Clone, Debug, Default)]
pub struct GridFsBucketOptionsBuilder(GridFsBucketOptions);

impl GridFsBucketOptionsBuilder {
    /// Sets the name, which stands before those of its collections.
    #[must_use]
    pub fn bucket_name(mut self, name: impl Into<Option<String>>) -> Self {
        self.0.bucket_name = name.into();
        self
    }

    /// Sets the length of the chunks of new files, in bytes.
    #[must_use]
    pub fn chunk_size_bytes(mut self, size: impl Into<Option<u32>>) -> Self {
        self.0.chunk_size_bytes = size.into();
        self
    }

    /// Sets under which condition writes succeed.
    #[must_use]
    pub fn write_concern(mut self, concern: impl Into<Option<WriteConcern>>) -> Self {
        self.0.write_concern = concern.into();
        self
    }

    /// Sets which data reads see.
    #[must_use]
    pub fn read_concern(mut self, concern: impl Into<Option<ReadConcern>>) -> Self {
        self.0.read_concern = concern.into();
        self
    }

    /// Sets which servers reads may use.
    #[must_use]
    pub fn read_preference(mut self, preference: impl Into<Option<ReadPreference>>) -> Self {
        self.0.read_preference = preference.into();
        self
    }

    /// Sets `timeoutMS` of each operation, and of each stream as a whole; zero lifts the limit.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.0.timeout = timeout.into();
        self
    }

    /// Returns the options.
    pub fn build(self) -> GridFsBucketOptions {
        self.0
    }
}

/// The part of a bucket that all its handles share.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) database: Arc<str>,
    pub(super) files: Arc<str>,
    pub(super) chunks: Arc<str>,
    /// The database and the name of the bucket, for errors.
    namespace: String,
    pub(super) chunk_size: u32,
    /// True once the indexes are known to be there, or not to be made.
    is_prepared: AtomicBool,
}

impl Parts {
    pub(crate) fn new(database: &Arc<str>, name: Option<&str>, chunk_size: Option<u32>) -> Self {
        let name = name.unwrap_or("fs");
        Self {
            database: Arc::clone(database),
            files: format!("{name}.files").into(),
            chunks: format!("{name}.chunks").into(),
            namespace: format!("{database}.{name}"),
            chunk_size: chunk_size.unwrap_or(CHUNK_SIZE),
            is_prepared: AtomicBool::new(false),
        }
    }

    pub(crate) const fn files(&self) -> Place<'_> {
        Place::Collection(&self.database, &self.files)
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.is_prepared.load(Ordering::Acquire)
    }

    /// Takes note of whether the indexes are known to be there.
    pub(super) fn set_prepared(&self, is_prepared: bool) {
        self.is_prepared.store(is_prepared, Ordering::Release);
    }
}

/// A bucket of GridFS: it stores files of any length as chunks.
///
/// Each method makes an [`Action`], which has a method for each option, and is performed when it is
/// awaited. `timeoutMS` is the limit of all commands of an action together, and of a stream from
/// its opening to its end.
///
/// Clones and handles with other concerns share servers and connections, and what is known of the
/// indexes: before the first upload, an empty bucket is given those that it needs.
pub struct GridFsBucket<R: Runtime> {
    pub(super) handle: Handle<R>,
    pub(super) parts: Arc<Parts>,
}

impl<R: Runtime> GridFsBucket<R> {
    pub(crate) const fn new(handle: Handle<R>, parts: Arc<Parts>) -> Self {
        Self { handle, parts }
    }

    concerns!(handle, ClientSession<R>);

    actions_of_buckets!(InBucket<'_, R>);

    /// Uploads what a reader has, to its end, and returns the `_id` of the file.
    ///
    /// `timeoutMS` does not interrupt a reader that waits: it is looked at between its pieces. A
    /// file of tokio is stored by `tokio::io::copy` into an
    /// [upload stream](Self::open_upload_stream).
    ///
    /// Options: those of [`open_upload_stream`](Self::open_upload_stream).
    ///
    /// # Errors
    ///
    /// Fails as the streams do. If the reader fails, the upload is aborted, and the error is that
    /// of the reader.
    pub fn upload_from_reader<S>(
        &self,
        filename: impl Into<String>,
        reader: S,
    ) -> Action<UploadFromReader<S>, InBucket<'_, R>>
    where
        S: futures_io::AsyncRead + Unpin + Send,
    {
        let upload = OpenUploadStream::new(filename.into());
        self.act(UploadFromReader { upload, reader })
    }

    /// Downloads a file into a writer, which is flushed and not closed, and returns the number of
    /// bytes.
    ///
    /// `timeoutMS` does not interrupt a writer that waits. Into a file of tokio, `tokio::io::copy`
    /// copies a [download stream](Self::open_download_stream).
    ///
    /// Options: those of [`open_download_stream`](Self::open_download_stream).
    ///
    /// # Errors
    ///
    /// Fails as the streams do, and as the writer does.
    pub fn download_to_writer<D>(
        &self,
        id: impl Into<Bson>,
        writer: D,
    ) -> Action<DownloadToWriter<D>, InBucket<'_, R>>
    where
        D: futures_io::AsyncWrite + Unpin + Send,
    {
        let download = OpenDownloadStream::of_id(id.into());
        self.act(DownloadToWriter { download, writer })
    }

    /// As [`download_to_writer`](Self::download_to_writer), a file by its name: the newest of those
    /// that have it, unless `revision` says otherwise.
    ///
    /// # Errors
    ///
    /// Fails as [`download_to_writer`](Self::download_to_writer) does.
    pub fn download_to_writer_by_name<D>(
        &self,
        filename: impl Into<String>,
        writer: D,
    ) -> Action<DownloadToWriter<D>, InBucket<'_, R>>
    where
        D: futures_io::AsyncWrite + Unpin + Send,
    {
        let download = OpenDownloadStream::of_name(filename.into());
        self.act(DownloadToWriter { download, writer })
    }

    /// Looks for the documents of files.
    ///
    /// A filter is about the fields of [`FilesCollectionDocument`], such as `filename`, and
    /// `metadata.owner` for a field of the metadata.
    ///
    /// Options: those of [`Find`].
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub fn find(
        &self,
        filter: impl Into<Find>,
    ) -> Action<Find, Async<'_, R>, Many<FilesCollectionDocument>> {
        Action::new(filter.into(), Async::new(&self.handle, self.parts.files()))
    }

    /// Looks for the document of a file; returns `None` if there is none.
    ///
    /// Options: those of [`FindOne`].
    ///
    /// # Errors
    ///
    /// Fails if no server answers in time, or with an error.
    pub fn find_one(
        &self,
        filter: impl Into<FindOne>,
    ) -> Action<FindOne, Async<'_, R>, One<FilesCollectionDocument>> {
        Action::new(filter.into(), Async::new(&self.handle, self.parts.files()))
    }

    /// Returns the same bucket, all of whose operations share the time of one.
    ///
    /// # Errors
    ///
    /// Fails if its session belongs to a transaction that has a limit of its own.
    pub(crate) fn limited(&self) -> Result<Self, Error> {
        Ok(self.over(self.handle.limited()?))
    }

    /// Returns the collection of the documents of files.
    pub(super) fn files(&self) -> Collection<R, Document> {
        let database = Arc::clone(&self.parts.database);
        Collection::new(self.handle.clone(), database, &self.parts.files)
    }

    /// Returns the collection of chunks.
    pub(super) fn chunks(&self) -> Collection<R, Document> {
        let database = Arc::clone(&self.parts.database);
        Collection::new(self.handle.clone(), database, &self.parts.chunks)
    }

    /// Returns whether the document of a file is there, at the primary, replicated or not.
    pub(super) async fn has_file(&self, id: &Bson) -> Result<bool, Error> {
        self.has_file_with(doc! { "_id": { "$eq": id.clone() } }).await
    }

    /// Returns whether the document of a file is there that has a byte at least, and so chunks.
    pub(super) async fn has_file_with_chunks(&self, id: &Bson) -> Result<bool, Error> {
        self.has_file_with(doc! { "_id": { "$eq": id.clone() }, "length": { "$ne": 0 } }).await
    }

    async fn has_file_with(&self, filter: Document) -> Result<bool, Error> {
        let files = self.files().with_read_concern(ReadConcern::local());
        let file = files.find_one(filter);
        let primary = ReadPreference::new(ReadMode::Primary);
        Ok(file.read_preference(primary).await?.is_some())
    }

    /// Returns the `_id` of a file's first chunk, at the primary, replicated or not.
    pub(super) async fn first_chunk(&self, id: &Bson) -> Result<Option<Bson>, Error> {
        let chunks = self.chunks().with_read_concern(ReadConcern::local());
        let first = chunks.find_one(doc! { "files_id": { "$eq": id.clone() }, "n": 0 });
        let first = first.projection(doc! { "_id": 1 });
        let found = first.read_preference(ReadPreference::new(ReadMode::Primary)).await?;
        Ok(found.and_then(|mut chunk| chunk.remove("_id")))
    }

    /// Stores the document of a file: "the datetime when the upload completed".
    pub(super) async fn insert_file(&self, upload: &Upload) -> Result<(), Error> {
        let document = upload.files_document(self.handle.client.wall_clock());
        let scope = self.handle.scope(&self.parts.database, &self.parts.files)?;
        self.handle.run(&scope, &mut InsertOne::new(&document)).await.map(drop)
    }

    /// Removes the chunks of a file.
    pub(super) async fn delete_chunks(&self, id: &Bson) -> Result<(), Error> {
        self.chunks().delete_many(doc! { "files_id": { "$eq": id.clone() } }).await.map(drop)
    }

    /// Says what is wrong with a file.
    pub(super) fn error(&self, file: GridFsFileIdentifier, kind: GridFsErrorKind) -> Error {
        GridFsError::new(&self.parts.namespace, file, kind).into()
    }

    /// Says what is wrong with the file that has this `_id`.
    pub(super) fn error_of(&self, id: &Bson, kind: GridFsErrorKind) -> Error {
        self.error(GridFsFileIdentifier::Id(id.clone()), kind)
    }

    pub(super) fn over(&self, handle: Handle<R>) -> Self {
        Self { handle, parts: Arc::clone(&self.parts) }
    }

    fn act<O>(&self, operation: O) -> Action<O, InBucket<'_, R>> {
        Action::new(operation, InBucket { bucket: Cow::Borrowed(self) })
    }
}

/// The bucket of actions that are awaited.
#[derive(Clone, Debug)]
pub struct InBucket<'a, R: Runtime> {
    bucket: Cow<'a, GridFsBucket<R>>,
}

impl<R: Runtime> InBucket<'_, R> {
    fn with(self, change: impl FnOnce(&Handle<R>) -> Handle<R>) -> Self {
        let handle = change(&self.bucket.handle);
        Self { bucket: Cow::Owned(self.bucket.over(handle)) }
    }
}

impl<R: Runtime> PerformsActions for InBucket<'_, R> {
    type Session = ClientSession<R>;
}

impl<R: Runtime> sealed::Changes<ClientSession<R>> for InBucket<'_, R> {
    fn with_session(self, session: &ClientSession<R>) -> Self {
        self.with(|handle| handle.with_session(session))
    }

    fn with_read_preference(self, preference: ReadPreference) -> Self {
        self.with(|handle| handle.with(|concerns| concerns.read_preference = preference))
    }

    fn with_read_concern(self, concern: ReadConcern) -> Self {
        self.with(|handle| handle.with(|concerns| concerns.read_concern = concern))
    }

    fn with_write_concern(self, concern: WriteConcern) -> Self {
        self.with(|handle| handle.with(|concerns| concerns.write_concern = concern))
    }

    fn with_timeout(self, timeout: Duration) -> Self {
        self.with(|handle| {
            handle.with(|concerns| {
                concerns.timeout = Some(timeout);
                concerns.of_action.timeout = true;
            })
        })
    }
}

impl<'a, O, R> IntoFuture for Action<O, InBucket<'a, R>>
where
    O: PerformInBucket + 'a,
    R: Runtime,
{
    type Output = Result<O::Returned<R>, Error>;
    type IntoFuture = ActionFuture<'a, O::Returned<R>>;

    fn into_future(self) -> Self::IntoFuture {
        let (operation, on) = self.parts();
        Box::pin(async move { operation.perform(on.bucket.limited()?).await })
    }
}

impl<R: Runtime> Clone for GridFsBucket<R> {
    fn clone(&self) -> Self {
        self.over(self.handle.clone())
    }
}

impl<R: Runtime> std::fmt::Debug for GridFsBucket<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GridFsBucket")
            .field("namespace", &self.parts.namespace)
            .finish_non_exhaustive()
    }
}
