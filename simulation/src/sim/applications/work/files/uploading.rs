//! Uploads of files: by a stream or from a reader, and each end that they may come to.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bson::Bson;
use futures_io::{AsyncRead, AsyncWrite as _};
use sdam::error::{Error, GridFsErrorKind};
use sdam::generic::{GridFsPreparedFile, GridFsUploadStream};
use sdam::gridfs::UploadCheckpoint;
use sdam_core::bson;
use sdam_core::config::WriteConcern;
use sdam_core::operation::{TRANSIENT_TRANSACTION, UNKNOWN_COMMIT_RESULT};

use super::super::super::checks::{FailedAbort, Fate, Source};
use super::super::transactions::{Held, check_within};
use super::super::within::Patience;
use super::rivals::Rival;
use super::{Keeper, Terms, bucket, patience};
use crate::virtual_time::Runtime;

/// The length of a chunk, of which no two fit into a batch.
pub(super) const LARGE: u64 = 2 * 1024 * 1024;

/// The number of files of such chunks in a simulation.
pub(super) const MOST_LARGE: u32 = 6;

/// The number of streams that go on with an upload.
const LIVES: u32 = 5;

/// The number of times that a transaction is run.
const RUNS: u32 = 3;

type Stream = GridFsUploadStream<Runtime>;

type Prepared = GridFsPreparedFile<Runtime>;

/// The end that an upload is to come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Close,
    CloseInTransaction,
    Drop,
    Abort,
    /// Other streams go on with it.
    Resume,
    /// All chunks are stored, and removed.
    Prepare,
}

/// A file that is written.
pub(super) struct Writing {
    pub(super) number: usize,
    pub(super) source: Source,
    pub(super) name: String,
    /// The `_id`, if the application chooses it.
    pub(super) id: Option<Bson>,
    pub(super) in_flight: usize,
    pub(super) end: End,
    pub(super) timeout: Option<Duration>,
    /// True if it is read from a reader.
    pub(super) is_read: bool,
    /// True if it never becomes a file.
    pub(super) is_rival: bool,
}

/// A reader that has the bytes of a file, or a part of them before it fails.
struct Reader {
    source: Source,
    at: u64,
    at_once: u64,
    fails_at: Option<u64>,
    has_failed: Arc<AtomicBool>,
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.fails_at.is_some_and(|place| self.at >= place) {
            self.has_failed.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::Error::other("the reader has failed")));
        }
        let end = self.fails_at.unwrap_or(self.source.length);
        let most = self.at_once.min(buffer.len() as u64);
        let bytes = self.source.bytes(self.at, end.min(self.at + most));
        buffer[..bytes.len()].copy_from_slice(&bytes);
        self.at += bytes.len() as u64;
        Poll::Ready(Ok(bytes.len()))
    }
}

impl Keeper {
    /// Draws a file: one without bytes, one that its chunks fill exactly, one of several batches.
    fn draw_file(&mut self) -> Writing {
        let random = &mut self.application.random;
        let is_large = random.percent(8);
        let is_large = is_large && self.application.state().checks.files.takes_large(MOST_LARGE);
        let random = &mut self.application.random;
        let (chunk_size, most) = match is_large {
            true => (LARGE, 5),
            // Some are read by several searches at once.
            false => (random.pick(&[1, 7, 64, 1_000]), random.pick(&[12, 12, 40])),
        };
        let whole = random.below(most) * chunk_size;
        let length = match random.below(4) {
            0 => whole,
            _ => whole + random.below(chunk_size),
        };
        let source = Source { seed: random.bits(), length, chunk_size };
        let in_flight = random.pick(&[1, 2, 2, 3, 4]);
        let end = match random.below(100) {
            0..45 => End::Close,
            45..57 => End::CloseInTransaction,
            57..71 => End::Drop,
            71..84 => End::Abort,
            _ => End::Resume,
        };
        let timeout = random.percent(20).then(|| random.millis(300, 6_000));
        let is_read = random.percent(25);
        let chosen = is_read || random.percent(30);
        let (name, client) = (self.name(), self.application.number);
        let files = &mut self.application.state().checks.files;
        let number = files.begin(client, source, &name, in_flight);
        if timeout.is_some() {
            files.limits(number);
        }
        let id = chosen.then(|| Bson::Int64(i64::try_from(number).unwrap_or_default()));
        if let Some(id) = &id {
            files.is_named(number, id);
        }
        let is_rival = false;
        Writing { number, source, name, id, in_flight, end, timeout, is_read, is_rival }
    }

    /// Uploads a file, and sometimes another one under the same `_id`.
    pub(super) async fn upload(&mut self) {
        let writing = self.draw_file();
        match Rival::draw(self, &writing) {
            Some(rival) => rival.write_beside(self, writing).await,
            None => self.write(writing).await,
        }
    }

