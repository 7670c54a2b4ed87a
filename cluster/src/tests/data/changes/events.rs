//! The contents of events (Change Streams, "Response Format").

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use sdam_core::bson;

use super::{aggregate, labels, more, reported, rest, watch};
use crate::ServerVersion;
use crate::tests::data::{ask, batch, client, code, cursor_id, insert, keeping, must};

/// The events that these commands bring about, as a stream of all of the database reports them.
fn events(version: ServerVersion, stage: Document, commands: Vec<Document>) -> Vec<Document> {
    let (mut world, connection) = keeping(version);
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": 1 }]);
    let mut stream = watch(stage);
    stream.insert("aggregate", 1);
    let id = cursor_id(&must(&mut world, connection, stream));
    for command in commands {
        must(&mut world, connection, command);
    }
    let mut more = more(id, 0);
    more.insert("collection", "$cmd.aggregate");
    batch(&must(&mut world, connection, more))
}

/// An update that sets the field `a` of the document 1.
fn set(value: i32) -> Document {
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": value } } };
    doc! { "update": "x", "updates": [update] }
}

fn kinds(events: &[Document]) -> Vec<&str> {
    events.iter().map(|it| it.get_str("operationType").unwrap()).collect()
}

#[test]
fn an_event_says_when_where_and_what() {
    let insert = doc! { "insert": "x", "documents": [{ "_id": 2 }] };
    let mut event = events(ServerVersion::V6_0, doc! {}, vec![insert.clone()]).remove(0);
    for field in ["_id", "clusterTime", "wallTime"] {
        assert!(event.remove(field).is_some(), "{field}");
    }
    let expected = doc! {
        "operationType": "insert",
        "fullDocument": { "_id": 2 },
        "ns": { "db": "test", "coll": "x" },
        "documentKey": { "_id": 2 },
    };
    assert_eq!(event, expected);
    let old = events(ServerVersion::V5_0, doc! {}, vec![insert]).remove(0);
    assert!(!old.contains_key("wallTime"));
}

/// Change Streams, `showExpandedEvents`: changes of collections are reported, with their ids.
#[test]
fn expanded_streams_report_collections() {
    let index = doc! { "key": { "a": 1 }, "name": "a_1" };
    let commands = vec![
        doc! { "create": "new" },
        doc! { "createIndexes": "new", "indexes": [index] },
        doc! { "collMod": "new", "validator": { "a": 1 } },
        doc! { "dropIndexes": "new", "index": "*" },
        doc! { "create": "view", "viewOn": "new", "pipeline": [] },
        doc! { "drop": "view" },
        doc! { "renameCollection": "test.new", "to": "test.y", "$db": "admin" },
        doc! { "dropDatabase": 1 },
    ];
    let expanded = doc! { "showExpandedEvents": true };
    let all = events(ServerVersion::V8_0, expanded, commands.clone());
    let expected = [
        "create",
        "createIndexes",
        "modify",
        "dropIndexes",
        "create",
        "drop",
        "rename",
        "drop",
        "drop",
        "dropDatabase",
        "invalidate",
    ];
    assert_eq!(kinds(&all), expected);
    assert!(all[0].contains_key("collectionUUID") && !all[4].contains_key("collectionUUID"));
    let what = doc! { "validator": { "a": 1 } };
    assert_eq!(all[2].get_document("operationDescription").unwrap(), &what);
    assert_eq!(all[6].get_document("to").unwrap(), &doc! { "db": "test", "coll": "y" });
    let few = events(ServerVersion::V8_0, doc! {}, commands);
    assert_eq!(kinds(&few), ["rename", "drop", "drop", "dropDatabase", "invalidate"]);
}

/// The writes of a transaction are reported when it is committed, with one time.
#[test]
fn a_transaction_is_reported_at_its_commit() {
    let lsid = doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] } };
    let of = |mut command: Document, starts: bool| {
        command.extend(doc! { "lsid": lsid.clone(), "txnNumber": 3_i64, "autocommit": false });
        if starts {
            command.insert("startTransaction", true);
        }
        command
    };
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 2 } } };
    let reported = events(
        ServerVersion::V6_0,
        doc! {},
        vec![
            of(doc! { "insert": "x", "documents": [{ "_id": 2 }] }, true),
            doc! { "insert": "x", "documents": [{ "_id": 3 }] },
            of(doc! { "update": "x", "updates": [update] }, false),
            of(doc! { "commitTransaction": 1, "$db": "admin" }, false),
        ],
    );
    assert_eq!(kinds(&reported), ["insert", "insert", "update"]);
    assert!(!reported[0].contains_key("txnNumber"));
    assert_eq!(reported[1].get_i64("txnNumber").unwrap(), 3);
    assert_eq!(reported[1].get("clusterTime"), reported[2].get("clusterTime"));
    assert_ne!(reported[1].get("_id"), reported[2].get("_id"));
    let id = reported[2].get_document("lsid").unwrap().get("id");
    assert_eq!(id, lsid.get("id"));
}

