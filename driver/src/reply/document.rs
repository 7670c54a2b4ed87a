//! The reading of a document as a type of the application's.
//!
//! Most documents consist of texts, numbers, booleans, times, identifiers, arrays and documents,
//! and most types ask for those: they are read here, at half of what bson's deserializer takes. All
//! else is left to bson, with the whole document: rare kinds of values, types that bson treats in a
//! way of its own, and whatever is wrong, so that each error is bson's. What is read here is what
//! bson would have read.

use std::fmt::{self, Display};
use std::iter::once;

use bson::RawDocument;
use bson::oid::ObjectId;
use bson::spec::ElementType;
use serde::de::value::{BorrowedStrDeserializer, MapDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::error::Error;

/// The beginning of the names of types that bson's deserializer treats in a way of its own.
const OF_BSON: &str = "$__";

/// Reads a document as a type of the application's.
///
/// # Errors
///
/// Fails as [`bson::deserialize_from_slice`] does.
pub(crate) fn read_as<T: DeserializeOwned>(document: &RawDocument) -> Result<T, Error> {
    read_common(document).or_else(|Uncommon| {
        bson::deserialize_from_slice(document.as_bytes()).map_err(Error::Deserialize)
    })
}

fn read_common<T: DeserializeOwned>(document: &RawDocument) -> Result<T, Uncommon> {
    T::deserialize(Value { kind: ElementType::EmbeddedDocument, bytes: document.as_bytes() })
}

/// A document that is left to bson; what is wrong with it, if anything, bson says.
#[derive(Clone, Copy, Debug)]
struct Uncommon;

/// A value and its bytes, whose number is right where all values of that kind have as many.
#[derive(Clone, Copy, Debug)]
struct Value<'de> {
    kind: ElementType,
    bytes: &'de [u8],
}

/// The elements of a document or an array that were not read yet.
#[derive(Clone, Copy, Debug)]
struct Elements<'de> {
    /// The kind of the value whose key was read last.
    kind: ElementType,
    rest: &'de [u8],
}

impl<'de> Value<'de> {
    fn elements(self) -> Result<Elements<'de>, Uncommon> {
        let [_, _, _, _, rest @ .., 0] = self.bytes else { return Err(Uncommon) };
        Ok(Elements { kind: ElementType::Null, rest })
    }

    fn text(self) -> Result<&'de str, Uncommon> {
        let [_, _, _, _, text @ .., 0] = self.bytes else { return Err(Uncommon) };
        str::from_utf8(text).map_err(|_| Uncommon)
    }

    fn array<const N: usize>(self) -> Result<[u8; N], Uncommon> {
        self.bytes.try_into().map_err(|_| Uncommon)
    }
}

