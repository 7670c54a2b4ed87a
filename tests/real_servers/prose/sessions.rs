//! The prose tests of Driver Sessions and Snapshot Reads.

use bson::{Document, Timestamp, doc};
use sdam::generic::Collection;
use sdam::operation::{UpdateModel, WriteModel};
use sdam_core::topology::{EventKind, Topics};
use sdam_host::Runtime;

use super::{Fixture, Operation, Outcome, V5_0, names, session};

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    the_pool_is_a_stack(fixture).await?;
    cluster_times_are_sent_back(fixture).await?;
    sessions_are_those_of_the_application_or_implicit(fixture).await?;
    sessions_that_are_of_no_use_are_refused(fixture).await?;
    cursors_give_their_sessions_back(fixture).await?;
    cursors_keep_their_sessions(fixture).await?;
    operations_at_the_same_time_share_sessions(fixture).await?;
    servers_without_sessions_are_told_of_none(fixture).await?;
    checks_gossip_no_cluster_time(fixture).await?;
    snapshots(fixture).await
}

/// SESS-P2: "Pool is LIFO".
async fn the_pool_is_a_stack<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, _) = fixture.client("")?;
    client.database("admin").run_command(doc! { "ping": 1 }).await?;
    let start = || client.start_session().run();
    let (a, b) = (start()?, start()?);
    let ids = [&b, &a].map(|session| session.id().map(ToOwned::to_owned));
    a.end();
    b.end();
    // Handles give back what they have when they are dropped, at the latest.
    drop((a, b));
    let (first, second) = (start()?, start()?);
    let again = [&first, &second].map(|session| session.id().map(ToOwned::to_owned));
    assert_eq!(again, ids);
    Ok(())
}

/// SESS-P3: "`$clusterTime` in commands".
async fn cluster_times_are_sent_back<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("&heartbeatFrequencyMS=1000000")?;
    let things = fixture.empty(&client, "gossip").await?;
    log.all();
    let database = client.database("admin");
    for _ in 0..2 {
        database.run_command(doc! { "ping": 1 }).await?;
    }
    for _ in 0..2 {
        let pipeline = [doc! { "$match": { "none": 1 } }];
        things.aggregate(pipeline).await?.try_collect::<Vec<_>>().await?;
    }
    for _ in 0..2 {
        things.find(doc! {}).await?.try_collect::<Vec<_>>().await?;
    }
    for id in 0..2 {
        things.insert_one(&doc! { "_id": id }).await?;
    }
    let commands = log.commands();
    assert_eq!(commands.len(), 8);
    for pair in commands.chunks(2) {
        let [(first, reply), (second, _)] = pair else { return Err("two of each".into()) };
        assert!(first.contains_key("$clusterTime"), "{first}");
        assert!(reply.contains_key("$clusterTime"), "{reply}");
        assert_eq!(second.get("$clusterTime"), reply.get("$clusterTime"), "{second}");
    }
    Ok(())
}

