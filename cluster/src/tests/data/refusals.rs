//! Refusals, as those of real servers: of names, and of documents that are nested deeply.

use bson::{Bson, Document, RawDocumentBuf, cstr, doc, rawdoc};
use sdam_core::bson;
use sdam_core::wire::{Flags, write_op_msg_with_sequences};

use super::{ConnectionId, ServerVersion, World, ask, body, client, code, insert, keeping, must};

/// Makes a document of so many levels, each a field without a name.
fn nested(levels: usize) -> RawDocumentBuf {
    let mut bytes = Vec::new();
    for left in (0..levels).rev() {
        bytes.extend(i32::try_from(5 + 7 * left).unwrap().to_le_bytes());
        if left > 0 {
            bytes.extend([3, 0]);
        }
    }
    bytes.extend(vec![0; levels]);
    RawDocumentBuf::from_bytes(bytes).unwrap()
}

fn ask_raw(world: &mut World, connection: ConnectionId, command: &RawDocumentBuf) -> Document {
    Document::try_from(&*world.ask(connection, command)).unwrap()
}

/// Sends an insertion of one document in a sequence.
fn insert_behind(
    world: &mut World,
    connection: ConnectionId,
    document: &RawDocumentBuf,
) -> Document {
    let mut message = Vec::new();
    let body_of_command = rawdoc! { "insert": "x", "$db": "test" };
    let sequences: [(&str, &[&bson::RawDocument]); 1] = [("documents", &[document])];
    write_op_msg_with_sequences(&mut message, 7, 0, Flags::NONE, &body_of_command, &sequences);
    world.receive(connection, &message);
    let replies = world.replies(connection);
    Document::try_from(&*body(&replies[0].1)).unwrap()
}

fn code_of_write(reply: &Document) -> i32 {
    let errors = reply.get_array("writeErrors").ok();
    errors.and_then(|it| it[0].as_document()).map_or_else(|| code(reply), code)
}

/// With the codes of 4.4.2, 5.0.4 and 6.0.5, whichever command it is, and wherever the document is.
#[test]
fn a_document_that_is_nested_too_deeply_is_refused() {
    let (mut world, connection) = client();
    for levels in [201, 10_000, 1_000_000] {
        for (mut command, field) in [
            (rawdoc! { "insert": "x" }, cstr!("documents")),
            (rawdoc! { "update": "x" }, cstr!("updates")),
            (rawdoc! { "find": "x" }, cstr!("filter")),
            (rawdoc! { "aggregate": "x" }, cstr!("pipeline")),
            (rawdoc! { "findAndModify": "x" }, cstr!("query")),
            (rawdoc! { "bulkWrite": 1 }, cstr!("ops")),
            (rawdoc! { "ping": 1 }, cstr!("comment")),
            (rawdoc! { "hello": 1 }, cstr!("client")),
            (rawdoc! { "saslStart": 1 }, cstr!("payload")),
            (rawdoc! { "configureFailPoint": "failCommand" }, cstr!("data")),
        ] {
            command.append(cstr!("$db"), "admin");
            command.append(cstr!("txnNumber"), 1_i64);
            command.append(field, nested(levels));
            let reply = ask_raw(&mut world, connection, &command);
            assert_eq!(
                (code(&reply), reply.get_str("codeName").ok()),
                (15, Some("Overflow")),
                "{field:?}"
            );
        }
        let reply = insert_behind(&mut world, connection, &nested(levels + 1));
        assert_eq!(code(&reply), 15);
    }
    must(&mut world, connection, doc! { "ping": 1 });
}

/// "cannot insert document because it exceeds 180 levels of nesting"
#[test]
fn what_is_kept_has_fewer_levels_than_a_message() {
    for (version, most) in [(ServerVersion::V4_4, 180), (ServerVersion::V5_0, 181)] {
        let (mut world, connection) = keeping(version);
        for levels in [100, most, most + 1, 201] {
            let reply = insert_behind(&mut world, connection, &nested(levels));
            let expected = if levels > most { 15 } else { 0 };
            assert_eq!(code_of_write(&reply), expected, "{levels} levels");
        }
    }
}

