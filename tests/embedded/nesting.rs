//! Documents that are nested deeply, in replies and in what the application hands in: on threads
//! with little stack.

use std::future::Future;
use std::sync::Arc;

use bson::{Bson, Document, RawDocument, RawDocumentBuf, cstr, doc, rawdoc};
use sdam::error::{Error, ErrorKind};
use sdam::generic::Client;
use sdam::operation::{InsertModel, ReplaceModel, UpdateModel, WriteModel};
use sdam_tokio::Tokio;
use serde::ser::{SerializeMap as _, SerializeSeq as _, SerializeStructVariant as _};
use serde::{Deserialize, Serialize, Serializer};

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
            let client = sdam_tokio::Topology::connect(server.uri.as_str()).await.unwrap();
            test(Arc::clone(&server), Client::from(client)).await;
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
            let typed = things.clone_with_type::<Tree>();
            is_too_deep(&typed.find_one(doc! {}).await.unwrap_err());
            let set = || doc! { "$set": { "a": 1 } };
            is_too_deep(&things.find_one_and_update(doc! {}, set()).await.unwrap_err());
            is_too_deep(&things.distinct("a", doc! {}).await.unwrap_err());
            let values = things.distinct("a", doc! {}).unread().await.unwrap();
            is_too_deep(&values.collect::<Bson>().unwrap_err());
            is_too_deep(&database.run_command(doc! { "echo": 1 }).await.unwrap_err());
            let updated = things.update_one(doc! {}, set()).upsert(true).await;
            assert!(updated.unwrap_err().as_reply().is_some());
            let upsert = UpdateModel::new(doc! {}, set()).upsert(true);
            let bulk = [("app.things", WriteModel::UpdateOne(upsert))];
            let written = client.bulk_write(bulk).verbose_results(true).await.unwrap();
            assert_eq!(written.verbose.unwrap().update_results[&0].upserted_id, None);

            // What keeps the bytes of documents has no limit.
            let raw = things.clone_with_type::<RawDocumentBuf>().find_one(doc! {}).await.unwrap();
            assert!(raw.unwrap().as_bytes().len() > levels);
            database.run_command(doc! { "ping": 1 }).await.unwrap();
            assert_eq!(server.opened(), opened);
        });
    }
}

fn is_too_deep(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Deserialize, "{error}");
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
                let trees = things.clone_with_type::<Tree>();
                assert_eq!(trees.find_one(doc! {}).await.unwrap().unwrap().levels(), depth);
                let set = doc! { "$set": { "a": 1 } };
                let upserted = things.update_one(doc! {}, set).upsert(true).await.unwrap();
                assert_eq!(levels(upserted.upserted_id.as_ref()), depth);
                let values = things.distinct("a", doc! {}).await.unwrap();
                assert_eq!(levels(values.first()), depth);
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
        assert!(things.find(deep(250)).comment(deep(250)).await.is_ok());
        for error in [
            things.find(deep(251)).await.map(drop).unwrap_err(),
            things.find(doc! {}).comment(deep(251)).await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Serialize, "{error}");
        }
        let raw = things.clone_with_type::<RawDocumentBuf>();
        for levels in [1_000, 1_000_000] {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("_id"), nested(levels, &rawdoc! {}));
            let error = raw.insert_one(&document).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Serialize, "{error}");
        }
        assert_eq!(server.opened(), opened);
    });
}

/// A value of the application's of so many levels, each of them of this kind: it takes no memory,
/// and dropping it does not recurse.
#[derive(Clone, Copy, Debug)]
struct Deep {
    levels: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Documents,
    Arrays,
    /// Variants with fields: a document with a document within.
    Variants,
    /// Types around a value, which are not seen in documents.
    Wrappers,
}

/// The outermost level is a document.
impl Serialize for Deep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("_id", &bson::oid::ObjectId::from_bytes([7; 12]))?;
        map.serialize_entry("a", &Inner(Self { levels: self.levels - 1, ..*self }))?;
        map.end()
    }
}

struct Inner(Deep);

