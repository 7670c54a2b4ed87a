//! Change streams that real servers refuse, each with the likely cause.

use bson::{Document, RawDocumentBuf, doc, rawdoc};
use libtest_mimic::{Failed, Trial};
use sdam::operation::FullDocumentType;
use sdam::results::ResumeToken;
use sdam::{Client, Collection};
use sdam_conformance::mongod::{Binary, Config, Options, ReplicaSet, Server, Version};
use sdam_core::diagnosis::Verdict;

pub(crate) fn trial(binary: &Binary) -> Trial {
    let name = format!("refused_streams_say_why_on_mongod_{}", binary.version());
    let binary = binary.clone();
    Trial::test(name, move || {
        let standalone = Server::start(&binary, Config::default())?;
        let set = ReplicaSet::start(&binary, 1, &Options::calm())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            check_standalone(&format!("mongodb://{}/", standalone.address())).await?;
            let uri = format!("mongodb://{}/?replicaSet=rs", set.members()[0].address());
            let client = Client::connect(&uri).await?;
            let things = client.database("refused").collection("things");
            check_pipeline(&things).await?;
            check_tokens(&things).await?;
            check_images(&things, binary.version() >= Version { major: 6, minor: 0, patch: 0 })
                .await?;
            client.close().await;
            Ok(())
        })
    })
}

/// Checks the number of an error, and the name of its verdict.
fn check(error: &sdam::Error, code: i32, verdict: &str) -> Result<(), Failed> {
    let found = (error.code(), error.verdict().map_or("", Verdict::name));
    match found == (Some(code), verdict) {
        true => Ok(()),
        false => Err(format!("that is no {verdict} ({code}): {error}").into()),
    }
}

async fn check_standalone(uri: &str) -> Result<(), Failed> {
    let client = Client::connect(uri).await?;
    let error = client.watch().await.expect_err("it has no oplog");
    check(&error, 40573, "needsReplicaSet")?;
    client.close().await;
    Ok(())
}

/// Change Streams: the `_id` of an event is its resume token.
async fn check_pipeline(things: &Collection<Document>) -> Result<(), Failed> {
    let mut whole = things.watch().await?;
    let without = || [doc! { "$project": { "_id": 0 } }];
    let mut stream = things.watch().pipeline(without()).await?;
    things.insert_many([doc! { "_id": 1 }, doc! { "_id": 2 }]).await?;
    let error = stream.try_next().await.expect_err("there is no token");
    check(&error, 280, "pipelineChangesId")?;
    let token = whole.try_next().await?.ok_or("it goes on")?.id;
    let error = match things.watch().pipeline(without()).start_after(token).await {
        Ok(mut stream) => stream.try_next().await.expect_err("as before"),
        Err(error) => error,
    };
    check(&error, 280, "pipelineChangesId")
}

async fn check_tokens(things: &Collection<Document>) -> Result<(), Failed> {
    let mut stream = things.watch().await?;
    things.insert_one(doc! { "_id": 3 }).await?;
    let token = stream.try_next().await?.ok_or("it goes on")?.id;
    let data = token.document().get_str("_data")?.to_owned();
    let watch = async |token: RawDocumentBuf| {
        let watched = things.watch().start_after(ResumeToken::new(token)).await;
        watched.expect_err("that is no token")
    };
    for (token, code) in [
        (rawdoc! { "_data": "zz" }, 9),
        (rawdoc! { "_data": &data[..20] }, 15),
        (rawdoc! { "_data": "81" }, 50811),
        (rawdoc! { "_data": "" }, 40649),
        (rawdoc! {}, 40647),
    ] {
        check(&watch(token).await, code, "resumeTokenRefused")?;
    }
    // The token is one, and what else fails to be parsed is another matter.
    let schema = doc! { "$match": { "$jsonSchema": { "x": 1 } } };
    let error = things.watch().pipeline([schema]).start_after(token).await;
    check(&error.expect_err("there is no such keyword"), 9, "")
}

/// Since 6.0 documents are recorded with changes, of collections that ask for it; no older server
/// knows the option.
async fn check_images(things: &Collection<Document>, is_known: bool) -> Result<(), Failed> {
    let watched = things.watch().full_document_before_change(FullDocumentType::Required).await;
    let mut stream = match watched {
        Err(error) if !is_known => return check(&error, 40415, ""),
        watched => watched?,
    };
    things.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": 1 } }).await?;
    let error = stream.try_next().await.expect_err("nothing is recorded");
    check(&error, 47, "imageNotRecorded")
}
