//! A file as it is stored: its document and those of its chunks, some of which lie, and beside each
//! the truth about it.

use arbitrary::{Result, Unstructured};
use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Decimal128, RawBson, RawDocumentBuf, rawdoc};
use sdam_core::bson;

/// The longest file whose chunks are there, and the longest chunk.
const MAX_LEN: i64 = 150;
const MAX_CHUNK: i64 = 9;

/// The number of lies at most.
const MAX_LIES: u8 = 6;

/// A file as it is stored.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// The document of the file without its `_id`; `None` if there is no such file.
    pub(super) document: Option<RawDocumentBuf>,
    /// True if the document has its `_id`.
    pub(super) has_id: bool,
    /// The numbers in the document, where they are whole ones.
    pub(super) length: Option<i64>,
    pub(super) chunk_size: Option<i64>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) order: Order,
    /// The length that places to read from are about.
    pub(super) scale: u64,
}

/// A document of a chunk, and what is in it.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) document: RawDocumentBuf,
    /// Its number, if that is a whole one.
    pub(super) n: Option<i64>,
    /// Its bytes, if they are such.
    pub(super) data: Option<Vec<u8>>,
}

/// The chunks that a member sends, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Those that are asked for, as real servers do.
    Sorted,
    /// Those that are asked for, in the order in which they lie.
    AsTheyLie,
    /// All, whatever is asked for.
    All,
}

impl Stored {
    pub(super) fn read(input: &mut Unstructured<'_>) -> Result<Self> {
        let length = input.int_in_range(0..=MAX_LEN)?;
        let size = input.int_in_range(1..=MAX_CHUNK)?;
        let order = *input.choose(&[Order::Sorted, Order::AsTheyLie, Order::All])?;
        let mut plain: Vec<Plain> = (0..(length + size - 1) / size)
            .map(|n| Plain::of(n, (n * size..length.min(n * size + size)).map(byte).collect()))
            .collect();
        for _ in 0..input.int_in_range(0..=MAX_LIES)? {
            lie(&mut plain, input)?;
        }
        let mut document = rawdoc! { "filename": "a", "uploadDate": bson::DateTime::MIN };
        let is_honest = input.ratio(1, 2)?;
        let (length_field, length_said) = match is_honest {
            true => (Some(RawBson::Int64(length)), Some(length)),
            false => number(length, input)?,
        };
        let (size_field, size_said) = match is_honest {
            true => (Some(number_of(size)), Some(size)),
            false => number(size, input)?,
        };
        for (name, value) in [(cstr!("length"), length_field), (cstr!("chunkSize"), size_field)] {
            if let Some(value) = value {
                document.append(name, value);
            }
        }
        Ok(Self {
            document: (is_honest || !input.ratio(1, 32)?).then_some(document),
            has_id: is_honest || !input.ratio(1, 32)?,
            length: length_said,
            chunk_size: size_said,
            chunks: plain.into_iter().map(Plain::written).collect(),
            order,
            scale: length.unsigned_abs(),
        })
    }
}

/// Returns the byte at a place of a file: neighbours differ, and so do chunks.
fn byte(place: i64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9) >> 7) as u8
}

/// Returns a number as clients write it, of 32 bits if it fits.
fn number_of(value: i64) -> RawBson {
    i32::try_from(value).map_or(RawBson::Int64(value), RawBson::Int32)
}

/// Draws a field that should be this number, and returns the whole number that it is.
fn number(honest: i64, input: &mut Unstructured<'_>) -> Result<(Option<RawBson>, Option<i64>)> {
    const EXTREMES: [i64; 9] =
        [-1, 0, 1, i64::MIN, i64::MAX, i32::MAX as i64, 1 << 31, 1 << 32, 1 << 40];
    let whole = |value: i64| (Some(RawBson::Int64(value)), Some(value));
    let other = |value: RawBson| (Some(value), None);
    Ok(match input.int_in_range(0..=15_u8)? {
        0..=4 => (Some(number_of(honest)), Some(honest)),
        5 => whole(honest),
        6 => (Some(RawBson::Double(honest as f64)), Some(honest)),
        7 => {
            let decimal: Decimal128 = honest.to_string().parse().expect("a number");
            (Some(RawBson::Decimal128(decimal)), Some(honest))
        }
        8 | 9 => whole(honest.saturating_add(input.int_in_range(-3..=3)?)),
        10 | 11 => whole(*input.choose(&EXTREMES)?),
        12 => other(RawBson::Double(*input.choose(&[f64::NAN, f64::INFINITY, 1.5, -0.5])?)),
        13 => other(RawBson::String(honest.to_string())),
        14 => other(input.choose(&[RawBson::Null, RawBson::Boolean(true)])?.clone()),
        _ => (None, None),
    })
}

/// The fields of a chunk, before they are written.
#[derive(Clone, Debug)]
struct Plain {
    n_field: Option<RawBson>,
    n: Option<i64>,
    bytes: Vec<u8>,
    subtype: BinarySubtype,
    /// Stands in the place of the bytes.
    instead: Option<RawBson>,
    has_data: bool,
}

impl Plain {
    fn of(n: i64, bytes: Vec<u8>) -> Self {
        let subtype = BinarySubtype::Generic;
        let n_field = Some(number_of(n));
        Self { n_field, n: Some(n), bytes, subtype, instead: None, has_data: true }
    }

    fn written(self) -> Chunk {
        let mut document = rawdoc! { "_id": 1, "files_id": 1 };
        if let Some(n) = self.n_field {
            document.append(cstr!("n"), n);
        }
        let data = (self.has_data && self.instead.is_none()).then(|| self.bytes.clone());
        if self.has_data {
            let binary = bson::Binary { subtype: self.subtype, bytes: self.bytes };
            document.append(cstr!("data"), self.instead.unwrap_or(RawBson::Binary(binary)));
        }
        Chunk { document, n: self.n, data }
    }
}

/// Makes a lie of one of the chunks, or of their order.
fn lie(chunks: &mut Vec<Plain>, input: &mut Unstructured<'_>) -> Result<()> {
    let at = input.int_in_range(0..=chunks.len())?;
    let next = chunks.len() as i64;
    let kind = input.int_in_range(0..=9_u8)?;
    if kind == 0 {
        let extra = Plain::of(next, vec![input.arbitrary()?; input.int_in_range(0..=3)?]);
        chunks.insert(at, extra);
        return Ok(());
    }
    let other = input.int_in_range(0..=chunks.len().saturating_sub(1))?;
    let Some(chunk) = chunks.get_mut(at) else { return Ok(()) };
    match kind {
        1 => drop(chunks.remove(at)),
        2 => {
            let mut again = chunk.clone();
            again.bytes.iter_mut().for_each(|byte| *byte = !*byte);
            chunks.insert(other, again);
        }
        3 => chunks.swap(at, other),
        4 | 5 => (chunk.n_field, chunk.n) = number(chunk.n.unwrap_or(next), input)?,
        6 => {
            let length = input.int_in_range(0..=12)?;
            chunk.bytes.resize(length, 0xee);
        }
        7 => {
            use BinarySubtype::{BinaryOld, Md5, UserDefined, Uuid};
            chunk.subtype = *input.choose(&[BinaryOld, Md5, Uuid, UserDefined(0x80)])?;
        }
        8 => {
            let others = [RawBson::Null, RawBson::String("data".to_owned()), RawBson::Int32(7)];
            chunk.instead = Some(input.choose(&others)?.clone());
        }
        _ => chunk.has_data = false,
    }
    Ok(())
}
