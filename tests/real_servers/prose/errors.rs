//! The errors of real servers: messages that are cut within a character, writes whose write
//! concern is not met, and documents that are too large.

use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use sdam::error::{BulkWriteError, Error, WriteConcernError};
use sdam::generic::Collection;
use sdam::operation::{IndexModel, InsertModel, UpdateModel, WriteModel};
use sdam::results::WriteResult;
use sdam_core::config::{Acknowledgment, WriteConcern};
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;
use sdam_host::Runtime;

use super::{Fixture, Outcome};

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    for (at, character) in ["ä", "語", "🦀"].into_iter().enumerate() {
        messages_are_cut(fixture, &format!("{}{}", "x".repeat(at), character.repeat(300))).await?;
    }
    indexes_and_commands_tell_of_duplicates(fixture).await?;
    late_writes_have_results(fixture).await?;
    documents_are_too_large(fixture).await
}

/// The code of a duplicate key, and the one that is not U+FFFD's fault.
const DUPLICATE: Option<i32> = Some(11000);

/// Returns what the value of a key is wherever the server cuts it: at any place of a character.
fn values(value: &str) -> Vec<String> {
    (0..4).map(|more| format!("{}{value}", "y".repeat(more))).collect()
}

/// SDAM, "Application errors": a reply with `ok: 0` and a code is an error of the command. It says
/// nothing of the server, whatever is wrong with its message, and no connection is closed for it.
async fn messages_are_cut<R: Runtime>(fixture: &Fixture<'_, R>, value: &str) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "messages").await?;
    things.create_index(IndexModel::new(doc! { "name": 1 }).unique(true)).await?;
    log.all();
    let mut texts = Vec::new();
    for value in values(value) {
        things.delete_many(doc! {}).await?;
        things.insert_many(&[doc! { "_id": 1, "name": &value }, doc! { "_id": 2 }]).await?;
        let second = doc! { "_id": 2 };
        let rename = || doc! { "$set": { "name": &value } };
        let named = |id: i32| doc! { "_id": id, "name": &value };
        let bulk = [
            WriteModel::UpdateOne(UpdateModel::new(second.clone(), rename())),
            WriteModel::InsertOne(InsertModel::new(named(3))),
        ];
        let errors = [
            things.find_one_and_update(second.clone(), rename()).await.err(),
            things.insert_one(named(3)).await.err(),
            things.insert_many([named(3), named(4)]).ordered(false).await.err(),
            things.update_one(second.clone(), rename()).await.err(),
            things.replace_one(second.clone(), named(2)).await.err(),
            things.bulk_write(bulk).ordered(false).await.err(),
        ];
        for error in errors {
            let error = error.ok_or("the key is taken")?;
            let text = error.to_string();
            assert_eq!(error.code(), DUPLICATE, "{text}");
            assert!(text.contains("dup key"), "{text}");
            texts.push(text);
        }
    }
    // Otherwise the servers cut messages no more, or elsewhere.
    assert!(texts.iter().any(|text| text.contains('\u{fffd}')), "{texts:?}");
    no_connection_was_closed(log.all());
    Ok(())
}

fn no_connection_was_closed(events: Vec<EventKind>) {
    for event in events {
        if let EventKind::Pool { event, .. } = &event {
            let closes =
                matches!(event, PoolEvent::ConnectionClosed { .. } | PoolEvent::PoolCleared { .. });
            assert!(!closes, "{event:?}");
        }
        assert!(!matches!(event, EventKind::ServerHeartbeatFailed { .. }), "{event:?}");
    }
}

/// The same of an index over duplicates, and of commands that the application writes.
async fn indexes_and_commands_tell_of_duplicates<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "duplicates").await?;
    let database = client.database("prose");
    let unique = || [IndexModel::new(doc! { "name": 1 }).unique(true)];
    log.all();
    for value in values(&"語".repeat(300)) {
        things.delete_many(doc! {}).await?;
        let named = |id: i32| doc! { "_id": id, "name": &value };
        things.insert_one(&doc! { "_id": 0 }).await?;
        things.drop_indexes().await?;
        things.delete_many(doc! {}).await?;
        things.insert_many(&[named(1), named(2)]).await?;
        let error = things.create_indexes(unique()).await.err().ok_or("there are two")?;
        assert_eq!(error.code(), DUPLICATE, "{error}");
        things.delete_many(doc! { "_id": 2 }).await?;
        things.insert_one(&doc! { "_id": 2 }).await?;
        things.create_indexes(unique()).await?;
        let set = doc! { "$set": { "name": &value } };
        let command = doc! { "findAndModify": "duplicates", "query": { "_id": 2 }, "update": set };
        let error = database.run_command(command).await.err().ok_or("the key is taken")?;
        assert_eq!(error.code(), DUPLICATE, "{error}");
        let command = doc! { "insert": "duplicates", "documents": [named(3)] };
        let reply = database.run_command(command).await?;
        let errors = reply.get_array("writeErrors")?;
        let error = errors[0].as_document().ok_or("a document")?;
        assert_eq!(error.get_i32("code").ok(), DUPLICATE, "{reply}");
        assert!(error.get_str("errmsg")?.contains("dup key"), "{reply}");
    }
    no_connection_was_closed(log.all());
    things.drop_indexes().await?;
    Ok(())
}

