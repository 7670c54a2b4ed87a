//! The reading of a document as a type of the application's.
//!
//! Documents are read here in a half to two thirds of the time of bson's deserializer, and so are
//! the bytes of a document within that a type keeps. All else is left to bson, which reads the
//! whole document again: pointers to documents, binaries of other subtypes than the generic one,
//! types that bson treats in a way of its own, as UUIDs, and whatever is wrong, so that each error
//! is bson's. A type that goes on after an error does not see one of this reader: once something
//! was left to bson, or the text of an error was made, what was read is not used.
//!
//! Whatever reads a document as a type recurses once a level. The first levels are read where they
//! are met; for more, the whole document is looked at once, without recursion: a document of more
//! than [`MAX_NESTING`] levels is an error, and others have a stack of their own if the thread's
//! may be too short.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Debug, Display};

use bson::oid::ObjectId;
use bson::spec::ElementType;
use bson::{RawDeserializer, RawDocument, Timestamp};
use sdam_core::wire::{MAX_NESTING, nesting};
use serde::de::value::{BorrowedStrDeserializer, CowStrDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Expected, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::error::DeserializeError;
use super::stack::{SHALLOW, with_stack_for};
use super::value::too_deep;

/// The beginning of the names of types that bson's deserializer treats in a way of its own.
const OF_BSON: &str = "$__";

/// The ends of the names of those types that keep the bytes of a document as they are.
const RAW: [&str; 2] = ["RawDocument", "RawBson"];

/// Reads a document as a type of the application's.
///
/// # Errors
///
/// Fails as [`bson::deserialize_from_slice`] does, and if there are more than [`MAX_NESTING`]
/// levels of documents and arrays, unless the type keeps their bytes.
pub fn read_as<'de, T: Deserialize<'de>>(
    document: &'de RawDocument,
) -> Result<T, Box<DeserializeError>> {
    read_common(document, SHALLOW).or_else(|Uncommon(())| read_uncommon(document))
}

fn read_uncommon<'de, T: Deserialize<'de>>(
    document: &'de RawDocument,
) -> Result<T, Box<DeserializeError>> {
    let unreadable = |reason, path| Box::new(DeserializeError::new(reason, document, path));
    let Some(levels) = nesting(document, MAX_NESTING) else {
        return Err(unreadable(too_deep(), String::new()));
    };
    with_stack_for(levels, || {
        if levels > SHALLOW
            && let Ok(read) = read_common(document, levels)
        {
            return Ok(read);
        }
        bson::deserialize_from_slice(document.as_bytes())
            .map_err(|error| unreadable(error, path_of_error::<T>(document)))
    })
}

/// Reads a document that cannot be read once more, to learn where: the names of fields and the
/// indexes of elements, with dots between them; empty for the document itself.
#[cold]
fn path_of_error<'de, T: Deserialize<'de>>(document: &'de RawDocument) -> String {
    use serde_path_to_error::Segment;

    let Ok(deserializer) = RawDeserializer::new(document.as_bytes()) else { return String::new() };
    let Err(error) = serde_path_to_error::deserialize::<_, T>(deserializer) else {
        return String::new();
    };
    let segments = error.path().iter().map(|segment| match segment {
        Segment::Seq { index } => index.to_string(),
        Segment::Map { key } => key.clone(),
        Segment::Enum { variant } => variant.clone(),
        Segment::Unknown => "?".to_owned(),
    });
    segments.collect::<Vec<_>>().join(".")
}

fn read_common<'de, T: Deserialize<'de>>(
    document: &'de RawDocument,
    levels: usize,
) -> Result<T, Uncommon> {
    let before = LEFT.get();
    let (kind, bytes) = (ElementType::EmbeddedDocument, document.as_bytes());
    let read = T::deserialize(Value { kind, bytes, levels })?;
    match LEFT.get() == before {
        true => Ok(read),
        false => Err(Uncommon(())),
    }
}

thread_local! {
    /// The number of times that something was left to bson on this thread.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// An error after which bson reads the document, and says what is wrong with it, if anything.
///
/// It is one of a type that does not fit, as bson would have it as well, unless it comes from
/// [`left`].
struct Uncommon(());

/// Leaves the document to bson, even if a type goes on after this error.
#[cold]
fn left() -> Uncommon {
    LEFT.set(LEFT.get() + 1);
    Uncommon(())
}

/// A value and its bytes, whose number is right where all values of that kind have as many.
#[derive(Clone, Copy, Debug)]
struct Value<'de> {
    kind: ElementType,
    bytes: &'de [u8],
    /// The number of levels of documents and arrays that it may have.
    levels: usize,
}

/// The elements of a document or an array that were not read yet.
#[derive(Clone, Copy, Debug)]
struct Elements<'de> {
    /// The value whose key was read last.
    value: Option<Value<'de>>,
    rest: &'de [u8],
    /// The number of levels that its elements may have.
    levels: usize,
}