/// A path, a stage, a variable: each may make more levels than a message has.
#[test]
fn no_command_makes_documents_that_are_nested_deeper() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "b": 1 }]);
    let path = |parts: usize| vec!["a"; parts].join(".");
    for (parts, expected) in [(181, 0), (182, 15), (201, 15), (100_000, 15)] {
        // Where nothing is in the way.
        let set = doc! { "$set": { format!("p{parts}.{}", path(parts - 1)): 1 } };
        let update = doc! { "update": "x", "updates": [{ "q": { "_id": 1 }, "u": set }] };
        let reply = ask(&mut world, connection, update);
        assert_eq!(code_of_write(&reply), expected, "{parts} parts");
    }
    let wrap = doc! { "$project": { "_id": 0, path(200): "$$ROOT" } };
    let pipeline = Bson::Array(vec![wrap.into(); 100]);
    let aggregate = doc! { "aggregate": "x", "pipeline": pipeline.clone(), "cursor": {} };
    assert_eq!(code(&ask(&mut world, connection, aggregate)), 15);
    let update = doc! { "update": "x", "updates": [{ "q": {}, "u": pipeline }] };
    assert_eq!(code_of_write(&ask(&mut world, connection, update)), 15);
    let rename = doc! { "$rename": { "b": path(100_000) } };
    let update = doc! { "update": "x", "updates": [{ "q": {}, "u": rename }] };
    assert_eq!(code_of_write(&ask(&mut world, connection, update)), 15);
    let upsert = doc! { "q": { path(100_000): 1 }, "u": { "$set": { "d": 1 } }, "upsert": true };
    let update = doc! { "update": "x", "updates": [upsert] };
    assert_eq!(code(&ask(&mut world, connection, update)), 15);
    let variables: Document = (0..1000_i32)
        .map(|at| {
            let before = if at == 0 { Bson::Int32(1) } else { format!("$$v{}", at - 1).into() };
            let wrapped = (0..100).fold(before, |inner, _| doc! { "a": inner }.into());
            (format!("v{at}"), wrapped)
        })
        .collect();
    let find = doc! { "find": "x", "let": variables };
    assert_eq!(code(&ask(&mut world, connection, find)), 15);
    must(&mut world, connection, doc! { "ping": 1 });
}

/// With the codes of 6.0.5.
#[test]
fn names_that_servers_refuse_are_refused() {
    let (mut world, connection) = client();
    for (database, expected) in [
        ("a.b", 73),
        (&*"d".repeat(63), 0),
        (&*"d".repeat(64), 73),
        (&*"d".repeat(70), 73),
        ("", 73),
    ] {
        for command in [
            doc! { "ping": 1, "$db": database },
            doc! { "insert": "x", "documents": [{}], "$db": database },
            doc! { "find": "x", "$db": database },
        ] {
            assert_eq!(code(&ask(&mut world, connection, command)), expected, "{database}");
        }
    }
    for (collection, written, read) in [
        ("a.$b", 73, 73),
        ("$x", 73, 73),
        ("system.x", 73, 0),
        ("a.system.x", 2, 0),
        ("system.js", 0, 0),
        ("system", 0, 0),
        ("a..b", 0, 0),
    ] {
        for command in [
            doc! { "insert": collection, "documents": [{}] },
            doc! { "update": collection, "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] },
            doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }] },
        ] {
            assert_eq!(code(&ask(&mut world, connection, command)), written, "{collection}");
        }
        let found = ask(&mut world, connection, doc! { "find": collection });
        assert_eq!(code(&found), read, "{collection}");
    }
}

