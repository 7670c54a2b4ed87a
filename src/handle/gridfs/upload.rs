//! The stream that stores a file.
//!
//! Implements "File Upload" of GridFS.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, doc};
use sdam_core::config::{ReadConcern, ReadMode, ReadPreference};
use sdam_core::pool::CheckOutError;
use sdam_core::session::TransactionState;
use sdam_host::driver::DriverTopology as _;
use sdam_host::{ClientSession, Runtime};

use super::bucket::GridFsBucket;
use super::operations::{OpenUploadStream, ResumeUploadStream};
use super::prepared::GridFsPreparedFile;
use super::remains::Remains;
use crate::command::insert::InsertMany;
use crate::error::{Error, GridFsErrorKind};
use crate::files::{Batch, Upload, UploadCheckpoint};
use crate::handle::fetching::{Fetching, unless};
use crate::handle::perform::Handle;

/// The time in which a task removes the chunks of an upload that was dropped, or brings to its end
/// what was begun.
const GRACE: Duration = Duration::from_secs(10);

/// Work that a task goes on with.
type Work = Fetching<Result<(), Error>>;

/// The writing of a file: it takes bytes, and sends batches of chunks meanwhile. The file is there
/// once it is [closed](Self::close).
///
/// It is an `AsyncWrite` of futures and of tokio; flushing it waits for nothing, as no part of a
/// file can be read before the whole is there. It has the batches in memory that are under way, two
/// of 2 MiB unless `in_flight` says otherwise, and one that is being filled.
///
/// Dropping one that was not closed removes its chunks in the background, unless it belongs to a
/// transaction, which is to be aborted then. After an error, what was stored is left where it is
/// (GridFS, "Operation Failure"), and [`abort`](Self::abort) removes it.
///
/// An upload that another process may have to go on with keeps its [`checkpoint`](Self::checkpoint)
/// somewhere, or [suspends](Self::suspend) it. A file that belongs to what a transaction writes is
/// [prepared](Self::prepare_close) and stored in it: it is there with that, or not at all.
///
/// `timeoutMS` counts from its opening to its end.
pub struct GridFsUploadStream<R: Runtime> {
    bucket: GridFsBucket<R>,
    upload: Upload,
    phase: Phase,
    /// The batches that are being inserted.
    flights: VecDeque<Flight>,
    /// The number of those that there may be.
    in_flight: usize,
    preparing: Option<Work>,
    /// True once a batch was sent.
    has_sent: bool,
    bytes_done: u64,
    /// The place behind the last byte that was sent; after an error, that of the first byte that
    /// may not be stored.
    sent: u64,
    /// True if the chunks are to be there for another stream.
    is_kept: bool,
    /// True if a transaction was under way when it was opened.
    is_in_transaction: bool,
    /// True if another upload may have this `_id`, which the application has chosen.
    may_be_shared: bool,
    /// True if a file of this `_id` may be there: another one may, or the document was sent.
    may_be_stored: bool,
    /// True if another upload has chunks of the same numbers.
    is_contested: bool,
}

/// A batch that is being inserted.
struct Flight {
    /// The place of its first byte.
    start: u64,
    bytes: u64,
    work: Work,
}

/// The thing that a stream does.
enum Phase {
    /// It takes bytes.
    Open,
    /// It sends what is left.
    Closing,
    /// It inserts the document of the file.
    Storing(Work),
    /// The file is there.
    Closed,
    /// A command has failed.
    Failed,
    /// It removes the chunks.
    Aborting(Work),
    /// There is no file.
    Aborted,
    /// Another stream goes on with the file, or a transaction stores it.
    Left,
}

impl<R: Runtime> GridFsUploadStream<R> {
    pub(super) fn open(bucket: GridFsBucket<R>, open: OpenUploadStream) -> Result<Self, Error> {
        let OpenUploadStream { filename, id, chunk_size_bytes, metadata, in_flight } = open;
        let is_chosen = id.is_some();
        let id = id.unwrap_or_else(|| ObjectId::new().into());
        let chunk_size = chunk_size_bytes.unwrap_or(bucket.parts.chunk_size);
        let upload = Upload::new(id.clone(), filename, metadata)?;
        let upload = upload.with_chunk_size(chunk_size);
        let upload = upload.map_err(|kind| bucket.error_of(&id, kind))?;
        let mut stream = Self::of(bucket, upload, in_flight);
        (stream.may_be_shared, stream.may_be_stored) = (is_chosen, is_chosen);
        Ok(stream)
    }