impl<'de> Value<'de> {
    #[inline]
    fn elements(self) -> Result<Elements<'de>, Uncommon> {
        let [_, _, _, _, rest @ .., 0] = self.bytes else { return Err(left()) };
        let levels = self.levels.checked_sub(1).ok_or_else(left)?;
        Ok(Elements { value: None, rest, levels })
    }

    #[inline]
    fn text(self) -> Result<&'de str, Uncommon> {
        let [_, _, _, _, text @ .., 0] = self.bytes else { return Err(left()) };
        str::from_utf8(text).map_err(|_| left())
    }

    fn array<const N: usize>(self) -> Result<[u8; N], Uncommon> {
        self.bytes.try_into().map_err(|_| left())
    }

    /// Reads a value of a kind that few documents have: within the function that reads values of
    /// any kind, it would make that too long to be inlined where a field is read.
    #[inline(never)]
    fn rare<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Uncommon> {
        let (key, value) = match self.kind {
            ElementType::Timestamp => {
                let written = u64::from_le_bytes(self.array()?);
                let (time, increment) = ((written >> 32) as u32, written as u32);
                ("$timestamp", Word::Timestamp(Timestamp { time, increment }))
            }
            ElementType::JavaScriptCode => ("$code", Word::Text(self.text()?)),
            ElementType::Symbol => ("$symbol", Word::Text(self.text()?)),
            ElementType::Undefined => ("$undefined", Word::True),
            ElementType::MinKey => ("$minKey", Word::One),
            ElementType::MaxKey => ("$maxKey", Word::One),
            ElementType::Decimal128 => ("$numberDecimalBytes", Word::Decimal(self.array()?)),
            ElementType::RegularExpression => {
                let [pattern @ .., 0] = self.bytes else { return Err(left()) };
                let text = str::from_utf8(pattern).map_err(|_| left())?;
                let (pattern, options) = text.split_once('\0').ok_or_else(left)?;
                ("$regularExpression", Word::Regex { pattern, options })
            }
            ElementType::JavaScriptCodeWithScope => return visitor.visit_map(self.code()?),
            _ => return Err(left()),
        };
        visitor.visit_map(Extended { key, is_read: false, value })
    }

    /// Reads code, whose scope takes two levels, as its text and its scope are fields.
    fn code(self) -> Result<Parts<'de>, Uncommon> {
        let code = self.bytes.get(4..).ok_or_else(left)?;
        let (text, scope) =
            code.split_at_checked(length(ElementType::String, code)?).ok_or_else(left)?;
        if !text.ends_with(&[0]) || length(ElementType::EmbeddedDocument, scope)? != scope.len() {
            return Err(left());
        }
        let levels = self.levels.checked_sub(1).ok_or_else(left)?;
        let text = Value { kind: ElementType::String, bytes: text, levels }.text()?;
        let scope = Value { kind: ElementType::EmbeddedDocument, bytes: scope, levels };
        let parts = [("$code", Word::Text(text)), ("$scope", Word::Scope(scope.elements()?))];
        Ok(Parts { rest: parts.into_iter(), part: None })
    }
}