impl<'de> Elements<'de> {
    /// Reads the kind and the key of the next element, `None` behind the last.
    #[inline]
    fn next_key_bytes(&mut self) -> Result<Option<&'de [u8]>, Uncommon> {
        let [kind, rest @ ..] = self.rest else { return Ok(None) };
        self.kind = ElementType::from(*kind).ok_or(Uncommon)?;
        let end = rest.iter().position(|byte| *byte == 0).ok_or(Uncommon)?;
        self.rest = &rest[end + 1..];
        Ok(Some(&rest[..end]))
    }

    /// Reads the value of the element whose key was read.
    #[inline]
    fn next(&mut self) -> Result<Value<'de>, Uncommon> {
        let length = match self.kind {
            ElementType::Null => 0,
            ElementType::Boolean => 1,
            ElementType::Int32 => 4,
            ElementType::Int64 | ElementType::Double | ElementType::DateTime => 8,
            ElementType::ObjectId => 12,
            ElementType::String => 4 + self.length()?,
            ElementType::Binary => 4 + 1 + self.length()?,
            ElementType::EmbeddedDocument | ElementType::Array => self.length()?,
            _ => return Err(Uncommon),
        };
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Uncommon)?;
        self.rest = rest;
        Ok(Value { kind: self.kind, bytes })
    }

    /// Reads the length that a value begins with.
    #[inline]
    fn length(&self) -> Result<usize, Uncommon> {
        let length = i32::from_le_bytes(*self.rest.first_chunk().ok_or(Uncommon)?);
        usize::try_from(length).map_err(|_| Uncommon)
    }
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Uncommon;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Uncommon> {
        match self.kind {
            ElementType::String => visitor.visit_borrowed_str(self.text()?),
            ElementType::Int32 => visitor.visit_i32(i32::from_le_bytes(self.array()?)),
            ElementType::Int64 => visitor.visit_i64(i64::from_le_bytes(self.array()?)),
            ElementType::Double => visitor.visit_f64(f64::from_le_bytes(self.array()?)),
            ElementType::Boolean => match self.bytes {
                [0] => visitor.visit_bool(false),
                [1] => visitor.visit_bool(true),
                _ => Err(Uncommon),
            },
            ElementType::Null => visitor.visit_unit(),
            ElementType::EmbeddedDocument => visitor.visit_map(self.elements()?),
            ElementType::Array => visitor.visit_seq(self.elements()?),
            ElementType::ObjectId => {
                let hex = ObjectId::from_bytes(self.array()?).to_hex();
                visitor.visit_map(MapDeserializer::new(once(("$oid", hex))))
            }
            ElementType::DateTime => {
                let millis = Millis(i64::from_le_bytes(self.array()?));
                visitor.visit_map(MapDeserializer::new(once(("$date", millis))))
            }
            ElementType::Binary => match self.bytes {
                [_, _, _, _, 0, bytes @ ..] => visitor.visit_borrowed_bytes(bytes),
                _ => Err(Uncommon),
            },
            _ => Err(Uncommon),
        }
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Uncommon> {
        match self.kind {
            ElementType::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    #[inline]
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Uncommon> {
        match self.kind {
            ElementType::ObjectId => visitor.visit_borrowed_bytes(self.bytes),
            _ => self.deserialize_any(visitor),
        }
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Uncommon> {
        match name.starts_with(OF_BSON) {
            true => Err(Uncommon),
            false => visitor.visit_newtype_struct(self),
        }
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Uncommon> {
        match self.kind {
            ElementType::String => visitor.visit_enum(BorrowedStrDeserializer::new(self.text()?)),
            ElementType::EmbeddedDocument => visitor.visit_enum(self.elements()?),
            _ => Err(Uncommon),
        }
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Uncommon> {
        match self.kind {
            // Whatever the bytes are, they are one, and need not be made to a text.
            ElementType::ObjectId | ElementType::DateTime => visitor.visit_unit(),
            _ => self.deserialize_any(visitor),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool char str byte_buf unit unit_struct string identifier seq tuple tuple_struct struct map
        i8 i16 i32 i64 u8 u16 u32 u64 f32 f64
    }
}

impl<'de> MapAccess<'de> for Elements<'de> {
    type Error = Uncommon;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Uncommon> {
        let Some(key) = self.next_key_bytes()? else { return Ok(None) };
        let key = str::from_utf8(key).map_err(|_| Uncommon)?;
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Uncommon> {
        seed.deserialize(self.next()?)
    }
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = Uncommon;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Uncommon> {
        match self.next_key_bytes()? {
            None => Ok(None),
            Some(key) if key.is_ascii() => seed.deserialize(self.next()?).map(Some),
            Some(_) => Err(Uncommon),
        }
    }
}

impl<'de> EnumAccess<'de> for Elements<'de> {
    type Error = Uncommon;
    type Variant = Value<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        mut self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), Uncommon> {
        let variant = self.next_key_seed(seed)?.ok_or(Uncommon)?;
        Ok((variant, self.next()?))
    }
}

impl<'de> VariantAccess<'de> for Value<'de> {
    type Error = Uncommon;

    /// Such a variant is written as a text.
    fn unit_variant(self) -> Result<(), Uncommon> {
        Err(Uncommon)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Uncommon> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Uncommon> {
        match self.kind {
            ElementType::Array => visitor.visit_seq(self.elements()?),
            _ => Err(Uncommon),
        }
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Uncommon> {
        match self.kind {
            ElementType::EmbeddedDocument => visitor.visit_map(self.elements()?),
            _ => Err(Uncommon),
        }
    }
}

/// The milliseconds of a time, as the extended JSON of a type that asks for no time has them.
#[derive(Clone, Copy, Debug)]
struct Millis(i64);

impl IntoDeserializer<'_, Uncommon> for Millis {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Millis {
    type Error = Uncommon;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Uncommon> {
        visitor.visit_map(MapDeserializer::new(once(("$numberLong", self.0.to_string()))))
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool char str bytes byte_buf unit unit_struct string identifier seq tuple tuple_struct
        struct map i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 option newtype_struct enum ignored_any
    }
}

impl Display for Uncommon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document that is left to bson")
    }
}

impl std::error::Error for Uncommon {}

/// Texts are not made, as nobody sees them.
impl serde::de::Error for Uncommon {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }

    fn invalid_type(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self
    }

    fn invalid_value(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self
    }

    fn invalid_length(_: usize, _: &dyn Expected) -> Self {
        Self
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self
    }

    fn missing_field(_: &'static str) -> Self {
        Self
    }

    fn duplicate_field(_: &'static str) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use bson::oid::ObjectId;
    use bson::spec::BinarySubtype;
    use bson::{
        Binary, Bson, DateTime, Decimal128, Document, RawDocument, RawDocumentBuf, Regex,
        Timestamp, Uuid, cstr, doc,
    };
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde::de::{DeserializeOwned, IgnoredAny};

    use super::{Uncommon, read_as, read_common};

    /// Fields of each kind of type.
    #[expect(dead_code, reason = "fields are compared by what they print")]
    #[derive(Debug, Deserialize)]
    struct Everything {
        #[serde(rename = "_id")]
        id: Option<ObjectId>,
        text: Option<String>,
        letter: Option<char>,
        int: Option<i32>,
        long: Option<i64>,
        byte: Option<u8>,
        double: Option<f64>,
        boolean: Option<bool>,
        #[serde(default)]
        unit: (),
        date: Option<DateTime>,
        bytes: Option<Vec<u8>>,
        list: Option<Vec<Bson>>,
        pair: Option<(i32, String)>,
        nested: Option<Box<Everything>>,
        newtype: Option<Newtype>,
        shape: Option<Shape>,
        tagged: Option<Tagged>,
        untagged: Option<Untagged>,
        uuid: Option<Uuid>,
        decimal: Option<Decimal128>,
        raw: Option<RawDocumentBuf>,
        ignored: Option<IgnoredAny>,
        #[serde(flatten)]
        others: BTreeMap<String, Bson>,
    }

    #[expect(dead_code, reason = "its number is compared by what it prints")]
    #[derive(Debug, Deserialize)]
    struct Newtype(i64);

    #[expect(dead_code, reason = "fields are compared by what they print")]
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Shape {
        Point,
        Circle(f64),
        Line(i32, i32),
        Box { width: i32 },
    }

    #[expect(dead_code, reason = "fields are compared by what they print")]
    #[derive(Debug, Deserialize)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Tagged {
        Named { name: String },
        Dated { date: DateTime },
    }

    #[expect(dead_code, reason = "fields are compared by what they print")]
    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(i64),
        Text(String),
        Id(ObjectId),
    }

    /// Fails a test if bson reads something else.
    fn compare<T: DeserializeOwned + Debug>(bytes: &[u8]) -> Result<(), Uncommon> {
        let document = RawDocument::from_bytes(bytes).map_err(|_| Uncommon)?;
        let read: T = read_common(document)?;
        match bson::deserialize_from_slice::<T>(bytes) {
            // Printed, numbers that are none equal each other.
            Ok(of_bson) => assert_eq!(format!("{read:?}"), format!("{of_bson:?}")),
            Err(error) => panic!("{read:?} was read, and bson says {error}"),
        }
        Ok(())
    }

    fn compare_all(bytes: &[u8]) {
        let _of_each = (
            compare::<Everything>(bytes),
            compare::<Document>(bytes),
            compare::<Bson>(bytes),
            compare::<BTreeMap<String, Untagged>>(bytes),
            compare::<IgnoredAny>(bytes),
            compare::<Option<Tagged>>(bytes),
            compare::<Shape>(bytes),
            compare::<RawDocumentBuf>(bytes),
        );
    }

    fn common() -> Document {
        doc! {
            "_id": ObjectId::from_bytes([3; 12]), "text": "words", "letter": "w", "int": 7,
            "long": 1_i64 << 40, "byte": 200, "double": 0.5, "boolean": true,
            "date": DateTime::from_millis(-5), "list": [1, "two", { "three": Bson::Null }, [4]],
            "pair": [1, "one"], "nested": { "int": 8, "unknown": 1 }, "newtype": 9_i64,
            "shape": { "box": { "width": 3 } }, "tagged": { "kind": "named", "name": "n" },
            "untagged": "text", "ignored": { "a": [ObjectId::from_bytes([4; 12]), "b"] },
            "bytes": Bson::Null, "more": DateTime::from_millis(9), "unit": Bson::Null,
        }
    }

    fn binary(subtype: BinarySubtype, bytes: &[u8]) -> Bson {
        Bson::Binary(Binary { subtype, bytes: bytes.to_vec() })
    }

    #[test]
    fn common_documents_are_read_without_bson() {
        let bytes = bson::serialize_to_vec(&common()).unwrap();
        assert!(compare::<Everything>(&bytes).is_ok());
        assert!(compare::<Document>(&bytes).is_ok());
        assert!(compare::<BTreeMap<String, Bson>>(&bytes).is_ok());
        for shape in
            [Bson::from("point"), doc! { "circle": 1.0 }.into(), doc! { "line": [1, 2] }.into()]
        {
            let bytes = bson::serialize_to_vec(&doc! { "shape": shape }).unwrap();
            assert!(compare::<Everything>(&bytes).is_ok());
        }
        let generic = doc! { "a": binary(BinarySubtype::Generic, b"bytes") };
        assert!(compare::<Document>(&bson::serialize_to_vec(&generic).unwrap()).is_ok());
    }

    #[test]
    fn what_is_rare_is_read_by_bson() {
        let rare = doc! {
            "uuid": Uuid::from_bytes([5; 16]), "decimal": "1.5".parse::<Decimal128>().unwrap(),
            "raw": { "x": 1 }, "others": Timestamp { time: 1, increment: 2 },
        };
        let raw = RawDocumentBuf::try_from(&rare).unwrap();
        assert!(read_common::<Everything>(&raw).is_err());
        let read: Everything = read_as(&raw).unwrap();
        assert_eq!(read.uuid, Some(Uuid::from_bytes([5; 16])));
        assert_eq!(read_as::<Document>(&raw).unwrap(), rare);
    }

    #[test]
    fn an_error_is_that_of_bson() {
        let raw = RawDocumentBuf::try_from(&doc! { "int": "seven" }).unwrap();
        let error = read_as::<Everything>(&raw).unwrap_err();
        let of_bson = bson::deserialize_from_slice::<Everything>(raw.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(&of_bson.to_string()), "{error}");
    }

    /// A document of which any byte is another, or of which bytes are missing, is never read as
    /// something that bson does not read.
    #[test]
    fn a_damaged_document_is_read_as_bson_does() {
        let mut document = common();
        document.insert("b", binary(BinarySubtype::Generic, b"xyz"));
        let bytes = bson::serialize_to_vec(&document).unwrap();
        for at in 0..bytes.len() {
            for flip in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                compare_all(&bytes);
            }
            compare_all(&bytes[..at]);
            compare_all(&bytes[at..]);
        }
    }

    fn value() -> impl Strategy<Value = Bson> {
        let leaf = prop_oneof![
            any::<String>().prop_map(Bson::String),
            any::<i32>().prop_map(Bson::Int32),
            any::<i64>().prop_map(Bson::Int64),
            any::<f64>().prop_map(Bson::Double),
            any::<bool>().prop_map(Bson::Boolean),
            any::<i64>().prop_map(|millis| DateTime::from_millis(millis).into()),
            any::<[u8; 12]>().prop_map(|bytes| ObjectId::from_bytes(bytes).into()),
            any::<(u8, Vec<u8>)>().prop_map(|(kind, bytes)| binary(kind.into(), &bytes)),
            any::<[u8; 16]>().prop_map(|bytes| Decimal128::from_bytes(bytes).into()),
            any::<(u32, u32)>().prop_map(|(time, increment)| Timestamp { time, increment }.into()),
            any::<String>().prop_map(Bson::JavaScriptCode),
            any::<String>().prop_map(Bson::Symbol),
            Just(Bson::Null),
            Just(Bson::Undefined),
            Just(Bson::MinKey),
            Just(Bson::MaxKey),
            Just(Bson::RegularExpression(Regex {
                pattern: cstr!("a.*").into(),
                options: cstr!("i").into(),
            })),
        ];
        leaf.prop_recursive(3, 24, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Bson::Array),
                prop::collection::vec((key(), inner), 0..6)
                    .prop_map(|fields| Bson::Document(fields.into_iter().collect())),
            ]
        })
    }

    /// Keys that types ask for, that extended JSON has a meaning for, and others.
    fn key() -> impl Strategy<Value = String> {
        let names = vec![
            "_id",
            "text",
            "letter",
            "int",
            "long",
            "byte",
            "double",
            "boolean",
            "unit",
            "date",
            "bytes",
            "list",
            "pair",
            "nested",
            "newtype",
            "shape",
            "tagged",
            "untagged",
            "uuid",
            "decimal",
            "raw",
            "ignored",
            "kind",
            "name",
            "point",
            "circle",
            "line",
            "box",
            "width",
            "$oid",
            "$date",
            "$numberLong",
            "$uuid",
            "$binary",
            "$code",
        ];
        prop_oneof![
            9 => prop::sample::select(names).prop_map(str::to_owned),
            1 => "[^\\x00]{0,8}",
        ]
    }

    proptest! {
        #[test]
        fn any_document_is_read_as_bson_does(
            fields in prop::collection::vec((key(), value()), 0..8),
            damage in any::<Option<(prop::sample::Index, u8)>>(),
        ) {
            let document: Document = fields.into_iter().collect();
            let mut bytes = bson::serialize_to_vec(&document).unwrap();
            if let Some((at, byte)) = damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            compare_all(&bytes);
        }
    }
}
