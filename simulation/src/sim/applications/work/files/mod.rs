//! Files of an application's: uploaded, read, renamed and deleted in every way, and uploads that
//! are dropped, aborted, or gone on with by another client.

mod rivals;
mod uploading;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::SeekFrom;
use std::pin::Pin;
use std::sync::Arc;

use bson::doc;
use futures_io::{AsyncRead as _, AsyncSeek as _};
use sdam::error::Error;
use sdam::generic::{Client, GridFsBucket, GridFsDownloadStream};
use sdam::options::GridFsBucketOptions;
use sdam_core::bson;
use sdam_core::config::{ReadMode, ReadPreference, WriteConcern};

use super::super::checks::Known;
use super::within::Patience;
use super::{Application, DATABASE, Terms};
use crate::sim::checks::{Finding, ensure};
use crate::sim::random::Random;
use crate::virtual_time::Runtime;

/// The names of files.
const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// The number of times that a download is read further after an error.
const AGAIN: u32 = 2;

type Stream = GridFsDownloadStream<Runtime>;

type Bucket = GridFsBucket<Runtime>;

/// An application that keeps files.
struct Keeper {
    application: Application,
    bucket: Bucket,
    /// All clients that may go on with an upload, with their numbers.
    clients: Arc<Vec<(usize, Client<Runtime>)>>,
}

/// The file that is read, from where to where, and how.
struct Reading {
    known: Known,
    /// The revision, if it is asked for by its name.
    revision: Option<i32>,
    range: Option<(u64, u64)>,
    in_flight: usize,
    /// The number of bytes that are read at once, if it is read as bytes.
    at_once: Option<usize>,
}

/// The place of a reader.
struct Place {
    number: usize,
    at: u64,
    end: u64,
    /// The number of times that it still goes elsewhere, at most.
    seeks: u64,
}

/// Has an application keep files until its work is over.
pub(in crate::sim::applications) async fn keep(
    application: Application,
    clients: Arc<Vec<(usize, Client<Runtime>)>>,
) {
    application.time.sleep(application.workload.from.since_origin()).await;
    let bucket = bucket(&application.client);
    let mut keeper = Keeper { application, bucket, clients };
    while keeper.application.goes_on().await {
        match keeper.application.random.below(100) {
            0..55 => keeper.upload().await,
            55..85 => keeper.download().await,
            85..91 => keeper.delete().await,
            91..93 => keeper.delete_by_name().await,
            93..98 => keeper.rename().await,
            _ => keeper.rename_by_name().await,
        }
    }
    keeper.application.state().task_ends();
}

/// Returns the bucket of a client: what is acknowledged in it lasts.
fn bucket(client: &Client<Runtime>) -> Bucket {
    let options = GridFsBucketOptions::builder().write_concern(WriteConcern::majority()).build();
    client.database(DATABASE).gridfs_bucket_with_options(options)
}

/// Draws for how long something is waited for.
fn patience(random: &mut Random) -> Patience {
    match random.below(20) {
        0..17 => Patience::Endless,
        17 => Patience::Time(random.millis(0, 400)),
        _ => Patience::Polls(1 + random.below(12)),
    }
}

impl Keeper {
    /// Returns the bucket with a limit of time.
    fn limited(&self, terms: Terms) -> Bucket {
        match terms.timeout {
            Some(timeout) => self.bucket.with_timeout(timeout),
            None => self.bucket.clone(),
        }
    }

    /// Notes what a check has found.
    fn judge(&self, finding: Finding) {
        let number = self.application.number;
        self.application.state().judge(number, finding);
    }

    fn name(&mut self) -> String {
        self.application.random.pick(&NAMES).to_owned()
    }

    /// Draws a file whose upload has come to a known end.
    fn known(&mut self) -> Option<Known> {
        let known = self.application.state().checks.files.known();
        let index = self.application.random.index(known.len());
        known.into_iter().nth(index)
    }

    async fn delete(&mut self) {
        let Some(known) = self.known() else { return };
        let terms = self.application.terms();
        let bucket = self.limited(terms);
        self.application.state().checks.files.deletes(known.number);
        let delete = async |_| bucket.delete(known.id).await;
        self.application.run(terms, delete).await.ok();
    }

    async fn delete_by_name(&mut self) {
        let (name, terms) = (self.name(), self.application.terms());
        let bucket = self.limited(terms);
        self.application.state().checks.files.deletes_name(&name);
        let delete = async |_| bucket.delete_by_name(name).await;
        self.application.run(terms, delete).await.ok();
    }

