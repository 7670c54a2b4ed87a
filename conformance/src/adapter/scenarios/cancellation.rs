//! Operations that are dropped after every poll at which they can be: nothing stays behind.

use sdam_core::bson::rawdoc;
use sdam_core::selection::Criteria;
use sdam_host::Topology;

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::fixture::{Deployment, Fixture, Outcome, direct, ensure, polled};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("cancellation::a_selection_may_be_dropped_after_every_poll", selection),
        Test::new("cancellation::a_check_out_may_be_dropped_after_every_poll", check_out),
        Test::new("cancellation::a_command_may_be_dropped_after_every_poll", command),
        Test::new("cancellation::a_command_that_was_dropped_is_not_answered_to_another", mixed_up),
    ]
}

/// More polls than an operation can need; it would be one that asks again and again.
const MAX_POLLS: usize = 200;

/// Drops an operation of a new client after one poll, that of another one after two, and so on
/// until it comes to its end.
fn after_every_poll<A: Adapter, T>(
    fixture: &Fixture<A>,
    operate: &impl AsyncFn(&Topology<A::Runtime>) -> Outcome<T>,
) -> Outcome {
    let Deployment(cluster) = Deployment::start(1)?;
    let uri = direct(cluster.addresses()[0]);
    for polls in 1..MAX_POLLS {
        let client = fixture.client(&uri)?;
        let outcome = fixture.block_on(polled(polls, operate(&client)));
        let is_over = outcome.is_some();
        drop(outcome.transpose()?);
        let primary = fixture.primary(&client)?;
        Fixture::<A>::at_rest(&primary);
        ensure!(primary.operation_count() == 0, "an operation is left after {polls} polls");
        fixture.ping(&client)?;
        Fixture::<A>::at_rest(&primary);
        fixture.block_on(client.close());
        if is_over {
            return Ok(());
        }
    }
    Err(format!("it did not end within {MAX_POLLS} polls").into())
}

fn selection<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    after_every_poll(fixture, &async |client: &Topology<A::Runtime>| {
        Ok(client.select(Criteria::write()).await?)
    })
}

fn check_out<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    after_every_poll(fixture, &async |client: &Topology<A::Runtime>| {
        Ok(client.select(Criteria::write()).await?.check_out().await?)
    })
}

fn command<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let hello = rawdoc! { "hello": 1 };
    after_every_poll(fixture, &async |client: &Topology<A::Runtime>| {
        let reply = client.run_command("admin", &hello).await?;
        Ok(reply.get_str("setName")?.to_owned())
    })
}

/// Each of many commands, most of them dropped, is answered with its own reply or not at all.
fn mixed_up<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(1)?;
    let client = fixture.client(&format!("{}&maxPoolSize=2", direct(cluster.addresses()[0])))?;
    fixture.ping(&client)?;
    let (hello, build_info) = (rawdoc! { "hello": 1 }, rawdoc! { "buildInfo": 1 });
    for polls in [1, 2, 3].into_iter().cycle().take(60) {
        let dropped = client.run_command("admin", &hello);
        if let Some(reply) = fixture.block_on(polled(polls, dropped)) {
            ensure!(reply?.get_str("setName").is_ok(), "this is no reply to hello");
        }
        let reply = fixture.block_on(client.run_command("admin", &build_info))?;
        ensure!(reply.get_str("version").is_ok(), "no reply to buildInfo: {reply:?}");
    }
    let primary = fixture.primary(&client)?;
    Fixture::<A>::at_rest(&primary);
    ensure!(primary.counts().total() <= 2, "{:?}", primary.counts());
    Ok(())
}
