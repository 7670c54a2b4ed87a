//! Documents up to 16 MiB, and those beyond.

use bson::{Document, doc};
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{all, ask, batch, body, client, code, cursor_id, insert, must, raw};

const MOST: usize = 16 << 20;

/// A document of so many bytes.
fn of_length(id: i32, length: usize) -> Document {
    let empty = doc! { "_id": id, "s": "" }.to_vec().unwrap().len();
    doc! { "_id": id, "s": "x".repeat(length - empty) }
}

/// With the codes of 4.2.6 and 6.0.5.
#[test]
fn a_document_may_have_16_mebibytes() {
    let (mut world, connection) = client();
    let write = |document: Document| doc! { "insert": "x", "documents": [document] };
    // In the body, the command takes some bytes of what a message's document may have.
    must(&mut world, connection, write(of_length(1, MOST)));
    assert_eq!(all(&mut world, connection)[0].to_vec().unwrap().len(), MOST);
    let reply = ask(&mut world, connection, write(of_length(2, MOST + 1)));
    let errors = reply.get_array("writeErrors").unwrap();
    assert_eq!(code(errors[0].as_document().unwrap()), 2);
    let reply = ask(&mut world, connection, write(of_length(2, MOST + (16 << 10) + 1)));
    assert_eq!(code(&reply), 10334);
    let grow = doc! { "$set": { "t": 1 } };
    let update = doc! { "update": "x", "updates": [{ "q": {}, "u": grow.clone() }] };
    let reply = ask(&mut world, connection, update);
    let errors = reply.get_array("writeErrors").unwrap();
    assert_eq!(code(errors[0].as_document().unwrap()), 17419);
    let modify = doc! { "findAndModify": "x", "query": {}, "update": grow };
    assert_eq!(code(&ask(&mut world, connection, modify)), 17419);
    assert_eq!(ask(&mut world, connection, doc! { "ping": 1 }), doc! { "ok": 1.0 });
}

/// CRUD, "Batches": a batch ends before it has more than 16 MiB.
#[test]
fn large_documents_come_in_batches() {
    let (mut world, connection) = client();
    for id in 0..4 {
        insert(&mut world, connection, vec![of_length(id, 7 << 20)]);
    }
    let first = must(&mut world, connection, doc! { "find": "x" });
    assert_eq!(batch(&first).len(), 2);
    let more = doc! { "getMore": cursor_id(&first), "collection": "x" };
    let rest = must(&mut world, connection, more);
    assert_eq!((batch(&rest).len(), cursor_id(&rest)), (2, 0));
    let together = doc! { "$group": { "_id": 1, "all": { "$push": "$$ROOT" } } };
    let group = doc! { "aggregate": "x", "pipeline": [together], "cursor": {} };
    assert_eq!(code(&ask(&mut world, connection, group)), 10334);
}

/// OP_MSG, "exhaustAllowed": a stream of batches stops before too much waits to be read.
#[test]
fn a_stream_of_batches_is_not_endless() {
    let (mut world, connection) = client();
    for id in 0..6 {
        insert(&mut world, connection, vec![of_length(id, 7 << 20)]);
    }
    let first = must(&mut world, connection, doc! { "find": "x", "batchSize": 1 });
    let more = doc! { "getMore": cursor_id(&first), "collection": "x", "batchSize": 1 };
    world.request(connection, Flags::EXHAUST_ALLOWED, &raw(more.clone()));
    let replies = world.replies(connection);
    assert_eq!(replies.len(), 3);
    let last = Document::try_from(&*body(&replies[2].1)).unwrap();
    assert_ne!(cursor_id(&last), 0);
    assert_eq!(batch(&must(&mut world, connection, more)).len(), 1);
}
