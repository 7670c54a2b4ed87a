//! Names that people know from other drivers: what they do here.

use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use sdam::Client;
use sdam::error::{ArgumentError, TimingError};
use sdam::operation::{InsertModel, WriteModel};
use sdam::options::{
    CollectionOptions, DatabaseOptions, FindOptions, ReadConcern, TimeoutMode, WriteConcern,
};
use sdam_core::config::{ReadMode, ReadPreference};
use serde::{Deserialize, Serialize};

use super::{Fixture, LIMIT, name, names, session};

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Named {
    #[serde(rename = "_id")]
    id: i32,
    name: String,
}

/// A document that borrows its text from the server's reply.
#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Borrowed<'a> {
    #[serde(borrow)]
    name: &'a str,
}

fn named(id: i32) -> Named {
    Named { id, name: format!("n{id}") }
}

/// The program of a newcomer: values and references are written, options are methods, and the loop
/// is that of every other driver.
#[tokio::test]
async fn documents_are_written_by_value_or_reference_and_read_one_by_one() {
    let fixture = Fixture::new().await;
    let client = Client::connect(fixture.uri().as_str()).await.unwrap();
    let things = client.database("app").collection::<Named>("things");
    things.insert_one(named(0)).await.unwrap();
    let one = named(1);
    things.insert_one(&one).await.unwrap();
    things.insert_many([named(2), named(3)]).await.unwrap();
    things.insert_many(vec![&named(4)]).await.unwrap();
    let changed = things.update_one(doc! { "_id": 9 }, doc! { "$set": { "name": "new" } });
    assert_eq!(changed.upsert(true).await.unwrap().upserted_id, Some(9.into()));
    let mut found = things.find(doc! {}).sort(doc! { "_id": -1 }).limit(3).await.unwrap();
    let mut ids = Vec::new();
    while let Some(named) = found.try_next().await.unwrap() {
        ids.push(named.id);
    }
    assert_eq!(ids, [9, 4, 3]);
    let all: Vec<Named> = things.find(doc! {}).await.unwrap().try_collect().await.unwrap();
    assert_eq!(all.len(), 6);
}

/// A document may be read where it lies in the reply, as a type that borrows from it, and the rest
/// of a cursor as another type.
#[tokio::test]
async fn a_cursor_is_read_in_place_and_as_other_types() {
    let fixture = Fixture::new().await;
    let things = fixture.things();
    things
        .insert_many((0..5).map(|id| doc! { "_id": id, "name": format!("n{id}") }))
        .await
        .unwrap();
    let find = things.find(doc! {}).sort(doc! { "_id": 1 }).batch_size(2);
    let mut found = find.await.unwrap().with_type::<Borrowed<'_>>();
    assert!(found.current().is_none());
    let error = found.deserialize_current().unwrap_err();
    assert_eq!(error.as_argument(), Some(&ArgumentError::NoCurrentDocument));
    let text = "the cursor is at no document; its method `advance` moves it to the next";
    assert_eq!(error.to_string(), text);
    assert!(found.has_next());
    for id in 0..3 {
        assert!(found.advance().await.unwrap());
        assert_eq!(found.current().unwrap().get_i32("_id").ok(), Some(id));
        let expected = format!("n{id}");
        assert_eq!(found.deserialize_current().unwrap(), Borrowed { name: &expected });
    }
    let mut rest = found.with_type::<RawDocumentBuf>();
    assert_eq!(rest.next().await.unwrap().unwrap().get_i32("_id").ok(), Some(3));
    let last: Vec<Document> = rest.with_type().try_collect().await.unwrap();
    assert_eq!(last, [doc! { "_id": 4, "name": "n4" }]);
    let mut one = things.find(doc! { "_id": 1 }).await.unwrap();
    assert!(one.advance().await.unwrap() && one.current().is_some());
    assert!(!one.advance().await.unwrap() && one.current().is_none(), "it is at the end");
    assert!(one.deserialize_current().is_err());
    let mut none = things.find(doc! { "_id": 77 }).await.unwrap();
    assert!(!none.has_next() && !none.advance().await.unwrap() && none.current().is_none());
}