    /// Writes a file, by a stream or from a reader.
    pub(super) async fn write(&mut self, writing: Writing) {
        if writing.is_read {
            return self.upload_from_reader(writing).await;
        }
        let operation = self.application.begin(Terms::default());
        let bucket = self.limited(Terms { session: None, timeout: writing.timeout });
        let Writing { source, name, in_flight, id, .. } = &writing;
        let chunk_size = u32::try_from(source.chunk_size).unwrap_or(u32::MAX);
        let open = bucket.open_upload_stream(name).chunk_size_bytes(chunk_size);
        let open = open.in_flight(*in_flight);
        let opened = match id {
            Some(id) => open.id(id.clone()).await,
            None => open.await,
        };
        if let Ok(stream) = opened {
            if writing.id.is_none() {
                self.application.state().checks.files.is_named(writing.number, stream.id());
            }
            match writing.end {
                End::Resume => self.write_in_lives(stream, &writing).await,
                _ => self.write_once(stream, &writing).await,
            }
        }
        self.application.ended(operation, None);
        self.application.over(operation);
    }

    async fn upload_from_reader(&mut self, writing: Writing) {
        let Writing { number, source, name, in_flight, timeout, id, .. } = writing;
        let terms = Terms { session: None, timeout };
        let random = &mut self.application.random;
        let has_failed = Arc::new(AtomicBool::new(false));
        let fails_at = random.percent(25).then(|| random.below(source.length + 1));
        let at_once = 1 + source.length / (1 + random.below(10));
        let reader =
            Reader { source, at: 0, at_once, fails_at, has_failed: Arc::clone(&has_failed) };
        let patience = patience(random);
        {
            let files = &mut self.application.state().checks.files;
            if fails_at.is_none() {
                files.closes(number, false);
            }
            if fails_at.is_some() || !matches!(patience, Patience::Endless) {
                files.may_be_given_up(number);
            }
        }
        let chunk_size = u32::try_from(source.chunk_size).unwrap_or(u32::MAX);
        let bucket = self.limited(terms);
        let mut upload = bucket.upload_from_reader(name, reader).chunk_size_bytes(chunk_size);
        if let Some(id) = id {
            upload = upload.id(id);
        }
        let upload = upload.in_flight(in_flight);
        let (client, at) = (self.application.number, self.application.now());
        let run = self.application.run(terms, async |_| upload.await);
        let outcome = patience.with(&self.application.time, run).await;
        match outcome {
            Some(Ok(_)) => self.ends(number, Fate::Acknowledged),
            // Once its time is over, nothing is removed.
            Some(Err(_)) if has_failed.load(Ordering::Relaxed) && timeout.is_none() => {
                self.ends(number, Fate::Dropped { client, at });
            }
            Some(Err(_)) => self.is_in_doubt(number, Fate::Failed),
            None => {
                let at = self.application.now();
                self.is_in_doubt(number, Fate::Dropped { client, at });
            }
        }
    }

    fn ends(&self, number: usize, fate: Fate) {
        let finding = self.application.state().checks.files.ends(number, fate);
        self.judge(finding);
    }

    fn is_in_doubt(&self, number: usize, otherwise: Fate) {
        self.application.state().checks.files.ends_in_doubt(number, otherwise);
    }

    fn dropped(&self) -> Fate {
        Fate::Dropped { client: self.application.number, at: self.application.now() }
    }

    /// Writes a file, or a part of it, and brings it to its end.
    async fn write_once(&mut self, mut stream: Stream, writing: &Writing) {
        let Writing { number, source, end, .. } = writing;
        let is_whole = matches!(end, End::Close | End::CloseInTransaction | End::Prepare);
        let to = match is_whole || self.application.random.percent(30) {
            true => source.length,
            false => self.application.random.below(source.length + 1),
        };
        match self.fill(&mut stream, *source, (0, to)).await {
            None => self.ends(*number, self.dropped()),
            Some(Err(_)) => {
                self.ends(*number, Fate::Failed);
                if self.application.random.percent(60) {
                    self.abort(&mut stream, *number).await;
                }
            }
            Some(Ok(())) => match end {
                End::Prepare => self.prepare_and_abort(&mut stream, *number, false).await,
                End::Close => self.close(&mut stream, *number, false).await,
                End::CloseInTransaction => self.close_in_transaction(&mut stream, *number).await,
                End::Abort => self.abort(&mut stream, *number).await,
                End::Drop | End::Resume => self.ends(*number, self.dropped()),
            },
        }
    }