    /// Goes on with a file whose chunks are there up to the checkpoint.
    pub(super) async fn resume(
        bucket: GridFsBucket<R>,
        resume: ResumeUploadStream,
    ) -> Result<Self, Error> {
        let ResumeUploadStream { checkpoint, in_flight } = resume;
        let (id, chunks) = (checkpoint.id().clone(), checkpoint.chunks());
        let own = checkpoint.first_chunk().map(Bson::ObjectId);
        let upload = Upload::resume(checkpoint)?.map_err(|kind| bucket.error_of(&id, kind))?;
        let primary = ReadPreference::new(ReadMode::Primary);
        let of_file = |range| doc! { "files_id": { "$eq": id.clone() }, "n": range };
        // Also what is acknowledged and not replicated yet.
        let stored = bucket.chunks().with_read_concern(ReadConcern::local());
        let first = bucket.first_chunk(&id).await?;
        let is_own = first == own;
        if bucket.has_file(&id).await? {
            use GridFsErrorKind::{AlreadyStored, NotResumable};
            // An empty file is another one's if this upload has made a chunk.
            let is_stored = is_own && (own.is_none() || bucket.has_file_with_chunks(&id).await?);
            let kind = if is_stored { AlreadyStored } else { NotResumable };
            return Err(bucket.error_of(&id, kind));
        }
        let count = stored.count_documents(of_file(doc! { "$lt": chunks }));
        let count = count.read_preference(primary).await?;
        if count != u64::from(chunks) || first.is_some() && !is_own {
            return Err(bucket.error_of(&id, GridFsErrorKind::NotResumable));
        }
        if first.is_some() {
            stored.delete_many(of_file(doc! { "$gte": chunks })).await?;
        }
        let (bytes, mut stream) = (upload.length(), Self::of(bucket, upload, in_flight));
        (stream.bytes_done, stream.sent) = (bytes, bytes);
        (stream.is_kept, stream.may_be_shared, stream.may_be_stored) = (true, true, true);
        Ok(stream)
    }

    fn of(bucket: GridFsBucket<R>, upload: Upload, in_flight: usize) -> Self {
        // Its commands come one after another, and none while the application uses it.
        let in_flight = if bucket.handle.session.is_some() { 1 } else { in_flight };
        let session = bucket.handle.session.as_ref();
        let is_in_transaction = session.is_some_and(|it| is_in_transaction(it).unwrap_or(true));
        Self {
            bucket,
            upload,
            phase: Phase::Open,
            flights: VecDeque::new(),
            in_flight,
            preparing: None,
            has_sent: false,
            bytes_done: 0,
            sent: 0,
            is_kept: false,
            is_in_transaction,
            may_be_shared: false,
            may_be_stored: false,
            is_contested: false,
        }
    }

    /// Returns the `_id` of the file.
    pub const fn id(&self) -> &Bson {
        self.upload.id()
    }

    /// Returns the number of bytes that servers have acknowledged so far.
    pub const fn bytes_done(&self) -> u64 {
        self.bytes_done
    }

    /// Returns the number of bytes that were written so far.
    pub const fn bytes_written(&self) -> u64 {
        self.upload.length()
    }