impl Serialize for Inner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Deep { levels, kind } = self.0;
        let inner = |fewer: usize| Self(Deep { levels: levels.saturating_sub(fewer), kind });
        match kind {
            // A value that serde takes for a struct.
            _ if levels == 0 => bson::oid::ObjectId::from_bytes([7; 12]).serialize(serializer),
            Kind::Documents => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("a", &inner(1))?;
                map.end()
            }
            Kind::Arrays => {
                let mut seq = serializer.serialize_seq(Some(1))?;
                seq.serialize_element(&inner(1))?;
                seq.end()
            }
            Kind::Variants => {
                let mut variant = serializer.serialize_struct_variant("Inner", 0, "Variant", 1)?;
                variant.serialize_field("a", &inner(2))?;
                variant.end()
            }
            Kind::Wrappers => serializer.serialize_some(&inner(1)),
        }
    }
}

/// Hands a value in wherever the application may, and returns the errors.
async fn handed_in<T: Serialize + Sync>(client: &Client<Tokio>, value: &T) -> Vec<Option<Error>> {
    let things = client.database("app").collection::<Document>("things");
    let typed = things.clone_with_type::<T>();
    let insert = || WriteModel::InsertOne(InsertModel::new(value));
    let replace = || WriteModel::ReplaceOne(ReplaceModel::new(doc! {}, value));
    let mut errors = vec![
        typed.insert_one(value).await.err(),
        typed.insert_many(std::slice::from_ref(value)).await.err(),
        typed.replace_one(doc! {}, value).await.err(),
        typed.find_one_and_replace(doc! {}, value).with_type::<Document>().await.err(),
    ];
    for write in [insert(), replace()] {
        errors.push(things.bulk_write([write.clone()]).await.err());
        errors.push(client.bulk_write([("app.things", write)]).await.err());
    }
    errors
}

/// The same of values of the application's, of whichever type.
#[test]
fn a_value_that_is_nested_too_deeply_is_an_error() {
    on_small_stack(rawdoc! {}, async |server, client| {
        client.database("app").run_command(doc! { "ping": 1 }).await.unwrap();
        let opened = server.opened();
        let refused = |errors: Vec<Option<Error>>| {
            for error in errors {
                let error = error.expect("it is nested too deeply");
                let cause = error.root_cause();
                assert_eq!(cause.kind(), ErrorKind::Serialize, "{error}");
                let sentence = cause.to_string();
                assert!(sentence.contains("more than 250 levels of documents"), "{sentence}");
            }
        };
        for kind in [Kind::Documents, Kind::Arrays, Kind::Variants, Kind::Wrappers] {
            for levels in [2_001, 10_000_000] {
                refused(handed_in(&client, &Deep { levels, kind }).await);
            }
        }
        // Dropping it would recurse.
        let document = (1..100_000).fold(doc! {}, |inner, _| doc! { "a": inner });
        let document: &'static Document = Box::leak(Box::new(document));
        refused(handed_in(&client, document).await);
        for kind in [Kind::Documents, Kind::Arrays] {
            refused(handed_in(&client, &Deep { levels: 251, kind }).await);
        }
        refused(handed_in(&client, &Deep { levels: 252, kind: Kind::Variants }).await);
        assert_eq!(server.opened(), opened);
    });
}

#[test]
fn a_value_with_as_many_levels_as_are_allowed_is_sent() {
    on_small_stack(rawdoc! {}, async |_, client| {
        let deep = |levels, kind| Deep { levels, kind };
        for value in [
            deep(250, Kind::Documents),
            deep(250, Kind::Arrays),
            deep(249, Kind::Variants),
            deep(250, Kind::Wrappers),
        ] {
            for error in handed_in(&client, &value).await.into_iter().flatten() {
                // The server's replies have not all that those to writes have.
                assert!(error.root_cause().as_reply().is_some(), "{value:?}: {error}");
            }
        }
        // What keeps the bytes of a document has no limit.
        let raw = nested(1_000_000, &rawdoc! {});
        for error in handed_in(&client, &raw).await.into_iter().flatten() {
            assert!(error.root_cause().as_reply().is_some(), "{error}");
        }
    });
}
