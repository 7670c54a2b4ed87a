//! A real replica set of the newest version there is, with TLS and users.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Stage as At};
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;
use sdam_host::{ErrorKind, Topology};

use super::Test;
use crate::adapter::fixture::{Fixture, GRACE, Outcome, ensure, is_whole, primary_of};
use crate::adapter::parts::{Part, RealSet, USER};
use crate::adapter::{Adapter, Feature};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    let tests = vec![
        Test::new("real::the_whole_set_is_found_from_one_seed", one_seed),
        Test::new("real::a_user_logs_in_with_scram", scram),
        Test::new("real::a_password_that_is_wrong_is_told", wrong_password),
        Test::new("real::servers_are_known_by_their_certificates", tls).of(Feature::Tls),
        Test::new("real::a_server_is_reached_over_its_unix_socket", unix).of(Feature::UnixSockets),
        Test::new("real::a_step_down_is_followed", step_down),
        Test::new(
            "real::a_write_waits_for_the_news_of_an_election_and_for_nothing_else",
            first_write,
        ),
        Test::new("real::a_primary_that_is_killed_is_replaced_and_returns", kill),
        Test::new("real::a_member_that_restarts_is_found_by_eager_checks", restart),
    ];
    tests.into_iter().map(|test| test.with(Part::Mongod)).collect()
}

/// The time that an election may take.
const ELECTION_LIMIT: Duration = Duration::from_secs(60);

fn real<A: Adapter>(fixture: &Fixture<A>) -> Outcome<MutexGuard<'_, RealSet>> {
    let set = fixture.real.as_ref().ok_or("the suite has started no set")?;
    Ok(set.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs what only a user may.
fn list<A: Adapter>(fixture: &Fixture<A>, client: &Topology<A::Runtime>) -> Outcome {
    let reply = fixture.block_on(client.run_command("admin", &rawdoc! { "listDatabases": 1 }))?;
    reply.get_array("databases")?;
    Ok(())
}

fn one_seed<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let real = real(fixture)?;
    let (seed, name) = (&real.set.seed_list()[1], real.set.set_name());
    let client = fixture.client(&format!("mongodb://{seed}/?replicaSet={name}"))?;
    // Members that miss each other on a busy machine may elect another in between.
    let end = client.now() + GRACE;
    loop {
        let view = fixture.view(&client, is_whole)?;
        let found = view.primary().map(|primary| primary.address.clone());
        let index = real.set.wait_for_primary(ELECTION_LIMIT)?;
        let primary = real.set.members()[index].advertised();
        if found.as_ref() == Some(&primary) {
            return Ok(());
        }
        ensure!(client.now() < end, "{found:?} is not {primary}");
    }
}

fn scram<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let real = real(fixture)?;
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-1"] {
        let client = fixture.client(&real.uri(&format!("&authMechanism={mechanism}")))?;
        list(fixture, &client)?;
    }
    Ok(())
}

fn wrong_password<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let real = real(fixture)?;
    let uri = real.uri("").replace(&format!("{USER}:{USER}@"), &format!("{USER}:other@"));
    let client = fixture.client(&uri)?;
    let told = fixture.block_on(client.run_command("admin", &rawdoc! { "listDatabases": 1 }));
    let Err(error) = told else { return Err("it was believed".into()) };
    ensure!(error.kind() == ErrorKind::Authentication, "{error:?}");
    ensure!(error.as_check_out().is_some() && error.code() == Some(18), "{error:?}");
    ensure!(error.to_string().contains("uthentication"), "{error}");
    Ok(())
}

fn tls<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let real = real(fixture)?;
    let with = |file: &str| real.uri(&format!("&tls=true&tlsCAFile={file}"));
    let client = fixture.client(&with(&real.authority.file()))?;
    fixture.view(&client, is_whole)?;
    list(fixture, &client)?;
    let other = sdam_cluster::certificates::Authority::new("another authority")?;
    let client = fixture.client(&with(&other.file()))?;
    let failure = fixture.failure(&client)?;
    ensure!((failure.stage, &failure.cause) == (At::Tls, &Cause::UnknownIssuer), "{failure:?}");
    Ok(())
}

fn unix<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let real = real(fixture)?;
    let primary = &real.set.members()[real.set.primary()?];
    let path = primary.socket().host().replace('/', "%2F");
    let uri = format!("mongodb://{USER}:{USER}@{path}/?directConnection=true");
    let client = fixture.client(&uri)?;
    list(fixture, &client)
}

fn step_down<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let real = real(fixture)?;
    let client = fixture.client(&real.uri(""))?;
    let old = primary_of(&*fixture.view(&client, is_whole)?);
    ask_to_step_down(fixture, &client)?;
    fixture.view(&client, |view| {
        let new = primary_of(view);
        new.is_some() && new != old
    })?;
    list(fixture, &client)
}

