//! Documents that are nested deeply, in replies and in what the application hands in: on threads
//! with little stack.

use std::future::Future;
use std::sync::Arc;

use bson::{Bson, Document, RawDocument, RawDocumentBuf, cstr, doc, rawdoc};
use sdam_driver::{
    Client, ClientBulkWrite, Distinct, Error, Find, FindOneAndUpdate, Update, UpdateModel,
    WriteModel,
};
use sdam_tokio::Tokio;
use serde::{Deserialize, Serialize};

use super::answering::Scripted;

/// The stack of a thread, in bytes: a quarter of what most runtimes give theirs.
const STACK: usize = 512 << 10;

/// Makes a document of so many levels of documents, of which the innermost is this one.
fn nested(levels: usize, innermost: &RawDocument) -> RawDocumentBuf {
    const LEVEL: usize = b"\0\0\0\0\x03a\0\0".len();
    let mut bytes = Vec::new();
    for left in (1..levels).rev() {
        let length = innermost.as_bytes().len() + LEVEL * left;
        bytes.extend(i32::try_from(length).unwrap().to_le_bytes());
        bytes.extend(b"\x03a\0");
    }
    bytes.extend(innermost.as_bytes());
    bytes.extend(vec![0; levels - 1]);
    RawDocumentBuf::from_bytes(bytes).unwrap()
}

/// Replies with that document wherever a reply has one of an application's.
fn reply(name: &str, inner: &RawDocument) -> Option<RawDocumentBuf> {
    let cursor = |batch: bson::RawArrayBuf| {
        let mut cursor = rawdoc! { "id": 0_i64, "ns": "app.things" };
        cursor.append(cstr!("firstBatch"), batch);
        cursor
    };
    let upserted = |of: i32| {
        let mut upserted = rawdoc! { "index": of };
        upserted.append(cstr!("_id"), inner);
        upserted
    };
    let mut reply = rawdoc! { "ok": 1 };
    match name {
        "find" | "aggregate" => {
            reply.append(cstr!("cursor"), cursor([inner].into_iter().collect()));
        }
        "distinct" => {
            reply.append(cstr!("values"), [inner].into_iter().collect::<bson::RawArrayBuf>());
        }
        "update" => {
            reply.append(cstr!("n"), 1);
            reply.append(cstr!("nModified"), 0);
            let upserted = [upserted(0)];
            let upserted = upserted.iter().map(AsRef::as_ref);
            reply.append(cstr!("upserted"), upserted.collect::<bson::RawArrayBuf>());
        }
        "bulkWrite" => {
            for name in [cstr!("nErrors"), cstr!("nInserted"), cstr!("nMatched")] {
                reply.append(name, 0);
            }
            for name in [cstr!("nModified"), cstr!("nDeleted")] {
                reply.append(name, 0);
            }
            reply.append(cstr!("nUpserted"), 1);
            let mut result = rawdoc! { "ok": 1, "idx": 0, "n": 1, "nModified": 0 };
            result.append(cstr!("upserted"), upserted(0));
            let results = [result];
            let batch = results.iter().map(AsRef::as_ref).collect();
            reply.append(cstr!("cursor"), cursor(batch));
        }
        "findAndModify" => reply.append(cstr!("value"), inner),
        "echo" => reply.append(cstr!("inner"), inner),
        _ => return None,
    }
    Some(reply)
}

/// Runs a test on a thread with so much stack, and with a client of a server that has these
/// documents.
fn on_small_stack<F: Future<Output = ()>>(
    inner: RawDocumentBuf,
    test: impl FnOnce(Arc<Scripted>, Client<Tokio>) -> F + Send + 'static,
) {
    let server = Arc::new(Scripted::start(25, move |name, _| reply(name, &inner)));
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = sdam_tokio::Client::connect(server.uri.as_str()).await.unwrap();
            test(Arc::clone(&server), Client::new(client)).await;
        });
    };
    std::thread::Builder::new().stack_size(STACK).spawn(run).unwrap().join().unwrap();
}