    /// Writes the bytes from one to before another; `None` if it is to be dropped before.
    async fn fill(
        &mut self,
        stream: &mut Stream,
        source: Source,
        (mut at, to): (u64, u64),
    ) -> Option<Result<(), Error>> {
        let least = 1 + (to - at) / 10;
        while at < to {
            let random = &mut self.application.random;
            let piece = random.pick(&[1, source.chunk_size, 3 * source.chunk_size, to]).max(least);
            let (by_trait, patience) = (random.percent(30), patience(random));
            let bytes = source.bytes(at, to.min(at + piece));
            let write = async {
                match by_trait {
                    true => write_by_trait(stream, &bytes).await,
                    false => stream.write_all(&bytes).await,
                }
            };
            match patience.with(&self.application.time, write).await? {
                Ok(()) => at += bytes.len() as u64,
                Err(error) => return Some(Err(error)),
            }
            if self.application.random.percent(25) {
                let pause = self.application.random.millis(0, 400);
                self.application.time.sleep(pause).await;
            }
        }
        Some(Ok(()))
    }

    /// Closes an upload, whose chunks are kept if another stream could go on with it.
    async fn close(&mut self, stream: &mut Stream, number: usize, is_kept: bool) {
        self.application.state().checks.files.closes(number, false);
        let random = &mut self.application.random;
        let (by_trait, patience) = (random.percent(30), patience(random));
        let close = async {
            match by_trait {
                true => {
                    poll_fn(|cx| Pin::new(&mut *stream).poll_close(cx)).await.map_err(Into::into)
                }
                false => stream.close().await,
            }
        };
        match patience.with(&self.application.time, close).await {
            Some(Ok(())) => {
                self.ends(number, Fate::Acknowledged);
                if self.application.random.percent(20)
                    && let Err(error) = stream.close().await
                {
                    let check = "another call of close does nothing";
                    let mut state = self.application.state();
                    state.fail(self.application.number, check, format!("{error:?}"));
                }
            }
            Some(Err::<(), Error>(_)) => {
                self.is_in_doubt(number, Fate::Failed);
                if self.application.random.percent(40) {
                    self.abort(stream, number).await;
                }
            }
            None if is_kept => self.is_in_doubt(number, Fate::Failed),
            None => self.is_in_doubt(number, self.dropped()),
        }
    }

    /// Aborts an upload; what was in doubt is certain if that has succeeded.
    async fn abort(&mut self, stream: &mut Stream, number: usize) {
        self.abort_by(stream.abort(), number).await;
    }

    async fn abort_by(&mut self, abort: impl Future<Output = Result<(), Error>>, number: usize) {
        let (patience, from) = (patience(&mut self.application.random), self.application.now());
        {
            let files = &mut self.application.state().checks.files;
            files.is_given_up(number, from);
            files.aborts(number);
        }
        let aborted = patience.with(&self.application.time, abort).await;
        if let Some(Ok(())) = aborted {
            return self.ends(number, Fate::Aborted);
        }
        self.is_in_doubt(number, Fate::Failed);
        if let Some(Err(error)) = aborted {
            let (client, to) = (self.application.number, self.application.now());
            let failed = FailedAbort::new((number, client), (from, to), &error);
            let finding = self.application.state().checks.files.fails_to_abort(failed);
            self.judge(finding);
        }
    }

    /// Stores all chunks of an upload, which are kept if another stream could go on with it, and
    /// removes them.
    async fn prepare_and_abort(&mut self, stream: &mut Stream, number: usize, is_kept: bool) {
        let patience = patience(&mut self.application.random);
        let prepared = patience.with(&self.application.time, stream.prepare_close()).await;
        let fate = if prepared.is_none() && !is_kept { self.dropped() } else { Fate::Failed };
        self.ends(number, fate);
        let pause = self.application.random.millis(0, 2_000);
        match prepared {
            Some(Ok(file)) if self.application.random.percent(80) => {
                self.application.time.sleep(pause).await;
                self.abort_by(file.abort(), number).await;
            }
            Some(Err(_)) if self.application.random.percent(60) => {
                self.abort(stream, number).await;
            }
            _ => {}
        }
    }

