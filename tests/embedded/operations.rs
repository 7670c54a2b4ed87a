//! The operations of each handle: what they send, what they return of the reply, and the names that
//! metrics have for them.

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc, rawdoc};
use sdam::generic::Client;
use sdam::operation::{
    IndexModel, MapReduceOutput, RunCommand, RunCursorCommand, SearchIndexModel,
};
use sdam::options::ValidationLevel;
use sdam_core::config::{
    Acknowledgment, Options, ReadConcern, ReadMode, ReadPreference, WriteConcern,
};
use sdam_core::metrics::Exposition;
use sdam_core::topology::Topics;
use sdam_host::Events;
use sdam_tokio::Tokio;

use super::answering::Scripted;
use super::{Fixture, name, started};

/// A client of a server that replies by a script, and what the client sends.
pub(crate) struct Scene {
    pub(crate) client: Client<Tokio>,
    events: Events,
    _server: Scripted,
}

impl Scene {
    pub(crate) fn new(
        script: impl Fn(&str, &RawDocument) -> Option<RawDocumentBuf> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Scripted::start(25, script))
    }

    fn of(server: Scripted) -> Self {
        let client = sdam_tokio::Topology::new(Options::parse(&server.uri).unwrap()).unwrap();
        let events = client.subscribe_to(Topics::COMMANDS);
        Self { client: Client::from(client), events, _server: server }
    }

    /// Returns the commands that were sent since the last call.
    pub(crate) fn sent(&mut self) -> Vec<Document> {
        let events = std::iter::from_fn(|| self.events.try_next());
        events.filter_map(started).map(|(command, _)| command).collect()
    }

    /// Waits until a command of that name is sent; fails after [`LIMIT`](super::LIMIT).
    pub(crate) async fn sent_until(&mut self, last: &str) -> Vec<Document> {
        let sent = super::sent_until(&mut self.events, last).await;
        sent.into_iter().map(|(command, _)| command).collect()
    }

    /// Returns the only command that was sent since the last call, without its session.
    fn only(&mut self) -> Document {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        let mut only = sent.remove(0);
        only.remove("lsid");
        only
    }

    /// Returns the names of the operations that were counted, in their order.
    fn counted(&self) -> Vec<String> {
        let text = Exposition::new(&self.client.topology().metrics()).to_string();
        let of = |line: &&str| line.starts_with("db_client_operation_duration_seconds_count");
        let name = |line: &str| {
            let (_, value) = line.split_once("db_operation_name=\"")?;
            Some(value.split_once('"')?.0.to_owned())
        };
        let mut names: Vec<_> = text.lines().filter(of).filter_map(name).collect();
        names.sort();
        names
    }
}

/// A cursor of one batch.
fn batch(documents: impl IntoIterator<Item = RawDocumentBuf>) -> RawDocumentBuf {
    let mut cursor = rawdoc! { "id": 0_i64, "ns": "app.things" };
    cursor.append(bson::cstr!("firstBatch"), bson::RawArrayBuf::from_iter(documents));
    rawdoc! { "ok": 1, "cursor": cursor }
}

/// Replies with something that no default is like.
fn reply(name: &str, _: &RawDocument) -> Option<RawDocumentBuf> {
    let named = |name: &str| rawdoc! { "name": name };
    Some(match name {
        "aggregate" => batch([rawdoc! { "_id": 1, "n": 3 }]),
        "count" => rawdoc! { "ok": 1, "n": 4 },
        "delete" => rawdoc! { "ok": 1, "n": 5 },
        "distinct" => rawdoc! { "ok": 1, "values": ["x", "y"] },
        "find" => batch([rawdoc! { "_id": 6 }, rawdoc! { "_id": 7 }]),
        "findAndModify" => rawdoc! { "ok": 1, "value": { "_id": 8 } },
        "insert" => rawdoc! { "ok": 1, "n": 1 },
        "update" => rawdoc! { "ok": 1, "n": 2, "nModified": 1 },
        "mapReduce" => rawdoc! { "ok": 1, "results": [{ "_id": 9, "value": 2 }] },
        "explain" => rawdoc! { "ok": 1, "plan": "short" },
        "createSearchIndexes" => {
            rawdoc! { "ok": 1, "indexesCreated": [{ "id": "1", "name": "s" }] }
        }
        "listDatabases" => rawdoc! { "ok": 1, "databases": [named("one"), named("two")] },
        "listCollections" | "listIndexes" => batch([named("one"), named("two")]),
        _ => return None,
    })
}

