//! The end of a client, closed or dropped in every phase: its tasks and its events end at once,
//! whatever its servers keep it waiting for.

use std::pin::pin;
use std::thread;
use std::time::Instant;

use sdam_core::bson::rawdoc;
use sdam_core::command::CommandEvent;
use sdam_core::session::SessionOptions;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::driver::DriverTopology;

use super::Test;
use crate::adapter::fixture::{
    Deployment, Fixture, GRACE, Outcome, direct, ensure, ping, wait_until,
};
use crate::adapter::scripted::Scripted;
use crate::adapter::silent::{Full, Silent};
use crate::adapter::{Adapter, Feature, Subject};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    use End::{Close, Drop};
    use Phase::{Hello, Proxy, Tls};
    vec![
        Test::new("closing::while_it_connects", |fixture| connecting(fixture, Close)),
        Test::new("closing::while_a_proxy_is_silent", |fixture| silent(fixture, Proxy, Close)),
        Test::new("closing::while_tls_is_negotiated", |fixture| silent(fixture, Tls, Close))
            .of(Feature::Tls),
        Test::new("closing::while_hello_is_exchanged", |fixture| silent(fixture, Hello, Close)),
        Test::new("closing::while_it_logs_in", |fixture| authenticating(fixture, Close)),
        Test::new("closing::while_connections_are_idle", |fixture| idle(fixture, Close)),
        Test::new("closing::while_a_command_runs", |fixture| exchange(fixture, Close)),
        Test::new("closing::ends_sessions", |fixture| sessions(fixture, Close)),
        Test::new("dropping::while_it_connects", |fixture| connecting(fixture, Drop)),
        Test::new("dropping::while_a_proxy_is_silent", |fixture| silent(fixture, Proxy, Drop)),
        Test::new("dropping::while_tls_is_negotiated", |fixture| silent(fixture, Tls, Drop))
            .of(Feature::Tls),
        Test::new("dropping::while_hello_is_exchanged", |fixture| silent(fixture, Hello, Drop)),
        Test::new("dropping::while_it_logs_in", |fixture| authenticating(fixture, Drop)),
        Test::new("dropping::while_connections_are_idle", |fixture| idle(fixture, Drop)),
        Test::new("dropping::while_a_command_runs", |fixture| exchange(fixture, Drop)),
        Test::new("dropping::ends_sessions", |fixture| sessions(fixture, Drop)),
    ]
}

#[derive(Clone, Copy)]
enum End {
    Close,
    Drop,
}

/// A phase of a client that a silent server blocks.
#[derive(Clone, Copy)]
enum Phase {
    Proxy,
    Tls,
    Hello,
}

/// Far longer than a test takes: it is not a time-out that ends the client.
const PATIENT: &str = "&connectTimeoutMS=600000&serverSelectionTimeoutMS=600000";

/// Ends a client, and checks that its tasks and its events end.
fn end<A: Adapter>(
    fixture: &Fixture<A>,
    (client, events): Subject<A::Runtime>,
    end: End,
) -> Outcome {
    let begun = Instant::now();
    match end {
        End::Close => fixture.block_on(client.close()),
        End::Drop => drop(client),
    }
    fixture.ends(events)?;
    ensure!(begun.elapsed() < GRACE, "it took {:?}", begun.elapsed());
    Ok(())
}

fn connecting<A: Adapter>(fixture: &Fixture<A>, how: End) -> Outcome {
    let server = Full::start()?;
    let (client, mut events) =
        fixture.subject(&format!("{}{PATIENT}", direct(server.address())))?;
    fixture.block_on(async {
        while let Some(event) = events.next().await {
            if matches!(event.kind, EventKind::ServerHeartbeatStarted { .. }) {
                return;
            }
        }
    });
    end(fixture, (client, events), how)
}

fn silent<A: Adapter>(fixture: &Fixture<A>, phase: Phase, how: End) -> Outcome {
    let server = Silent::start()?;
    let address = server.address();
    let uri = match phase {
        Phase::Proxy => {
            format!("{}&proxyHost=127.0.0.1&proxyPort={}", direct("db.invalid"), address.port())
        }
        Phase::Tls => format!("{}&tls=true&tlsInsecure=true", direct(address)),
        Phase::Hello => direct(address),
    };
    let subject = fixture.subject(&format!("{uri}{PATIENT}"))?;
    wait_until(|| server.was_spoken_to());
    end(fixture, subject, how)
}

fn authenticating<A: Adapter>(fixture: &Fixture<A>, how: End) -> Outcome {
    let server = Scripted::silent_on("saslStart")?;
    let uri = server.uri().replace("//", "//me:secret@");
    let (client, events) =
        fixture.subject(&format!("{uri}{PATIENT}&authMechanism=SCRAM-SHA-256"))?;
    let operating = client.clone();
    let command = ping();
    {
        let mut operation = pin!(operating.run_command("admin", &command));
        fixture.poll_until(operation.as_mut(), || server.has_seen("saslStart"))?;
        if let End::Close = how {
            fixture.block_on(client.close());
            let told = fixture.block_on(operation);
            ensure!(told.is_err(), "it was answered: {told:?}");
        }
    }
    drop(operating);
    end(fixture, (client, events), how)
}

fn idle<A: Adapter>(fixture: &Fixture<A>, how: End) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let (client, events) = fixture.subject(&format!("{}{PATIENT}", direct(forwarder.address())))?;
    fixture.ping(&client)?;
    Fixture::<A>::at_rest(&fixture.primary(&client)?);
    end(fixture, (client, events), how)?;
    // No socket outlives the client by much.
    wait_until(|| forwarder.counters().open == 0);
    Ok(())
}

/// Driver Sessions, "endSessions": "MUST be run once when the MongoClient instance is shut down",
/// by a task of the runtime's if the client is dropped.
fn sessions<A: Adapter>(fixture: &Fixture<A>, how: End) -> Outcome {
    let deployment = Deployment::start(1)?;
    let (client, events) = fixture.subject(&deployment.0.uri())?;
    fixture.ping(&client)?;
    let mut commands = client.subscribe_to(Topics::COMMANDS);
    drop(client.start_session(SessionOptions::default())?);
    end(fixture, (client, events), how)?;
    let mut succeeded = Vec::new();
    while let Some(event) = fixture.block_on(commands.next()) {
        let EventKind::Command { command, event, .. } = event.kind else { continue };
        if let CommandEvent::CommandSucceeded { .. } = event {
            succeeded.push(command.command_name.to_string());
        }
    }
    ensure!(succeeded == ["endSessions"], "what has succeeded is {succeeded:?}");
    Ok(())
}

/// A check-out is its owner's: the exchange goes on, and its end is that of the connection.
fn exchange<A: Adapter>(fixture: &Fixture<A>, how: End) -> Outcome {
    let server = Scripted::silent_on("hang")?;
    let (client, events) = fixture.subject(&format!("{}{PATIENT}", server.uri()))?;
    thread::scope(|scope| {
        let borrower = client.clone();
        let exchange = scope
            .spawn(move || fixture.block_on(borrower.run_command("admin", &rawdoc! { "hang": 1 })));
        server.wait_for("hang");
        match how {
            End::Close => {
                end(fixture, (client, events), how)?;
                server.hang_up();
            }
            End::Drop => {
                drop(client);
                server.hang_up();
                fixture.ends(events)?;
            }
        }
        let told = exchange.join().map_err(|_| "the exchange panicked")?;
        ensure!(told.is_err(), "it was answered: {told:?}");
        Ok(())
    })
}