/// "can't have multiple _id fields in one document"
#[test]
fn a_document_with_two_ids_is_refused() {
    let (mut world, connection) = client();
    let mut twice = rawdoc! { "_id": 1 };
    twice.append(cstr!("_id"), 2);
    assert_eq!(code_of_write(&insert_behind(&mut world, connection, &twice)), 2);
    let mut insert = rawdoc! { "insert": "x", "$db": "test", "ordered": false };
    let documents = [rawdoc! { "_id": 1 }, twice.clone(), rawdoc! { "_id": 2 }];
    let documents: bson::RawArrayBuf = documents.iter().map(AsRef::as_ref).collect();
    insert.append(cstr!("documents"), documents);
    let reply = ask_raw(&mut world, connection, &insert);
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    let number = |of: &Document, name| of.get_i32(name).ok();
    let found = (number(&reply, "n"), number(error, "index"), number(error, "code"));
    assert_eq!(found, (Some(2), Some(1), Some(2)));
    let mut operation = rawdoc! { "insert": 0 };
    operation.append(cstr!("document"), twice);
    let mut bulk = rawdoc! { "bulkWrite": 1, "$db": "admin", "nsInfo": [{ "ns": "test.x" }] };
    let operations: bson::RawArrayBuf = [operation].iter().map(AsRef::as_ref).collect();
    bulk.append(cstr!("ops"), operations);
    let reply = ask_raw(&mut world, connection, &bulk);
    assert_eq!(number(&reply, "nErrors"), Some(1));
}

/// Operators that servers know and these members do not are refused by name, never ignored.
#[test]
fn what_is_not_known_here_is_refused() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1, "a": [1] }]);
    let text = |text: &str| text.to_owned().try_into().unwrap();
    let regex = || bson::Regex { pattern: text("a"), options: text("") };
    let filters = [
        doc! { "$jsonSchema": {} },
        doc! { "a": { "$regex": "a" } },
        doc! { "a": regex() },
        doc! { "a": { "$in": [regex()] } },
        doc! { "a": { "$not": regex() } },
        doc! { "a": { "$bitsAllSet": 1 } },
    ];
    for filter in filters {
        let find = doc! { "find": "x", "filter": filter.clone() };
        assert_eq!(code(&ask(&mut world, connection, find)), 238, "{filter}");
    }
    for projection in [doc! { "a.$": 1 }, doc! { "a": { "$slice": 1 } }] {
        let find = doc! { "find": "x", "projection": projection.clone() };
        assert_eq!(code(&ask(&mut world, connection, find)), 238, "{projection}");
    }
    for stage in ["$facet", "$graphLookup", "$lookup", "$sample", "$unionWith", "$unwind"] {
        let aggregate = doc! { "aggregate": "x", "pipeline": [{ stage: {} }], "cursor": {} };
        assert_eq!(code(&ask(&mut world, connection, aggregate)), 238, "{stage}");
    }
    let updates = [
        doc! { "$set": { "a.$": 1 } },
        doc! { "$bit": { "n": { "or": 1 } } },
        doc! { "$push": { "a": { "$each": [1], "$slice": 1 } } },
    ];
    for update in updates {
        let statement = doc! { "q": {}, "u": update.clone() };
        let reply = ask(&mut world, connection, doc! { "update": "x", "updates": [statement] });
        assert_eq!(code_of_write(&reply), 238, "{update}");
    }
    for option in ["timeseries", "clusteredIndex"] {
        let create = doc! { "create": "y", option: {} };
        assert_eq!(code(&ask(&mut world, connection, create)), 238, "{option}");
        let modify = doc! { "collMod": "x", option: {} };
        assert_eq!(code(&ask(&mut world, connection, modify)), 238, "{option}");
    }
}

/// A command is refused before anything is written.
#[test]
fn a_projection_that_is_not_known_here_changes_nothing() {
    let (mut world, connection) = client();
    for fields in [doc! { "a": { "$slice": 1 } }, doc! { "a.$": 1 }] {
        let modify = doc! {
            "findAndModify": "x", "query": { "_id": 1 }, "update": { "$set": { "b": 1 } },
            "upsert": true, "fields": fields,
        };
        assert_eq!(code(&ask(&mut world, connection, modify)), 238);
    }
    let count = ask(&mut world, connection, doc! { "count": "x", "query": { "_id": 1 } });
    assert_eq!(count.get_i32("n").ok(), Some(0));
    let wrong = doc! { "q": {}, "u": { "$addToSet": { "a": { "$each": 5 } } } };
    let reply = ask(&mut world, connection, doc! { "update": "x", "updates": [wrong] });
    assert_eq!(code_of_write(&reply), 2);
}