fn set() -> Document {
    doc! { "$set": { "a": 1 } }
}

/// CRUD, "Read": each helper returns what the server has said to its command.
#[tokio::test]
async fn reads_of_a_collection_return_what_the_server_says() {
    let mut scene = Scene::new(reply);
    let things = scene.client.database("app").collection::<Document>("things");
    assert_eq!(
        (things.name(), things.namespace()),
        ("things", sdam::Namespace::new("app", "things"))
    );
    assert_eq!(things.count_documents(doc! { "a": 1 }).await.unwrap(), 3);
    let sent = scene.only();
    assert_eq!((name(&sent), sent.get_str("$db").unwrap()), ("aggregate", "app"));
    assert_eq!(sent.get_str("aggregate").unwrap(), "things");
    assert_eq!(things.estimated_document_count().await.unwrap(), 4);
    assert_eq!(scene.only(), doc! { "count": "things", "$db": "app" });
    assert_eq!(things.count(doc! { "a": 1 }).await.unwrap(), 4);
    assert_eq!(scene.only(), doc! { "count": "things", "query": { "a": 1 }, "$db": "app" });
    let values = things.distinct("a", doc! {}).await.unwrap();
    assert_eq!(values, ["x", "y"].map(Bson::from));
    assert_eq!(name(&scene.only()), "distinct");
    let values = things.distinct("a", doc! {}).with_type::<String>().await.unwrap();
    assert_eq!(values, ["x", "y"]);
    let values = things.distinct("a", doc! {}).unread().await.unwrap();
    assert_eq!(values.collect::<String>().unwrap(), ["x", "y"]);
    assert_eq!(super::names(&scene.sent()), ["distinct"; 2]);
    #[expect(deprecated, reason = "it is there")]
    let reduced = things.map_reduce("f", "g", MapReduceOutput::inline()).await;
    assert_eq!(reduced.unwrap(), [doc! { "_id": 9, "value": 2 }]);
    assert_eq!(name(&scene.only()), "mapReduce");
    let explained = things.find(doc! {}).explain().await.unwrap();
    assert_eq!(explained.get_str("plan").unwrap(), "short");
    assert_eq!(name(&scene.only()), "explain");
    assert_eq!(things.find_one(doc! {}).await.unwrap(), Some(doc! { "_id": 6 }));
    let found = things.find(doc! {}).await.unwrap().try_collect::<Vec<_>>().await.unwrap();
    assert_eq!(found, [doc! { "_id": 6 }, doc! { "_id": 7 }]);
    let cursor = things.aggregate([doc! { "$match": {} }]).await.unwrap();
    assert_eq!(cursor.try_collect::<Vec<_>>().await.unwrap(), [doc! { "_id": 1, "n": 3 }]);
    let listed = things.list_search_indexes();
    assert_eq!(listed.await.unwrap().try_collect::<Vec<_>>().await.unwrap().len(), 1);
    let sent: Vec<_> = scene.sent();
    assert_eq!(super::names(&sent), ["find", "find", "aggregate", "aggregate"]);
    for command in &sent {
        assert_eq!(command.values().next().unwrap().as_str(), Some("things"));
    }
}