/// Change Streams, `fullDocument` and `fullDocumentBeforeChange`.
#[test]
fn images_are_those_of_the_moment() {
    let keep = doc! { "collMod": "x", "changeStreamPreAndPostImages": { "enabled": true } };
    let full = |mode: &str, commands: &[Document]| {
        let stage = doc! { "fullDocument": mode };
        let events = events(ServerVersion::V6_0, stage, commands.to_vec());
        events[0].get("fullDocument").cloned()
    };
    let twice = [set(2), set(3)];
    assert_eq!(full("default", &twice), None);
    assert_eq!(full("updateLookup", &twice), Some(doc! { "_id": 1, "a": 3 }.into()));
    assert_eq!(full("whenAvailable", &twice), Some(Bson::Null));
    let kept = [keep, set(2), set(3)];
    assert_eq!(full("required", &kept), Some(doc! { "_id": 1, "a": 2 }.into()));
    let stage = doc! { "fullDocumentBeforeChange": "whenAvailable" };
    let events = events(ServerVersion::V6_0, stage, kept.to_vec());
    let before = events[1].get_document("fullDocumentBeforeChange");
    assert_eq!(before.unwrap(), &doc! { "_id": 1, "a": 2 });
    let (mut world, connection) = client();
    let id = cursor_id(&must(&mut world, connection, watch(doc! { "fullDocument": "required" })));
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, set(1));
    assert_eq!(code(&ask(&mut world, connection, more(id, 0))), 47);
}

/// As 4.4.2 and 5.0.4 do: collections keep documents before their changes by an option of that
/// time, and an event has no field for one that was not kept (Change Streams,
/// `fullDocumentBeforeChange`).
#[test]
fn servers_before_6_0_keep_images_by_another_option() {
    let keep = doc! { "collMod": "x", "recordPreImages": true };
    for version in [ServerVersion::V4_4, ServerVersion::V5_0] {
        let stage = doc! { "fullDocumentBeforeChange": "whenAvailable" };
        let events = events(version, stage, vec![set(2), keep.clone(), set(3)]);
        assert!(!events[0].contains_key("fullDocumentBeforeChange"));
        let before = events[1].get_document("fullDocumentBeforeChange").unwrap();
        assert_eq!(before, &doc! { "_id": 1, "a": 2 });
        let (mut world, connection) = keeping(version);
        let stage = doc! { "fullDocumentBeforeChange": "required" };
        let id = cursor_id(&must(&mut world, connection, watch(stage)));
        insert(&mut world, connection, vec![doc! { "_id": 1 }]);
        must(&mut world, connection, set(1));
        assert_eq!(code(&ask(&mut world, connection, more(id, 0))), 51770);
    }
}

/// As 4.2.6 to 6.0.27 do: each version knows its own options for images, and lists one that is on.
#[test]
fn options_for_images_are_those_of_the_version() {
    use ServerVersion::{V4_2, V4_4, V5_0, V6_0};
    let (before, both) = ("recordPreImages", "changeStreamPreAndPostImages");
    for (version, stage, expected) in [
        (V4_2, doc! { before: true }, [40415, 72]),
        (V5_0, doc! { before: "a" }, [14, 14]),
        (V4_4, doc! { both: { "enabled": true } }, [40415, 72]),
        (V5_0, doc! { both: { "enabled": true } }, [40415, 40415]),
        (V6_0, doc! { both: {} }, [40414, 40414]),
        (V6_0, doc! { both: true }, [14, 14]),
        (V6_0, doc! { both: { "enabled": 1 } }, [14, 14]),
        (V6_0, doc! { both: { "enabled": true, "a": 1 } }, [40415, 40415]),
        (V6_0, doc! { both: { "enabled": true }, before: true }, [72, 72]),
    ] {
        let (mut world, connection) = keeping(version);
        must(&mut world, connection, doc! { "create": "y" });
        for (command, expected) in [("create", expected[0]), ("collMod", expected[1])] {
            let mut command = doc! { command: if command == "create" { "x" } else { "y" } };
            command.extend(stage.clone());
            assert_eq!(code(&ask(&mut world, connection, command)), expected, "{stage}");
        }
    }
    let (mut world, connection) = keeping(V6_0);
    must(&mut world, connection, doc! { "create": "x", before: 1 });
    let on = doc! { "enabled": true };
    for (change, expected) in [
        (doc! {}, doc! { before: true }),
        (doc! { both: on.clone() }, doc! { both: on }),
        (doc! { before: true }, doc! { before: true }),
        (doc! { before: false }, doc! {}),
    ] {
        let mut modify = doc! { "collMod": "x" };
        modify.extend(change);
        must(&mut world, connection, modify);
        let listed = batch(&must(&mut world, connection, doc! { "listCollections": 1 })).remove(0);
        assert_eq!(listed.get_document("options").unwrap(), &expected);
    }
    let on_admin = doc! { "create": "x", before: true, "$db": "admin" };
    let both_on_admin = doc! { "create": "x", both: { "enabled": true }, "$db": "admin" };
    let view = doc! { "create": "v", "viewOn": "x", both: { "enabled": true } };
    for refused in [on_admin, both_on_admin, view] {
        assert_eq!(code(&ask(&mut world, connection, refused)), 72);
    }
}