fn ask_to_step_down<A: Adapter>(fixture: &Fixture<A>, client: &Topology<A::Runtime>) -> Outcome {
    // A member that has not caught up may keep the primary from it, so that it is forced.
    // It stays away for as long as another election may take on a machine that is busy.
    let command = rawdoc! { "replSetStepDown": 20, "secondaryCatchUpPeriodSecs": 2, "force": true };
    let told = fixture.block_on(client.run_command("admin", &command));
    if let Err(error) = told {
        // Another primary may have been elected just before.
        let is_none = error.code().is_some_and(|code| [189, 10107, 11602].contains(&code));
        ensure!(is_none || error.kind() == ErrorKind::Network, "{error:?}");
    }
    Ok(())
}

/// The new primary says that it is one without being asked, and the write that waits takes a
/// connection to it then: it waits neither for a check of its own nor for a pause.
fn first_write<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let real = real(fixture)?;
    let uri = real.uri("").replace("&heartbeatFrequencyMS=500", "");
    let (client, mut events) = fixture.subject(&uri)?;
    fixture.view(&client, is_whole)?;
    while events.try_next().is_some() {}
    ask_to_step_down(fixture, &client)?;
    let insert = rawdoc! { "insert": "first", "documents": [{ "at": 1 }] };
    let end = client.now() + GRACE;
    // The old primary may be tried once more, and says that it is none.
    while let Err(error) = fixture.block_on(client.run_command("app", &insert)) {
        ensure!(client.now() < end, "{error:?}");
    }
    let mut told: Option<(ServerAddress, bool)> = None;
    let (mut last_heartbeat, mut is_checked_out) = (None, false);
    while let Some(event) = events.try_next() {
        match event.kind {
            EventKind::ServerHeartbeatSucceeded { address, awaited, .. } => {
                last_heartbeat = Some((address, awaited));
            }
            EventKind::ServerDescriptionChanged { new, .. }
                if new.server_type == ServerType::RsPrimary =>
            {
                (told, is_checked_out) = (last_heartbeat.take(), false);
                let by = told.as_ref().map(|(address, _)| address);
                ensure!(by == Some(&new.address), "{by:?} has announced {}", new.address);
            }
            EventKind::Pool { address, event: PoolEvent::ConnectionCheckOutStarted, .. }
                if told.as_ref().is_some_and(|(primary, _)| *primary == address) =>
            {
                is_checked_out = true;
            }
            _ => {}
        }
    }
    let (primary, awaited) = told.ok_or("no new primary was announced")?;
    ensure!(awaited, "{primary} was asked, and did not announce it by itself");
    ensure!(is_checked_out, "nothing was checked out of {primary}");
    fixture.block_on(client.close());
    Ok(())
}

fn kill<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let mut real = real(fixture)?;
    let client = fixture.client(&real.uri(""))?;
    fixture.view(&client, is_whole)?;
    let index = real.set.wait_for_primary(ELECTION_LIMIT)?;
    let killed = real.set.members()[index].advertised();
    real.set.kill(index)?;
    fixture
        .view(&client, |view| view.primary().is_some_and(|primary| primary.address != killed))?;
    list(fixture, &client)?;
    real.set.restart(index)?;
    client.request_check();
    fixture.view(&client, is_whole).map(drop)
}

/// A server that is down is checked four times before any other has been silent for two heartbeats
/// of 10 s, and is used again when it is back.
fn restart<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let mut real = real(fixture)?;
    let uri = real.uri("").replace("&heartbeatFrequencyMS=500", "");
    let options = Options::builder().uri(&uri)?.eager_checks(true).build()?;
    let (client, mut events) = fixture.adapter.client(options)?;
    fixture.view(&client, is_whole)?;
    let index = (real.set.wait_for_primary(ELECTION_LIMIT)? + 1) % real.set.members().len();
    let killed = real.set.members()[index].advertised();
    while events.try_next().is_some() {}
    real.set.kill(index)?;
    let (mut failed, mut heartbeats) = (0, 0);
    while failed < 4 {
        match fixture.block_on(events.next()).ok_or("the client was closed")?.kind {
            EventKind::ServerHeartbeatFailed { address, .. } if address == killed => failed += 1,
            EventKind::ServerHeartbeatSucceeded { .. } => heartbeats += 1,
            _ => {}
        }
    }
    // Without the option, 20 s pass before the fourth check: two heartbeats of each other member.
    ensure!(heartbeats < 4, "{heartbeats} heartbeats of others came first");
    real.set.restart(index)?;
    let restarted = client.now();
    fixture.view(&client, |view| {
        let server = view.server(&killed);
        server.is_some_and(|server| server.server_type != ServerType::Unknown)
    })?;
    println!("{}: used again after {:?}", fixture.adapter.name(), client.now() - restarted);
    fixture.block_on(client.close());
    Ok(())
}
