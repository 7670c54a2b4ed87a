//! The end of a client, closed or dropped in every phase: its tasks and its events end at once,
//! whatever its servers keep it waiting for.

use std::pin::pin;
use std::thread;
use std::time::Instant;

use sdam_core::bson::rawdoc;
use sdam_core::topology::EventKind;

use super::Test;
use crate::adapter::scripted::Scripted;
use crate::adapter::silent::{Full, Silent};
use crate::adapter::stage::{Deployment, GRACE, Outcome, Stage, direct, ensure, ping, wait_until};
use crate::adapter::{Adapter, Feature, Subject};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    use End::{Close, Drop};
    use Phase::{Hello, Proxy, Tls};
    vec![
        Test::new("closing::while_it_connects", |stage| connecting(stage, Close)),
        Test::new("closing::while_a_proxy_is_silent", |stage| silent(stage, Proxy, Close)),
        Test::new("closing::while_tls_is_negotiated", |stage| silent(stage, Tls, Close))
            .of(Feature::Tls),
        Test::new("closing::while_hello_is_exchanged", |stage| silent(stage, Hello, Close)),
        Test::new("closing::while_it_logs_in", |stage| authenticating(stage, Close)),
        Test::new("closing::while_connections_are_idle", |stage| idle(stage, Close)),
        Test::new("closing::while_a_command_runs", |stage| exchange(stage, Close)),
        Test::new("dropping::while_it_connects", |stage| connecting(stage, Drop)),
        Test::new("dropping::while_a_proxy_is_silent", |stage| silent(stage, Proxy, Drop)),
        Test::new("dropping::while_tls_is_negotiated", |stage| silent(stage, Tls, Drop))
            .of(Feature::Tls),
        Test::new("dropping::while_hello_is_exchanged", |stage| silent(stage, Hello, Drop)),
        Test::new("dropping::while_it_logs_in", |stage| authenticating(stage, Drop)),
        Test::new("dropping::while_connections_are_idle", |stage| idle(stage, Drop)),
        Test::new("dropping::while_a_command_runs", |stage| exchange(stage, Drop)),
    ]
}

#[derive(Clone, Copy)]
enum End {
    Close,
    Drop,
}

/// What a server that says nothing keeps a client from.
#[derive(Clone, Copy)]
enum Phase {
    Proxy,
    Tls,
    Hello,
}

/// Far longer than a test takes: it is not a time-out that ends the client.
const PATIENT: &str = "&connectTimeoutMS=600000&serverSelectionTimeoutMS=600000";

/// Ends a client, and checks that its tasks and its events end.
fn end<A: Adapter>(stage: &Stage<A>, (client, events): Subject<A::Runtime>, end: End) -> Outcome {
    let begun = Instant::now();
    match end {
        End::Close => stage.block_on(client.close()),
        End::Drop => drop(client),
    }
    stage.ends(events)?;
    ensure!(begun.elapsed() < GRACE, "it took {:?}", begun.elapsed());
    Ok(())
}

fn connecting<A: Adapter>(stage: &Stage<A>, how: End) -> Outcome {
    let server = Full::start()?;
    let (client, mut events) = stage.subject(&format!("{}{PATIENT}", direct(server.address())))?;
    stage.block_on(async {
        while let Some(event) = events.next().await {
            if matches!(event.kind, EventKind::ServerHeartbeatStarted { .. }) {
                return;
            }
        }
    });
    end(stage, (client, events), how)
}

fn silent<A: Adapter>(stage: &Stage<A>, phase: Phase, how: End) -> Outcome {
    let server = Silent::start()?;
    let address = server.address();
    let uri = match phase {
        Phase::Proxy => {
            format!("{}&proxyHost=127.0.0.1&proxyPort={}", direct("db.invalid"), address.port())
        }
        Phase::Tls => format!("{}&tls=true&tlsInsecure=true", direct(address)),
        Phase::Hello => direct(address),
    };
    let subject = stage.subject(&format!("{uri}{PATIENT}"))?;
    wait_until(|| server.was_spoken_to());
    end(stage, subject, how)
}

fn authenticating<A: Adapter>(stage: &Stage<A>, how: End) -> Outcome {
    let server = Scripted::silent_on("saslStart")?;
    let uri = server.uri().replace("//", "//me:secret@");
    let (client, events) = stage.subject(&format!("{uri}{PATIENT}&authMechanism=SCRAM-SHA-256"))?;
    let operating = client.clone();
    let command = ping();
    {
        let mut operation = pin!(operating.run_command("admin", &command));
        stage.poll_until(operation.as_mut(), || server.has_seen("saslStart"))?;
        if let End::Close = how {
            stage.block_on(client.close());
            let told = stage.block_on(operation);
            ensure!(told.is_err(), "it was answered: {told:?}");
        }
    }
    drop(operating);
    end(stage, (client, events), how)
}

fn idle<A: Adapter>(stage: &Stage<A>, how: End) -> Outcome {
    let (_deployment, forwarder) = Deployment::behind_a_forwarder()?;
    let (client, events) = stage.subject(&format!("{}{PATIENT}", direct(forwarder.address())))?;
    stage.ping(&client)?;
    Stage::<A>::at_rest(&*stage.primary(&client)?);
    end(stage, (client, events), how)?;
    // No socket outlives the client by much.
    wait_until(|| forwarder.counters().open == 0);
    Ok(())
}

/// A loan is its owner's: the exchange goes on, and its end is that of the connection.
fn exchange<A: Adapter>(stage: &Stage<A>, how: End) -> Outcome {
    let server = Scripted::silent_on("hang")?;
    let (client, events) = stage.subject(&format!("{}{PATIENT}", server.uri()))?;
    thread::scope(|scope| {
        let borrower = client.clone();
        let exchange = scope
            .spawn(move || stage.block_on(borrower.run_command("admin", &rawdoc! { "hang": 1 })));
        server.wait_for("hang");
        match how {
            End::Close => {
                end(stage, (client, events), how)?;
                server.hang_up();
            }
            End::Drop => {
                drop(client);
                server.hang_up();
                stage.ends(events)?;
            }
        }
        let told = exchange.join().map_err(|_| "the exchange panicked")?;
        ensure!(told.is_err(), "it was answered: {told:?}");
        Ok(())
    })
}
