//! Logins by SCRAM, through TLS and without, and by GSSAPI: who is let in, and what a client does
//! that is not.

use sdam_cluster::certificates::Authority;
use sdam_cluster::{EmbeddedOptions, ScriptedGssapi, TlsIdentity, User};
use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Stage};
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;
use sdam_host::Topology;

use super::Test;
use crate::adapter::fixture::{Deployment, Fixture, Outcome, ensure, is_whole, world};
use crate::adapter::{Adapter, Feature};

/// The mechanisms, as connection strings name them; the first is negotiated.
const MECHANISMS: [&str; 3] = ["", "&authMechanism=SCRAM-SHA-1", "&authMechanism=SCRAM-SHA-256"];

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("logins::a_user_logs_in_by_each_mechanism", by_each_mechanism),
        Test::new("logins::without_a_login_commands_are_refused", refused),
        Test::new("logins::a_password_changes_while_a_client_works", changed_password),
        Test::new("logins::a_login_without_an_answer_clears_the_pool", unanswered),
        Test::new("logins::a_failover_is_followed_through_tls", through_tls).of(Feature::Tls),
        Test::new("logins::a_security_context_logs_in", by_context).of(Feature::Gssapi),
    ]
}

fn ann(password: &str) -> User {
    User::new("ann", password).with_iterations(4096)
}

fn three_members() -> EmbeddedOptions {
    EmbeddedOptions::default().with_users(vec![ann("secret")])
}

fn uri(deployment: &Deployment, login: &str, more: &str) -> String {
    deployment.0.uri().replace("mongodb://", &format!("mongodb://{login}@")) + more
}

/// Runs a command that only users run who have logged in.
fn insert<A: Adapter>(fixture: &Fixture<A>, client: &Topology<A::Runtime>) -> Result<(), String> {
    let insert = rawdoc! { "insert": "things", "documents": [{}] };
    let reply = fixture.block_on(client.run_command("test", &insert));
    reply.map(drop).map_err(|error| error.to_string())
}

/// Fails unless a command was refused with an error that contains this text.
fn ensure_refused(outcome: Result<(), String>, text: &str) -> Outcome {
    let refused = outcome.err().unwrap_or_default();
    ensure!(refused.contains(text), "{refused:?}");
    Ok(())
}

fn by_each_mechanism<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::start_with(three_members())?;
    for mechanism in MECHANISMS {
        let client = fixture.client(&uri(&deployment, "ann:secret", mechanism))?;
        fixture.view(&client, is_whole)?;
        insert(fixture, &client)?;
        fixture.block_on(client.close());
    }
    Ok(())
}

fn refused<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::with_users(vec![ann("secret")])?;
    let without = fixture.client(&deployment.0.uri())?;
    ensure_refused(insert(fixture, &without), "command insert requires authentication")?;
    let wrong = fixture.client(&uri(&deployment, "ann:wrong", ""))?;
    ensure_refused(insert(fixture, &wrong), "Authentication failed.")?;
    fixture.known(&wrong)
}

fn changed_password<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::with_users(vec![ann("secret")])?;
    let old = fixture.client(&uri(&deployment, "ann:secret", ""))?;
    insert(fixture, &old)?;
    world().block_on(deployment.0.change_users(vec![ann("changed")]))?;
    // Its connection stays.
    insert(fixture, &old)?;
    let late = fixture.client(&uri(&deployment, "ann:secret", ""))?;
    ensure_refused(insert(fixture, &late), "Authentication failed.")?;
    let new = fixture.client(&uri(&deployment, "ann:changed", ""))?;
    Ok(insert(fixture, &new)?)
}

/// RFC 4752: a security context gives the tokens, where the runtime has what blocks done.
fn by_context<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let members = EmbeddedOptions::default().with_gssapi_users(vec!["ann@HERE".to_owned()]);
    let deployment = Deployment::start_with(members)?;
    let tickets = || ScriptedGssapi::new(["ann@HERE", "bob@HERE"]);
    let client = |user: &str| -> Outcome<Topology<A::Runtime>> {
        let uri = uri(&deployment, user, "&authMechanism=GSSAPI");
        Ok(fixture.adapter.gssapi_client(Options::parse(&uri)?, tickets())?.0)
    };
    let ann = client("ann%40HERE")?;
    fixture.view(&ann, is_whole)?;
    insert(fixture, &ann)?;
    fixture.block_on(ann.close());
    // One whom the members do not know, and one without a ticket.
    ensure_refused(insert(fixture, &client("bob%40HERE")?), "Authentication failed.")?;
    let error = insert(fixture, &client("eve%40HERE")?).err().unwrap_or_default();
    for wanted in ["no ticket of eve@HERE", "kinit"] {
        ensure!(error.contains(wanted), "{error:?}");
    }
    Ok(())
}

/// SDAM, "Network error when reading or writing": also of a connection that is being established.
fn unanswered<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let deployment = Deployment::start_with(three_members())?;
    let primary = world().block_on(deployment.0.elected())?;
    let block = rawdoc! {
        "configureFailPoint": "failCommand",
        "mode": { "times": 1 },
        "data": {
            "failCommands": ["saslContinue"], "blockConnection": true, "blockTimeMS": 600_000,
        },
    };
    world().block_on(deployment.0.run_command(primary, block))?;
    // Checks that are far between do not bring it back too early.
    let more = "&connectTimeoutMS=5000&heartbeatFrequencyMS=600000&serverMonitoringMode=poll";
    let (client, mut events) = fixture.subject(&uri(&deployment, "ann:secret", more))?;
    ensure!(insert(fixture, &client).is_err(), "an insert waits for its login");
    let (mut unknown, mut is_cleared) = (None, false);
    fixture.block_on(async {
        while unknown.is_none() || !is_cleared {
            match events.next().await.map(|event| event.kind) {
                Some(EventKind::ServerDescriptionChanged { previous, new })
                    if previous.server_type == ServerType::RsPrimary =>
                {
                    unknown = new.error.clone();
                }
                Some(EventKind::Pool { event: PoolEvent::PoolCleared { .. }, .. }) => {
                    is_cleared = true;
                }
                Some(_) => {}
                None => break,
            }
        }
    });
    let failure = unknown.ok_or("the primary did not become Unknown")?;
    let found = (failure.stage, &failure.cause);
    ensure!(is_cleared && found == (Stage::Authenticate, &Cause::Timeout), "{failure:?}");
    // The server answers, and is found again.
    Ok(insert(fixture, &client)?)
}

fn through_tls<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let authority = Authority::new("the authority")?;
    let identity = TlsIdentity::from_pem_file(authority.issue("member", &["127.0.0.1"])?)?;
    let deployment = Deployment::start_with(three_members().with_tls(Some(identity)))?;
    let more = format!("&tls=true&tlsCAFile={}", authority.file());
    for mechanism in MECHANISMS {
        let uri = uri(&deployment, "ann:secret", &format!("{more}{mechanism}"));
        let client = fixture.client(&uri)?;
        fixture.view(&client, is_whole)?;
        insert(fixture, &client)?;
        fixture.block_on(client.close());
    }
    let client = fixture.client(&uri(&deployment, "ann:secret", &more))?;
    insert(fixture, &client)?;
    let cluster = &deployment.0;
    let killed = cluster.primary().ok_or("there is no primary, although it has just written")?;
    world().block_on(cluster.kill(killed))?;
    while insert(fixture, &client).is_err() {}
    ensure!(cluster.primary() != Some(killed), "the primary is the one that was killed");
    world().block_on(cluster.restart(killed))?;
    client.request_check();
    fixture.view(&client, is_whole).map(drop)
}
