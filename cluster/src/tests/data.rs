//! Members that keep data: what is written is found, by everybody, once, and not for ever.

use bson::{Document, RawDocumentBuf, doc};
use sdam_core::bson;
use sdam_core::wire::Flags;

use super::{ClusterOptions, ConnectionId, MemberId, SECOND, ServerVersion, World, body, options};

mod catalogue;
mod changes;
mod cursors;
mod fields;
mod find;
mod reads;
mod refusals;
mod replication;
mod retries;
mod sizes;
mod transactions;
mod writes;

/// A deployment that keeps data, and a connection to its primary.
pub(super) fn keeping(version: ServerVersion) -> (World, ConnectionId) {
    let options = ClusterOptions { keeps_data: true, ..options(version) };
    let mut world = World::new(options);
    world.advance(SECOND);
    let connection = world.connect(world.primary().unwrap());
    (world, connection)
}

/// The same with newest members.
fn client() -> (World, ConnectionId) {
    keeping(ServerVersion::V8_0)
}

fn raw(mut command: Document) -> RawDocumentBuf {
    if !command.contains_key("$db") {
        command.insert("$db", "test");
    }
    RawDocumentBuf::try_from(&command).unwrap()
}

/// Runs a command, and returns the reply without what every reply has.
pub(super) fn ask(world: &mut World, connection: ConnectionId, command: Document) -> Document {
    let reply = world.ask(connection, &raw(command));
    let mut reply = Document::try_from(&*reply).unwrap();
    reply.remove("$clusterTime");
    reply.remove("operationTime");
    reply
}

/// Runs a command that must succeed.
fn must(world: &mut World, connection: ConnectionId, command: Document) -> Document {
    let said = command.to_string();
    let reply = ask(world, connection, command);
    assert!(crate::store::is_true(reply.get("ok")), "{said}: {reply}");
    assert!(!reply.contains_key("writeErrors"), "{said}: {reply}");
    reply
}

pub(super) fn code(reply: &Document) -> i32 {
    reply.get_i32("code").unwrap_or(0)
}

/// The documents of a batch, the first or another one.
fn batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap();
    let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch"));
    batch.unwrap().iter().map(|it| it.as_document().unwrap().clone()).collect()
}

fn cursor_id(reply: &Document) -> i64 {
    reply.get_document("cursor").unwrap().get_i64("id").unwrap()
}

/// All documents of the collection `x`, as a member has them.
fn all(world: &mut World, connection: ConnectionId) -> Vec<Document> {
    let find = doc! { "find": "x", "$readPreference": { "mode": "secondaryPreferred" } };
    batch(&must(world, connection, find))
}

fn insert(world: &mut World, connection: ConnectionId, documents: Vec<Document>) {
    must(world, connection, doc! { "insert": "x", "documents": documents });
}

/// Sends a command that is not answered at once.
fn send(world: &mut World, connection: ConnectionId, command: &Document) {
    world.request(connection, Flags::NONE, &raw(command.clone()));
    assert!(world.replies(connection).is_empty(), "{command} is answered too early");
}

/// The reply that has come meanwhile.
fn answer(world: &mut World, connection: ConnectionId) -> Document {
    let replies = world.replies(connection);
    assert_eq!(replies.len(), 1);
    Document::try_from(&*body(&replies[0].1)).unwrap()
}

fn another(world: &World, than: MemberId) -> MemberId {
    let all = (0..3).map(MemberId);
    all.into_iter().find(|it| *it != than && Some(*it) != world.primary()).unwrap()
}
