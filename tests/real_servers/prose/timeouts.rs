//! The prose tests of Client Side Operations Timeout that need logins. Their times are longer than
//! those of the specification, for servers that have little of a processor; and as short as may be,
//! since a fail point can only be changed when it blocks no command.
//!
//! Tests 9 and 10, about transactions, are played in virtual time.

use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam_core::failure::{Cause, Stage};
use sdam_core::operation::OperationError;
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;
use sdam_host::{ErrorKind, Runtime};

use super::{Fixture, Log, Outcome};

/// The number of events that may come before the one that is waited for: those of checks come at
/// the latest every ten seconds.
const LIMIT: usize = 100;

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    handshakes_in_the_background_have_the_time_of_operations(fixture).await?;
    each_command_of_a_handshake_has_a_time_of_its_own(fixture).await?;
    logins_have_the_lesser_of_two_limits(fixture).await
}

/// Holds commands up of clients with this name.
async fn hold_up<R: Runtime>(
    fixture: &Fixture<'_, R>,
    (mode, commands): (impl Into<Bson>, &[&str]),
    (time, name): (Duration, &str),
) -> Outcome {
    let commands: Vec<Bson> = commands.iter().copied().map(Bson::from).collect();
    let millis = i64::try_from(time.as_millis())?;
    let mut data = doc! { "failCommands": commands, "blockConnection": true };
    data.extend(doc! { "blockTimeMS": millis, "appName": name });
    fixture.fail(mode, data).await
}

/// Waits for an event of the pool.
async fn wait_for(log: &mut Log, mut is: impl FnMut(&PoolEvent) -> bool) -> Outcome {
    let mut others = Vec::new();
    for _ in 0..LIMIT {
        let event = log.0.next().await.ok_or("the client is open")?;
        if let EventKind::Pool { event, .. } = &event.kind
            && is(event)
        {
            return Ok(());
        }
        others.push(event.kind);
    }
    Err(format!("the event is not among {others:?}").into())
}

fn is_created(event: &PoolEvent) -> bool {
    matches!(event, PoolEvent::ConnectionCreated { .. })
}

/// CSOT-P4.1: "timeoutMS used for handshake commands". Nothing else would give the login up.
async fn handshakes_in_the_background_have_the_time_of_operations<R: Runtime>(
    fixture: &Fixture<'_, R>,
) -> Outcome {
    let (time, name) = (Duration::from_secs(4), "timeoutBackgroundPoolTest");
    hold_up(fixture, (doc! { "times": 1 }, &["saslContinue"]), (time, name)).await?;
    let options = format!("&minPoolSize=1&timeoutMS=1000&connectTimeoutMS=0&appName={name}");
    let (_client, mut log) = fixture.client(&options)?;
    wait_for(&mut log, is_created).await?;
    let is_late = |event: &PoolEvent| match event {
        PoolEvent::ConnectionClosed { error: Some(error), .. } => match &**error {
            OperationError::Stream(failure) => {
                failure.stage == Stage::Authenticate && failure.cause == Cause::Timeout
            }
            _ => false,
        },
        _ => false,
    };
    wait_for(&mut log, is_late).await
}

/// CSOT-P4.2: "timeoutMS is refreshed for each handshake command".
async fn each_command_of_a_handshake_has_a_time_of_its_own<R: Runtime>(
    fixture: &Fixture<'_, R>,
) -> Outcome {
    let (time, name) = (Duration::from_millis(1500), "refreshTimeoutBackgroundPoolTest");
    let commands: &[&str] = &["hello", "isMaster", "saslContinue"];
    hold_up(fixture, ("alwaysOn", commands), (time, name)).await?;
    let (_client, mut log) =
        fixture.client(&format!("&minPoolSize=1&timeoutMS=2500&appName={name}"))?;
    wait_for(&mut log, is_created).await?;
    wait_for(&mut log, |event| matches!(event, PoolEvent::ConnectionReady { .. })).await
}

/// CSOT-P8.5 and P8.6: the lesser of `timeoutMS` and `serverSelectionTimeoutMS` is "honored for
/// connection handshake commands".
async fn logins_have_the_lesser_of_two_limits<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    for (time_of_operation, time_of_selection) in [(1000, 600_000), (600_000, 1000)] {
        let (time, name) = (Duration::from_secs(4), "logins");
        hold_up(fixture, ("alwaysOn", &["saslContinue"]), (time, name)).await?;
        let (client, _) = fixture.client(&format!(
            "&timeoutMS={time_of_operation}&serverSelectionTimeoutMS={time_of_selection}\
             &connectTimeoutMS=0&appName={name}"
        ))?;
        let things = client.database("prose").collection::<Document>("logins");
        // With the time that it would take, it would succeed.
        let error = things.insert_one(&doc! { "x": 1 }).await.err().ok_or("no user may log in")?;
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
    Ok(())
}