    async fn rename(&mut self) {
        let Some(known) = self.known() else { return };
        let (to, terms) = (self.name(), self.application.terms());
        let bucket = self.limited(terms);
        self.application.state().checks.files.renames(known.number, &to);
        let rename = async |_| bucket.rename(known.id, to).await;
        self.application.run(terms, rename).await.ok();
    }

    async fn rename_by_name(&mut self) {
        let (from, to, terms) = (self.name(), self.name(), self.application.terms());
        let bucket = self.limited(terms);
        self.application.state().checks.files.renames_name(&from, &to);
        let rename = async |_| bucket.rename_by_name(from, to).await;
        self.application.run(terms, rename).await.ok();
    }
}

impl Keeper {
    /// Draws a file, or the place where one was.
    fn draw_reading(&mut self) -> Option<Reading> {
        let known = self.application.state().checks.files.known();
        let random = &mut self.application.random;
        let index = random.index(known.len());
        let known = known.into_iter().nth(index)?;
        let revision = random.percent(30).then(|| random.pick(&[-1, -1, -2, 0, 1]));
        let range = random.percent(40).then(|| {
            let (first, second) = (random.below(known.length + 1), random.below(known.length + 1));
            (first.min(second), first.max(second))
        });
        let in_flight = 1 + random.index(3);
        let pieces = [1 + known.length / 20, 1 + known.length / 3, 1 + known.length];
        let at_once = random.percent(50).then(|| random.pick(&pieces));
        let at_once = at_once.and_then(|it| it.try_into().ok());
        Some(Reading { known, revision, range, in_flight, at_once })
    }

    async fn download(&mut self) {
        let Some(reading) = self.draw_reading() else { return };
        let terms = self.application.terms();
        let mut bucket = self.limited(terms);
        if self.application.random.percent(40) {
            bucket = bucket.with_read_preference(ReadPreference::new(ReadMode::Nearest));
        }
        let patience = patience(&mut self.application.random);
        match self.application.random.below(10) {
            0..3 => self.download_to_writer(&bucket, reading, terms).await,
            _ => {
                let operation = self.application.begin(Terms::default());
                let time = self.application.time.clone();
                let seeks = self.application.random.percent(25);
                let read = patience.with(&time, self.read(&bucket, &reading, seeks)).await;
                let error = read.and_then(Result::err);
                self.application.ended(operation, error.as_ref());
                self.application.over(operation);
            }
        }
    }

    /// Downloads a file into memory: what is written is the beginning of it, also if that fails.
    async fn download_to_writer(&self, bucket: &Bucket, reading: Reading, terms: Terms) {
        let Reading { known, range, in_flight, .. } = reading;
        let (from, to) = range.unwrap_or((0, known.length));
        let mut bytes = Vec::new();
        let write = async |_| {
            let download = bucket.download_to_writer(known.id, &mut bytes).in_flight(in_flight);
            match range {
                Some((start, end)) => download.start(start).end(end).await,
                None => download.await,
            }
        };
        let written = self.application.run(terms, write).await;
        let read = self.application.state().checks.files.reads(known.number, from, &bytes);
        self.judge(read);
        if let Ok(count) = written {
            let is_whole = count == bytes.len() as u64 && count == to - from;
            self.judge(ensure(is_whole, "downloads are whole", || {
                format!("{count} bytes of {known:?}, {from} to {to}", known = known.number)
            }));
        }
    }

    async fn read(&mut self, bucket: &Bucket, reading: &Reading, seeks: bool) -> Result<(), Error> {
        let Reading { known, revision, range, in_flight, .. } = reading;
        let open = match revision {
            Some(revision) => bucket.open_download_stream_by_name(&*known.name).revision(*revision),
            None => bucket.open_download_stream(known.id.clone()),
        };
        let open = open.in_flight(*in_flight);
        let mut stream = match range {
            // What a file of the same name has is not known before.
            Some((start, end)) if revision.is_none() => open.start(*start).end(*end).await?,
            _ => open.await?,
        };
        let name = revision.map(|_| &*known.name);
        let found = self.application.state().checks.files.found(stream.id(), name);
        let number = match found {
            Ok(number) => number,
            Err(violation) => {
                self.judge(Err(violation));
                return Ok(());
            }
        };
        let (at, end) = range.filter(|_| revision.is_none()).unwrap_or((0, stream.length()));
        let mut place = Place { number, at, end, seeks: 0 };
        if seeks {
            place.seeks = self.application.random.below(4);
            self.seek(&mut stream, &mut place).await?;
        }
        // The file that is found by a name may be longer than the one that was drawn.
        let least = usize::try_from(1 + stream.length() / 20).unwrap_or(usize::MAX);
        let at_once = reading.at_once.map(|it| it.max(least));
        self.read_on(&mut stream, &mut place, at_once).await
    }