/// CRUD, "Write": the same of writes.
#[tokio::test]
async fn writes_of_a_collection_return_what_the_server_says() {
    let mut scene = Scene::new(reply);
    let things = scene.client.database("app").collection::<Document>("things");
    for multi in [false, true] {
        let updated = match multi {
            false => things.update_one(doc! {}, set()).await.unwrap(),
            true => things.update_many(doc! {}, set()).await.unwrap(),
        };
        assert!(updated.acknowledged);
        assert_eq!((updated.matched_count, updated.modified_count), (2, 1));
        let deleted = match multi {
            false => things.delete_one(doc! {}).await.unwrap(),
            true => things.delete_many(doc! {}).await.unwrap(),
        };
        assert_eq!((deleted.acknowledged, deleted.deleted_count), (true, 5));
        let sent = scene.sent();
        let updates = sent[0].get_array("updates").unwrap()[0].as_document().unwrap();
        assert_eq!(updates.get_bool("multi").unwrap_or(false), multi);
        let deletes = sent[1].get_array("deletes").unwrap()[0].as_document().unwrap();
        assert_eq!(deletes.get_i32("limit").unwrap(), i32::from(!multi));
    }
    let replaced = things.replace_one(doc! {}, &doc! { "a": 1 }).await.unwrap();
    assert_eq!((replaced.matched_count, replaced.modified_count), (2, 1));
    let inserted = things.insert_one(&doc! { "_id": 3 }).await.unwrap();
    assert_eq!((inserted.acknowledged, inserted.inserted_id), (true, Bson::Int32(3)));
    let inserted = things.insert_many(&[doc! { "_id": 4 }]).await.unwrap();
    assert_eq!((inserted.acknowledged, &inserted.inserted_ids[&0]), (true, &Bson::Int32(4)));
    let eight = Some(doc! { "_id": 8 });
    assert_eq!(things.find_one_and_delete(doc! {}).await.unwrap(), eight);
    let replaced = things.find_one_and_replace(doc! {}, doc! { "a": 1 }).await.unwrap();
    assert_eq!(replaced, eight);
    assert_eq!(things.find_one_and_update(doc! {}, set()).await.unwrap(), eight);
    let names = ["update", "insert", "insert", "findAndModify", "findAndModify", "findAndModify"];
    assert_eq!(super::names(&scene.sent()), names);
}

/// Index Management, Enumerate Databases and Enumerate Collections: each helper sends its command
/// to the collection or the database of its handle, and returns what the server has said.
#[tokio::test]
async fn collections_and_indexes_are_managed_by_the_commands_for_them() {
    let mut scene = Scene::new(reply);
    let database = scene.client.database("app");
    let things = database.collection::<Document>("things");
    let index = || IndexModel::new(doc! { "a": 1, "b": 2_i64, "c": -1.0, "d": "2d" });
    assert_eq!(things.create_index(index()).await.unwrap(), "a_1_b_2_c_-1_d_2d");
    let two = [index(), IndexModel::new(doc! { "z": 1 })];
    assert_eq!(things.create_indexes(two).await.unwrap(), ["a_1_b_2_c_-1_d_2d", "z_1"]);
    assert_eq!(super::names(&scene.sent()), ["createIndexes", "createIndexes"]);
    things.drop_index("a_1").await.unwrap();
    assert_eq!(scene.only(), doc! { "dropIndexes": "things", "index": "a_1", "$db": "app" });
    things.drop_indexes().await.unwrap();
    assert_eq!(scene.only(), doc! { "dropIndexes": "things", "index": "*", "$db": "app" });
    assert_eq!(things.list_index_names().await.unwrap(), ["one", "two"]);
    assert_eq!(name(&scene.only()), "listIndexes");
    let listed = things.list_indexes().with_type::<Document>().await.unwrap();
    let listed: Vec<_> = listed.try_collect().await.unwrap();
    assert_eq!((listed.len(), name(&scene.only())), (2, "listIndexes"));
    let search = || SearchIndexModel::new(doc! { "mappings": {} });
    assert_eq!(things.create_search_indexes([search()]).await.unwrap(), ["s"]);
    assert_eq!(scene.only().get_str("createSearchIndexes").unwrap(), "things");
    assert_eq!(things.create_search_index(search()).await.unwrap(), "s");
    assert_eq!(scene.only().get_str("createSearchIndexes").unwrap(), "things");
    things.drop_search_index("s").await.unwrap();
    assert_eq!(scene.only(), doc! { "dropSearchIndex": "things", "name": "s", "$db": "app" });
    things.update_search_index("s", doc! {}).await.unwrap();
    assert_eq!(scene.only().get_str("updateSearchIndex").unwrap(), "things");
    things.rename("app.others").await.unwrap();
    let expected = doc! { "renameCollection": "app.things", "to": "app.others", "$db": "admin" };
    assert_eq!(scene.only(), expected);
    things.modify().validation_level(ValidationLevel::Off).await.unwrap();
    let expected = doc! { "collMod": "things", "validationLevel": "off", "$db": "app" };
    assert_eq!(scene.only(), expected);
    things.drop().await.unwrap();
    assert_eq!(scene.only(), doc! { "drop": "things", "$db": "app" });
    database.create_collection("new").await.unwrap();
    assert_eq!(scene.only(), doc! { "create": "new", "$db": "app" });
    database.drop().await.unwrap();
    assert_eq!(scene.only(), doc! { "dropDatabase": 1, "$db": "app" });
    assert_eq!(database.list_collection_names().await.unwrap(), ["one", "two"]);
    assert_eq!(scene.only().get_bool("nameOnly").ok(), Some(true));
    let listed = database.list_collections().with_type::<Document>().await.unwrap();
    assert_eq!(listed.try_collect::<Vec<_>>().await.unwrap().len(), 2);
    assert_eq!(scene.only().get_str("$db").unwrap(), "app");
    assert_eq!(scene.client.list_database_names().await.unwrap(), ["one", "two"]);
    let expected = doc! { "listDatabases": 1, "nameOnly": true, "$db": "admin" };
    assert_eq!(scene.only(), expected);
    let listed = scene.client.list_databases().with_type::<Document>().await.unwrap();
    assert_eq!(listed, [doc! { "name": "one" }, doc! { "name": "two" }]);
}

