//! Documents of every kind and depth.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{
    Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, Regex, Timestamp, Uuid,
    cstr, doc,
};

use super::Seed;

/// Documents as applications have them, and nested to each side of the limits.
pub(in crate::fuzz) fn documents() -> Vec<Seed> {
    let id = ObjectId::from_bytes([7; 12]);
    let rare = doc! {
        "_id": id,
        "uuid": Uuid::from_bytes([5; 16]),
        "decimal": Decimal128::from_bytes([9; 16]),
        "regex": Regex { pattern: cstr!("a").into(), options: cstr!("i").into() },
        "code": Bson::JavaScriptCode("f()".into()),
        "time": Timestamp { time: 1, increment: 2 },
        "bytes": Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2, 3] },
        "least": Bson::MinKey,
        "undefined": Bson::Undefined,
        "symbol": Bson::Symbol("s".into()),
    };
    let tree = doc! {
        "_id": id, "text": "a", "number": 7, "date": DateTime::from_millis(1),
        "list": [{ "a": { "number": 1.0 } }, { "kind": "leaf" }],
        "kind": { "branch": { "raw": { "x": [1, { "y": [] }] } } },
    };
    let scope = |levels| {
        let scope = nested(levels, Bson::Document);
        let code = JavaScriptCodeWithScope { code: "f".into(), scope };
        doc! { "f": Bson::JavaScriptCodeWithScope(code) }
    };
    let in_arrays = |inner: Document| Bson::Array(vec![inner.into()]);
    let mut seeds = vec![
        ("empty".to_owned(), doc! {}),
        ("tree".to_owned(), tree),
        ("rare".to_owned(), rare),
        ("wrong-number".to_owned(), doc! { "list": [{}, { "number": 70_000 }] }),
        ("wrong-text".to_owned(), doc! { "kind": { "named": { "name": null } } }),
        ("pair".to_owned(), doc! { "kind": { "pair": [1, 2] } }),
        ("extended".to_owned(), doc! { "a": { "$oid": id.to_hex() }, "b": { "$date": 1 } }),
        ("scope".to_owned(), scope(2)),
        ("scope-deep".to_owned(), scope(260)),
        ("id-deep".to_owned(), doc! { "_id": nested(300, Bson::Document) }),
    ];
    for levels in [15, 16, 17, 248, 249, 250, 251, 500] {
        seeds.push((format!("nested-{levels}"), nested(levels, Bson::Document)));
    }
    for levels in [17, 250, 251] {
        seeds.push((format!("arrays-{levels}"), nested(levels / 2, in_arrays)));
    }
    let seeds = seeds.into_iter().map(|(name, document)| {
        let bytes = bson::serialize_to_vec(&document);
        Seed::new(name, bytes.expect("it is BSON"))
    });
    seeds.collect()
}

/// Makes a document of so many levels, each within a value of the next.
fn nested(levels: usize, within: impl Fn(Document) -> Bson) -> Document {
    (1..levels).fold(doc! { "number": 1 }, |inner, _| doc! { "a": within(inner) })
}