    /// Takes all these bytes, and sends batches meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the stream was closed or aborted, and if a batch cannot be stored.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut left = bytes;
        while !left.is_empty() {
            let count = poll_fn(|cx| self.poll_bytes(cx, left)).await?;
            left = &left[count..];
        }
        Ok(())
    }

    /// Returns the place that another stream can go on from: chunks behind it are stored again.
    ///
    /// From now on, dropping this stream leaves its chunks where they are.
    pub fn checkpoint(&mut self) -> UploadCheckpoint {
        self.is_kept = true;
        let stored = self.flights.front().map_or(self.sent, |flight| flight.start.min(self.sent));
        self.upload.checkpoint(stored)
    }

    /// Waits for the batches under way, ends the stream, and returns the place that another one can
    /// go on from: none of its batches comes any more.
    ///
    /// # Errors
    ///
    /// Fails if the stream was closed or aborted, and if a batch cannot be stored; then there is
    /// the [checkpoint](Self::checkpoint).
    pub async fn suspend(&mut self) -> Result<UploadCheckpoint, Error> {
        self.is_kept = true;
        poll_fn(|cx| match self.phase {
            Phase::Open | Phase::Closing => {
                self.land(cx)?;
                if self.flights.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
            }
            _ => Poll::Ready(Err(self.ended())),
        })
        .await?;
        self.phase = Phase::Left;
        Ok(self.checkpoint())
    }

    /// Sends what is left, ends the stream, and returns the file without its document, which a
    /// transaction [stores](GridFsPreparedFile::store_in): the file is there with its commit. The
    /// chunks are outside of the transaction, whatever their number.
    ///
    /// # Errors
    ///
    /// Fails if the stream was closed or aborted, and if a batch cannot be stored.
    pub async fn prepare_close(&mut self) -> Result<GridFsPreparedFile<R>, Error> {
        poll_fn(|cx| self.poll_chunks(cx)).await?;
        self.phase = Phase::Left;
        let remains = Remains { may_be_stored: true, ..self.remains() };
        Ok(GridFsPreparedFile::new(self.bucket.clone(), self.upload.clone(), remains))
    }

    /// Sends what is left, and stores the document of the file; once this has succeeded, another
    /// call does nothing.
    ///
    /// # Errors
    ///
    /// Fails if the stream was aborted, and if a batch or the document cannot be stored.
    pub async fn close(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_end(cx)).await
    }

    /// Gives the file up, and removes the chunks that were stored.
    ///
    /// # Errors
    ///
    /// Fails if the file is stored already, or another one with the same `_id` that has content is,
    /// or is being stored; if a transaction or another stream has it; and if its chunks cannot be
    /// removed.
    pub async fn abort(&mut self) -> Result<(), Error> {
        if matches!(self.phase, Phase::Storing(_)) {
            // A call that was given up has begun it.
            let _ = self.close().await;
        }
        if let Phase::Open | Phase::Closing | Phase::Failed = self.phase {
            let (bucket, remains) = (self.bucket.clone(), self.remains());
            let flights = std::mem::take(&mut self.flights);
            let removal = async move {
                let is_contested = landed(flights).await | remains.is_contested;
                Remains { is_contested, ..remains }.remove(&bucket).await
            };
            self.phase = Phase::Aborting(self.begin(removal));
        }
        poll_fn(|cx| match &mut self.phase {
            Phase::Aborting(work) => {
                let aborted = ready!(work.poll(cx));
                // Another call is refused for the same.
                self.is_contested |= aborted.as_ref().is_err_and(|it| it.as_grid_fs().is_some());
                self.phase = if aborted.is_ok() { Phase::Aborted } else { Phase::Failed };
                Poll::Ready(aborted)
            }
            Phase::Aborted => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(self.ended())),
        })
        .await
    }

    /// Takes bytes as soon as there is room, and returns how many.
    pub(super) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        if !matches!(self.phase, Phase::Open) {
            return Poll::Ready(Err(self.ended()));
        }
        self.land(cx)?;
        if self.upload.is_full() {
            ready!(self.poll_send(cx))?;
        }
        let is_alone = self.bucket.handle.session.is_some();
        if is_alone && !self.flights.is_empty() {
            self.land(cx)?;
            if !self.flights.is_empty() {
                return Poll::Pending;
            }
        }
        let taken = self.upload.write(bytes);
        let count = taken.map_err(|kind| {
            self.phase = Phase::Failed;
            self.bucket.error_of(self.upload.id(), kind)
        })?;
        if self.upload.is_full() && !is_alone {
            // What has to wait is sent by the next call.
            if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(count))
    }

    /// Goes on with the end of the file.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            match &mut self.phase {
                Phase::Storing(work) => {
                    let stored = ready!(work.poll(cx));
                    self.phase = if stored.is_ok() { Phase::Closed } else { Phase::Failed };
                    return Poll::Ready(stored);
                }
                Phase::Closed => return Poll::Ready(Ok(())),
                _ => {
                    ready!(self.poll_chunks(cx))?;
                    self.phase = Phase::Storing(self.store());
                }
            }
        }
    }

    /// Sends all chunks that are left, and waits for those that are under way.
    fn poll_chunks(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.phase {
            Phase::Open => {
                self.upload.finish();
                self.phase = Phase::Closing;
            }
            Phase::Closing => {}
            _ => return Poll::Ready(Err(self.ended())),
        }
        self.land(cx)?;
        ready!(self.poll_send(cx))?;
        self.land(cx)?;
        match self.flights.is_empty() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Sends the batch, once the indexes are there, and as soon as few enough are under way.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if !self.bucket.parts.is_prepared() {
            if self.preparing.is_none() {
                let bucket = self.bucket.clone();
                self.preparing = Some(self.begin(async move { bucket.prepare().await }));
            }
            if let Some(work) = &mut self.preparing {
                let prepared = ready!(work.poll(cx));
                self.preparing = None;
                self.judge(prepared)?;
            }
        }
        // The first batch meets the chunks of another file with this `_id`: none goes beside it.
        let is_first = self.may_be_stored && self.bytes_done == 0;
        let most = if is_first { 1 } else { self.in_flight };
        if self.flights.len() >= most {
            return Poll::Pending;
        }
        if let Some(Batch { documents, bytes }) = self.upload.take_batch() {
            let (bucket, mut insert) = (self.bucket.clone(), InsertMany::of(documents));
            let work = self.begin(async move {
                let parts = &bucket.parts;
                let scope = bucket.handle.scope(&parts.database, &parts.chunks)?;
                bucket.handle.run(&scope, &mut insert).await.map(drop)
            });
            self.flights.push_back(Flight { start: self.sent, bytes, work });
            self.sent += bytes;
            self.has_sent = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes note of the batches that were inserted, and fails with the first that was not.
    fn land(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let mut failed = Ok(());
        self.flights.retain_mut(|flight| match flight.work.poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => {
                self.bytes_done += flight.bytes;
                false
            }
            Poll::Ready(Err(error)) => {
                self.sent = self.sent.min(flight.start);
                self.is_contested |= error.is_duplicate_key();
                if failed.is_ok() {
                    failed = Err(error);
                }
                false
            }
        });
        self.judge(failed)
    }

    /// Has the stream end with an error: "drivers MUST raise an error", and not "attempt to clean
    /// up these orphaned chunks".
    fn judge(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        if outcome.is_err() {
            self.phase = Phase::Failed;
        }
        outcome
    }

    /// Stores the document of the file: "the datetime when the upload completed".
    fn store(&mut self) -> Work {
        self.may_be_stored = true;
        let (bucket, upload) = (self.bucket.clone(), self.upload.clone());
        self.begin(async move { bucket.insert_file(&upload).await })
    }

    /// Returns what is to be removed once none of its batches is under way any more.
    fn remains(&self) -> Remains {
        Remains {
            id: self.upload.id().clone(),
            first_chunk: self.upload.first_chunk(),
            may_be_shared: self.may_be_shared,
            may_be_stored: self.may_be_stored,
            is_contested: self.is_contested,
        }
    }

    /// Has a task go on with something, so that it does not wait for the next call.
    fn begin(&self, work: impl Future<Output = Result<(), Error>> + Send + 'static) -> Work {
        let mut work = Fetching::begin(work);
        work.hand_over(&self.bucket.handle.client);
        work
    }

    fn ended(&self) -> Error {
        self.bucket.error_of(self.upload.id(), GridFsErrorKind::UploadEnded)
    }

    /// Removes the chunks in the background, unless they are to be there for another stream. In a
    /// transaction they are left to its end.
    fn remove_in_background(&mut self) {
        let Handle { client, concerns, session } = &self.bucket.handle;
        if self.is_kept {
            for flight in self.flights.drain(..) {
                flight.work.end_within(client, GRACE);
            }
            return;
        }
        // A batch under way has the session.
        let is_in_transaction =
            |session| is_in_transaction(session).unwrap_or(self.is_in_transaction);
        if !self.has_sent || session.as_ref().is_some_and(is_in_transaction) {
            return;
        }
        let (remains, flights) = (self.remains(), std::mem::take(&mut self.flights));
        let (parts, concerns) = (self.bucket.parts.clone(), concerns.clone());
        client.spawn(|client| async move {
            let late = client.sleep_until(client.now() + GRACE);
            let Some(is_contested) = unless(late, landed(flights)).await else { return };
            let remains = Remains { is_contested: is_contested | remains.is_contested, ..remains };
            let until = client.now() + GRACE;
            // The session may begin a transaction meanwhile.
            let handle = Handle { client: client.with_deadline(until), concerns, session: None };
            let bucket = GridFsBucket::new(handle.with(|concerns| concerns.timeout = None), parts);
            while let Err(error) = remains.remove(&bucket).await
                && is_check_out_timeout(&error)
                && client.now() < until
            {}
        });
    }
}

