//! Writes that streams watch: numbered documents, what changes them, and now and then the end of
//! their collection.

use bson::{Document, doc};
use sdam::error::Error;
use sdam::generic::Collection;
use sdam_core::bson;
use sdam_core::config::{Acknowledgment, WriteConcern};

use super::super::transactions::{Held, check_within};
use super::super::{Application, DATABASE, Terms};
use super::{WATCHED, WATCHED_TOO};
use crate::virtual_time::Runtime;

/// Writes what streams watch; `drops` if the collection may be dropped.
pub(in crate::sim::applications) async fn write(mut application: Application, drops: bool) {
    application.time.sleep(application.workload.from.since_origin()).await;
    while application.goes_on().await {
        match application.random.below(100) {
            0..35 => insert(&mut application, 1).await,
            35..55 => insert(&mut application, 5).await,
            55..75 => change(&mut application).await,
            75..85 => remove(&mut application).await,
            85..98 => transact(&mut application).await,
            _ if drops => drop_all(&mut application).await,
            _ => insert(&mut application, 1).await,
        }
    }
    let mut state = application.state();
    state.stories.writers -= 1;
    state.task_ends();
}

/// Returns one of the collections, by which a write may be rolled back.
fn collection(application: &mut Application, terms: Terms) -> Collection<Runtime, Document> {
    let name = application.random.pick(&[WATCHED, WATCHED, WATCHED_TOO]);
    let concern = match application.random.percent(60) {
        true => WriteConcern::default().with_w(Some(Acknowledgment::Servers(1))),
        false => WriteConcern::majority(),
    };
    let collection = application.client.database(DATABASE).collection(name);
    let collection = match terms.timeout {
        Some(timeout) => collection.with_timeout(timeout),
        None => collection,
    };
    collection.with_write_concern(concern)
}

fn next_document(application: &Application) -> Document {
    doc! { "_id": application.state().stories.next_document(), "n": 1 }
}

/// Draws the number of a document that there may be, most often a new one.
fn some_document(application: &mut Application) -> i64 {
    let last = application.state().stories.documents();
    let back = application.random.below(20);
    last.saturating_sub(i64::try_from(back).unwrap_or_default())
}

async fn insert(application: &mut Application, most: u64) {
    let terms = application.terms();
    let things = collection(application, terms);
    let count = 1 + application.random.below(most);
    let documents: Vec<_> = (0..count).map(|_| next_document(application)).collect();
    let insert = async |comment| match &*documents {
        [document] => things.insert_one(document).comment(comment).await.map(drop),
        documents => things.insert_many(documents).comment(comment).await.map(drop),
    };
    application.run(terms, insert).await.ok();
}

async fn change(application: &mut Application) {
    let terms = application.terms();
    let (things, id) = (collection(application, terms), some_document(application));
    let (filter, change) = (doc! { "_id": id }, doc! { "$inc": { "n": 1 } });
    let upsert = application.random.percent(20);
    let update = things.update_one(filter, change).upsert(upsert);
    application.run(terms, async |comment| update.comment(comment).await.map(drop)).await.ok();
}

async fn remove(application: &mut Application) {
    let terms = application.terms();
    let (things, id) = (collection(application, terms), some_document(application));
    let delete = things.delete_one(doc! { "_id": id });
    application.run(terms, async |comment| delete.comment(comment).await.map(drop)).await.ok();
}

async fn drop_all(application: &mut Application) {
    let terms = Terms::default();
    let things = application.client.database(DATABASE).collection::<Document>(WATCHED);
    application
        .run(terms, async |comment| things.drop().comment(comment).await.map(drop))
        .await
        .ok();
}

/// Inserts documents of both collections together, which are events of one time.
async fn transact(application: &mut Application) {
    let Some(held) = Held::start(application).await else { return };
    insert_together(application, &held).await.ok();
    held.end(application);
}

async fn insert_together(application: &mut Application, held: &Held) -> Result<(), Error> {
    let start = held.session.start_transaction();
    match application.random.percent(50) {
        true => start.write_concern(WriteConcern::majority()).await?,
        false => start.await?,
    }
    let database = application.client.with_session(&held.session).database(DATABASE);
    for _ in 0..1 + application.random.below(4) {
        let name = application.random.pick(&[WATCHED, WATCHED, WATCHED_TOO]);
        let things = database.collection::<Document>(name);
        let document = next_document(application);
        let insert = things.insert_one(&document);
        let outcome = application
            .run(held.terms(), async |comment| insert.comment(comment).await.map(drop))
            .await;
        outcome.inspect_err(|error| check_within(application, held, error))?;
    }
    held.note_commit(application);
    let ending = held.begin_end(application, true);
    let committed = held.session.commit_transaction().await;
    application.over(ending);
    committed
}
