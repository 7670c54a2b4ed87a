//! Operations that wait: what wakes them, and their errors if nothing does.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sdam_core::bson::rawdoc;
use sdam_core::diagnosis::Verdict;
use sdam_core::pool::CheckOutError;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_host::{ErrorKind, Runtime, Topology};

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::fixture::{
    Deployment, Fixture, GRACE, Outcome, direct, ensure, is_whole, wait_until, world,
};
use crate::adapter::scripted::Scripted;
use sdam_cluster::MemberId;

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("waiting::a_selection_is_woken_by_an_election", woken),
        Test::new("waiting::a_selection_ends_at_its_deadline_and_says_why", selection),
        Test::new("waiting::a_check_out_is_served_when_a_connection_returns", served),
        Test::new("waiting::a_check_out_ends_at_the_time_out_of_the_queue", queue),
        Test::new("waiting::an_exchange_ends_at_its_deadline", exchange),
        Test::new("waiting::operations_are_told_that_the_client_is_closed", closed),
    ]
}

/// Runs `wait`, and checks that it took as long as it should and not much longer, from a moment
/// before its limit was known.
fn takes<R: Runtime, T>(
    client: &Topology<R>,
    time: Duration,
    wait: impl FnOnce(Instant) -> T,
) -> Outcome<T> {
    let begun = client.now();
    let done = wait(begun);
    let took = client.now() - begun;
    ensure!(took >= time, "it took {took:?}, less than {time:?}");
    ensure!(took < time + GRACE, "it took {took:?} instead of {time:?}");
    Ok(done)
}

/// Runs a future, and notes whether it has had to wait.
async fn noting_waits<T>(future: impl Future<Output = T>, waits: &AtomicBool) -> T {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let poll = future.as_mut().poll(cx);
        waits.fetch_or(poll.is_pending(), Ordering::Relaxed);
        poll
    })
    .await
}

fn woken<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(3)?;
    let client = fixture.client(&cluster.uri())?;
    fixture.view(&client, is_whole)?;
    for member in [MemberId(0), MemberId(1)] {
        world().block_on(cluster.kill(member))?;
    }
    // The last member may have been the primary, and does not step down for want of a majority at
    // once.
    fixture.view(&client, |view| view.primary().is_none())?;
    let waits = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope
            .spawn(|| fixture.block_on(noting_waits(client.select(Criteria::write()), &waits)));
        wait_until(|| waits.load(Ordering::Relaxed) || waiting.is_finished());
        world().block_on(cluster.restart(MemberId(0)))?;
        let selected = waiting.join().map_err(|_| "the selection panicked")?;
        ensure!(selected.is_ok(), "{:?}", selected.err());
        Ok(())
    })
}

fn selection<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let time = Duration::from_millis(300);
    let uri = format!("{}&serverSelectionTimeoutMS=300", direct("127.0.0.1:1"));
    let client = fixture.client(&uri)?;
    fixture.failure(&client)?;
    let waiting = |_| fixture.block_on(client.select(Criteria::write()));
    let Err(error) = takes(&client, time, waiting)? else {
        return Err("there is no listener".into());
    };
    ensure!(error.verdict() == Some(&Verdict::ConnectionRefused), "{error}");
    ensure!(error.spent().is_some_and(|spent| !spent.selecting.is_zero()), "{error:?}");
    Ok(())
}

fn served<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(1)?;
    let client = fixture.client(&format!("{}&maxPoolSize=1", direct(cluster.addresses()[0])))?;
    let primary = fixture.primary(&client)?;
    let checked_out = fixture.block_on(primary.check_out())?;
    let id = checked_out.connection_id();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let checked_out = fixture.block_on(primary.check_out());
            checked_out.map(|checked_out| checked_out.connection_id())
        });
        wait_until(|| primary.counts().waiting == 1);
        drop(checked_out);
        let served = waiting.join().map_err(|_| "the check-out panicked")??;
        ensure!(served == id, "{served:?} and not {id:?}");
        Ok(())
    })
}

fn queue<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let Deployment(cluster) = Deployment::start(1)?;
    let uri = format!("{}&maxPoolSize=1&waitQueueTimeoutMS=300", direct(cluster.addresses()[0]));
    let client = fixture.client(&uri)?;
    let primary = fixture.primary(&client)?;
    let patient = primary.clone().with_deadline(Some(client.now() + GRACE));
    let _in_use = fixture.block_on(patient.check_out())?;
    let time = Duration::from_millis(300);
    let second = takes(&client, time, |_| fixture.block_on(primary.check_out()))?;
    let Err(error) = second else { return Err("there is only one connection".into()) };
    ensure!(matches!(error.as_check_out(), Some(CheckOutError::Timeout { .. })), "{error}");
    ensure!(error.kind() == ErrorKind::Timeout, "{error:?}");
    ensure!(error.spent().is_some_and(|spent| !spent.checking_out.is_zero()), "{error:?}");
    ensure!(primary.counts().waiting == 0, "nothing waits any more");
    Ok(())
}

fn exchange<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let server = Scripted::silent_on("hang")?;
    let client = fixture.client(&server.uri())?;
    let primary = fixture.primary(&client)?;
    let mut checked_out = fixture.block_on(primary.check_out())?;
    let time = Duration::from_secs(2);
    let hang = rawdoc! { "hang": 1 };
    let reply = takes(&client, time, |begun| {
        checked_out.set_deadline(Some(begun + time));
        fixture.block_on(checked_out.command("admin", &hang))
    })?;
    let Err(error) = reply else { return Err("there is no reply".into()) };
    ensure!(error.kind() == ErrorKind::Timeout, "{error:?}");
    ensure!(error.server() == Some(primary.address()), "{error:?}");
    drop(checked_out);
    Fixture::<A>::at_rest(&primary);
    // Or it was too late to send anything.
    let is_sent = server.has_seen("hang");
    ensure!(!is_sent || primary.counts().available == 0, "the connection is of no more use");
    fixture.ping(&client)
}

fn closed<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let client =
        fixture.client(&format!("{}&serverSelectionTimeoutMS=600000", direct("127.0.0.1:1")))?;
    fixture.failure(&client)?;
    let waits = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope
            .spawn(|| fixture.block_on(noting_waits(client.select(Criteria::write()), &waits)));
        wait_until(|| waits.load(Ordering::Relaxed) || waiting.is_finished());
        fixture.block_on(client.close());
        let waited = waiting.join().map_err(|_| "the selection panicked")?;
        for told in [waited, fixture.block_on(client.select(Criteria::write()))] {
            let kind = told.err().map(|error| error.kind());
            ensure!(kind == Some(ErrorKind::Closed), "{kind:?}");
        }
        Ok(())
    })
}