fn concern(error: Option<Error>) -> Outcome<WriteConcernError> {
    let error = error.ok_or("no second member can acknowledge it")?;
    Ok(error.as_write_concern().ok_or_else(|| error.to_string())?.clone())
}

fn bulk_error(error: Option<Error>) -> Outcome<BulkWriteError> {
    let error = error.ok_or("it is the error of a bulk")?;
    Ok(error.as_bulk_write().ok_or_else(|| error.to_string())?.clone())
}

/// CRUD, "WriteConcernError": the write was done. Nothing of what it has done is lost with the
/// error; here, the set has no second member that could acknowledge it.
async fn late_writes_have_results<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, _) = fixture.client("")?;
    let things = fixture.empty(&client, "late").await?;
    let two = WriteConcern::default().with_w(Some(Acknowledgment::Servers(2)));
    let late = things.with_write_concern(two.clone());

    let error = concern(late.insert_one(&doc! { "n": 1 }).await.err())?;
    let Some(WriteResult::InsertOne(inserted)) = &error.result else { panic!("{error:?}") };
    let id = inserted.inserted_id.clone();
    assert!(things.find_one(doc! { "_id": id.clone() }).await?.is_some());

    let set = |n: i32| doc! { "$set": { "n": n } };
    let error = concern(late.update_one(doc! { "n": 1 }, set(2)).await.err())?;
    let Some(WriteResult::Update(updated)) = &error.result else { panic!("{error:?}") };
    assert_eq!((updated.matched_count, updated.modified_count), (1, 1));
    let upsert = late.update_many(doc! { "n": 7 }, set(7)).upsert(true);
    let error = concern(upsert.await.err())?;
    let Some(WriteResult::Update(updated)) = &error.result else { panic!("{error:?}") };
    assert!(matches!(updated.upserted_id, Some(Bson::ObjectId(_))), "{updated:?}");
    let replace = late.replace_one(doc! { "n": 8 }, doc! { "_id": 8, "n": 8 }).upsert(true);
    let error = concern(replace.await.err())?;
    let Some(WriteResult::Update(replaced)) = &error.result else { panic!("{error:?}") };
    assert_eq!(replaced.upserted_id, Some(Bson::Int32(8)));

    let error = concern(late.find_one_and_update(doc! { "n": 2 }, set(3)).await.err())?;
    assert_eq!(error.document()?, Some(doc! { "_id": id.clone(), "n": 2 }));
    let error = concern(late.find_one_and_delete(doc! { "n": 3 }).await.err())?;
    assert_eq!(error.document()?, Some(doc! { "_id": id, "n": 3 }));
    assert_eq!(things.count_documents(doc! { "n": 3 }).await?, 0, "it was deleted");

    let error = concern(late.delete_many(doc! {}).await.err())?;
    let Some(WriteResult::Delete(deleted)) = &error.result else { panic!("{error:?}") };
    assert_eq!(deleted.deleted_count, 2);

    let error = bulk_error(late.insert_many(&[doc! { "_id": 1 }, doc! { "_id": 2 }]).await.err())?;
    let inserted = &error.partial_result;
    assert_eq!((inserted.inserted_count, inserted.inserted_ids.len()), (2, 2));
    assert!(error.write_concern_error.is_some(), "{error}");

    let database = client.database("prose").with_write_concern(two);
    let indexed = database.collection::<Document>("late");
    let error = concern(indexed.create_index(IndexModel::new(doc! { "n": 1 })).await.err());
    // Servers from 4.4 on wait for a quorum of their own first, and refuse.
    if let Ok(error) = error {
        let Some(WriteResult::CreateIndexes(names)) = &error.result else { panic!("{error:?}") };
        assert_eq!(names, &["n_1"]);
    }
    let error = concern(indexed.drop().await.err())?;
    assert_eq!(error.result, None);
    Ok(())
}

/// The length of the longest document, and how much longer what is sent may be.
const LIMIT: usize = 16 * 1024 * 1024;
const MORE: usize = 16 * 1024;

/// Makes a document of this length, with this `_id`.
fn long(id: i32, length: usize) -> Document {
    let of = |length: usize| {
        let bytes = Binary { subtype: BinarySubtype::Generic, bytes: vec![7; length] };
        doc! { "_id": id, "bytes": bytes }
    };
    let around = bson::serialize_to_vec(&of(0)).map_or(0, |bytes| bytes.len());
    of(length - around)
}

