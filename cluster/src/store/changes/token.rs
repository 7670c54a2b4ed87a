//! Resume tokens: the place of an event, or of none, as text that is in the order of the events.
//!
//! They have the shape of real ones, whose bytes are in the order of their values: the type of each
//! stands before it. What a token says of an event is its place only.

use std::fmt::Write as _;

use bson::{Bson, Document, Timestamp, doc};
use sdam_core::bson;

use crate::store::{StoreError, log::Place};

/// The types of values, and the end.
const TIMESTAMP: u8 = 0x82;
const ZERO: u8 = 0x29;
const NUMBER: u8 = 0x2a;
const FALSE: u8 = 0x6e;
const TRUE: u8 = 0x6f;
const BINARY: u8 = 0x5a;
const END: u8 = 0x04;

/// The length of an id, and its subtype.
const UUID: [u8; 2] = [16, 4];

/// The number of bytes of a number.
const MAX_NUMBER_LEN: usize = 8;

/// The version of tokens, and that of pipelines that split events.
const VERSION: u64 = 1;
const SPLIT_VERSION: u64 = 2;

/// The kind of a token that is an event's; that of others is 0.
const EVENT: u64 = 128;

/// A resume token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(super) place: Place,
    /// It is that of an event, and not only of a time.
    pub(super) is_event: bool,
    /// It is that of the `invalidate` which follows the event.
    pub(super) invalidates: bool,
    /// The id of the event's collection.
    pub(super) uuid: Option<[u8; 16]>,
    /// The pipeline splits events that are too large.
    pub(super) splits: bool,
    /// The index of the fragment, of an event that was split.
    pub(super) fragment: Option<u64>,
}

impl Token {
    /// Returns the token of a time: that of its last event, and all before it, were seen.
    pub(super) const fn of_time(time: Timestamp) -> Self {
        Self {
            place: Place::at(time),
            is_event: false,
            invalidates: false,
            uuid: None,
            splits: false,
            fragment: None,
        }
    }

    /// Returns the token as it is sent.
    pub(super) fn document(&self) -> Document {
        let mut bytes = vec![TIMESTAMP];
        bytes.extend(self.place.time.0.to_be_bytes());
        bytes.extend(self.place.time.1.to_be_bytes());
        put(&mut bytes, if self.splits { SPLIT_VERSION } else { VERSION });
        put(&mut bytes, if self.is_event { EVENT } else { 0 });
        put(&mut bytes, self.place.index);
        bytes.push(if self.invalidates { TRUE } else { FALSE });
        if let Some(uuid) = self.uuid {
            bytes.push(BINARY);
            bytes.extend(UUID);
            bytes.extend(uuid);
        }
        if let Some(fragment) = self.fragment {
            put(&mut bytes, fragment);
        }
        bytes.push(END);
        let mut data = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            write!(data, "{byte:02X}").expect("a text takes everything");
        }
        doc! { "_data": data }
    }

    /// Reads a token.
    ///
    /// # Errors
    ///
    /// Fails as servers do if it is none.
    pub(super) fn parse(token: &Document) -> Result<Self, StoreError> {
        let Some(Bson::String(data)) = token.get("_data") else {
            let reason = format!(
                "Bad resume token: _data of missing or of wrong type. Expected string, got {token}"
            );
            return Err(StoreError::new(40647, reason));
        };
        let bytes = bytes(data)?;
        if bytes.is_empty() {
            return Err(StoreError::new(40649, "invalid empty resume token"));
        }
        let mut rest = Bytes(&bytes);
        rest.expect(&[TIMESTAMP])?;
        let time = (rest.word()?, rest.word()?);
        let version = rest.number()?;
        let is_event = rest.number()? == EVENT;
        let place = Place { time, index: rest.number()? };
        let invalidates = rest.expect(&[TRUE, FALSE])? == TRUE;
        let uuid = match rest.0.first() {
            Some(&BINARY) => {
                rest.take(3)?;
                let mut uuid = [0; 16];
                uuid.copy_from_slice(rest.take(16)?);
                Some(uuid)
            }
            _ => None,
        };
        let fragment = match rest.0.first() {
            None | Some(&END) => None,
            Some(_) => Some(rest.number()?),
        };
        rest.expect(&[END])?;
        let splits = version == SPLIT_VERSION;
        Ok(Self { place, is_event, invalidates, uuid, splits, fragment })
    }
}

