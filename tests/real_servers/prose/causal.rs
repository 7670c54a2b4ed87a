//! The tests that the specification of Causal Consistency lists.

use bson::{Document, Timestamp, doc, rawdoc};
use sdam_core::config::{Acknowledgment, ReadConcern, WriteConcern};
use sdam_host::Runtime;

use super::{Fixture, Log, Outcome};

/// Returns `afterClusterTime` of the only command that was sent.
fn after(log: &mut Log) -> Outcome<Option<Timestamp>> {
    let sent = log.sent();
    let [command] = &sent[..] else { return Err(format!("one command: {sent:?}").into()) };
    let concern = command.get_document("readConcern").ok();
    Ok(concern.and_then(|it| it.get_timestamp("afterClusterTime").ok()))
}

/// The tests of a deployment that does not support cluster times.
pub(super) async fn play_alone<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "causal").await?;
    let own = client.start_session().await?;
    let mine = things.with_session(&own);
    let elsewhere = Timestamp { time: 1_700_000_000, increment: 1 };
    let signature = rawdoc! {
        "hash": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0; 20] },
        "keyId": 1_i64,
    };
    let gossip = rawdoc! { "clusterTime": elsewhere, "signature": signature };
    for told in [false, true] {
        if told {
            // Even if the application has brought times of another deployment.
            own.advance_operation_time(elsewhere)?;
            own.advance_cluster_time(&gossip)?;
            client.topology().advance_cluster_time(&gossip)?;
        }
        log.all();
        // CC-P7: "A read operation in a causally consistent session against a deployment that does
        // not support cluster times does not include the `afterClusterTime` parameter".
        mine.find_one(doc! {}).await?;
        mine.insert_one(&doc! { "x": 1 }).await?;
        // CC-P11: "messages sent to the server should not include `$clusterTime`".
        things.find_one(doc! {}).await?;
        let sent = log.sent();
        assert_eq!(sent.len(), 3);
        let has_times =
            |it: &Document| it.contains_key("$clusterTime") || it.contains_key("readConcern");
        assert!(!sent.iter().any(has_times), "{sent:?}");
    }
    Ok(())
}

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "causal").await?;
    // CC-P1: "the operationTime has no value" at first.
    let own = client.start_session().await?;
    assert_eq!(own.operation_time()?, None);
    // CC-P2: "The first read in a causally consistent session must not send afterClusterTime".
    let mine = things.with_session(&own);
    log.all();
    mine.find_one(doc! {}).await?;
    assert_eq!(after(&mut log)?, None);
    // CC-P3: "The first read or write on a ClientSession should update the operationTime", even if
    // there is an error.
    let first = own.operation_time()?;
    assert!(first.is_some());
    let fresh = client.start_session().await?;
    assert!(things.with_session(&fresh).find_one(doc! { "$nonsense": 1 }).await.is_err());
    assert!(fresh.operation_time()?.is_some());
    log.all();
    // CC-P4: "A findOne followed by any other read operation" has the time of the first.
    mine.count_documents(doc! {}).await?;
    assert_eq!(after(&mut log)?, first);
    // CC-P5: "Any write operation followed by a findOne operation", also one that fails.
    mine.insert_one(&doc! { "_id": 1 }).await?;
    log.all();
    for fails in [false, true] {
        if fails {
            assert!(mine.insert_one(&doc! { "_id": 1 }).await.is_err());
            log.all();
        }
        let written = own.operation_time()?;
        assert!(written >= first);
        mine.find_one(doc! {}).await?;
        assert_eq!(after(&mut log)?, written);
    }
    // CC-P6: "A read operation in a ClientSession that is not causally consistent".
    let not = client.start_session().causal_consistency(false).await?;
    for _ in 0..2 {
        things.with_session(&not).find_one(doc! {}).await?;
        assert_eq!(after(&mut log)?, None);
    }
    // CC-P8: "When using the default server ReadConcern the readConcern parameter ... should not
    // include a level field"; CC-P9: a level goes together with afterClusterTime.
    let written = own.operation_time()?;
    mine.find_one(doc! {}).await?;
    let sent = log.sent();
    assert!(!sent[0].get_document("readConcern")?.contains_key("level"));
    let level = ReadConcern::default().with_level(Some("majority".to_owned()));
    let written = own.operation_time()?.max(written);
    mine.with_read_concern(level).find_one(doc! {}).await?;
    let sent = log.sent();
    let concern = sent[0].get_document("readConcern")?;
    assert_eq!(concern.get_str("level")?, "majority");
    assert_eq!(concern.get_timestamp("afterClusterTime").ok(), written);
    // CC-P12: "When connected to a deployment that does support cluster times messages sent to the
    // server should include $clusterTime"; the reply to an unacknowledged write has no time.
    assert!(sent[0].contains_key("$clusterTime"));
    let none = WriteConcern::default().with_w(Some(Acknowledgment::Servers(0)));
    let silent = things.with_write_concern(none);
    let before = fresh.operation_time()?;
    assert!(!silent.insert_one(&doc! { "_id": 2 }).await?.acknowledged);
    assert_eq!(fresh.operation_time()?, before);
    Ok(())
}
