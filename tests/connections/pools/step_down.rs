//! "Connections Survive Primary Step Down": its prose tests, on real replica sets; and writes after
//! an election.

use std::time::{Duration, Instant};

use sdam_conformance::mongod::ReplicaSet;
use sdam_core::bson::{RawArrayBuf, doc, rawdoc};
use sdam_core::config::Options;
use sdam_core::selection::Criteria;
use sdam_host::{ErrorKind, Events};
use sdam_tokio::Topology;

use super::observer::{count, is_cleared, tell};
use super::{Outcome, runtime};
use crate::support::{is_whole, view};

/// A test on a set of three that has settled.
type OnASet = fn(&ReplicaSet) -> Outcome;

pub(crate) const ON_A_SET: [(&str, OnASet); 5] = [
    ("step_p2_not_primary_keeps_the_pool", |set| fail_with(set, 10107, 0)),
    ("step_p3_shutdown_in_progress_clears_the_pool", |set| fail_with(set, 91, 1)),
    ("step_p4_interrupted_at_shutdown_clears_the_pool", |set| fail_with(set, 11600, 1)),
    ("step_p1_a_cursor_goes_on_after_a_step_down", cursor),
    ("the_first_write_after_an_election_waits_for_no_heartbeat", write_at_once),
];

const LIMIT: Duration = Duration::from_secs(60);

/// A server that was marked Unknown stays so until its awaited hello returns.
const QUICK: &str = "heartbeatFrequencyMS=500";

/// A client that knows the whole set, with an empty collection `step-down.step-down`.
async fn prepared(
    set: &ReplicaSet,
    options: &str,
) -> Result<(Topology, Events), Box<dyn std::error::Error>> {
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let uri = format!("mongodb://{}/?replicaSet={}&{options}", seeds.join(","), set.set_name());
    let (client, events) = Topology::with_events(Options::parse(&uri)?)?;
    view(&client, is_whole).await;
    let majority = rawdoc! { "w": "majority" };
    let drop = rawdoc! { "drop": "step-down", "writeConcern": majority.clone() };
    match client.run_command("step-down", &drop).await {
        Err(error) if !error.to_string().contains("ns not found") => return Err(error.into()),
        _ => {}
    }
    let create = rawdoc! { "create": "step-down", "writeConcern": majority };
    client.run_command("step-down", &create).await?;
    Ok((client, events))
}

/// An insert fails with a code once, the next one succeeds, and so many pools are cleared.
fn fail_with(set: &ReplicaSet, code: i32, cleared: usize) -> Outcome {
    let primary = set.members()[set.wait_for_primary(LIMIT)?].advertised().to_string();
    runtime()?.block_on(async {
        let (client, mut events) = prepared(set, QUICK).await?;
        count(&mut events, |_| true);
        let fail = rawdoc! {
            "configureFailPoint": "failCommand",
            "mode": { "times": 1 },
            "data": { "failCommands": ["insert"], "errorCode": code },
        };
        tell(&primary, &fail).await?;
        let insert = rawdoc! { "insert": "step-down", "documents": [{ "test": 1 }] };
        let error = client.run_command("step-down", &insert).await.expect_err("the fail point");
        assert_eq!((error.kind(), error.code()), (ErrorKind::Command, Some(code)), "{error}");
        client.run_command("step-down", &insert).await?;
        assert_eq!(count(&mut events, is_cleared), cleared);
        Ok(())
    })
}

fn cursor(set: &ReplicaSet) -> Outcome {
    let index = set.wait_for_primary(LIMIT)?;
    let secondary = (0..3).find(|other| *other != index).ok_or("a secondary")?;
    runtime()?.block_on(async {
        let (client, mut events) = prepared(set, QUICK).await?;
        let documents: RawArrayBuf = (0..5).map(|number| rawdoc! { "test": number }).collect();
        let majority = rawdoc! { "w": "majority" };
        let insert =
            rawdoc! { "insert": "step-down", "documents": documents, "writeConcern": majority };
        client.run_command("step-down", &insert).await?;
        let primary = client.select(Criteria::write()).await?;
        let find = rawdoc! { "find": "step-down", "batchSize": 2 };
        let reply = primary.check_out().await?.command("step-down", &find).await?;
        let cursor = reply.get_document("cursor")?.get_i64("id")?;
        count(&mut events, |_| true);

        set.members()[secondary].command(&doc! { "replSetFreeze": 0 }, LIMIT)?;
        let step_down = doc! { "replSetStepDown": 30, "force": true };
        set.members()[index].command(&step_down, LIMIT)?;

        let more = rawdoc! { "getMore": cursor, "collection": "step-down", "batchSize": 2 };
        let reply = primary.check_out().await?.command("step-down", &more).await?;
        let batch = reply.get_document("cursor")?.get_array("nextBatch")?;
        assert_eq!(batch.into_iter().count(), 2);
        set.step_up(secondary)?;
        let insert = rawdoc! { "insert": "step-down", "documents": [{ "test": 1 }] };
        let old = primary.address();
        view(&client, |view| view.primary().is_some_and(|new| new.address != *old)).await;
        client.run_command("step-down", &insert).await?;
        assert_eq!(count(&mut events, is_cleared), 0, "no pool is cleared");
        Ok(())
    })
}

/// A write that is tried again until it succeeds does so long before any server is due to be
/// checked: news are streamed, and where they are not, errors and operations that wait ask for
/// checks.
fn write_at_once(set: &ReplicaSet) -> Outcome {
    const FREQUENCY: Duration = Duration::from_secs(600);
    for mode in ["stream", "poll"] {
        set.wait_until_settled(LIMIT)?;
        let old = set.wait_for_primary(LIMIT)?;
        runtime()?.block_on(async {
            let frequency = FREQUENCY.as_millis();
            let options = format!("heartbeatFrequencyMS={frequency}&serverMonitoringMode={mode}");
            let (client, _events) = prepared(set, &options).await?;
            // A member that stepped down stays out of elections for a while, this one does not.
            set.step_up((old + 1) % set.members().len())?;
            let (start, mut refusals) = (Instant::now(), Vec::new());
            let old = set.members()[old].advertised().to_string();
            let insert = rawdoc! { "insert": "step-down", "documents": [{ "test": 1 }] };
            let written = async {
                loop {
                    let view = client.view();
                    let is_new = view.primary().is_some_and(|it| it.address.to_string() != old);
                    let outcome = client.run_command("step-down", &insert).await;
                    match outcome {
                        Ok(_) if is_new => break,
                        // The election is not over yet.
                        Ok(_) => {}
                        Err(error) => refusals.push(error.to_string()),
                    }
                }
            };
            if tokio::time::timeout(LIMIT, written).await.is_err() {
                return Err(format!("{mode}: no write, but {refusals:?}").into());
            }
            eprintln!("{mode}: a write after {:.2?}, and after {refusals:?}", start.elapsed());
            client.close().await;
            Outcome::Ok(())
        })?;
    }
    Ok(())
}
