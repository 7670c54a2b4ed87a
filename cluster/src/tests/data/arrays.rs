//! The positional operator, and the clauses of `$push`.

use bson::{Document, doc};
use sdam_core::bson;

use super::{all, ask, client, code, insert, must};

/// One document after an update, or the code of its error.
fn updated(filter: Document, update: Document) -> Result<Document, i32> {
    let (mut world, connection) = client();
    let list = vec![doc! { "k": 1, "v": 1 }, doc! { "k": 2, "v": 2 }];
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": [1, 2, 3, 2], "d": list }]);
    let statement = doc! { "q": filter, "u": update };
    let reply = ask(&mut world, connection, doc! { "update": "x", "updates": [statement] });
    match reply.get_array("writeErrors") {
        Ok(errors) => Err(code(errors[0].as_document().unwrap())),
        Err(_) => Ok(all(&mut world, connection).remove(0)),
    }
}

/// As 4.2.6 and 6.0.5 do.
#[test]
fn the_positional_operator_is_the_element_that_was_found() {
    let cases = [
        (doc! { "a": 2 }, doc! { "$set": { "a.$": 9 } }, "a", vec![1.into(), 9.into()]),
        (
            doc! { "a": { "$gt": 2 } },
            doc! { "$unset": { "a.$": 1 } },
            "a",
            vec![1.into(), 2.into(), bson::Bson::Null],
        ),
        (doc! { "$or": [{ "a": 1 }] }, doc! { "$set": { "a.$": 5 } }, "a", vec![5.into()]),
        (
            doc! { "a": { "$in": [3] } },
            doc! { "$inc": { "a.$": 5 } },
            "a",
            vec![1.into(), 2.into(), 8.into()],
        ),
        (
            doc! { "d.k": 2 },
            doc! { "$inc": { "d.$.v": 5 } },
            "d",
            vec![doc! { "k": 1, "v": 1 }.into(), doc! { "k": 2, "v": 7 }.into()],
        ),
        (
            doc! { "d": { "$elemMatch": { "k": 1, "v": 1 } } },
            doc! { "$set": { "d.$.v": 7 } },
            "d",
            vec![doc! { "k": 1, "v": 7 }.into()],
        ),
        (
            doc! { "a": 3, "d.k": 2 },
            doc! { "$set": { "d.$.v": 6 } },
            "d",
            vec![doc! { "k": 1, "v": 1 }.into(), doc! { "k": 2, "v": 6 }.into()],
        ),
    ];
    for (filter, update, field, expected) in cases {
        let after = updated(filter, update.clone()).unwrap();
        assert!(after.get_array(field).unwrap().starts_with(&expected), "{update}: {after}");
    }
    let set = |path: &str| doc! { "$set": { path: 9 } };
    let wrong = [
        (doc! {}, set("a.$")),
        (doc! { "a": { "$ne": 77 } }, set("a.$")),
        (doc! { "a": { "$size": 4 } }, set("a.$")),
        (doc! { "d.0.k": 1 }, set("d.$.x")),
        (doc! { "a": 1 }, set("$.a")),
        (doc! { "a": 1 }, set("a.$.$")),
        (doc! { "d.k": 1 }, set("d.$.$[].x")),
        (doc! { "d.k": 1 }, doc! { "$rename": { "d.$.k": "d.$.y" } }),
    ];
    for (filter, update) in wrong {
        assert_eq!(updated(filter, update.clone()), Err(2), "{update}");
    }
}

#[test]
fn push_has_clauses_that_say_where_and_how_many() {
    let push = |clauses: Document| {
        let mut all = doc! { "$each": [7, 0] };
        all.extend(clauses);
        doc! { "$push": { "a": all } }
    };
    let cases = [
        (doc! {}, vec![1, 2, 3, 2, 7, 0]),
        (doc! { "$position": 1 }, vec![1, 7, 0, 2, 3, 2]),
        (doc! { "$position": -1 }, vec![1, 2, 3, 7, 0, 2]),
        (doc! { "$slice": 2 }, vec![1, 2]),
        (doc! { "$slice": -2 }, vec![7, 0]),
        (doc! { "$sort": -1 }, vec![7, 3, 2, 2, 1, 0]),
        (doc! { "$sort": 1, "$slice": 3 }, vec![0, 1, 2]),
    ];
    for (clauses, expected) in cases {
        let after = updated(doc! {}, push(clauses.clone())).unwrap();
        let expected: Vec<bson::Bson> = expected.into_iter().map(bson::Bson::Int32).collect();
        assert_eq!(after.get_array("a").unwrap(), &expected, "{clauses}");
    }
    assert_eq!(updated(doc! {}, push(doc! { "$nonsense": 1 })), Err(2));
    let by_field = doc! { "$push": { "d": { "$each": [], "$sort": { "k": -1 } } } };
    let after = updated(doc! {}, by_field).unwrap();
    assert_eq!(after.get_array("d").unwrap()[0], doc! { "k": 2, "v": 2 }.into());
}

#[test]
fn bits_and_dates_are_set() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "n": 12 }]);
    let bit = doc! { "$bit": { "n": { "and": 10 }, "m": { "or": 5_i64 } } };
    let dates = doc! { "$currentDate": { "d": true, "t": { "$type": "timestamp" } } };
    for update in [bit, dates] {
        let statement = doc! { "q": {}, "u": update };
        must(&mut world, connection, doc! { "update": "x", "updates": [statement] });
    }
    let after = all(&mut world, connection).remove(0);
    assert_eq!((after.get_i32("n").unwrap(), after.get_i64("m").unwrap()), (8, 5));
    assert!(after.get_datetime("d").is_ok() && after.get_timestamp("t").is_ok(), "{after}");
}
