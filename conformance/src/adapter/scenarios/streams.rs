//! Bytes that come slowly, torn, wrong or not at all any more.

use std::thread;
use std::time::Duration;

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::rawdoc;
use sdam_core::failure::Cause;
use sdam_core::topology::EventKind;
use sdam_host::ErrorKind;

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::fixture::{Deployment, Fixture, Outcome, direct, ensure, ping, wait_until};
use crate::adapter::scripted::{Scripted, ScriptedReply, is_hello, reply};
use crate::forwarder::Traffic;

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("streams::a_slow_drip_of_single_bytes_is_read_to_its_end", drip),
        Test::new("streams::torn_messages_are_put_together", torn),
        Test::new("streams::what_is_no_message_is_told", garbage),
        Test::new("streams::a_server_that_hangs_up_at_once_is_told", hang_up),
        Test::new("streams::a_server_that_hangs_up_after_each_hello_gets_two_a_second", storm),
        Test::new("streams::connections_that_are_reset_are_replaced", reset),
        Test::new("streams::an_idle_connection_that_was_closed_is_not_handed_out", idle),
    ]
}

/// Discovers a server and runs commands while bytes come so many at a time.
fn in_pieces<A: Adapter>(fixture: &Fixture<A>, bytes: usize) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    forwarder.set(Traffic::Slow { bytes, pause: Duration::ZERO });
    let client =
        fixture.client(&format!("{}&connectTimeoutMS=60000", direct(forwarder.address())))?;
    let reply = fixture.block_on(client.run_command("admin", &rawdoc! { "hello": 1 }))?;
    ensure!(reply.get_str("setName")? == "demo", "{reply:?}");
    fixture.ping(&client)?;
    let error = client.view().servers()[0].error.clone();
    ensure!(error.is_none(), "{error:?}");
    fixture.block_on(client.close());
    Ok(())
}

fn drip<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    in_pieces(fixture, 1)
}

/// Within the header, at its end, and behind it.
fn torn<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    [13, 16, 17, 61].into_iter().try_for_each(|bytes| in_pieces(fixture, bytes))
}

fn garbage<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = Scripted::start(|_, _| ScriptedReply::Bytes(vec![0xff; 64]))?;
    let client = fixture.client(&server.uri())?;
    let failure = fixture.failure(&client)?;
    ensure!(failure.cause == Cause::Malformed, "{failure:?}");
    let server = Scripted::start(|name, _| match is_hello(name) {
        true => reply(name),
        false => ScriptedReply::Bytes(vec![0xff; 64]),
    })?;
    let client = fixture.client(&server.uri())?;
    let primary = fixture.primary(&client)?;
    let mut checked_out = fixture.block_on(primary.check_out())?;
    let reply = fixture.block_on(checked_out.command("admin", &ping()));
    let Err(error) = reply else { return Err(format!("{reply:?}").into()) };
    ensure!(error.kind() == ErrorKind::Protocol, "{error:?}");
    Ok(())
}

fn hang_up<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    forwarder.set(Traffic::Refuse);
    let client = fixture.client(&direct(forwarder.address()))?;
    let failure = fixture.failure(&client)?;
    ensure!(matches!(failure.cause, Cause::Closed | Cause::Io), "{failure:?}");
    forwarder.set(Traffic::Pass);
    client.request_check();
    fixture.known(&client)?;
    fixture.ping(&client)
}

/// Server Monitoring, "Retry hello or legacy hello calls once": not again within 500 ms, so that
/// who answers one hello per connection is not connected to without end.
fn storm<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    const CHECKS: usize = 10;
    let server = Scripted::start(|_, command| match command.get("maxAwaitTimeMS") {
        Ok(None) => ScriptedReply::Reply(rawdoc! {
            "isWritablePrimary": true, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 21,
            "topologyVersion": { "processId": ObjectId::from_bytes([1; 12]), "counter": 0_i64 },
            "ok": 1,
        }),
        _ => ScriptedReply::HangUp,
    })?;
    let uri = format!("{}&serverMonitoringMode=stream", server.uri());
    let (client, mut events) = fixture.subject(&uri)?;
    let mut begun = Vec::new();
    fixture.block_on(async {
        while let Some(event) = events.next().await {
            if let EventKind::ServerHeartbeatStarted { awaited: false, .. } = event.kind {
                begun.push(event.at);
            }
            if begun.len() == CHECKS {
                client.close().await;
            }
        }
    });
    ensure!(begun.len() >= CHECKS, "the client has ended after {} checks", begun.len());
    for three in begun.windows(3) {
        let apart = three[2] - three[0];
        ensure!(apart >= Duration::from_millis(500), "checks began at {begun:?}");
    }
    // One for each check, and one to measure the round trip time.
    let (checks, opened) = (begun.len(), server.connections());
    ensure!(opened <= 2 * checks, "{checks} checks took {opened} connections");
    Ok(())
}

fn reset<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let client = fixture.client(&direct(forwarder.address()))?;
    let primary = fixture.primary(&client)?;
    let mut checked_out = fixture.block_on(primary.check_out())?;
    fixture.block_on(checked_out.command("admin", &ping()))?;
    forwarder.set(Traffic::DropToClient);
    let before = forwarder.counters().bytes_to_server;
    thread::scope(|scope| {
        let exchange = scope.spawn(|| fixture.block_on(checked_out.command("admin", &ping())));
        // The command has arrived at the server, or is on its way; either is broken.
        wait_until(|| exchange.is_finished() || forwarder.counters().bytes_to_server > before);
        forwarder.reset_all();
        // Before that the reply might still come through.
        wait_until(|| exchange.is_finished());
        forwarder.set(Traffic::Pass);
        match exchange.join().map_err(|_| "the exchange panicked")? {
            Err(error) if error.kind() == ErrorKind::Network => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    let id = checked_out.connection_id();
    drop(checked_out);
    let checked_out = fixture.block_on(client.select(sdam_core::selection::Criteria::write()))?;
    let checked_out = fixture.block_on(checked_out.check_out())?;
    ensure!(checked_out.connection_id() != id, "the connection was broken");
    drop(checked_out);
    fixture.ping(&client)
}

fn idle<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = Scripted::start(|name, _| reply(name))?;
    let client = fixture.client(&server.uri())?;
    let primary = fixture.primary(&client)?;
    let check_out = || -> Outcome<_> {
        let mut checked_out = fixture.block_on(primary.check_out())?;
        fixture.block_on(checked_out.command("admin", &ping()))?;
        Ok(checked_out.connection_id())
    };
    let first = check_out()?;
    ensure!(check_out()? == first, "a connection that is quiet is used again");
    server.hang_up();
    // A runtime may need a moment to hear of it.
    let handed_out =
        || fixture.block_on(primary.check_out()).map(|checked_out| checked_out.connection_id());
    wait_until(|| handed_out().is_ok_and(|id| id != first));
    ensure!(check_out()? != first, "it was closed while it was idle");
    Ok(())
}
