//! The digest that distinguishes two worlds, in 128 bits.

use std::fmt::{self, Display};

use sdam_core::time::Instant;
use serde::Serialize;
use serde::ser::{self, Serializer};

/// Returns whether a field decides nothing, or is the same in all worlds.
#[inline]
fn is_ignored(field: &str, streaming: bool) -> bool {
    match field {
        // How often, and since when, decides nothing; neither does what is only reported.
        "asked_at" | "at" | "count" | "error" | "failing" | "since" | "started" => true,
        // Round trip times.
        "round_trip" | "roundTripTimeMS" | "minRoundTripTimeMS" => true,
        // The numbers of links, requests and replies, and the last ones.
        "number" | "request_id" | "response_to" | "last" => true,
        // Whose monitor it is, which is known; and what replies only have in common with others.
        "identity" | "known" => true,
        // What a server said of itself and of others counts when it is heard.
        "hosts" | "passives" | "arbiters" | "tags" | "me" | "setName" | "primary" => true,
        "electionId" | "setVersion" | "minWireVersion" | "maxWireVersion" | "iscryptd" => true,
        // A server that cannot stream does not say it.
        "process" | "changes" | "told" => !streaming,
        _ => false,
    }
}

/// The time that something stays of interest after it has happened, in nanoseconds.
const MEMORY: u64 = 500_000_000;

/// Returns the digest of what a world consists of.
///
/// An [`Instant`] counts from now, and of a generation it counts only whether it is the first.
pub(super) fn digest(parts: &impl Serialize, now: Instant, streaming: bool) -> u128 {
    let mut digest =
        Digest { hash: BASIS, now: now.as_nanos(), streaming, number: Number::Absolute };
    // Hashing cannot fail.
    let _ = parts.serialize(&mut digest);
    digest.hash
}

/// Those of FNV-1a; here words are hashed, not bytes, and high bits come down again.
const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// The meaning of the next number.
#[derive(Clone, Copy)]
enum Number {
    Absolute,
    Instant,
    Generation,
}

struct Digest {
    hash: u128,
    now: u64,
    streaming: bool,
    number: Number,
}

impl Digest {
    fn word(&mut self, word: u64) {
        let hash = (self.hash ^ u128::from(word)).wrapping_mul(PRIME);
        self.hash = hash ^ (hash >> 67);
    }

    fn number(&mut self, number: u64) {
        self.word(match self.number {
            Number::Absolute => number,
            Number::Generation => u64::from(number > 0),
            // An instant counts from now, or is long over.
            Number::Instant => match number.checked_sub(self.now) {
                Some(ahead) => ahead,
                None => u64::MAX - (self.now - number).min(MEMORY),
            },
        });
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }
}

/// Text is hashed as it is written.
impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

/// Numbers, whatever their type, are hashed as words.
macro_rules! numbers {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, number: $type) -> fmt::Result {
            self.number(number as u64);
            Ok(())
        }
    )*};
}

impl<'a> Serializer for &'a mut Digest {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = &'a mut Digest;
    type SerializeTuple = &'a mut Digest;
    type SerializeTupleStruct = &'a mut Digest;
    type SerializeTupleVariant = &'a mut Digest;
    type SerializeMap = &'a mut Digest;
    type SerializeStruct = &'a mut Digest;
    type SerializeStructVariant = &'a mut Digest;

    numbers! {
        serialize_bool: bool, serialize_char: char,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64
    }

    fn serialize_f32(self, number: f32) -> fmt::Result {
        self.serialize_f64(number.into())
    }

    fn serialize_f64(self, number: f64) -> fmt::Result {
        self.word(number.to_bits());
        Ok(())
    }

    fn serialize_str(self, text: &str) -> fmt::Result {
        self.serialize_bytes(text.as_bytes())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> fmt::Result {
        self.bytes(bytes);
        Ok(())
    }

    fn collect_str<T: Display + ?Sized>(self, text: &T) -> fmt::Result {
        fmt::write(self, format_args!("{text}"))
    }

    fn serialize_none(self) -> fmt::Result {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> fmt::Result {
        self.word(1);
        value.serialize(self)
    }

    fn serialize_unit(self) -> fmt::Result {
        self.word(0);
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> fmt::Result {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> fmt::Result {
        self.word(index.into());
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> fmt::Result {
        self.number = match name {
            "Instant" => Number::Instant,
            "Generation" => Number::Generation,
            _ => Number::Absolute,
        };
        let hashed = value.serialize(&mut *self);
        self.number = Number::Absolute;
        hashed
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> fmt::Result {
        self.word(index.into());
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self, fmt::Error> {
        self.word(length.map_or(u64::MAX, |length| length as u64));
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, fmt::Error> {
        self.word(index.into());
        Ok(self)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self, fmt::Error> {
        self.serialize_seq(length)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, fmt::Error> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, fmt::Error> {
        self.word(index.into());
        Ok(self)
    }
}

/// The parts of what consists of several, one after the other.
macro_rules! sequences {
    ($($trait:ident: $method:ident),*) => {$(
        impl ser::$trait for &mut Digest {
            type Ok = ();
            type Error = fmt::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> fmt::Result {
                value.serialize(&mut **self)
            }

            fn end(self) -> fmt::Result {
                Ok(())
            }
        }
    )*};
}

sequences! {
    SerializeSeq: serialize_element, SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field, SerializeTupleVariant: serialize_field
}

/// Fields, unless they are ignored; one that is left out because there is nothing counts as such.
macro_rules! structs {
    ($($trait:ident),*) => {$(
        impl ser::$trait for &mut Digest {
            type Ok = ();
            type Error = fmt::Error;

            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                field: &'static str,
                value: &T,
            ) -> fmt::Result {
                match is_ignored(field, self.streaming) {
                    true => Ok(()),
                    false => value.serialize(&mut **self),
                }
            }

            fn skip_field(&mut self, field: &'static str) -> fmt::Result {
                match is_ignored(field, self.streaming) {
                    true => Ok(()),
                    false => self.serialize_none(),
                }
            }

            fn end(self) -> fmt::Result {
                Ok(())
            }
        }
    )*};
}

structs! { SerializeStruct, SerializeStructVariant }

impl ser::SerializeMap for &mut Digest {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> fmt::Result {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> fmt::Result {
        value.serialize(&mut **self)
    }

    fn end(self) -> fmt::Result {
        Ok(())
    }
}