    /// Closes an upload in a transaction, and aborts it if that is certain to have come to nothing.
    async fn close_in_transaction(&mut self, stream: &mut Stream, number: usize) {
        let Some(held) = Held::start(&self.application).await else {
            return self.ends(number, self.dropped());
        };
        self.application.state().checks.files.closes(number, true);
        let Ok(file) = stream.prepare_close().await else {
            held.end(&self.application);
            self.ends(number, Fate::Failed);
            if self.application.random.percent(60) {
                self.abort(stream, number).await;
            }
            return;
        };
        let mut fate = Fate::Failed;
        for _ in 0..RUNS {
            let ending = held.begin_end(&self.application, true);
            let outcome = self.run_transaction(&file, &held).await;
            self.application.over(ending);
            match outcome {
                Ok(()) => fate = Fate::Acknowledged,
                Err(error) if error.has_label(UNKNOWN_COMMIT_RESULT) => fate = Fate::Unknown,
                Err(error) if error.has_label(TRANSIENT_TRANSACTION) => continue,
                Err(_) => {}
            }
            break;
        }
        held.end(&self.application);
        self.ends(number, fate);
        if fate == Fate::Failed && self.application.random.percent(60) {
            self.abort_by(file.abort(), number).await;
        }
    }

    async fn run_transaction(&self, file: &Prepared, held: &Held) -> Result<(), Error> {
        held.session.start_transaction().write_concern(WriteConcern::majority()).await?;
        if let Err(error) = file.store_in(&held.session).await {
            if error.has_label(TRANSIENT_TRANSACTION) {
                check_within(&self.application, held, &error);
            }
            held.session.abort_transaction().await.ok();
            return Err(error);
        }
        held.note_commit(&self.application);
        held.session.commit_transaction().await
    }

    /// Writes a file by several streams of several clients, one after the other.
    async fn write_in_lives(&mut self, stream: Stream, writing: &Writing) {
        let Writing { number, source, in_flight, .. } = *writing;
        let own = (self.application.number, self.application.client.clone());
        let (mut stream, mut checkpoint) = (Some(stream), None);
        for life in 0..LIVES {
            if let Some(checkpoint) = checkpoint.clone() {
                let pause = self.application.random.millis(0, 14_000);
                self.application.time.sleep(pause).await;
                stream = self.resume(number, checkpoint, in_flight).await;
            }
            let Some(mut stream) = stream.take() else { continue };
            let from = checkpoint.as_ref().map_or(0, UploadCheckpoint::bytes);
            let to = match life > 0 && self.application.random.percent(70) {
                true => source.length,
                false => from + self.application.random.below(source.length - from + 1),
            };
            // The first one is kept from the beginning on, wherever it is dropped.
            self.checkpoint(&mut stream, number);
            let filled = self.fill(&mut stream, source, (from, to)).await;
            if filled.is_some_and(|filled| filled.is_ok()) && to == source.length {
                match writing.is_rival {
                    true => self.prepare_and_abort(&mut stream, number, true).await,
                    false => self.close(&mut stream, number, true).await,
                }
                (self.application.number, self.application.client) = own;
                return;
            }
            if life + 1 < LIVES && self.application.random.percent(25) {
                let patience = patience(&mut self.application.random);
                patience.with(&self.application.time, stream.suspend()).await;
            }
            checkpoint = self.checkpoint(&mut stream, number);
            if life + 1 == LIVES && self.application.random.percent(50) {
                self.abort(&mut stream, number).await;
                (self.application.number, self.application.client) = own;
                return;
            }
        }
        self.ends(number, Fate::Failed);
        (self.application.number, self.application.client) = own;
    }

    /// Returns the checkpoint of an upload as it was kept somewhere.
    fn checkpoint(&self, stream: &mut Stream, number: usize) -> Option<UploadCheckpoint> {
        let checkpoint = stream.checkpoint();
        let bytes = checkpoint.bytes();
        let finding = self.application.state().checks.files.is_at(number, bytes);
        self.judge(finding);
        let kept = bson::serialize_to_document(&checkpoint).ok()?;
        bson::deserialize_from_document(kept).ok()
    }

    /// Goes on with an upload by any of the clients.
    async fn resume(
        &mut self,
        number: usize,
        checkpoint: UploadCheckpoint,
        in_flight: usize,
    ) -> Option<Stream> {
        let index = self.application.random.index(self.clients.len());
        (self.application.number, self.application.client) = self.clients[index].clone();
        let bucket = bucket(&self.application.client);
        {
            let files = &mut self.application.state().checks.files;
            files.resumes(number, checkpoint.bytes(), in_flight);
        }
        let resumed = bucket.resume_upload_stream(checkpoint).in_flight(in_flight).await;
        if let Err(error) = &resumed
            && error.as_grid_fs().is_some_and(|it| it.kind == GridFsErrorKind::AlreadyStored)
        {
            let finding = self.application.state().checks.files.is_said_to_be_stored(number);
            self.judge(finding);
        }
        resumed.ok()
    }
}

async fn write_by_trait(stream: &mut Stream, bytes: &[u8]) -> Result<(), Error> {
    let mut left = bytes;
    while !left.is_empty() {
        let count = poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, left)).await?;
        left = &left[count..];
    }
    Ok(())
}