impl<'de> Elements<'de> {
    /// Reads the next element, and returns its key; `None` behind the last.
    #[inline]
    fn next_key_bytes(&mut self) -> Result<Option<&'de [u8]>, Uncommon> {
        self.value = None;
        // Behind what cannot be read there is nothing.
        let [kind, rest @ ..] = std::mem::take(&mut self.rest) else { return Ok(None) };
        let kind = ElementType::from(*kind).ok_or_else(left)?;
        let end = rest.iter().position(|byte| *byte == 0).ok_or_else(left)?;
        let (key, rest) = (&rest[..end], &rest[end + 1..]);
        let (bytes, rest) = rest.split_at_checked(length(kind, rest)?).ok_or_else(left)?;
        let ends_with_zero = matches!(
            kind,
            ElementType::String
                | ElementType::EmbeddedDocument
                | ElementType::Array
                | ElementType::JavaScriptCode
                | ElementType::Symbol
        );
        if ends_with_zero && !matches!(bytes, [_, _, _, _, .., 0]) {
            return Err(left());
        }
        let levels = self.levels;
        (self.value, self.rest) = (Some(Value { kind, bytes, levels }), rest);
        Ok(Some(key))
    }

    /// Returns the value of the element whose key was read.
    #[inline]
    fn value(&self) -> Result<Value<'de>, Uncommon> {
        self.value.ok_or_else(left)
    }
}

/// Returns the number of bytes of the value that `rest` begins with.
#[inline]
fn length(kind: ElementType, rest: &[u8]) -> Result<usize, Uncommon> {
    let written = || {
        let length = i32::from_le_bytes(*rest.first_chunk().ok_or_else(left)?);
        usize::try_from(length).map_err(|_| left())
    };
    Ok(match kind {
        ElementType::Null | ElementType::Undefined | ElementType::MinKey | ElementType::MaxKey => 0,
        ElementType::Boolean => 1,
        ElementType::Int32 => 4,
        ElementType::Int64
        | ElementType::Double
        | ElementType::DateTime
        | ElementType::Timestamp => 8,
        ElementType::ObjectId => 12,
        ElementType::String | ElementType::JavaScriptCode | ElementType::Symbol => 4 + written()?,
        ElementType::Binary => 4 + 1 + written()?,
        ElementType::EmbeddedDocument
        | ElementType::Array
        | ElementType::JavaScriptCodeWithScope => written()?,
        ElementType::Decimal128 => 16,
        ElementType::RegularExpression => {
            let mut ends = (1..).zip(rest).filter(|(_, byte)| **byte == 0);
            let (length, _) = ends.nth(1).ok_or_else(left)?;
            // bson reads these texts wherever they are, also where a type ignores them.
            str::from_utf8(&rest[..length]).map_err(|_| left())?;
            length
        }
        _ => return Err(left()),
    })
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
                _ => Err(left()),
            },
            ElementType::Null => visitor.visit_unit(),
            ElementType::EmbeddedDocument => visitor.visit_map(self.elements()?),
            ElementType::Array => visitor.visit_seq(self.elements()?),
            ElementType::ObjectId => {
                let id = ObjectId::from_bytes(self.array()?);
                visitor.visit_map(Extended { key: "$oid", is_read: false, value: Word::Id(id) })
            }
            ElementType::DateTime => {
                let value = Word::Millis(i64::from_le_bytes(self.array()?));
                visitor.visit_map(Extended { key: "$date", is_read: false, value })
            }
            ElementType::Binary => match self.bytes {
                [_, _, _, _, 0, bytes @ ..] => visitor.visit_borrowed_bytes(bytes),
                _ => Err(left()),
            },
            _ => self.rare(visitor),
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
        match name.strip_prefix(OF_BSON) {
            None => visitor.visit_newtype_struct(self),
            Some(of_bson)
                if self.kind == ElementType::EmbeddedDocument
                    && RAW.iter().any(|raw| of_bson.ends_with(raw)) =>
            {
                // That does not recurse, however deep the document is.
                let document = RawDeserializer::new(self.bytes).map_err(|_| left())?;
                document.deserialize_newtype_struct(name, visitor).map_err(|_| left())
            }
            Some(_) => Err(left()),
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
            ElementType::String => {
                visitor.visit_enum(CowStrDeserializer::new(Cow::Borrowed(self.text()?)))
            }
            ElementType::EmbeddedDocument => visitor.visit_enum(self.elements()?),
            _ => Err(left()),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool char str byte_buf unit unit_struct string identifier seq tuple tuple_struct struct map
        i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 ignored_any
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
        let key = str::from_utf8(key).map_err(|_| left())?;
        seed.deserialize(BorrowedStrDeserializer::new(key)).map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Uncommon> {
        seed.deserialize(self.value()?)
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
            Some(key) if key.is_ascii() => seed.deserialize(self.value()?).map(Some),
            Some(_) => Err(left()),
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
        let variant = self.next_key_seed(seed)?.ok_or_else(left)?;
        Ok((variant, self.value()?))
    }
}

