//! Files of GridFS whose documents and chunks lie, as a client reads them: whole, in parts, and by
//! going from place to place. Out come the bytes that were stored, or an error that names the file
//! and the chunk.

mod member;
mod model;
mod stored;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io::SeekFrom;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use futures_io::{AsyncRead as _, AsyncSeek as _};
use sdam::Error;
use sdam::error::{GridFsErrorKind, GridFsFileIdentifier};
use sdam::generic::{Client, GridFsBucket};
use sdam_cluster::{ClusterOptions, Deployment};
use sdam_core::bson::Bson;
use sdam_core::config::{Options, ServerAddress};

use self::member::Member;
use self::model::Facts;
use self::stored::Stored;
use crate::sim::virtual_time::{Runtime, Simulation};

/// The number of times that a file is read at most, and of steps from place to place.
const MAX_READINGS: u8 = 3;
const MAX_MOVES: u8 = 12;

/// The longest piece that is read at once.
const MAX_PIECE: usize = 24;

/// The time in which all has to come to its end; nothing is waited for but packets.
const LIMIT: Duration = Duration::from_secs(60);

/// The first bytes say what is stored: a file, its chunks, and which of them lie; the others how it
/// is read.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn chunks(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(stored) = Stored::read(&mut input) else { return };
    let Ok(readings) = readings(stored.scale, &mut input) else { return };
    let member = Arc::new(Member::new(stored));
    let outcomes = play(&member, &readings);
    assert_eq!(outcomes.len(), readings.len(), "each reading comes to an end");
    assert_eq!(Arc::strong_count(&member), 1, "what has served is gone");
    for (file, (reading, outcome)) in (1..).zip(readings.iter().zip(&outcomes)) {
        judge(&member, file, reading, outcome);
    }
}

/// A way to read the file.
#[derive(Clone, Debug)]
enum Reading {
    /// A part, piece by piece, with so many searches under way at once.
    Part { start: Option<u64>, end: Option<u64>, in_flight: usize },
    /// All of it, into a writer.
    Copied,
    /// From place to place.
    Moves(Vec<Move>),
}

#[derive(Clone, Copy, Debug)]
enum Move {
    To(SeekFrom),
    /// A piece of this length is read.
    Read(usize),
}

/// The outcome of a reading.
#[derive(Debug)]
enum Outcome {
    Read(Vec<u8>, Option<Error>),
    /// The length that was said, or why the file cannot be opened; and what became of each move:
    /// the place, or the bytes.
    Moved(std::result::Result<u64, Error>, Vec<Moved>),
}

#[derive(Debug)]
enum Moved {
    To(std::io::Result<u64>),
    Read(std::io::Result<Vec<u8>>),
}

fn readings(length: u64, input: &mut Unstructured<'_>) -> Result<Vec<Reading>> {
    let mut readings = Vec::new();
    for _ in 0..input.int_in_range(1..=MAX_READINGS)? {
        readings.push(match input.int_in_range(0..=3_u8)? {
            0 => Reading::Part { start: None, end: None, in_flight: input.int_in_range(1..=4)? },
            1 => Reading::Copied,
            2 => {
                let start = place(length, input)?;
                let end = place(length, input)?;
                let start = (!input.ratio(1, 4)?).then_some(start);
                let end = (!input.ratio(1, 4)?).then_some(end);
                Reading::Part { start, end, in_flight: input.int_in_range(1..=4)? }
            }
            _ => {
                let count = input.int_in_range(1..=MAX_MOVES)?;
                Reading::Moves((0..count).map(|_| next_move(length, input)).collect::<Result<_>>()?)
            }
        });
    }
    Ok(readings)
}

fn place(length: u64, input: &mut Unstructured<'_>) -> Result<u64> {
    match input.ratio(1, 16)? {
        true => Ok(*input.choose(&[u64::MAX, i64::MAX as u64, 1 << 31])?),
        false => input.int_in_range(0..=length + 3),
    }
}

fn next_move(length: u64, input: &mut Unstructured<'_>) -> Result<Move> {
    let by = |input: &mut Unstructured<'_>| {
        let length = i64::try_from(length).expect("files are short");
        input.int_in_range(-length - 3..=length + 3)
    };
    Ok(match input.int_in_range(0..=5_u8)? {
        0 => Move::To(SeekFrom::Start(place(length, input)?)),
        1 => Move::To(SeekFrom::End(by(input)?)),
        2 => Move::To(SeekFrom::Current(by(input)?)),
        _ => Move::Read(input.int_in_range(1..=MAX_PIECE)?),
    })
}