/// A reply is no reason to end the process, nor the connection.
#[test]
fn a_reply_that_is_nested_too_deeply_is_an_error_of_the_operation_alone() {
    for levels in [251, 1_000, 1_000_000] {
        on_small_stack(nested(levels, &rawdoc! {}), async move |server, client| {
            let database = client.database("app");
            let things = database.collection::<Document>("things");
            database.run_command(doc! { "ping": 1 }).await.unwrap();
            let opened = server.opened();

            let mut found = things.find(doc! {}).await.unwrap();
            is_too_deep(&found.next().await.unwrap().unwrap_err());
            assert!(found.next().await.is_none());
            is_too_deep(&things.find_one(doc! {}).await.unwrap_err());
            let typed = things.with_type::<Tree>();
            is_too_deep(&typed.find_one(doc! {}).await.unwrap_err());
            let set = || doc! { "$set": { "a": 1 } };
            let modify = FindOneAndUpdate::new(doc! {}, set());
            is_too_deep(&things.find_one_and_update(modify).await.unwrap_err());
            let values = things.distinct(Distinct::new("a", doc! {})).await.unwrap();
            is_too_deep(&values.collect::<Bson>().unwrap_err());
            is_too_deep(&database.run_command(doc! { "echo": 1 }).await.unwrap_err());
            let upsert = Update::new(doc! {}, set()).upsert(true);
            assert!(matches!(things.update_one(upsert).await, Err(Error::Reply(_))));
            let upsert = UpdateModel::new(doc! {}, set()).upsert(true);
            let bulk = ClientBulkWrite::new([("app.things", WriteModel::UpdateOne(upsert))]);
            let written = client.bulk_write(bulk.verbose_results(true)).await.unwrap();
            assert_eq!(written.verbose.unwrap().update_results[&0].upserted_id, None);

            // What keeps the bytes of documents has no limit.
            let raw = things.with_type::<RawDocumentBuf>().find_one(doc! {}).await.unwrap();
            assert!(raw.unwrap().as_bytes().len() > levels);
            database.run_command(doc! { "ping": 1 }).await.unwrap();
            assert_eq!(server.opened(), opened);
        });
    }
}

fn is_too_deep(error: &Error) {
    let Error::Deserialize(error) = error else { panic!("{error}") };
    let sentence = error.to_string();
    assert!(
        sentence.ends_with("there are more than 250 levels of documents and arrays"),
        "{sentence}"
    );
}

/// A type that is nested as documents are, with room for what else a document may have.
#[derive(Debug, Deserialize, Serialize)]
struct Tree {
    #[serde(default)]
    a: Option<Box<Tree>>,
    #[serde(default)]
    price: Option<bson::Decimal128>,
    #[serde(default)]
    ids: [Option<bson::Uuid>; 4],
}

impl Tree {
    fn levels(&self) -> usize {
        1 + self.a.as_ref().map_or(0, |inner| inner.levels())
    }
}

fn levels(value: Option<&Bson>) -> usize {
    let inner = value.and_then(Bson::as_document).and_then(|document| document.get("a"));
    value.map_or(0, |_| 1 + inner.map_or(0, |inner| levels(Some(inner))))
}

/// Servers store 180 levels, and send some more around them. The second document has a value that
/// bson alone reads.
#[test]
fn the_documents_of_honest_servers_are_read_on_a_small_stack() {
    let decimal = "1.5".parse::<bson::Decimal128>().unwrap();
    for innermost in [rawdoc! { "b": 1 }, rawdoc! { "price": decimal }] {
        for depth in [15, 16, 17, 60, 200, 250] {
            on_small_stack(nested(depth, &innermost), async move |_, client| {
                let database = client.database("app");
                let things = database.collection::<Document>("things");
                let found = things.find_one(doc! {}).await.unwrap().unwrap();
                assert_eq!(levels(Some(&found.into())), depth);
                let trees = things.with_type::<Tree>();
                assert_eq!(trees.find_one(doc! {}).await.unwrap().unwrap().levels(), depth);
                let upsert = Update::new(doc! {}, doc! { "$set": { "a": 1 } }).upsert(true);
                let upserted = things.update_one(upsert).await.unwrap();
                assert_eq!(levels(upserted.upserted_id.as_ref()), depth);
                let values = things.distinct(Distinct::new("a", doc! {})).await.unwrap();
                assert_eq!(levels(values.collect::<Bson>().unwrap().first()), depth);
                if depth < 250 {
                    // It has a level around it.
                    let echo = database.run_command(doc! { "echo": 1 }).await.unwrap();
                    assert_eq!(levels(echo.get("inner")), depth);
                }
            });
        }
    }
}

/// The same of what the application hands in, before anything is sent.
#[test]
fn an_argument_that_is_nested_too_deeply_is_an_error() {
    on_small_stack(rawdoc! {}, async |server, client| {
        let things = client.database("app").collection::<Document>("things");
        client.database("app").run_command(doc! { "ping": 1 }).await.unwrap();
        let opened = server.opened();
        let deep = |levels| (1..levels).fold(doc! {}, |inner, _| doc! { "a": inner });
        let commented = Find::new(deep(250)).comment(deep(250));
        assert!(things.find(commented).await.is_ok());
        for error in [
            things.find(Find::new(deep(251))).await.map(drop).unwrap_err(),
            things.find(Find::new(doc! {}).comment(deep(251))).await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Serialize(_)), "{error}");
        }
        let raw = things.with_type::<RawDocumentBuf>();
        for levels in [1_000, 1_000_000] {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("_id"), nested(levels, &rawdoc! {}));
            let error = raw.insert_one(&document).await.unwrap_err();
            assert!(matches!(error, Error::Serialize(_)), "{error}");
        }
        assert_eq!(server.opened(), opened);
    });
}