/// A collection of a type that borrows is written and searched as any other; what hands documents
/// out is there for types that own what they have.
#[tokio::test]
async fn a_collection_may_be_of_a_type_that_borrows() {
    let fixture = Fixture::new().await;
    let client = Client::connect(fixture.uri().as_str()).await.unwrap();
    let things = client.database("app").collection::<Borrowed<'_>>("things");
    let text = String::from("one two");
    let names: Vec<Borrowed<'_>> = text.split(' ').map(|name| Borrowed { name }).collect();
    things.insert_many(&names).await.unwrap();
    let mut found = things.find(doc! {}).sort(doc! { "name": 1 }).batch_size(1).await.unwrap();
    for name in &names {
        assert!(found.advance().await.unwrap());
        assert_eq!(&found.deserialize_current().unwrap(), name);
    }
    assert!(!found.advance().await.unwrap());
    let mut sorted = things
        .aggregate([doc! { "$sort": { "name": -1 } }])
        .with_type::<Borrowed<'_>>()
        .await
        .unwrap();
    assert!(sorted.advance().await.unwrap());
    assert_eq!(sorted.deserialize_current().unwrap(), Borrowed { name: "two" });
    let one = things.find_one(doc! {}).sort(doc! { "name": 1 }).with_type::<Document>();
    assert_eq!(one.await.unwrap().unwrap().get_str("name").ok(), Some("one"));
}

/// Concerns, a session and a limit of an action are in its command, and not in those of the handle.
#[tokio::test]
async fn an_action_has_concerns_a_session_and_a_limit_of_its_own() {
    let mut fixture = Fixture::new().await;
    let things = fixture.things();
    let mut own = fixture.client.start_session().await.unwrap();
    things.insert_one(doc! { "_id": 1 }).session(&mut own).await.unwrap();
    let find = things.find_one(doc! {}).session(&own).read_concern(ReadConcern::majority());
    find.timeout(Duration::from_secs(20)).await.unwrap();
    let majority = WriteConcern::majority();
    things.delete_one(doc! { "_id": 1 }).write_concern(majority).await.unwrap();
    things
        .find_one(doc! {})
        .optional(Some(1), |find, skip| find.skip(skip).comment("it skips"))
        .await
        .unwrap();
    things.find_one(doc! {}).await.unwrap();
    let sent = fixture.sent();
    assert_eq!(names(&sent), ["insert", "find", "delete", "find", "find"]);
    let [insert, find, delete, skipping, plain] = &sent[..] else { panic!() };
    assert_eq!(session(insert), session(find));
    assert_ne!(session(find), session(plain));
    assert_eq!(find.get_document("readConcern").unwrap().get_str("level").ok(), Some("majority"));
    assert!(find.contains_key("maxTimeMS") && !plain.contains_key("maxTimeMS"));
    assert_eq!(delete.get_document("writeConcern").unwrap(), &doc! { "w": "majority" });
    assert!(skipping.contains_key("skip") && !plain.contains_key("skip"));
}

/// A new name without a database is refused before anything is sent, in words that say what is
/// allowed.
#[tokio::test]
async fn a_name_without_a_database_is_refused_where_a_namespace_is_wanted() {
    let mut fixture = Fixture::new().await;
    let things = fixture.things();
    let renamed = things.rename("other").await.unwrap_err();
    assert_eq!(renamed.as_argument(), Some(&ArgumentError::Namespace("other".to_owned())));
    let allowed = "which is the name of a database, a dot, and that of a collection";
    assert_eq!(renamed.to_string(), format!("\"other\" is no namespace, {allowed}"));
    let insert = WriteModel::InsertOne(InsertModel::new(doc! {}));
    let written = fixture.client.bulk_write([("other", insert)]).await.unwrap_err();
    assert_eq!(written.to_string(), renamed.to_string());
    assert!(fixture.sent().is_empty());
    things.insert_one(doc! { "_id": 1 }).await.unwrap();
    things.rename("app.other").await.unwrap();
    let other = fixture.client.database("app").collection::<Document>("other");
    assert_eq!(other.count_documents(doc! {}).await.unwrap(), 1);
}

/// Run Command: the read preference of the handle does not count, that of the call does.
#[tokio::test]
async fn a_command_has_the_read_preference_of_its_action() {
    let mut fixture = Fixture::new().await;
    let nearest = ReadPreference::new(ReadMode::SecondaryPreferred);
    let app = fixture.client.database("app").with_read_preference(nearest.clone());
    app.run_command(doc! { "ping": 1 }).await.unwrap();
    app.run_command(doc! { "ping": 2 }).read_preference(nearest).await.unwrap();
    let sent = fixture.sent();
    let mode = |command: &Document| {
        let preference = command.get_document("$readPreference").ok();
        preference.and_then(|preference| preference.get_str("mode").ok().map(str::to_owned))
    };
    assert_eq!(sent.iter().map(name).collect::<Vec<_>>(), ["ping", "ping"]);
    assert_eq!(
        sent.iter().map(mode).collect::<Vec<_>>(),
        [None, Some("secondaryPreferred".into())]
    );
}

