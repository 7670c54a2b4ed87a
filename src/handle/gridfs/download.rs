//! The stream that reads a file.
//!
//! Implements "File Download" and "File Download by Filename" of GridFS.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bson::{Bson, RawDocumentBuf, doc};
use bytes::Bytes;
use futures_core::Stream;
use sdam_host::Runtime;

use super::bucket::GridFsBucket;
use super::operations::{OpenDownloadStream, Wanted};

use crate::error::{Error, GridFsErrorKind, GridFsFileIdentifier};
use crate::files::{ChunkRange, Download, FilesCollectionDocument, FindChunks, StoredFile};
use crate::handle::fetching::Fetching;
use crate::reply::document::read_as;

/// The time in which a task brings to its end what is not read any more, so that its connection
/// comes back.
const GRACE: Duration = Duration::from_secs(10);

/// The chunks of a range, or what is wrong with them.
type Fetched = Result<Result<Vec<Bytes>, GridFsErrorKind>, Error>;

/// The reading of a file: it asks for ranges of chunks, checks each chunk, and hands the bytes out
/// where they lie in the server's replies.
///
/// It is an `AsyncRead` and `AsyncSeek` of futures and of tokio, and a [`Stream`] of [`Bytes`];
/// places are those of the file, also if only a part of it is read. While the file is read on, the
/// next ranges are asked for before they are needed: it has those in memory, two of 4 MiB unless
/// `in_flight` says otherwise, and the one that is read. A reader that goes elsewhere gets the
/// chunk that it needs, and more once it reads on.
///
/// After an error, another call asks again; a [`Stream`] ends with an error. `timeoutMS` counts
/// from its opening to its last byte.
pub struct GridFsDownloadStream<R: Runtime> {
    bucket: GridFsBucket<R>,
    document: RawDocumentBuf,
    id: Bson,
    download: Download,
    /// The ranges that are asked for.
    fetching: VecDeque<(ChunkRange, Fetching<Fetched>)>,
    in_flight: usize,
    bytes_done: u64,
    /// True once it has failed as a [`Stream`].
    has_failed: bool,
}

impl<R: Runtime> GridFsDownloadStream<R> {
    pub(super) async fn open(
        bucket: GridFsBucket<R>,
        open: OpenDownloadStream,
    ) -> Result<Self, Error> {
        let OpenDownloadStream { file, start, end, in_flight } = open;
        let (document, name) = match file {
            Wanted::Id(id) => (of_id(&bucket, &id).await?, GridFsFileIdentifier::Id(id)),
            Wanted::Name { filename, revision } => {
                let document = of_name(&bucket, &filename, revision).await?;
                (document, GridFsFileIdentifier::Filename(filename))
            }
        };
        let refused = |kind| bucket.error(name.clone(), kind);
        let file = StoredFile::read(&document).map_err(refused)?;
        let id = sdam_host::driver::documents::to_bson(file.id.as_raw_bson_ref())?;
        let mut download = Download::new(file);
        if start.is_some() || end.is_some() {
            download.limit(start, end).map_err(refused)?;
        }
        let fetching = VecDeque::new();
        let (bytes_done, has_failed) = (0, false);
        Ok(Self { bucket, document, id, download, fetching, in_flight, bytes_done, has_failed })
    }

    /// Returns the `_id` of the file.
    pub const fn id(&self) -> &Bson {
        &self.id
    }

    /// Returns the length of the file in bytes.
    pub const fn length(&self) -> u64 {
        self.download.file().length
    }

    /// Returns the number of bytes that were handed out so far.
    pub const fn bytes_done(&self) -> u64 {
        self.bytes_done
    }

    /// Reads the document of the file.
    ///
    /// # Errors
    ///
    /// Fails if one of its fields is of another type.
    pub fn document(&self) -> Result<FilesCollectionDocument, Error> {
        read_as(&self.document)
    }

    /// Returns the next bytes, those of a chunk at most; `None` at the end.
    ///
    /// # Errors
    ///
    /// Fails if a chunk is missing, or is not what it should be; if no server answers in time, or
    /// with an error.
    pub async fn try_next(&mut self) -> Result<Option<Bytes>, Error> {
        poll_fn(|cx| self.poll_next_bytes(cx)).await
    }