/// Runs every operation that takes a session, one after another, whatever comes of it.
async fn each_operation<R: Runtime>(things: &Collection<R>) -> Vec<Result<(), String>> {
    let text = |error: sdam::error::Error| error.to_string();
    let set = || doc! { "$set": { "a": 1 } };
    let (document, filter) = (doc! { "_id": 100 }, || doc! { "_id": 100 });
    let bulk = [WriteModel::UpdateOne(UpdateModel::new(filter(), set()))];
    let pipeline = [doc! { "$limit": 1 }];
    vec![
        things.insert_one(&document).await.map(drop).map_err(text),
        things.insert_many(&[doc! { "_id": 101 }]).await.map(drop).map_err(text),
        things.update_one(filter(), set()).await.map(drop).map_err(text),
        things.update_many(filter(), set()).await.map(drop).map_err(text),
        things.replace_one(filter(), &document).await.map(drop).map_err(text),
        things.bulk_write(bulk).await.map(drop).map_err(text),
        things.find_one(filter()).await.map(drop).map_err(text),
        things.find(filter()).await.map(drop).map_err(text),
        things.aggregate(pipeline).await.map(drop).map_err(text),
        things.count_documents(doc! {}).await.map(drop).map_err(text),
        things.distinct("a", doc! {}).await.map(drop).map_err(text),
        things.find_one_and_update(filter(), set()).await.map(drop).map_err(text),
        things.find_one_and_replace(filter(), &document).await.map(drop).map_err(text),
        things.find_one_and_delete(filter()).await.map(drop).map_err(text),
        things.delete_one(filter()).await.map(drop).map_err(text),
        things.delete_many(doc! { "_id": 101 }).await.map(drop).map_err(text),
        things.create_index(doc! { "a": 1 }).await.map(drop).map_err(text),
        things.list_index_names().await.map(drop).map_err(text),
        things.drop_index("a_1").await.map(drop).map_err(text),
    ]
}

/// SESS-P4: "Explicit and implicit session arguments", for each operation.
async fn sessions_are_those_of_the_application_or_implicit<R: Runtime>(
    fixture: &Fixture<'_, R>,
) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "explicit").await?;
    let own = client.start_session().await?;
    let id = Document::try_from(own.id().ok_or("it has an id")?)?;
    log.all();
    let done = each_operation(&things.with_session(&own)).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let sent = log.sent();
    assert_eq!(sent.len(), done.len(), "{:?}", names(&sent));
    assert!(sent.iter().all(|command| session(command) == Some(&id)));
    let done = each_operation(&things).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let sent = log.sent();
    assert!(sent.iter().all(|command| session(command).is_some_and(|it| *it != id)));
    Ok(())
}

/// SESS-P5: "Session argument is for the right client"; SESS-P6: "No further operations can be
/// performed using a session after `endSession` has been called"; for each operation.
async fn sessions_that_are_of_no_use_are_refused<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "refused").await?;
    let foreign = fixture.quiet.start_session().await?;
    for done in each_operation(&things.with_session(&foreign)).await {
        assert!(done.as_ref().is_err_and(|it| it.contains("another client")), "{done:?}");
    }
    let ended = client.start_session().await?;
    ended.end();
    for done in each_operation(&things.with_session(&ended)).await {
        assert!(done.as_ref().is_err_and(|it| it.contains("has ended")), "{done:?}");
    }
    assert!(log.sent().is_empty(), "nothing is sent");
    Ok(())
}

/// SESS-P8: "Client-side cursor that exhausts the results on the initial query immediately returns
/// the implicit session to the pool"; SESS-P9: the same after a getMore.
async fn cursors_give_their_sessions_back<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    for (count, batch_size) in [(2, 0), (5, 3)] {
        let (client, mut log) = fixture.client("")?;
        let things = fixture.empty(&client, "exhausted").await?;
        let documents: Vec<Document> = (0..count).map(|id| doc! { "_id": id }).collect();
        things.insert_many(&documents).await?;
        log.all();
        let mut cursor = things.find(doc! {}).batch_size(batch_size).await?;
        for _ in 0..count - 1 {
            cursor.next().await.ok_or("there is one more")??;
        }
        client.database("admin").run_command(doc! { "ping": 1 }).await?;
        cursor.next().await.ok_or("the last one")??;
        let sent = log.sent();
        let expected: &[&str] = match batch_size {
            0 => &["find", "ping"],
            _ => &["find", "getMore", "ping"],
        };
        assert_eq!(names(&sent), expected);
        let of_find = session(&sent[0]).ok_or("an implicit session")?;
        assert!(sent.iter().all(|command| session(command) == Some(of_find)));
    }
    Ok(())
}