    /// Goes on anywhere in the file.
    async fn seek(&mut self, stream: &mut Stream, place: &mut Place) -> Result<(), Error> {
        let to = SeekFrom::Start(self.application.random.below(stream.length() + 1));
        place.at = poll_fn(|cx| Pin::new(&mut *stream).poll_seek(cx, to)).await?;
        Ok(())
    }

    /// Reads a stream to its end, and goes elsewhere on the way; after an error, another call asks
    /// again.
    async fn read_on(
        &mut self,
        stream: &mut Stream,
        place: &mut Place,
        at_once: Option<usize>,
    ) -> Result<(), Error> {
        let mut errors = 0;
        loop {
            match read_some(stream, at_once).await {
                Ok(Some(bytes)) => {
                    let Place { number, at, .. } = *place;
                    let read = self.application.state().checks.files.reads(number, at, &bytes);
                    self.judge(read);
                    place.at += bytes.len() as u64;
                    if place.seeks > 0 && self.application.random.percent(30) {
                        place.seeks -= 1;
                        self.seek(stream, place).await?;
                    }
                }
                Ok(None) => {
                    let Place { number, at, end, .. } = *place;
                    let is_whole = at >= end;
                    self.judge(ensure(is_whole, "downloads are whole", || {
                        format!("{at} of {end} bytes of file {number}")
                    }));
                    return Ok(());
                }
                Err(error) if errors == AGAIN => return Err(error),
                Err(_) => errors += 1,
            }
            if self.application.random.percent(10) {
                let pause = self.application.random.millis(0, 300);
                self.application.time.sleep(pause).await;
            }
        }
    }
}

async fn read_some(stream: &mut Stream, at_once: Option<usize>) -> Result<Option<Vec<u8>>, Error> {
    let Some(at_once) = at_once else {
        return Ok(stream.try_next().await?.map(|bytes| bytes.to_vec()));
    };
    let mut buffer = vec![0; at_once];
    let count = poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buffer)).await?;
    buffer.truncate(count);
    Ok((count > 0).then_some(buffer))
}

/// Reads all files back that are there in the end, once nothing goes wrong any more.
pub(in crate::sim::applications) async fn read_all(application: Application) {
    let bucket = bucket(&application.client);
    let there = application.state().checks.files.there();
    let mut keeper = Keeper { application, bucket, clients: Default::default() };
    let outcome = keeper.read_each(&there).await;
    if let Err(error) = outcome {
        keeper.judge(ensure(false, "what is stored is read back", || format!("{error:?}")));
    }
    keeper.application.state().task_ends();
}

impl Keeper {
    async fn read_each(&mut self, there: &[Known]) -> Result<(), Error> {
        let bucket = self.bucket.clone();
        for known in there {
            if self.application.state().checks.files.has_more_chunks(known.number) {
                continue;
            }
            let by_name = self.application.random.percent(20);
            let revisions = if by_name { &[None, Some(-1), Some(0)][..] } else { &[None] };
            for revision in revisions {
                let revision = *revision;
                let range = None;
                let known = known.clone();
                let reading = Reading { known, revision, range, in_flight: 2, at_once: None };
                self.read(&bucket, &reading, false).await?;
            }
            let (first, second) = {
                let random = &mut self.application.random;
                (random.below(known.length + 1), random.below(known.length + 1))
            };
            let range = Some((first.min(second), first.max(second)));
            let known = known.clone();
            let reading = Reading { known, revision: None, range, in_flight: 1, at_once: None };
            self.read(&bucket, &reading, false).await?;
        }
        let listed: Vec<_> = bucket.find(doc! {}).await?.try_collect().await?;
        let found: BTreeSet<_> = listed.iter().map(|file| file.id.to_string()).collect();
        let is_same = found == there.iter().map(|known| known.id.to_string()).collect();
        self.judge(ensure(is_same, "what is stored is listed", || {
            format!("{} of {} files", listed.len(), there.len())
        }));
        Ok(())
    }
}
