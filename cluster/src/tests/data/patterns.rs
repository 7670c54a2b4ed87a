//! Regular expressions in filters.

use bson::{Bson, Document, Regex, doc};
use sdam_core::bson;

use super::{ask, batch, client, code, insert};

fn regex(pattern: &str, options: &str) -> Bson {
    let (pattern, options) = (pattern.to_owned(), options.to_owned());
    let regex =
        Regex { pattern: pattern.try_into().unwrap(), options: options.try_into().unwrap() };
    Bson::RegularExpression(regex)
}

fn found(test: impl Into<Bson>) -> Result<Vec<i32>, i32> {
    let (mut world, connection) = client();
    let documents: Vec<Document> = vec![
        doc! { "_id": 1, "s": "abc" },
        doc! { "_id": 2, "s": "ABC\nxyz" },
        doc! { "_id": 3, "s": ["abd", "q"] },
        doc! { "_id": 4, "s": regex("ab", "i") },
        doc! { "_id": 5, "s": 5 },
    ];
    insert(&mut world, connection, documents);
    let reply = ask(&mut world, connection, doc! { "find": "x", "filter": { "s": test.into() } });
    match code(&reply) {
        0 => Ok(batch(&reply).iter().map(|it| it.get_i32("_id").unwrap()).collect()),
        code => Err(code),
    }
}

/// As 4.2.6 and 6.0.5 do.
#[test]
fn a_regular_expression_finds_texts() {
    let cases: [(Bson, &[i32]); 13] = [
        (regex("^ab", ""), &[1, 3]),
        (regex("^ab", "i"), &[1, 2, 3]),
        (regex("ab", "i"), &[1, 2, 3, 4]),
        (doc! { "$regex": "^x", "$options": "m" }.into(), &[2]),
        (doc! { "$options": "is", "$regex": "c.x" }.into(), &[2]),
        (doc! { "$regex": regex("ab", ""), "$options": "i" }.into(), &[1, 2, 3, 4]),
        (doc! { "$in": [regex("^q", ""), 5] }.into(), &[3, 5]),
        (doc! { "$nin": [regex("^q", ""), 5] }.into(), &[1, 2, 4]),
        (doc! { "$not": regex("b", "") }.into(), &[2, 4, 5]),
        (doc! { "$eq": regex("ab", "i") }.into(), &[4]),
        (doc! { "$all": [regex("^abd", ""), regex("q", "")] }.into(), &[3]),
        (doc! { "$elemMatch": { "$regex": "^abd" } }.into(), &[3]),
        (doc! { "$regex": "a", "$gt": "b" }.into(), &[3]),
    ];
    for (test, expected) in cases {
        assert_eq!(found(test.clone()).as_deref(), Ok(expected), "{test}");
    }
}

#[test]
fn a_test_that_is_not_known_is_refused() {
    let cases: [(Bson, i32); 11] = [
        (regex("(", ""), 51091),
        (regex("a", "q"), 51108),
        (doc! { "$regex": 5 }.into(), 2),
        (doc! { "$options": "i" }.into(), 2),
        (doc! { "$regex": "a", "$options": 5 }.into(), 2),
        (doc! { "$regex": regex("a", "i"), "$options": "m" }.into(), 51075),
        (doc! { "$regex": "a\0b" }.into(), 2),
        (doc! { "$ne": regex("b", "") }.into(), 2),
        (doc! { "$gt": regex("b", "") }.into(), 2),
        (doc! { "$in": [{ "$regex": "a" }] }.into(), 2),
        (doc! { "$bitsAllSet": 1 }.into(), 238),
    ];
    for (test, expected) in cases {
        assert_eq!(found(test.clone()), Err(expected), "{test}");
    }
}