/// The codes of servers for a write that is too large: BadValue, and BSONObjectTooLarge.
const OF_SERVERS: [i32; 2] = [2, 10334];

/// Server Write Commands, "Request Size Limits": of whichever length a document is, the error
/// has its index, and the others are stored if the writes have no order.
async fn documents_are_too_large<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "large").await?;
    things.insert_one(long(0, LIMIT)).await?;
    for length in [LIMIT + 1, LIMIT + MORE, LIMIT + MORE + 1, LIMIT + (1 << 20)] {
        let error = things.insert_one(long(1, length)).await.err().ok_or("it is too large")?;
        let refused = error.as_write().ok_or_else(|| format!("{length}: {error:?}"))?;
        assert!(OF_SERVERS.contains(&refused.code), "{length}: {error}");
        for ordered in [false, true] {
            things.delete_many(doc! {}).await?;
            let documents = [long(1, 30), long(2, length), long(3, 30)];
            let insert = things.insert_many(&documents).ordered(ordered);
            let error = bulk_error(insert.await.err())?;
            let refused: Vec<_> = error.write_errors.keys().copied().collect();
            let inserted: Vec<_> = error.partial_result.inserted_ids.keys().copied().collect();
            let all = if ordered { vec![0] } else { vec![0, 2] };
            assert_eq!((refused, &inserted), (vec![1], &all), "{length}: {error}");
            assert_eq!(
                stored(&things).await?,
                inserted.iter().map(|at| at + 1).collect::<Vec<_>>()
            );
        }
    }
    let of_update = LIMIT + MORE + 1;
    for ordered in [false, true] {
        things.delete_many(doc! {}).await?;
        things.insert_many(&[doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]).await?;
        let update = |id: i32| {
            let update = doc! { "$set": { "n": 1 } };
            WriteModel::UpdateOne(UpdateModel::new(doc! { "_id": id }, update))
        };
        let large = UpdateModel::new(doc! { "_id": 2 }, doc! { "$set": long(2, of_update) });
        let bulk = [update(1), WriteModel::UpdateOne(large), update(3)];
        let error = bulk_error(things.bulk_write(bulk).ordered(ordered).await.err())?;
        assert_eq!(error.write_errors.keys().copied().collect::<Vec<_>>(), [1], "{error}");
        let modified = if ordered { 1 } else { 2 };
        assert_eq!(error.partial_result.modified_count, modified);
        assert_eq!(things.count_documents(doc! { "n": 1 }).await?, modified);
    }
    let replace = things.replace_one(doc! { "_id": 1 }, long(1, of_update));
    let error = replace.await.err().ok_or("it is too large")?;
    assert_eq!(error.as_write().map(|it| it.code), Some(10334), "{error}");
    without_acknowledgment(&things).await?;
    no_connection_was_closed(log.all());
    things.drop().await?;
    Ok(())
}

/// The client refuses what the server would refuse without a word.
async fn without_acknowledgment<R: Runtime>(things: &Collection<R>) -> Outcome {
    let none = WriteConcern::default().with_w(Some(Acknowledgment::Servers(0)));
    let unacknowledged = things.with_write_concern(none);
    things.delete_many(doc! {}).await?;
    for length in [LIMIT + 1, LIMIT + MORE + 1] {
        let is_refused = |error: Option<Error>| error.and_then(|it| it.code()) == Some(10334);
        assert!(is_refused(unacknowledged.insert_one(long(1, length)).await.err()));
        let replace = unacknowledged.replace_one(doc! { "_id": 1 }, long(1, length)).upsert(true);
        assert!(is_refused(replace.await.err()));
        let documents = [long(1, 30), long(2, length), long(3, 30)];
        let insert = unacknowledged.insert_many(&documents).ordered(false);
        let error = bulk_error(insert.await.err())?;
        assert_eq!(error.write_errors.keys().copied().collect::<Vec<_>>(), [1]);
        assert!(!error.partial_result.acknowledged);
        let large = doc! { "$set": long(1, length + MORE) };
        let update = unacknowledged.find_one_and_update(doc! {}, large);
        let error = update.await.err().ok_or("too large")?;
        assert!(error.as_argument().is_some(), "{error}");
    }
    Ok(())
}

/// The `_id`s that are stored, in their order.
async fn stored<R: Runtime>(things: &Collection<R>) -> Outcome<Vec<usize>> {
    let mut ids = Vec::new();
    for document in things.find(doc! {}).await?.try_collect::<Vec<_>>().await? {
        ids.push(usize::try_from(document.get_i32("_id")?)?);
    }
    ids.sort_unstable();
    Ok(ids)
}
