//! The likely causes that the errors of change streams have.

use bson::{Document, RawDocumentBuf, doc, rawdoc};
use sdam::generic::Client;
use sdam::operation::FullDocumentType;
use sdam::results::ResumeToken;
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use sdam_core::config::Options;
use sdam_core::diagnosis::Verdict;
use sdam_tokio::Tokio;

use super::Fixture;

/// Checks the number of an error, the name of its verdict, and that its text advises this.
fn check(error: &sdam::Error, (code, verdict): (i32, &str), advice: &str) {
    let found = (error.code(), error.verdict().map_or("", Verdict::name));
    assert_eq!(found, (Some(code), verdict), "{error}");
    let text = error.to_string();
    assert!(text.contains(advice), "{text}");
}

/// Change Streams: the `_id` of an event is its resume token.
#[tokio::test]
async fn a_pipeline_without_the_token_is_to_keep_it() {
    let scene = Fixture::new().await;
    let things = scene.things();
    let without = [doc! { "$project": { "_id": 0 } }];
    let mut stream = things.watch().pipeline(without).await.unwrap();
    things.insert_one(doc! { "_id": 1 }).await.unwrap();
    let error = stream.next().await.unwrap().unwrap_err();
    check(&error, (280, "pipelineChangesId"), "; keep _id in the pipeline");
}

#[tokio::test]
async fn a_token_that_is_none_is_refused() {
    let scene = Fixture::new().await;
    let things = scene.things();
    let watch = async |token: RawDocumentBuf| {
        things.watch().start_after(ResumeToken::new(token)).await.map(drop).unwrap_err()
    };
    for (token, code) in [
        (rawdoc! { "_data": "zz" }, 9),
        (rawdoc! { "_data": "8265" }, 15),
        (rawdoc! {}, 40647),
        (rawdoc! { "_data": "" }, 40649),
    ] {
        check(&watch(token).await, (code, "resumeTokenRefused"), "; give start_after the token");
    }
}

#[tokio::test]
async fn a_standalone_is_to_be_a_replica_set() {
    let cluster = EmbeddedCluster::start(EmbeddedOptions::standalone().with_keeps_data(true));
    let cluster = cluster.await.unwrap();
    let options = Options::parse(&cluster.uri()).unwrap();
    let client: Client<Tokio> = Client::from(sdam_tokio::Topology::new(options).unwrap());
    let things = client.database("app").collection::<Document>("things");
    let error = things.watch().await.unwrap_err();
    check(&error, (40573, "needsReplicaSet"), "; make it a replica set");
}

#[tokio::test]
async fn a_user_who_may_not_watch_learns_what_that_takes() {
    let scene = Fixture::new().await;
    scene.fail(1, doc! { "failCommands": ["aggregate"], "errorCode": 13 }).await;
    let error = scene.client.watch().await.unwrap_err();
    check(&error, (13, "watchNotPermitted"), "readAnyDatabase for client.watch()");
}

#[tokio::test]
async fn documents_that_are_required_are_to_be_recorded() {
    let scene = Fixture::new().await;
    let things = scene.things();
    things.insert_one(doc! { "_id": 1 }).await.unwrap();
    let required = FullDocumentType::Required;
    let mut stream = things.watch().full_document(required).await.unwrap();
    things.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": 1 } }).await.unwrap();
    let error = stream.next().await.unwrap().unwrap_err();
    check(&error, (47, "imageNotRecorded"), "; enable changeStreamPreAndPostImages");
}