/// As 4.4.2 to 6.0.27 do: a view has none of the options of a collection, on or off, and servers
/// before 5.0 look at nothing else.
#[test]
fn options_for_images_are_none_of_a_view() {
    use ServerVersion::{V4_4, V5_0, V6_0};
    let (before, both) = ("recordPreImages", "changeStreamPreAndPostImages");
    let (on, off) = (doc! { "enabled": true }, doc! { "enabled": false });
    let refused = |name| Some((72, format!("option not supported on a view: {name}")));
    let at_once = "'recordPreImages' and 'changeStreamPreAndPostImages.enabled' can not be set to \
                   true simultaneously";
    for (version, change, expected) in [
        (V4_4, doc! { before: true }, refused(before)),
        (V4_4, doc! { before: "a" }, refused(before)),
        (V4_4, doc! { both: {} }, refused(both)),
        (V4_4, doc! { "viewOn": "y", "pipeline": [], "index": {} }, refused("index")),
        (V5_0, doc! { before: false }, refused(before)),
        (V5_0, doc! { before: true, "validator": {} }, refused("validator")),
        (V6_0, doc! { before: true }, refused(before)),
        (V6_0, doc! { both: on.clone() }, refused(both)),
        (V6_0, doc! { both: off, before: false }, refused(before)),
        (V6_0, doc! { both: on, before: true }, Some((72, at_once.to_owned()))),
        (V6_0, doc! { "viewOn": "y", "pipeline": [], "comment": 1 }, None),
    ] {
        let (mut world, connection) = keeping(version);
        must(&mut world, connection, doc! { "create": "v", "viewOn": "x", "pipeline": [] });
        let mut modify = doc! { "collMod": "v" };
        modify.extend(change.clone());
        let reply = ask(&mut world, connection, modify);
        let error = reply.get_str("errmsg").ok().map(|text| (code(&reply), text.to_owned()));
        assert_eq!(error, expected, "{change}");
    }
}

/// `$redact` judges each level of an event, and leaves out one that it prunes.
#[test]
fn levels_of_events_are_redacted() {
    let (mut world, connection) = client();
    let is_secret = doc! { "$gt": ["$level", 3] };
    let stages = vec![
        doc! { "$redact": { "$cond": [{ "$eq": ["$a", 1] }, "$$PRUNE", "$$DESCEND"] } },
        doc! { "$redact": { "$cond": [is_secret, "$$PRUNE", "$$DESCEND"] } },
    ];
    let id = cursor_id(&must(&mut world, connection, aggregate("x", doc! {}, stages)));
    let list = vec![doc! { "level": 4 }, doc! { "level": 2 }];
    let document = doc! { "_id": 1, "in": { "level": 5, "b": 1 }, "list": list };
    insert(&mut world, connection, vec![document, doc! { "_id": 2, "a": 1 }]);
    let events = batch(&must(&mut world, connection, more(id, 0)));
    let seen = doc! { "_id": 1, "list": [{ "level": 2 }] };
    assert_eq!(events[0].get_document("fullDocument").unwrap(), &seen);
    assert!(!events[1].contains_key("fullDocument"));
    let redact = |it: Bson| aggregate("x", doc! {}, vec![doc! { "$redact": it }]);
    let unknown = ask(&mut world, connection, redact(doc! { "$nonsense": 1 }.into()));
    assert_eq!(code(&unknown), 168);
    let id = cursor_id(&must(&mut world, connection, redact("a".into())));
    insert(&mut world, connection, vec![doc! {}]);
    assert_eq!(code(&ask(&mut world, connection, more(id, 0))), 17053);
    let all = doc! { "aggregate": "x", "pipeline": [{ "$redact": "$$PRUNE" }], "cursor": {} };
    assert!(batch(&must(&mut world, connection, all)).is_empty());
}