/// SESS-P11: "ensure that `find` and `getMore` both send the same session id", for every read
/// preference.
async fn cursors_keep_their_sessions<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    for mode in ["primary", "primaryPreferred", "secondaryPreferred", "nearest"] {
        let (client, mut log) = fixture.client(&format!("&readPreference={mode}"))?;
        let things = fixture.empty(&client, "kept").await?;
        let documents: Vec<Document> = (0..3).map(|id| doc! { "_id": id }).collect();
        things.insert_many(&documents).await?;
        log.all();
        let cursor = things.find(doc! {}).batch_size(2).await?;
        assert_eq!(cursor.try_collect::<Vec<_>>().await?.len(), 3);
        let sent = log.sent();
        assert_eq!(names(&sent), ["find", "getMore"]);
        assert!(session(&sent[0]).is_some());
        assert_eq!(session(&sent[0]), session(&sent[1]));
    }
    Ok(())
}

/// SESS-P14: "Implicit sessions only allocate their server session after a successful connection
/// checkout".
///
/// How many sessions there are in one round is chance, as a session comes back after its
/// connection: fewer than operations, as the specification would have it of every round, only if no
/// thread is kept waiting in between for as long as another operation takes. That one is enough
/// must show in some round.
async fn operations_at_the_same_time_share_sessions<R: Runtime>(
    fixture: &Fixture<'_, R>,
) -> Outcome {
    const OPERATIONS: usize = 8;
    let mut least = OPERATIONS;
    // A connection may be handed on before the session of the operation that had it is back: five
    // times may not be enough where threads are kept waiting.
    for _ in 0..50 {
        if least == 1 {
            break;
        }
        let (client, mut log) = fixture.client("&maxPoolSize=1&retryWrites=true")?;
        let things = &fixture.empty(&client, "shared").await?;
        let set = || doc! { "$set": { "a": 1 } };
        let bulk = [WriteModel::UpdateOne(UpdateModel::new(doc! {}, set()))];
        let operations: Vec<Operation<'_>> = vec![
            Box::pin(async move { things.insert_one(doc! {}).await.map(drop) }),
            Box::pin(async move { things.delete_one(doc! {}).await.map(drop) }),
            Box::pin(async move { things.update_one(doc! {}, set()).await.map(drop) }),
            Box::pin(async move { things.bulk_write(bulk).await.map(drop) }),
            Box::pin(async move { things.find_one_and_delete(doc! {}).await.map(drop) }),
            Box::pin(async move { things.find_one_and_update(doc! {}, set()).await.map(drop) }),
            Box::pin(async move {
                things.find_one_and_replace(doc! {}, doc! { "a": 1 }).await.map(drop)
            }),
            Box::pin(
                async move { things.find(doc! {}).await?.try_collect::<Vec<_>>().await.map(drop) },
            ),
        ];
        let done = fixture.all(operations).await;
        assert!(done.iter().all(Result::is_ok), "{done:?}");
        let sent = log.sent();
        assert_eq!(sent.len(), OPERATIONS);
        let mut ids: Vec<String> =
            sent.iter().filter_map(session).map(ToString::to_string).collect();
        ids.sort();
        ids.dedup();
        least = least.min(ids.len());
    }
    assert_eq!(least, 1, "one session is enough");
    Ok(())
}