/// Appends a number: how long it is, and its bytes, shifted by the bit that a fraction would have.
fn put(bytes: &mut Vec<u8>, number: u64) {
    if number == 0 {
        return bytes.push(ZERO);
    }
    let shifted = number.saturating_mul(2).to_be_bytes();
    let zeros = shifted.iter().take_while(|it| **it == 0).count();
    let length = u8::try_from(shifted.len() - zeros).unwrap_or(u8::MAX);
    bytes.push(NUMBER + length);
    bytes.extend(&shifted[zeros..]);
}

/// Returns the bytes of a text of hexadecimal digits.
fn bytes(data: &str) -> Result<Vec<u8>, StoreError> {
    let wrong = || StoreError::new(9, "resume token string was not a valid hex string");
    let digits: Option<Vec<u32>> = data.chars().map(|it| it.to_digit(16)).collect();
    let digits = digits.filter(|it| it.len() % 2 == 0).ok_or_else(wrong)?;
    let byte = |pair: &[u32]| u8::try_from(16 * pair[0] + pair[1]).unwrap_or_default();
    Ok(digits.chunks(2).map(byte).collect())
}

/// The bytes of a token that are still to be read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], StoreError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| {
            StoreError::new(15, format!("Invalid advance ({count}) past end of buffer"))
        })?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u32, StoreError> {
        Ok(self.take(4)?.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    /// Reads one of these types.
    fn expect(&mut self, types: &[u8]) -> Result<u8, StoreError> {
        let found = self.take(1)?[0];
        match types.contains(&found) {
            true => Ok(found),
            false => Err(StoreError::new(40647, "Bad resume token: it is of another kind")),
        }
    }

    fn number(&mut self) -> Result<u64, StoreError> {
        let found = self.take(1)?[0];
        let length = usize::from(found.wrapping_sub(NUMBER));
        match found {
            ZERO => Ok(0),
            _ if (1..=MAX_NUMBER_LEN).contains(&length) => {
                let bytes = self.take(length)?.iter();
                Ok(bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) / 2)
            }
            _ => Err(StoreError::new(40647, "Bad resume token: a number is none")),
        }
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::{Timestamp, doc};

    use super::{Place, Token};

    fn tokens() -> Vec<Token> {
        let time = Timestamp { time: 1_700_000_000, increment: 3 };
        let first = Token::of_time(time);
        let event = |index| Token {
            place: Place { index, ..first.place },
            is_event: true,
            uuid: Some([7; 16]),
            ..first
        };
        let next = Timestamp { increment: 4, ..time };
        vec![
            first,
            event(0),
            Token { invalidates: true, ..event(0) },
            event(1),
            event(127),
            event(128),
            event(70_000),
            Token::of_time(next),
            Token { place: Place::at(next), fragment: Some(0), splits: true, ..event(0) },
            Token { place: Place::at(next), fragment: Some(1), splits: true, ..event(0) },
        ]
    }

    /// Change Streams, "Resume Token": it is opaque, and in the order of the events.
    #[test]
    fn tokens_are_read_as_they_were_written_and_are_in_order() {
        let written: Vec<_> = tokens().iter().map(Token::document).collect();
        for (token, document) in tokens().into_iter().zip(&written) {
            assert_eq!(Token::parse(document), Ok(token));
        }
        let texts: Vec<_> = written.iter().map(|it| it.get_str("_data").unwrap()).collect();
        assert!(texts.is_sorted(), "{texts:#?}");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let whole = tokens()[1].document();
        let whole = whole.get_str("_data").unwrap();
        for length in 1..whole.len() {
            let cut = doc! { "_data": &whole[..length] };
            assert!(Token::parse(&cut).is_err(), "{cut}");
        }
        for (data, code) in [("", 40649), ("zz", 9), ("826", 9), ("8200", 15), ("81", 40647)] {
            assert_eq!(Token::parse(&doc! { "_data": data }).unwrap_err().code, code, "{data}");
        }
        assert_eq!(Token::parse(&doc! { "_data": 5 }).unwrap_err().code, 40647);
    }
}