/// Returns whether a session is in a transaction; `None` if an operation uses it.
fn is_in_transaction<R: Runtime>(session: &ClientSession<R>) -> Option<bool> {
    use TransactionState::{InProgress, Starting};
    let state = session.transaction_state().ok()?;
    Some(matches!(state, Starting | InProgress))
}

/// Waits for the batches under way; returns true if one has met the chunks of another upload.
async fn landed(mut flights: VecDeque<Flight>) -> bool {
    let mut is_contested = false;
    for flight in &mut flights {
        let landed = poll_fn(|cx| flight.work.poll(cx)).await;
        is_contested |= landed.is_err_and(|error| error.is_duplicate_key());
    }
    is_contested
}

/// Returns whether an operation has waited for a connection, and has got none.
fn is_check_out_timeout(error: &Error) -> bool {
    matches!(error.as_check_out(), Some(CheckOutError::Timeout { waited, .. }) if !waited.is_zero())
}

impl<R: Runtime> Drop for GridFsUploadStream<R> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.phase, Phase::Aborted) {
            Phase::Open | Phase::Closing => self.remove_in_background(),
            Phase::Storing(work) | Phase::Aborting(work) => {
                work.end_within(&self.bucket.handle.client, GRACE);
            }
            Phase::Closed | Phase::Failed | Phase::Aborted | Phase::Left => {}
        }
    }
}

impl<R: Runtime> std::fmt::Debug for GridFsUploadStream<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GridFsUploadStream")
            .field("bytes_written", &self.bytes_written())
            .field("bytes_done", &self.bytes_done)
            .finish_non_exhaustive()
    }
}