/// Index Management, "Drivers MUST suppress NamespaceNotFound errors for the dropSearchIndex
/// helper"; the same of collections, which servers before 7.0 say. Every other error is one.
#[tokio::test]
async fn dropping_what_is_not_there_is_no_error() {
    for (code, is_error) in [(26, false), (27, true)] {
        let refuse = move |_: &str, _: &RawDocument| {
            Some(rawdoc! { "ok": 0, "code": code, "errmsg": "refused" })
        };
        let scene = Scene::new(refuse);
        let things = scene.client.database("app").collection::<Document>("things");
        let outcomes = [things.drop().await, things.drop_search_index("s").await];
        assert_eq!(outcomes.map(|outcome| outcome.is_err()), [is_error; 2]);
        let error = scene.client.database("app").drop().await.unwrap_err();
        assert_eq!(error.code(), Some(code));
    }
}

/// OpenTelemetry, "Instrumenting Driver Operations": an operation has the name of the covered
/// operation, whatever its command is called.
#[tokio::test]
async fn operations_are_counted_by_their_names() {
    let scene = Scene::new(reply);
    assert!(scene.counted().is_empty());
    let database = scene.client.database("app");
    let things = database.collection::<Document>("things");
    things.find_one(doc! {}).await.unwrap();
    things.count_documents(doc! {}).await.unwrap();
    things.drop().await.unwrap();
    database.create_collection("new").await.unwrap();
    database.run_command(doc! { "ping": 1 }).await.unwrap();
    scene.client.list_database_names().await.unwrap();
    let expected =
        ["aggregate", "createCollection", "dropCollection", "find", "listDatabases", "runCommand"];
    assert_eq!(scene.counted(), expected);
}

/// Read and Write Concern, and Server Selection: a handle hands its concerns on to the handles that
/// come of it, and changes nothing of the one that it came of.
#[tokio::test]
async fn handles_have_the_concerns_that_they_were_made_with() {
    let mut fixture = Fixture::new().await;
    fixture.fill(1).await;
    let local = || ReadConcern::default().with_level(Some("local".to_owned()));
    let written = || WriteConcern::default().with_w(Some(Acknowledgment::Servers(1)));
    let preference = || ReadPreference::new(ReadMode::PrimaryPreferred);
    let client = fixture.client.clone();
    let (database, things) = (client.database("app"), fixture.things());
    let of = |client: Client<Tokio>| client.database("app").collection::<Document>("things");
    let handles = [
        of(client
            .with_read_concern(local())
            .with_write_concern(written())
            .with_read_preference(preference())),
        database
            .with_read_concern(local())
            .with_write_concern(written())
            .with_read_preference(preference())
            .collection("things"),
        things
            .with_read_concern(local())
            .with_write_concern(written())
            .with_read_preference(preference()),
    ];
    for handle in handles {
        handle.find_one(doc! {}).await.unwrap();
        handle.delete_one(doc! { "_id": 7 }).await.unwrap();
        let sent = fixture.sent();
        let concern = sent[0].get_document("readConcern").unwrap();
        assert_eq!(concern.get_str("level").unwrap(), "local");
        let preference = sent[0].get_document("$readPreference").unwrap();
        assert_eq!(preference.get_str("mode").unwrap(), "primaryPreferred");
        assert_eq!(sent[1].get_document("writeConcern").unwrap(), &doc! { "w": 1 });
    }
    things.find_one(doc! {}).await.unwrap();
    let sent = fixture.sent();
    assert!(!sent[0].contains_key("readConcern") && !sent[0].contains_key("$readPreference"));
}

