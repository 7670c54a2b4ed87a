//! Each rule, from both sides.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, bson, doc};

use super::{Entities, Matcher, same};

/// A value called `value`, and a session called `session`.
struct Named;

impl Entities for Named {
    fn value(&self, name: &str) -> Option<Bson> {
        (name == "value").then(|| bson!({ "x": 1 }))
    }

    fn session_id(&self, name: &str) -> Option<Document> {
        let uuid = || Bson::from(bson::Uuid::from_bytes([7; 16]));
        match name {
            "session" => Some(doc! { "id": 7 }),
            "uuid" => Some(doc! { "id": uuid() }),
            _ => None,
        }
    }
}

fn root(expected: &Bson, actual: &Bson) -> Result<(), String> {
    shown(Matcher::new(&Named).root("", expected, Some(actual)))
}

fn value(expected: &Bson, actual: Option<&Bson>) -> Result<(), String> {
    shown(Matcher::new(&Named).value("it", expected, actual))
}

fn shown(compared: Result<(), crate::spec::Difference>) -> Result<(), String> {
    compared.map_err(|found| format!("{}: {} / {}", found.place, found.expected, found.found))
}

#[test]
fn more_fields_are_allowed_at_the_root_and_nowhere_else() {
    let expected = bson!({ "x": { "y": 1 } });
    assert_eq!(root(&expected, &bson!({ "z": 0, "x": { "y": 1 } })), Ok(()));
    assert_eq!(
        root(&expected, &bson!({ "x": { "y": 1, "z": 2 } })),
        Err("x.z: nothing / 2".to_owned())
    );
    assert_eq!(root(&expected, &bson!({ "x": {} })), Err("x.y: 1 / nothing".to_owned()));
    assert_eq!(value(&bson!({}), Some(&bson!({ "x": 1 }))), Err("it.x: nothing / 1".to_owned()));
}

#[test]
fn keys_may_come_in_another_order() {
    assert_eq!(value(&bson!({ "x": 1, "y": 1 }), Some(&bson!({ "y": 1, "x": 1 }))), Ok(()));
}

#[test]
fn arrays_match_element_by_element() {
    let expected = bson!([{ "x": 1 }, { "x": 2 }]);
    let actual = bson!([{ "x": 1, "y": 1 }, { "x": 2 }]);
    let matcher = Matcher::new(&Named);
    assert_eq!(shown(matcher.roots("it", &expected, Some(&actual))), Ok(()));
    assert_eq!(value(&expected, Some(&actual)), Err("it[0].y: nothing / 1".to_owned()));
    assert_eq!(
        value(&bson!([1, 2]), Some(&bson!([1, 2, 3]))),
        Err("it: 2 elements: [1,2] / 3 elements: [1,2,3]".to_owned())
    );
}

#[test]
fn numbers_are_compared_by_value_and_other_types_are_not() {
    let long = Bson::Int64(1);
    for number in [Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0)] {
        assert_eq!(value(&number, Some(&long)), Ok(()), "{number}");
    }
    assert!(value(&Bson::Int32(1), Some(&Bson::Double(1.5))).is_err());
    // The double nearest to a whole number is not always that number.
    let odd = (1_i64 << 53) + 1;
    assert!(value(&Bson::Int64(odd), Some(&Bson::Double(odd as f64))).is_err());
    for other in [bson!("1"), bson!(true), Bson::Null] {
        assert!(value(&Bson::Int32(1), Some(&other)).is_err(), "{other}");
    }
    assert!(value(&Bson::Null, None).is_err(), "null has to be there");
}

#[test]
fn exists_asks_for_a_key_whatever_its_value() {
    let present = bson!({ "x": { "$$exists": true } });
    let absent = bson!({ "x": { "$$exists": false } });
    assert_eq!(root(&present, &bson!({ "x": null })), Ok(()));
    assert_eq!(root(&absent, &bson!({ "y": 1 })), Ok(()));
    assert_eq!(root(&present, &bson!({})), Err("x: $$exists: true / nothing".to_owned()));
    assert_eq!(root(&absent, &bson!({ "x": null })), Err("x: $$exists: false / null".to_owned()));
}

#[test]
fn type_knows_the_names_of_the_query_operator() {
    let int_or_long = bson!({ "$$type": ["int", "long"] });
    assert_eq!(value(&int_or_long, Some(&Bson::Int64(1))), Ok(()));
    assert!(value(&int_or_long, Some(&Bson::Double(1.0))).is_err());
    assert!(value(&int_or_long, None).is_err());
    assert_eq!(value(&bson!({ "$$type": "number" }), Some(&Bson::Double(1.0))), Ok(()));
    assert_eq!(value(&bson!({ "$$type": "array" }), Some(&bson!([1]))), Ok(()));
    assert!(value(&bson!({ "$$type": "int" }), Some(&bson!([1]))).is_err(), "not the elements");
    let unknown = value(&bson!({ "$$type": "integer" }), Some(&Bson::Int32(1)));
    assert!(unknown.is_err_and(|error| error.contains("that the format has")));
}