    /// Waits for bytes; those that are read are to be [consumed](Self::consume).
    pub(super) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Error>> {
        loop {
            self.ask();
            if let Some(bytes) = self.download.available() {
                return Poll::Ready(Ok(Some(bytes)));
            }
            // Behind the end, what is still under way is of no use.
            let next = self.fetching.front_mut().filter(|_| !self.download.is_at_end());
            let Some((range, work)) = next else { return Poll::Ready(Ok(None)) };
            let (range, fetched) = (*range, ready!(work.poll(cx)));
            self.fetching.pop_front();
            let chunks = fetched
                .and_then(|chunks| chunks.map_err(|kind| self.bucket.error_of(&self.id, kind)));
            match chunks {
                Ok(chunks) => self.download.take(range, chunks),
                Err(error) => {
                    self.forget();
                    self.download.begin_again();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// Takes note that so many bytes were read.
    pub(super) fn consume(&mut self, count: usize) {
        self.download.consume(count);
        self.bytes_done += count as u64;
    }

    /// Goes on at another place of the file.
    pub(crate) fn seek_to(&mut self, from: std::io::SeekFrom) -> std::io::Result<u64> {
        let length = self.length();
        let position = match from {
            std::io::SeekFrom::Start(place) => Some(place),
            std::io::SeekFrom::End(by) => length.checked_add_signed(by),
            std::io::SeekFrom::Current(by) => self.download.position().checked_add_signed(by),
        };
        let position = position.ok_or_else(|| {
            let reason = "a place before the beginning of a file, or behind what numbers can say";
            std::io::Error::new(std::io::ErrorKind::InvalidInput, reason)
        })?;
        if position != self.download.position() && !self.download.seek(position) {
            self.forget();
        }
        Ok(position)
    }

    pub(super) const fn position(&self) -> u64 {
        self.download.position()
    }

    fn poll_next_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        let bytes = ready!(self.poll_bytes(cx))?;
        if let Some(bytes) = &bytes {
            self.consume(bytes.len());
        }
        Poll::Ready(Ok(bytes))
    }

    /// Asks for the next range if it is needed, and for further ones while the file is read on. A
    /// session has one command at a time, and none that is not waited for.
    fn ask(&mut self) {
        if self.fetching.is_empty() && self.download.available().is_none() {
            self.fetch();
        }
        if self.bucket.handle.session.is_some() {
            return;
        }
        while self.download.reads_on() && self.fetching.len() < self.in_flight && self.fetch() {}
    }

    /// Asks for the next range; returns false if there is none.
    fn fetch(&mut self) -> bool {
        let Some(range) = self.download.next_range() else { return false };
        let mut find = FindChunks::new(self.download.file().clone(), range);
        let bucket = self.bucket.clone();
        let mut work = Fetching::begin(async move {
            let parts = &bucket.parts;
            let scope = bucket.handle.scope(&parts.database, &parts.chunks)?;
            Ok(bucket.handle.run(&scope, &mut find).await?.outcome)
        });
        work.hand_over(&self.bucket.handle.client);
        self.fetching.push_back((range, work));
        true
    }

    /// Leaves what is asked for to tasks.
    fn forget(&mut self) {
        for (_, work) in self.fetching.drain(..) {
            work.end_within(&self.bucket.handle.client, GRACE);
        }
    }
}

/// Reads the document of a file.
async fn of_id<R: Runtime>(bucket: &GridFsBucket<R>, id: &Bson) -> Result<RawDocumentBuf, Error> {
    let filter = doc! { "_id": { "$eq": id.clone() } };
    let found = bucket.files().clone_with_type().find_one(filter).await?;
    found.ok_or_else(|| bucket.error_of(id, GridFsErrorKind::FileNotFound))
}

/// Reads the document of a revision: "For negative revision numbers, the sort is descending and the
/// number of documents to skip equals (-revision - 1)."
async fn of_name<R: Runtime>(
    bucket: &GridFsBucket<R>,
    filename: &str,
    revision: i32,
) -> Result<RawDocumentBuf, Error> {
    let filter = || doc! { "filename": filename };
    let (order, skip) = match revision {
        0.. => (1, revision.unsigned_abs()),
        _ => (-1, revision.unsigned_abs() - 1),
    };
    let files = bucket.files().clone_with_type::<RawDocumentBuf>();
    let mut find = files.find_one(filter()).sort(doc! { "uploadDate": order });
    if skip > 0 {
        find = find.skip(skip.into());
    }
    if let Some(found) = find.await? {
        return Ok(found);
    }
    let has_other = skip > 0 && files.find_one(filter()).await?.is_some();
    let kind = match has_other {
        true => GridFsErrorKind::RevisionNotFound { revision },
        false => GridFsErrorKind::FileNotFound,
    };
    Err(bucket.error(GridFsFileIdentifier::Filename(filename.to_owned()), kind))
}

impl<R: Runtime> Stream for GridFsDownloadStream<R> {
    type Item = Result<Bytes, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.get_mut();
        if stream.has_failed {
            return Poll::Ready(None);
        }
        let next = ready!(stream.poll_next_bytes(cx));
        stream.has_failed = next.is_err();
        Poll::Ready(next.transpose())
    }
}

impl<R: Runtime> Drop for GridFsDownloadStream<R> {
    fn drop(&mut self) {
        self.forget();
    }
}

impl<R: Runtime> std::fmt::Debug for GridFsDownloadStream<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GridFsDownloadStream")
            .field("length", &self.length())
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}