/// Run Command, "ReadPreference": it "MUST NOT be inherited", and is that of the command alone.
#[tokio::test]
async fn a_command_of_the_applications_has_its_own_read_preference() {
    let mut fixture = Fixture::new().await;
    fixture.fill(1).await;
    let nearest = || ReadPreference::new(ReadMode::Nearest);
    let database = fixture.client.database("app").with_read_preference(nearest());
    let find = || doc! { "find": "things" };
    database.run_command(find()).await.unwrap();
    database.run_cursor_command(find()).await.unwrap();
    database.run_command(find()).read_preference(nearest()).await.unwrap();
    database.run_cursor_command(find()).read_preference(nearest()).await.unwrap();
    let run = RunCommand::new(find()).read_preference(nearest());
    database.run_command(run).await.unwrap();
    let run = RunCursorCommand::new(find()).read_preference(nearest());
    database.operation(run).await.unwrap();
    let mode = |command: &Document| {
        let preference = command.get_document("$readPreference").ok()?;
        Some(preference.get_str("mode").unwrap().to_owned())
    };
    let modes: Vec<_> = fixture.sent().iter().map(mode).collect();
    let nearest = Some("nearest".to_owned());
    assert_eq!(modes, [&None, &None, &nearest, &nearest, &nearest, &nearest].map(Clone::clone));
}

/// Driver Sessions: what a session has seen and what has become of it, as its owner sees it.
#[tokio::test]
async fn a_session_is_dirty_after_a_network_error_alone() {
    let fixture = Fixture::new().await;
    let session = fixture.client.start_session().await.unwrap();
    let things = fixture.things().with_session(&session);
    things.insert_one(&doc! { "_id": 1 }).await.unwrap();
    assert!(!session.is_dirty().unwrap());
    let lost = doc! { "failCommands": ["insert"], "closeConnection": true };
    fixture.fail(1, lost).await;
    things.insert_one(&doc! { "_id": 2 }).await.unwrap();
    assert!(session.is_dirty().unwrap());
    assert!(session.belongs_to(fixture.client.topology()));
    assert!(!session.belongs_to(fixture.quiet.topology()));
}

/// Bulk Write, "Command Batching": the limits are those of the server that the command goes to, of
/// writes, of documents and of messages.
#[tokio::test]
async fn writes_keep_within_the_limits_of_their_server() {
    const PLENTY: i32 = 1 << 20;
    let document = |id: i32| doc! { "_id": id, "text": "x".repeat(20_000) };
    for (limits, expected) in [
        ((PLENTY, PLENTY, PLENTY), Some(vec![3])),
        ((2, PLENTY, PLENTY), Some(vec![2, 1])),
        ((PLENTY, PLENTY, 60_000), Some(vec![2, 1])),
        // The server would refuse each of them.
        ((PLENTY, 1_000, PLENTY), None),
    ] {
        let written = |_: &str, _: &RawDocument| Some(rawdoc! { "ok": 1, "n": 1 });
        let mut scene = Scene::of(Scripted::with_limits(limits, written));
        let things = scene.client.database("app").collection::<Document>("things");
        let documents = [document(1), document(2), document(3)];
        let outcome = things.insert_many(&documents).await;
        assert_eq!(outcome.is_ok(), expected.is_some(), "{outcome:?}");
        let sent = scene.sent();
        let sizes = sent.iter().map(|it| it.get_array("documents").unwrap().len());
        assert_eq!(sizes.collect::<Vec<_>>(), expected.unwrap_or_default());
    }
}
