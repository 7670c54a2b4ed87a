//! Documents of applications in replies, as the driver reads them as types.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, Uuid, doc, rawdoc};
use sdam::operation::{Distinct, Facts, FindOneAndDelete, InsertOne, Operation, Progress, Scope};
use sdam::{Error, ErrorKind};
use sdam_core::wire::{MAX_NESTING, ReplyDocument, nesting};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The most levels of what is read of a document that is nested too deeply, without the rest.
const SHALLOW: usize = 64;

/// The number of levels up to which bson reads the same document, which recurses.
const COMPARED: usize = 32;

/// The wire version of a server that everything is sent to.
const WIRE_VERSION: i32 = 25;

/// A type with what most types have, and with itself in it.
#[expect(dead_code, reason = "fields are compared by what they print")]
#[derive(Debug, Deserialize)]
struct Tree {
    #[serde(rename = "_id")]
    id: Option<ObjectId>,
    a: Option<Box<Tree>>,
    list: Option<Vec<Tree>>,
    kind: Option<Kind>,
    uuid: Option<Uuid>,
    raw: Option<RawDocumentBuf>,
    date: Option<DateTime>,
    number: Option<u16>,
    text: Option<String>,
    #[serde(flatten)]
    others: BTreeMap<String, Bson>,
}

#[expect(dead_code, reason = "fields are compared by what they print")]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Leaf,
    Branch(Box<Tree>),
    Pair(i32, i32),
    Named { name: String },
}

#[expect(dead_code, reason = "fields are compared by what they print")]
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Any {
    Number(i64),
    Text(String),
    Many(Vec<Any>),
    Fields(BTreeMap<String, Any>),
}

/// The input is a document. Its length, and its last byte, are put right.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn documents(bytes: &[u8]) {
    let Some(document) = super::hello::document(bytes) else { return };
    read::<Document>(&document);
    read::<Bson>(&document);
    read::<Tree>(&document);
    read::<BTreeMap<String, Any>>(&document);
    keep(&document);
    write(&document);
}

/// Reads a document as a type: as bson does, unless it is nested too deeply.
fn read<T: DeserializeOwned + Debug>(document: &RawDocument) {
    let read = value::<T>(document);
    match nesting(document, MAX_NESTING) {
        None => match read {
            // The type was read before the levels were: `Bson` of `{ "$date": 1, .. }` is a time.
            Ok(read) => assert!(levels(&format!("{read:?}")) <= SHALLOW, "{read:?}"),
            Err(error) => {
                assert!(error.to_string().contains("levels of documents and arrays"), "{error}");
            }
        },
        Some(COMPARED..) => drop(read),
        Some(_) => compare(document, read),
    }
}

/// Returns how deep the braces and brackets of a value are that it prints, but for those in texts.
fn levels(printed: &str) -> usize {
    let (mut level, mut deepest, mut is_text, mut is_escaped) = (0_usize, 0, false, false);
    for character in printed.chars() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = is_text,
            '"' => is_text = !is_text,
            '{' | '[' if !is_text => level += 1,
            '}' | ']' if !is_text => level = level.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

/// Compares what was read with what bson reads.
fn compare<T: DeserializeOwned + Debug>(document: &RawDocument, read: Result<T, Error>) {
    match (read, bson::deserialize_from_slice::<T>(document.as_bytes())) {
        (Ok(read), Ok(of_bson)) => assert_eq!(format!("{read:?}"), format!("{of_bson:?}")),
        (Err(error), Err(of_bson)) => {
            let error = error.as_deserialize().expect("it is one of a document");
            assert_eq!(error.reason.message, of_bson.message);
            assert!(error.path.starts_with("values.0"), "{error}");
        }
        (read, of_bson) => panic!("{read:?} was read, and bson reads {of_bson:?}"),
    }
}

/// Reads a document beside other values.
fn value<T: DeserializeOwned>(document: &RawDocument) -> Result<T, Error> {
    let values: bson::RawArrayBuf = [document].into_iter().collect();
    let reply = ReplyDocument::from(rawdoc! { "ok": 1, "values": values });
    let mut distinct = Distinct::new("a", doc! {});
    let values = match distinct.reply(&Scope::default(), &reply) {
        Ok(Progress::Done(values)) => values,
        other => panic!("{other:?} of a reply with an array"),
    };
    let first = values.iter().next().expect("there is one");
    first.map_err(|error| {
        assert!(error.as_deserialize().is_some(), "{error} is no error of a document");
        error
    })
}

/// A type that keeps the bytes reads every document, however deep it is.
fn keep(document: &RawDocument) {
    let kept = value::<RawDocumentBuf>(document).expect("nothing is read of it");
    assert_eq!(&*kept, document);
    let mut reply = rawdoc! { "ok": 1 };
    reply.append(bson::cstr!("value"), document);
    let mut delete = FindOneAndDelete::new(doc! {});
    let found = delete.reply(&Scope::default(), &ReplyDocument::from(reply));
    assert!(matches!(found, Ok(Progress::Done(Some(found))) if &*found == document));
}

/// A document of the application is written, or refused: by its `_id` alone.
fn write(document: &RawDocumentBuf) {
    let mut insert = InsertOne::new(document);
    match insert.command(&Scope::default(), &Facts::of_wire_version(WIRE_VERSION)) {
        Ok(command) => assert_eq!(command.sequences[0].1.len(), 1),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Serialize, "{error}"),
    }
}
