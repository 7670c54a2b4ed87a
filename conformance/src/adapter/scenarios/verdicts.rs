//! Likely causes that take sockets and time to be found: those of a server that takes no more
//! connections, and of something that cuts idle ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::{cstr, rawdoc};
use sdam_core::diagnosis::Verdict;
use sdam_core::topology::EventKind;

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::fixture::{Fixture, Outcome, ensure, ping};
use crate::adapter::scripted::{Scripted, ScriptedReply, is_hello, reply};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("verdicts::idle_connections_that_are_cut_are_told_of_as_such", cuts),
        Test::new("verdicts::a_server_that_takes_no_more_connections_is_told_of_as_such", limit),
    ]
}

/// The time after which idle connections are cut.
const TIMEOUT: Duration = Duration::from_millis(700);

fn cuts<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = Scripted::start(|name, command| {
        if command.get("maxAwaitTimeMS").is_ok_and(|waits| waits.is_some()) {
            thread::sleep(TIMEOUT);
            return ScriptedReply::HangUp;
        }
        let mut hello = match reply(name) {
            ScriptedReply::Reply(hello) if is_hello(name) => hello,
            other => return other,
        };
        let version = rawdoc! { "processId": ObjectId::from_bytes([1; 12]), "counter": 0_i64 };
        hello.append(cstr!("topologyVersion"), version);
        ScriptedReply::Reply(hello)
    })?;
    let (_client, mut events) = fixture.subject(&server.uri())?;
    let told = fixture.block_on(async {
        while let Some(event) = events.next().await {
            match event.kind {
                // That may be true of a busy machine.
                EventKind::Diagnosed { verdict: Verdict::ProcessPaused { .. } } => {}
                EventKind::Diagnosed { verdict } => return Some(verdict),
                _ => {}
            }
        }
        None
    });
    let Some(Verdict::IdleConnectionsCut { times: 3, after, heartbeat, .. }) = told else {
        return Err(format!("the verdicts are {told:?}").into());
    };
    ensure!(after >= TIMEOUT && after < heartbeat, "after {after:?} of {heartbeat:?}");
    Ok(())
}

fn limit<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let is_full = Arc::<AtomicBool>::default();
    let known = Arc::clone(&is_full);
    let server = Scripted::start(move |name, command| {
        let is_first = command.get("client").is_ok_and(|client| client.is_some());
        match is_first && known.load(Ordering::Relaxed) {
            true => ScriptedReply::HangUp,
            false => reply(name),
        }
    })?;
    let client = fixture.client(&server.uri())?;
    fixture.known(&client)?;
    is_full.store(true, Ordering::Relaxed);
    // A process that has been paused shortly before says that first.
    let error = loop {
        let error = fixture.block_on(client.run_command("admin", &ping())).err();
        let error = error.ok_or("it takes another connection")?;
        if !matches!(error.verdict(), Some(Verdict::ProcessPaused { .. })) {
            break error;
        }
    };
    let Some(Verdict::ConnectionLimit { open: 1, .. }) = error.verdict() else {
        return Err(format!("{error:?}").into());
    };
    ensure!(error.to_string().contains("maxIncomingConnections"), "{error}");
    Ok(())
}