impl<'de> VariantAccess<'de> for Value<'de> {
    type Error = Uncommon;

    /// Such a variant is written as a text.
    fn unit_variant(self) -> Result<(), Uncommon> {
        Err(left())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Uncommon> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Uncommon> {
        match self.kind {
            ElementType::Array => visitor.visit_seq(self.elements()?),
            _ => Err(left()),
        }
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Uncommon> {
        match self.kind {
            ElementType::EmbeddedDocument => visitor.visit_map(self.elements()?),
            _ => Err(left()),
        }
    }
}

/// The extended JSON that a type sees which asks for neither an identifier nor a time.
struct Extended<'de> {
    key: &'static str,
    is_read: bool,
    value: Word<'de>,
}

/// A word of extended JSON: a key, or what it is the key of.
#[derive(Clone, Copy)]
enum Word<'de> {
    Key(&'static str),
    Id(ObjectId),
    Millis(i64),
    Number(i64),
    Timestamp(Timestamp),
    Part(u32),
    Text(&'de str),
    True,
    One,
    Decimal([u8; 16]),
    Regex { pattern: &'de str, options: &'de str },
    Scope(Elements<'de>),
}

impl<'de> MapAccess<'de> for Extended<'de> {
    type Error = Uncommon;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Uncommon> {
        match std::mem::replace(&mut self.is_read, true) {
            true => Ok(None),
            false => seed.deserialize(Word::Key(self.key)).map(Some),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Uncommon> {
        match self.is_read {
            true => seed.deserialize(self.value),
            false => Err(left()),
        }
    }
}

impl<'de> Deserializer<'de> for Word<'de> {
    type Error = Uncommon;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Uncommon> {
        match self {
            Self::Key(key) => visitor.visit_borrowed_str(key),
            Self::Id(id) => visitor.visit_string(id.to_hex()),
            Self::Millis(millis) => {
                let value = Self::Number(millis);
                visitor.visit_map(Extended { key: "$numberLong", is_read: false, value })
            }
            Self::Number(number) => visitor.visit_string(number.to_string()),
            Self::Timestamp(Timestamp { time, increment }) => {
                let parts = [("t", Self::Part(time)), ("i", Self::Part(increment))];
                visitor.visit_map(Parts { rest: parts.into_iter(), part: None })
            }
            Self::Part(number) => visitor.visit_u32(number),
            Self::Text(text) => visitor.visit_borrowed_str(text),
            Self::True => visitor.visit_bool(true),
            Self::One => visitor.visit_i32(1),
            Self::Decimal(bytes) => visitor.visit_bytes(&bytes),
            Self::Scope(elements) => visitor.visit_map(elements),
            Self::Regex { pattern, options } => {
                let parts = [("pattern", Self::Text(pattern)), ("options", Self::Text(options))];
                visitor.visit_map(Parts { rest: parts.into_iter(), part: None })
            }
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Uncommon> {
        match self {
            Self::Id(_) | Self::Timestamp(_) | Self::Part(_) | Self::Decimal(_) => {
                self.deserialize_any(visitor)
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool char str bytes byte_buf unit unit_struct string identifier seq tuple tuple_struct
        struct map i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 option enum ignored_any
    }
}

/// The parts of a timestamp, a regular expression or code with a scope, as extended JSON has them.
struct Parts<'de> {
    rest: std::array::IntoIter<(&'static str, Word<'de>), 2>,
    part: Option<Word<'de>>,
}

impl<'de> MapAccess<'de> for Parts<'de> {
    type Error = Uncommon;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Uncommon> {
        let Some((key, part)) = self.rest.next() else { return Ok(None) };
        self.part = Some(part);
        seed.deserialize(Word::Key(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Uncommon> {
        seed.deserialize(self.part.take().ok_or_else(left)?)
    }
}

/// The text is in no result: making it leaves the document to bson, whose error has its own.
impl Display for Uncommon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(()) = left();
        f.write_str("a document that is left to bson")
    }
}

impl Debug for Uncommon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl std::error::Error for Uncommon {}

/// Texts are made by bson alone.
impl serde::de::Error for Uncommon {
    fn custom<T: Display>(_: T) -> Self {
        Self(())
    }

    fn invalid_type(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self(())
    }

    fn invalid_value(_: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self(())
    }

    fn invalid_length(_: usize, _: &dyn Expected) -> Self {
        Self(())
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self(())
    }

    fn unknown_field(_: &str, _: &'static [&'static str]) -> Self {
        Self(())
    }

    fn missing_field(_: &'static str) -> Self {
        Self(())
    }

    fn duplicate_field(_: &'static str) -> Self {
        Self(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use bson::oid::ObjectId;
    use bson::spec::BinarySubtype;
    use bson::{
        Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, RawDocument,
        RawDocumentBuf, Regex, Timestamp, Uuid, cstr, doc,
    };
    use proptest::prelude::*;
    use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
    use serde::{Deserialize, Deserializer};

    use super::{SHALLOW, Uncommon, read_as, read_common};

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
        timestamp: Option<Timestamp>,
        ignored: Option<IgnoredAny>,
        #[serde(flatten)]
        others: BTreeMap<String, Bson>,
    }

    /// A type that goes on after errors.
    #[derive(Debug, Deserialize)]
    struct Lenient {
        #[serde(default, deserialize_with = "lenient")]
        uuid: Option<Uuid>,
        #[expect(dead_code, reason = "fields are compared by what they print")]
        #[serde(default, deserialize_with = "lenient")]
        list: Option<Vec<Decimal128>>,
        #[expect(dead_code, reason = "fields are compared by what they print")]
        #[serde(default, deserialize_with = "lenient")]
        nested: Option<BTreeMap<String, bson::DateTime>>,
        #[expect(dead_code, reason = "fields are compared by what they print")]
        #[serde(default, deserialize_with = "tried")]
        int: Option<Result<i32, String>>,
    }

    fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(T::deserialize(from).ok())
    }

    fn tried<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Result<i32, String>>, D::Error> {
        Ok(Some(i32::deserialize(from).map_err(|error| error.to_string())))
    }

    /// The keys of a document, whose values are not looked at.
    #[derive(Debug)]
    struct Keys(#[expect(dead_code, reason = "compared by what it prints")] Vec<String>);

    impl<'de> Deserialize<'de> for Keys {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            struct Collect;

            impl<'de> Visitor<'de> for Collect {
                type Value = Keys;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a document")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                    let mut keys = Vec::new();
                    while let Some(key) = map.next_key()? {
                        keys.push(key);
                    }
                    Ok(Keys(keys))
                }
            }

            from.deserialize_map(Collect)
        }
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

    #[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Word {
        #[serde(rename = "$oid")]
        Id,
        #[serde(rename = "$date")]
        Date,
        #[serde(other)]
        Other,
    }

    /// Fails a test if bson reads something else.
    fn compare<T: DeserializeOwned + Debug>(bytes: &[u8]) -> Result<(), Uncommon> {
        let document = RawDocument::from_bytes(bytes).map_err(|_| Uncommon(()))?;
        let read: T = read_common(document, SHALLOW)?;
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
            compare::<Lenient>(bytes),
            compare::<Keys>(bytes),
            compare::<BTreeMap<String, BTreeMap<Word, String>>>(bytes),
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
            "timestamp": Timestamp { time: 5, increment: 6 }, "raw": { "a": { "b": 1 } },
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

    /// A document with the kinds of values that few have.
    fn rare() -> Document {
        let regex = Regex { pattern: cstr!("a.*").into(), options: cstr!("i").into() };
        let scope = doc! { "a": { "b": [1] } };
        doc! {
            "decimal": "1.5".parse::<Decimal128>().unwrap(), "undefined": Bson::Undefined,
            "least": Bson::MinKey, "most": Bson::MaxKey, "symbol": Bson::Symbol("s".to_owned()),
            "code": Bson::JavaScriptCode("f".to_owned()), "regex": regex,
            "time": Timestamp { time: 1, increment: 2 },
            "scope": JavaScriptCodeWithScope { code: "f".into(), scope },
        }
    }

    #[test]
    fn kinds_that_are_rare_are_read_without_bson() {
        let raw = RawDocumentBuf::try_from(&rare()).unwrap();
        assert_eq!(read_common::<Document>(&raw, SHALLOW).ok(), Some(rare()));
    }

    #[test]
    fn what_is_rare_is_read_by_bson() {
        let rare = doc! {
            "uuid": Uuid::from_bytes([5; 16]), "decimal": "1.5".parse::<Decimal128>().unwrap(),
            "raw": { "x": 1 }, "others": Bson::MaxKey,
        };
        let raw = RawDocumentBuf::try_from(&rare).unwrap();
        assert!(read_common::<Everything>(&raw, SHALLOW).is_err());
        let read: Everything = read_as(&raw).unwrap();
        assert_eq!(read.uuid, Some(Uuid::from_bytes([5; 16])));
        assert_eq!(read_as::<Document>(&raw).unwrap(), rare);
    }

    #[test]
    fn a_type_that_goes_on_after_errors_sees_those_of_bson() {
        let id = Uuid::from_bytes([5; 16]);
        let raw = RawDocumentBuf::try_from(&doc! { "uuid": id, "int": "seven" }).unwrap();
        let read: Lenient = read_as(&raw).unwrap();
        assert_eq!(read.uuid, Some(id));
        let of_bson: Lenient = bson::deserialize_from_slice(raw.as_bytes()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{of_bson:?}"));
    }

    /// The same of one that goes on after the error of a whole document.
    #[test]
    fn a_type_that_goes_on_after_the_error_of_a_document_has_its_data() {
        #[derive(Debug)]
        struct Ignoring(Option<Document>);

        impl<'de> Deserialize<'de> for Ignoring {
            fn deserialize<D: serde::Deserializer<'de>>(of: D) -> Result<Self, D::Error> {
                Ok(Self(Document::deserialize(of).ok()))
            }
        }

        for rare in [BinarySubtype::Uuid, BinarySubtype::Md5].map(|kind| binary(kind, &[5; 16])) {
            let document = doc! { "a": 1, "rare": rare };
            let raw = RawDocumentBuf::try_from(&document).unwrap();
            assert!(read_common::<Ignoring>(&raw, SHALLOW).is_err(), "it is left to bson");
            assert_eq!(read_as::<Ignoring>(&raw).unwrap().0, Some(document));
        }
    }

    #[test]
    fn an_error_is_that_of_bson() {
        let raw = RawDocumentBuf::try_from(&doc! { "int": "seven" }).unwrap();
        let error = read_as::<Everything>(&raw).unwrap_err();
        let of_bson = bson::deserialize_from_slice::<Everything>(raw.as_bytes()).unwrap_err();
        assert_eq!(format!("{:?}", error.reason), format!("{of_bson:?}"));
        assert_eq!((error.path.as_str(), &error.id), ("int", &None));
    }

    /// A book, as an application has it.
    #[derive(Debug, Deserialize)]
    struct Book {
        #[expect(dead_code, reason = "only read")]
        year: u16,
        #[expect(dead_code, reason = "only read")]
        nested: Nested,
    }

    #[derive(Debug, Deserialize)]
    struct Nested {
        #[expect(dead_code, reason = "only read")]
        tags: Vec<Tag>,
    }

    #[derive(Debug, Deserialize)]
    struct Tag {
        #[expect(dead_code, reason = "only read")]
        name: String,
    }

    #[test]
    fn an_error_names_the_field_and_the_id_of_the_document() {
        let sentence = |document: Document| {
            let raw = RawDocumentBuf::try_from(&document).unwrap();
            read_as::<Book>(&raw).unwrap_err().to_string()
        };
        let tags = |name: Bson| doc! { "tags": [{ "name": "a" }, { "name": name }] };
        let expected = "the server's document {\"_id\": 7} cannot be read as the application's \
                        type: at nested.tags.1.name, invalid type: unit value, expected a string";
        let null = doc! { "_id": 7, "year": 1, "nested": tags(Bson::Null) };
        assert_eq!(sentence(null), expected);
        // The value of another kind is read by bson.
        let rare = doc! { "price": Decimal128::from_bytes([9; 16]), "_id": "x", "year": 70_000 };
        let expected = "the server's document {\"_id\": \"x\"} cannot be read as the application's \
                        type: at year, invalid value: integer `70000`, expected u16";
        assert_eq!(sentence(rare), expected);
        let expected = "the server's document cannot be read as the application's type: at \
                        nested.tags.0, missing field `name`";
        assert_eq!(sentence(doc! { "year": 1, "nested": { "tags": [{}] } }), expected);
        let expected = "the server's document cannot be read as the application's type: missing \
                        field `nested`";
        assert_eq!(sentence(doc! { "year": 1 }), expected);
    }

    /// An `_id` and a path may be as long as a document.
    #[test]
    fn an_error_keeps_no_more_of_a_document_than_a_kilobyte() {
        let long = "\u{e4}".repeat(600);
        let document = doc! { "_id": &long, &long: "a" };
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let error = read_as::<BTreeMap<String, i32>>(&raw).unwrap_err();
        assert_eq!((&error.id, error.path.as_str()), (&None, "_id"));
        let document = doc! { "_id": 1, &long: "a" };
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let error = read_as::<BTreeMap<String, i32>>(&raw).unwrap_err();
        assert_eq!((error.id.is_some(), error.path.len()), (true, 1024));
    }

    /// A document of which any byte is another, or of which bytes are missing, is never read as
    /// something that bson does not read.
    #[test]
    fn a_damaged_document_is_read_as_bson_does() {
        let mut document = common();
        document.insert("b", binary(BinarySubtype::Generic, b"xyz"));
        document.extend(rare());
        let bytes = bson::serialize_to_vec(&document).unwrap();
        for at in 0..bytes.len() {
            for flip in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                compare_all(&bytes);
            }
            // The same without a byte, and with the length that it has then.
            let mut less = bytes.clone();
            less.remove(at);
            let length = less.len() as u32;
            less[..4].copy_from_slice(&length.to_le_bytes());
            compare_all(&less);
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
            any::<(String, i32)>().prop_map(|(code, number)| {
                let scope = doc! { "a": { "b": number } };
                Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope })
            }),
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
            "timestamp",
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
            "$timestamp",
            "t",
            "i",
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