/// Reads the file in each way, each time under another `_id`, and returns what came of it.
fn play(member: &Arc<Member>, readings: &[Reading]) -> Vec<Outcome> {
    let address = ServerAddress::Tcp { host: "a.example".into(), port: 27017 };
    let options = ClusterOptions::new("rs", [address]).with_deployment(Deployment::Standalone);
    let simulation = Simulation::of(options, 1).expect("one server makes sense");
    let mut simulation = simulation.without_log().with_latency(Duration::from_millis(1));
    simulation.set_script(Arc::<Member>::clone(member));
    let options = Options::parse(simulation.uri()).expect("a connection string");
    let topology = simulation.topology(options).expect("a client");
    let bucket = Client::from(topology).database("app").gridfs_bucket();
    let (outcomes, readings) = (Arc::<Mutex<Vec<Outcome>>>::default(), readings.to_vec());
    let kept = Arc::clone(&outcomes);
    simulation.spawn(async move {
        for (file, reading) in (1..).zip(readings) {
            let outcome = perform(&bucket, file, reading).await;
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        }
    });
    assert!(simulation.run(LIMIT), "it comes to no end");
    std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn perform(bucket: &GridFsBucket<Runtime>, file: i32, reading: Reading) -> Outcome {
    match reading {
        Reading::Part { start, end, in_flight } => {
            let mut open = bucket.open_download_stream(file).in_flight(in_flight);
            if let Some(start) = start {
                open = open.start(start);
            }
            if let Some(end) = end {
                open = open.end(end);
            }
            let (mut bytes, mut stream) = match open.await {
                Ok(stream) => (Vec::new(), stream),
                Err(error) => return Outcome::Read(Vec::new(), Some(error)),
            };
            loop {
                match stream.try_next().await {
                    Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                    Ok(None) => return Outcome::Read(bytes, None),
                    Err(error) => return Outcome::Read(bytes, Some(error)),
                }
            }
        }
        Reading::Copied => {
            let mut bytes = Vec::new();
            match bucket.download_to_writer(file, &mut bytes).await {
                Ok(copied) => assert_eq!(copied, bytes.len() as u64, "each byte is counted"),
                Err(error) => return Outcome::Read(bytes, Some(error)),
            }
            Outcome::Read(bytes, None)
        }
        Reading::Moves(moves) => go(bucket, file, moves).await,
    }
}

/// Goes from place to place.
async fn go(bucket: &GridFsBucket<Runtime>, file: i32, moves: Vec<Move>) -> Outcome {
    let mut stream = match bucket.open_download_stream(file).await {
        Ok(stream) => stream,
        Err(error) => return Outcome::Moved(Err(error), Vec::new()),
    };
    let mut moved = Vec::new();
    for next in moves {
        moved.push(match next {
            Move::To(place) => {
                Moved::To(poll_fn(|cx| Pin::new(&mut stream).poll_seek(cx, place)).await)
            }
            Move::Read(length) => {
                let mut piece = vec![0; length];
                let read = poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut piece)).await;
                Moved::Read(read.map(|count| piece[..count].to_vec()))
            }
        });
    }
    Outcome::Moved(Ok(stream.length()), moved)
}

fn judge(member: &Member, file: i32, reading: &Reading, outcome: &Outcome) {
    let (stored, asked) = (member.stored(), member.asked(file));
    match (reading, outcome) {
        (Reading::Moves(moves), Outcome::Moved(opened, moved)) => match (Facts::of(stored), opened)
        {
            (Ok(facts), Ok(length)) => {
                assert_eq!(*length, facts.length, "the length is that of its document");
                assert_eq!(moves.len(), moved.len(), "each move comes to an end");
                follow(member, file, facts, moves.iter().zip(moved));
            }
            (Err(wanted), Err(error)) => assert_eq!(kind(error, file), wanted),
            (facts, opened) => panic!("{opened:?}, and not {facts:?}"),
        },
        (reading, Outcome::Read(bytes, error)) => {
            let part = match reading {
                Reading::Part { start, end, .. } => (*start, *end),
                _ => (None, None),
            };
            let error = error.as_ref().map(|error| kind(error, file));
            let wanted = model::read(stored, part, &asked);
            assert_eq!((bytes, &error), (&wanted.0, &wanted.1), "{reading:?} of {stored:?}");
        }
        (reading, outcome) => panic!("{outcome:?} is none of {reading:?}"),
    }
}

/// Follows the moves, and checks what each has come to.
fn follow<'m>(
    member: &Member,
    file: i32,
    facts: Facts,
    moves: impl Iterator<Item = (&'m Move, &'m Moved)>,
) {
    let (stored, asked) = (member.stored(), member.asked(file));
    let mut at = 0_u64;
    for moved in moves {
        match moved {
            (Move::To(place), Moved::To(reached)) => {
                let wanted = match *place {
                    SeekFrom::Start(place) => Some(place),
                    SeekFrom::End(by) => facts.length.checked_add_signed(by),
                    SeekFrom::Current(by) => at.checked_add_signed(by),
                };
                assert_eq!(reached.as_ref().ok().copied(), wanted, "{place:?} from {at}");
                at = wanted.unwrap_or(at);
            }
            (Move::Read(length), Moved::Read(Ok(bytes))) => {
                assert!(bytes.len() <= *length, "no more than there is room for");
                assert_eq!(bytes.is_empty(), at >= facts.length, "an end is where the file ends");
                model::are_sent(stored, facts, &asked, (at, bytes));
                at += bytes.len() as u64;
            }
            (Move::Read(_), Moved::Read(Err(error))) => {
                let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
                let error = kind(error.expect("it is the client's"), file);
                model::is_deserved(stored, facts, &asked, &error);
            }
            (wanted, moved) => panic!("{moved:?} is no {wanted:?}"),
        }
    }
}

/// Returns what an error says of the file, which it has to name.
fn kind(error: &Error, file: i32) -> GridFsErrorKind {
    let error = error.as_grid_fs().unwrap_or_else(|| panic!("an error of another kind: {error}"));
    assert_eq!(error.bucket, "app.fs");
    assert_eq!(error.file, GridFsFileIdentifier::Id(Bson::Int32(file)), "it names the file");
    error.kind.clone()
}