#[test]
fn unset_or_matches_keeps_the_rules_of_its_place() {
    let expected = bson!({ "$$unsetOrMatches": { "x": 1 } });
    assert_eq!(value(&expected, None), Ok(()));
    assert_eq!(value(&expected, Some(&bson!({ "x": 1 }))), Ok(()));
    assert!(value(&expected, Some(&bson!({ "x": 1, "y": 1 }))).is_err());
    assert_eq!(root(&expected, &bson!({ "x": 1, "y": 1 })), Ok(()));
    assert!(value(&expected, Some(&Bson::Null)).is_err());
}

#[test]
fn entities_are_looked_up() {
    let text = bson!("07070707-0707-0707-0707-070707070707");
    assert_eq!(value(&bson!({ "$$sessionLsid": "uuid" }), Some(&text)), Ok(()), "as spans have it");
    assert!(value(&bson!({ "$$sessionLsid": "uuid" }), Some(&bson!("7"))).is_err());
    assert_eq!(value(&bson!({ "$$matchesEntity": "value" }), Some(&bson!({ "x": 1.0 }))), Ok(()));
    assert!(value(&bson!({ "$$matchesEntity": "value" }), Some(&bson!({ "x": 2 }))).is_err());
    assert_eq!(value(&bson!({ "$$sessionLsid": "session" }), Some(&bson!({ "id": 7 }))), Ok(()));
    assert!(value(&bson!({ "$$sessionLsid": "session" }), Some(&bson!({ "id": 8 }))).is_err());
    assert_eq!(
        value(&bson!({ "$$sessionLsid": "value" }), Some(&bson!({ "x": 1 }))),
        Err("it: a session among the entities that is called \"value\" / none".to_owned())
    );
    assert!(value(&bson!({ "$$matchesEntity": "nobody" }), None).is_err());
}

#[test]
fn bytes_are_written_in_hexadecimal() {
    let bytes = Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0x12, 0xab] });
    assert_eq!(value(&bson!({ "$$matchesHexBytes": "12aB" }), Some(&bytes)), Ok(()));
    assert_eq!(value(&bson!({ "$$matchesHexBytes": "6869" }), Some(&bson!("hi"))), Ok(()));
    assert!(value(&bson!({ "$$matchesHexBytes": "" }), Some(&bytes)).is_err());
    for malformed in ["1", "1g", "é"] {
        let refused = value(&bson!({ "$$matchesHexBytes": malformed }), Some(&bytes));
        assert!(refused.is_err_and(|error| error.contains("that the format has")), "{malformed}");
    }
}

#[test]
fn lte_takes_numbers_of_any_type() {
    let five = bson!({ "$$lte": 5 });
    for number in [Bson::Int32(5), Bson::Int64(-1), Bson::Double(4.9)] {
        assert_eq!(value(&five, Some(&number)), Ok(()), "{number}");
    }
    for other in [Some(Bson::Double(5.1)), Some(bson!("4")), None] {
        assert!(value(&five, other.as_ref()).is_err(), "{other:?}");
    }
}

#[test]
fn a_document_may_be_written_as_extended_json() {
    let text = bson!(r#"{ "x": { "$numberLong": "1" }, "y": 2 }"#);
    let exactly = bson!({ "$$matchAsDocument": { "x": 1, "y": 2 } });
    let part = bson!({ "$$matchAsDocument": { "x": 1 } });
    let root = bson!({ "$$matchAsDocument": { "$$matchAsRoot": { "x": 1 } } });
    assert_eq!(value(&exactly, Some(&text)), Ok(()));
    assert_eq!(value(&part, Some(&text)), Err("it.y: nothing / 2".to_owned()));
    assert_eq!(value(&root, Some(&text)), Ok(()));
    for other in [bson!("[]"), bson!("{"), bson!({ "x": 1 })] {
        assert!(value(&exactly, Some(&other)).is_err(), "{other}");
    }
}

#[test]
fn what_is_no_operator_is_compared() {
    let query = bson!({ "x": { "$gt": 1 } });
    assert_eq!(value(&query, Some(&bson!({ "x": { "$gt": 1 } }))), Ok(()));
    let misspelt = value(&bson!({ "$$exist": true }), Some(&Bson::Null));
    assert!(misspelt.is_err_and(|error| error.contains("$$exist: true")));
}

#[test]
fn equality_permits_another_order_of_keys_and_nothing_else() {
    let id = Bson::ObjectId(ObjectId::from_bytes([1; 12]));
    assert!(same(&bson!({ "a": { "b": 1, "c": [2] } }), &bson!({ "a": { "c": [2], "b": 1 } })));
    assert!(same(&id, &id.clone()));
    assert!(!same(&Bson::Int32(1), &Bson::Int64(1)));
    assert!(!same(&bson!({ "a": 1 }), &bson!({ "a": 1, "b": 1 })));
    assert!(!same(&bson!([1, 2]), &bson!([2, 1])));
}