/// Run Command: "default values MUST NOT be inherited from client, database, or collection options."
#[tokio::test]
async fn a_command_has_the_concerns_that_are_written_in_it() {
    let mut fixture = Fixture::new().await;
    let app = fixture.client.database("app").with_read_concern(ReadConcern::majority());
    let app = app.with_write_concern(WriteConcern::majority());
    app.run_command(doc! { "find": "things" }).await.unwrap();
    let written = doc! { "find": "things", "readConcern": { "level": "local" } };
    app.run_cursor_command(written).await.unwrap();
    let [plain, own] = &fixture.sent()[..] else { panic!("two commands") };
    assert!(!plain.contains_key("readConcern") && !plain.contains_key("writeConcern"));
    assert_eq!(own.get_document("readConcern").unwrap(), &doc! { "level": "local" });
}

/// A cursor of a command is called tailable where the command opens it as such.
#[tokio::test]
async fn the_action_of_a_command_may_be_called_tailable() {
    let fixture = Fixture::new().await;
    let app = fixture.client.database("app");
    app.create_collection("log").capped(true).size(4096).await.unwrap();
    app.collection::<Document>("log").insert_one(doc! { "_id": 1 }).await.unwrap();
    let open = || app.run_cursor_command(doc! { "find": "log", "tailable": true }).tailable();
    let mut cursor = open().await.unwrap();
    assert_eq!(cursor.try_next().await.unwrap(), Some(doc! { "_id": 1 }));
    assert_eq!(cursor.next_if_any().await.unwrap(), None);
    assert!(cursor.is_alive());
    let refused = open().timeout_mode(TimeoutMode::CursorLifetime).timeout(LIMIT);
    let expected = ArgumentError::Timing(TimingError::TailableLifetime);
    assert_eq!(refused.await.unwrap_err().as_argument(), Some(&expected));
}

/// Options that come from elsewhere are those that the methods set, and one that is not known is
/// refused by name.
#[tokio::test]
async fn options_of_a_configuration_are_those_of_the_methods() {
    let mut fixture = Fixture::new().await;
    let things = fixture.things();
    let read: FindOptions =
        bson::deserialize_from_document(doc! { "sort": { "a": 1 }, "limit": 2, "maxTimeMS": 900 })
            .unwrap();
    let built = FindOptions::builder().sort(doc! { "a": 1 }).limit(2);
    let built = built.max_time(Duration::from_millis(900)).build();
    things.find(doc! {}).with_options(read).await.unwrap();
    things.find(doc! {}).with_options(Some(built)).await.unwrap();
    things.find(doc! {}).with_options(None).await.unwrap();
    let own = |command: Document| -> Document {
        let is_own = |name: &str| ["find", "sort", "limit", "maxTimeMS"].contains(&name);
        command.into_iter().filter(|(name, _)| is_own(name)).collect()
    };
    let sent: Vec<Document> = fixture.sent().into_iter().map(own).collect();
    assert_eq!(sent[0], sent[1]);
    assert_eq!(sent[2], doc! { "find": "things" });
    let error = FindOptions::from_document(doc! { "sorted": 1 }).unwrap_err().to_string();
    assert!(error.contains("\"sorted\"") && error.contains("maxTimeMS"), "{error}");
}

/// Databases and collections with options of their own, and the way back to what they are of.
#[tokio::test]
async fn handles_have_options_and_lead_back() {
    let fixture = Fixture::new().await;
    let options = DatabaseOptions::builder().write_concern(WriteConcern::majority()).build();
    let app = fixture.client.database_with_options("app", options);
    assert_eq!(app.write_concern(), &WriteConcern::majority());
    let options = CollectionOptions::builder().read_concern(ReadConcern::majority()).build();
    let things = app.collection_with_options::<Document>("things", options);
    assert_eq!(things.read_concern(), &ReadConcern::majority());
    assert_eq!(things.write_concern(), &WriteConcern::majority());
    assert_eq!(things.read_preference(), &ReadPreference::new(ReadMode::Primary));
    assert_eq!((things.database().name(), things.name()), ("app", "things"));
    assert_eq!(things.client().database("app").collection::<Document>("things").name(), "things");
    assert!(fixture.client.default_database().is_none());
    let uri = fixture.uri().replacen("/?", "/shop?", 1);
    let client = Client::with_uri_str(&uri).await.unwrap();
    assert_eq!(client.default_database().unwrap().name(), "shop");
    client.close().await;
}
