//! Values of the application's on their way to bytes, whose levels are counted while they are
//! written: whatever writes a value recurses once a level.

use sdam_core::wire::MAX_NESTING;
use sdam_host::driver::documents::{SHALLOW, TooDeep, with_more_stack};
use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// The number of calls within each other that a level has at most, on average: a value may be
/// within an `Option` and types around it, which are no levels.
const CALLS_OF_LEVEL: usize = 4;

/// A value that is written with [`MAX_NESTING`] levels of documents and arrays at most; what keeps
/// the bytes of a document counts as one value.
///
/// The first levels are written on the stack of the thread, and further ones on another stack if
/// that may be too short.
pub(crate) struct Bounded<'a, T: ?Sized> {
    value: &'a T,
    depth: Depth,
}

/// The place of a value within others.
#[derive(Clone, Copy, Default)]
struct Depth {
    /// The number of documents and arrays around it.
    levels: usize,
    /// The number of values around it.
    calls: usize,
}

impl<'a, T: ?Sized> Bounded<'a, T> {
    pub(crate) fn new(value: &'a T) -> Self {
        Self { value, depth: Depth::default() }
    }
}

impl Depth {
    /// Returns the place of what is within a value that is so many levels.
    fn within<E: Error>(self, levels: usize) -> Result<Self, E> {
        let within = Self { levels: self.levels + levels, calls: self.calls + 1 };
        match within.levels > MAX_NESTING || within.calls > CALLS_OF_LEVEL * MAX_NESTING {
            true => Err(E::custom(TooDeep)),
            false => Ok(within),
        }
    }
}

impl<T: Serialize + ?Sized> Serialize for Bounded<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let calls = self.depth.calls;
        let serializer = Counting { inner: serializer, depth: self.depth };
        match calls > 0 && calls.is_multiple_of(SHALLOW) {
            true => with_more_stack(|| self.value.serialize(serializer)),
            false => self.value.serialize(serializer),
        }
    }
}

/// A serializer that hands everything on, and counts.
struct Counting<S> {
    inner: S,
    depth: Depth,
}

/// The same of a value that has others within.
struct Compound<C> {
    inner: C,
    /// The place of those.
    depth: Depth,
}

/// Hands values on that have none within.
macro_rules! hand_on {
    ($($method:ident($($value:ident: $type:ty),*),)+) => {
        $(fn $method(self, $($value: $type),*) -> Result<S::Ok, S::Error> {
            self.inner.$method($($value),*)
        })+
    };
}

/// Begins values that have others within, and are so many levels.
macro_rules! begin {
    ($($method:ident($($value:ident: $type:ty),*) -> $compound:ident, $levels:expr;)+) => {
        $(fn $method(self, $($value: $type),*) -> Result<Self::$compound, S::Error> {
            let depth = self.depth.within($levels)?;
            Ok(Compound { inner: self.inner.$method($($value),*)?, depth })
        })+
    };
}

impl<S: Serializer> Serializer for Counting<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Compound<S::SerializeSeq>;
    type SerializeTuple = Compound<S::SerializeTuple>;
    type SerializeTupleStruct = Compound<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Compound<S::SerializeTupleVariant>;
    type SerializeMap = Compound<S::SerializeMap>;
    type SerializeStruct = Compound<S::SerializeStruct>;
    type SerializeStructVariant = Compound<S::SerializeStructVariant>;

    hand_on! {
        serialize_bool(value: bool),
        serialize_i8(value: i8),
        serialize_i16(value: i16),
        serialize_i32(value: i32),
        serialize_i64(value: i64),
        serialize_i128(value: i128),
        serialize_u8(value: u8),
        serialize_u16(value: u16),
        serialize_u32(value: u32),
        serialize_u64(value: u64),
        serialize_u128(value: u128),
        serialize_f32(value: f32),
        serialize_f64(value: f64),
        serialize_char(value: char),
        serialize_str(value: &str),
        serialize_bytes(value: &[u8]),
        serialize_none(),
        serialize_unit(),
        serialize_unit_struct(name: &'static str),
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str),
    }

    begin! {
        serialize_seq(length: Option<usize>) -> SerializeSeq, 1;
        serialize_tuple(length: usize) -> SerializeTuple, 1;
        serialize_tuple_struct(name: &'static str, length: usize) -> SerializeTupleStruct, 1;
        serialize_tuple_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        ) -> SerializeTupleVariant, 2;
        serialize_map(length: Option<usize>) -> SerializeMap, 1;
        serialize_struct(name: &'static str, length: usize) -> SerializeStruct, levels_of(name);
        serialize_struct_variant(
            name: &'static str, index: u32, variant: &'static str, length: usize
        ) -> SerializeStructVariant, 2;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let depth = self.depth.within(0)?;
        self.inner.serialize_some(&Bounded { value, depth })
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let depth = self.depth.within(0)?;
        self.inner.serialize_newtype_struct(name, &Bounded { value, depth })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let depth = self.depth.within(1)?;
        self.inner.serialize_newtype_variant(name, index, variant, &Bounded { value, depth })
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Returns the number of levels that a struct is: none, if bson writes it as one value, as an
/// `ObjectId`.
fn levels_of(name: &str) -> usize {
    usize::from(!name.starts_with('$'))
}

/// Hands on the values within another one.
macro_rules! compound {
    ($($of:ident: $method:ident($($key:ident: $type:ty)?);)+) => {
        $(impl<C: $of> $of for Compound<C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: $type,)?
                value: &T,
            ) -> Result<(), C::Error> {
                self.inner.$method($($key,)? &Bounded { value, depth: self.depth })
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        })+
    };
}