/// SESS-P18: "Implicit session is ignored if connection does not support sessions"; SESS-P19:
/// "Explicit session raises an error if connection does not support sessions".
async fn servers_without_sessions_are_told_of_none<R: Runtime>(
    fixture: &Fixture<'_, R>,
) -> Outcome {
    let gateway = super::gateway::start(fixture.seed.parse()?)?.to_string();
    let (client, mut log) =
        fixture.client_at(&gateway, "directConnection=true&retryWrites=false")?;
    let things = fixture.empty(&client, "sessionless").await?;
    let hello = client.database("admin").run_command(doc! { "hello": 1 }).await;
    // 4.2.6 knows it by its old name alone.
    let hello = match hello {
        Ok(hello) => hello,
        Err(_) => client.database("admin").run_command(doc! { "isMaster": 1 }).await?,
    };
    assert!(!hello.contains_key("logicalSessionTimeoutMinutes"));
    log.all();
    things.find_one(doc! {}).await?;
    things.insert_one(&doc! { "x": 1 }).await?;
    let sent = log.sent();
    assert_eq!(names(&sent), ["find", "insert"]);
    assert!(sent.iter().all(|command| session(command).is_none()), "{sent:?}");
    let own = client.start_session().await?;
    let things = things.with_session(&own);
    let read = things.find_one(doc! {}).await.map(drop);
    let written = things.insert_one(&doc! { "x": 1 }).await.map(drop);
    for done in [read, written] {
        let error = done.err().ok_or("the server has no sessions")?.to_string();
        assert!(error.contains("does not support sessions"), "{error}");
    }
    assert!(log.sent().is_empty(), "nothing is sent");
    Ok(())
}

/// SESS-P20: "Drivers do not gossip `$clusterTime` on SDAM commands".
async fn checks_gossip_no_cluster_time<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    // Servers of 4.4 and newer stream their replies, as often as this at least.
    let options = "directConnection=true&heartbeatFrequencyMS=500&serverMonitoringMode=poll";
    let (client, mut log) = fixture.client_at(fixture.seed, options)?;
    let mut checks = client.topology().subscribe_to(Topics::HEARTBEATS);
    client.database("admin").run_command(doc! { "ping": 1 }).await?;
    let commands = log.commands();
    let [(_, reply)] = &commands[..] else { return Err("one command".into()) };
    let noted = reply.get_document("$clusterTime")?.clone();
    let advance = doc! { "advance": "$clusterTime" };
    fixture.quiet.database("prose").collection::<Document>("gossip").insert_one(&advance).await?;
    while checks.try_next().is_some() {}
    client.topology().request_check();
    let mut started = false;
    loop {
        match checks.next().await.ok_or("the client is open")?.kind {
            EventKind::ServerHeartbeatStarted { .. } => started = true,
            EventKind::ServerHeartbeatSucceeded { .. } if started => break,
            EventKind::ServerHeartbeatFailed { failure, .. } => {
                return Err(failure.to_string().into());
            }
            _ => {}
        }
    }
    client.database("admin").run_command(doc! { "ping": 1 }).await?;
    let sent = log.sent();
    assert_eq!(names(&sent), ["ping"]);
    assert_eq!(sent[0].get_document("$clusterTime")?, &noted);
    Ok(())
}

/// SESS-P1, P21, P22 and P23: what goes together with a snapshot, and that its time is read only.
async fn snapshots<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    if fixture.version < V5_0 {
        return Ok(());
    }
    let (client, _) = fixture.client("")?;
    let things = fixture.empty(&client, "snapshots").await?;
    let both = client.start_session().snapshot(true).causal_consistency(true);
    assert!(both.await.is_err());
    let time = Timestamp { time: 1, increment: 0 };
    assert!(client.start_session().snapshot_time(time).await.is_err());
    let plain = client.start_session().await?;
    assert_eq!(plain.snapshot_time()?, None);
    things.with_session(&plain).find_one(doc! {}).await?;
    assert_eq!(plain.snapshot_time()?, None);
    // A server returns no time for a database that does not exist.
    things.insert_one(&doc! { "_id": 0 }).await?;
    let snapshot = client.start_session().snapshot(true).await?;
    things.with_session(&snapshot).find_one(doc! {}).await?;
    let time = snapshot.snapshot_time()?;
    assert!(time.is_some());
    things.insert_one(&doc! { "_id": 1 }).await?;
    let found = things.with_session(&snapshot).find_one(doc! { "_id": 1 }).await?;
    assert_eq!(found, None);
    assert_eq!(snapshot.snapshot_time()?, time);
    Ok(())
}
