//! Operations on a collection of typed documents.

use bson::doc;
use sdam::generic::{Client, Collection};
use sdam_host::SocketRuntime;
use serde::{Deserialize, Serialize};

use super::host::Fixture;
use super::repeat;
use crate::in_memory::InMemory;
use crate::server::{Server, things};

/// A document of an application's.
#[derive(Debug, Serialize, Deserialize)]
struct Thing {
    #[serde(rename = "_id")]
    id: i32,
    kind: String,
    n: i64,
}

fn thing(id: i32) -> Thing {
    Thing { id, kind: "even".to_owned(), n: i64::from(id) * 10 }
}

type Things = Collection<SocketRuntime<InMemory>, Thing>;

/// Has an operation counted, on a collection whose members reply with these batches.
fn operate(
    times: u64,
    batches: Option<[bson::RawDocumentBuf; 2]>,
    operation: impl Fn(&InMemory, &Things),
) -> u64 {
    let Fixture { client, reactor } = Fixture::new(Server { batches, ..Server::default() });
    let things: Things = Client::from(client).database("test").collection("things");
    repeat(times, || operation(&reactor, &things))
}

/// Finds a document by its `_id`.
pub(super) fn find_one() -> u64 {
    let batches = [things("firstBatch", 0, 7..8), things("nextBatch", 0, 0..0)];
    operate(100, Some(batches), |reactor, things| {
        let found = reactor.wait(things.find_one(doc! { "_id": 7 })).expect("a reply");
        assert_eq!(found.expect("a document").n, 70);
    })
}

/// Asks for the next batch of a cursor, of a document, in a set of so many members.
pub(super) fn get_more<const MEMBERS: usize>() -> u64 {
    let batches = Some([things("firstBatch", 1, 0..0), things("nextBatch", 1, 7..8)]);
    let more_members = MEMBERS - crate::server::MEMBERS.len();
    let server = Server { batches, more_members, ..Server::default() };
    let Fixture { client, reactor } = Fixture::polling(server);
    assert_eq!(client.view().servers().len(), MEMBERS, "all are known");
    let things: Things = Client::from(client).database("test").collection("things");
    let mut cursor = reactor.wait(things.find(doc! {})).expect("a cursor");
    repeat(100, || {
        let found = reactor.wait(cursor.next()).expect("a document").expect("a batch");
        assert_eq!(found.n, 70);
    })
}

/// Inserts a document.
pub(super) fn insert_one() -> u64 {
    let new = thing(7);
    operate(100, None, |reactor, things| {
        drop(reactor.wait(things.insert_one(&new)).expect("an insert"));
    })
}

/// Inserts a thousand documents.
pub(super) fn insert_many_1000() -> u64 {
    let new: Vec<Thing> = (0..1000).map(thing).collect();
    operate(3, None, |reactor, things| {
        drop(reactor.wait(things.insert_many(&new)).expect("an insert"));
    })
}

/// Finds ten thousand documents, in batches as servers make them.
pub(super) fn find_10000() -> u64 {
    let batches = [things("firstBatch", 1, 0..101), things("nextBatch", 0, 101..10_000)];
    operate(1, Some(batches), |reactor, things| {
        let cursor = reactor.wait(things.find(doc! {})).expect("a cursor");
        let found = reactor.wait(cursor.try_collect::<Vec<_>>()).expect("documents");
        assert_eq!(found.len(), 10_000);
    })
}