/// Change Streams: the pipeline may shape events, but not take their tokens away.
#[test]
fn stages_shape_events() {
    let (mut world, connection) = client();
    let stages = vec![
        doc! { "$match": { "operationType": "insert", "fullDocument.a": { "$gt": 1 } } },
        doc! { "$project": { "operationType": 1, "documentKey": 1 } },
        doc! { "$addFields": { "more": "$documentKey._id" } },
    ];
    let id = cursor_id(&must(&mut world, connection, aggregate("x", doc! {}, stages)));
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 2 }]);
    let reply = must(&mut world, connection, more(id, 0));
    assert_eq!(reported(&reply), ["insert 2"]);
    assert_eq!(batch(&reply)[0].get_i32("more").unwrap(), 2);
    let without = aggregate("x", doc! {}, vec![doc! { "$project": { "_id": 0 } }]);
    let id = cursor_id(&must(&mut world, connection, without));
    insert(&mut world, connection, vec![doc! {}]);
    let failed = ask(&mut world, connection, more(id, 0));
    assert_eq!((code(&failed), labels(&failed)), (280, vec!["NonResumableChangeStreamError"]));
    for (stage, expected) in [
        (doc! { "$limit": 1 }, 20),
        (doc! { "$group": { "_id": 1 } }, 20),
        (doc! { "$lookup": {} }, 20),
        (doc! { "$nonsense": 1 }, 40324),
        (doc! { "$changeStream": {} }, 40602),
        (doc! { "$match": { "$nonsense": 1 } }, 2),
        (doc! { "$changeStreamSplitLargeEvent": { "a": 1 } }, 7_182_800),
    ] {
        let refused = ask(&mut world, connection, aggregate("x", doc! {}, vec![stage.clone()]));
        assert_eq!(code(&refused), expected, "{stage}");
    }
}

/// Change Streams, "`$changeStreamSplitLargeEvent`".
#[test]
fn an_event_that_is_too_large_comes_in_fragments() {
    let (mut world, connection) = client();
    let images = doc! { "enabled": true };
    must(&mut world, connection, doc! { "create": "x", "changeStreamPreAndPostImages": images });
    let text = "a".repeat(9 << 20);
    insert(&mut world, connection, vec![doc! { "_id": 1, "text": text }]);
    let stage = doc! { "fullDocument": "required", "fullDocumentBeforeChange": "required" };
    let split = vec![doc! { "$changeStreamSplitLargeEvent": {} }];
    let whole = cursor_id(&must(&mut world, connection, watch(stage.clone())));
    let opened = must(&mut world, connection, aggregate("x", stage.clone(), split.clone()));
    let update = doc! { "q": { "_id": 1 }, "u": { "$set": { "a": 1 } } };
    must(&mut world, connection, doc! { "update": "x", "updates": [update] });
    assert_eq!(code(&ask(&mut world, connection, more(whole, 0))), 10334);
    let mut first = more(cursor_id(&opened), 0);
    first.insert("batchSize", 1);
    let first = batch(&must(&mut world, connection, first)).remove(0);
    assert_eq!(first.get_document("splitEvent").unwrap(), &doc! { "fragment": 1, "of": 2 });
    let mut after = stage;
    after.insert("resumeAfter", first.get("_id").unwrap());
    let again = must(&mut world, connection, aggregate("x", after.clone(), split));
    let again = batch(&again).remove(0);
    assert_eq!(again.get_document("splitEvent").unwrap(), &doc! { "fragment": 2, "of": 2 });
    assert_eq!(code(&ask(&mut world, connection, watch(after))), 280);
}

/// A stream of all databases leaves out those of the server's own.
#[test]
fn a_cluster_is_watched_as_a_whole() {
    let (mut world, connection) = client();
    let mut stream = watch(doc! { "allChangesForCluster": true });
    stream.insert("aggregate", 1);
    assert_eq!(code(&ask(&mut world, connection, stream.clone())), 72);
    stream.insert("$db", "admin");
    let id = cursor_id(&must(&mut world, connection, stream));
    for database in ["a", "b", "admin", "config"] {
        let write = doc! { "insert": "x", "documents": [{ "_id": database }], "$db": database };
        must(&mut world, connection, write);
    }
    must(&mut world, connection, doc! { "insert": "system.js", "documents": [{ "_id": 1 }] });
    let mut more = more(id, 0);
    more.extend(doc! { "collection": "$cmd.aggregate", "$db": "admin" });
    let reported = reported(&must(&mut world, connection, more));
    assert_eq!(reported, ["insert \"a\"", "insert \"b\""]);
    for (database, collection) in [("admin", "x"), ("local", "x"), ("test", "system.x")] {
        let mut stream = aggregate(collection, doc! {}, Vec::new());
        stream.insert("$db", database);
        assert_eq!(code(&ask(&mut world, connection, stream)), 73);
    }
    let id = cursor_id(&must(&mut world, connection, watch(doc! {})));
    assert!(rest(&mut world, connection, id).is_empty());
}