compound! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeStruct: serialize_field(key: &'static str);
    SerializeStructVariant: serialize_field(key: &'static str);
}

/// Keys have no levels: bson takes texts for them.
impl<C: SerializeMap> SerializeMap for Compound<C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.inner.serialize_value(&Bounded { value, depth: self.depth })
    }

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), C::Error> {
        self.inner.serialize_entry(key, &Bounded { value, depth: self.depth })
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bson::oid::ObjectId;
    use bson::spec::BinarySubtype;
    use bson::{
        Binary, Bson, DateTime, Decimal128, JavaScriptCodeWithScope, RawDocumentBuf, Regex,
        Timestamp, Uuid, cstr, doc, rawdoc,
    };
    use serde::Serialize;

    use super::Bounded;

    /// Everything that serde and bson know.
    #[derive(Serialize)]
    struct Everything {
        numbers: (i8, i16, i32, i64, u8, u16, u32, u64, f32, f64),
        texts: (char, &'static str, String),
        nothing: (Option<i32>, ()),
        unit: Unit,
        tuple: Tuple,
        variants: [Variant; 4],
        newtype: Newtype,
        map: BTreeMap<String, Option<Bson>>,
        of_bson: Vec<Bson>,
        raw: RawDocumentBuf,
        uuid: Uuid,
        #[serde(with = "bson::serde_helpers::object_id::AsHexString")]
        hex: ObjectId,
        #[serde(flatten)]
        flat: BTreeMap<String, i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        skipped: Option<i32>,
    }

    #[derive(Serialize)]
    struct Unit;

    #[derive(Serialize)]
    struct Tuple(i32, Option<bool>);

    #[derive(Serialize)]
    struct Newtype(Vec<i32>);

    #[derive(Serialize)]
    enum Variant {
        Unit,
        Newtype(i32),
        Tuple(i32, i32),
        Struct { a: i32 },
    }

    #[test]
    fn what_is_written_is_what_bson_writes() {
        let scope = JavaScriptCodeWithScope { code: "f".into(), scope: doc! { "a": [1] } };
        let object = ObjectId::from_bytes([7; 12]);
        let everything = Everything {
            numbers: (1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5),
            texts: ('a', "b", "c".into()),
            nothing: (None, ()),
            unit: Unit,
            tuple: Tuple(1, Some(true)),
            variants: [
                Variant::Unit,
                Variant::Newtype(1),
                Variant::Tuple(1, 2),
                Variant::Struct { a: 1 },
            ],
            newtype: Newtype(vec![1, 2]),
            map: [("a".into(), Some(Bson::MinKey)), ("b".into(), None)].into(),
            of_bson: vec![
                Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2] }),
                Bson::DateTime(DateTime::MAX),
                Bson::Decimal128(Decimal128::from_bytes([9; 16])),
                Bson::JavaScriptCode("f".into()),
                Bson::JavaScriptCodeWithScope(scope),
                Bson::ObjectId(object),
                Bson::RegularExpression(Regex {
                    pattern: cstr!("a").into(),
                    options: cstr!("i").into(),
                }),
                Bson::Symbol("s".into()),
                Bson::Timestamp(Timestamp { time: 1, increment: 2 }),
                Bson::Undefined,
                Bson::MaxKey,
                doc! { "a": { "b": [1, { "c": 2 }] } }.into(),
            ],
            raw: rawdoc! { "a": { "b": 1 } },
            uuid: Uuid::from_bytes([5; 16]),
            hex: object,
            flat: [("x".into(), 1)].into(),
            skipped: None,
        };
        let expected = bson::serialize_to_vec(&everything).unwrap();
        assert_eq!(bson::serialize_to_vec(&Bounded::new(&everything)).unwrap(), expected);
        let of_bson = bson::serialize_to_vec(&u64::MAX).unwrap_err().to_string();
        let error = bson::serialize_to_vec(&Bounded::new(&u64::MAX)).unwrap_err();
        assert_eq!(error.to_string(), of_bson);
    }
}
