//! Timers by the thousand: none rings early, and none is lost.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

use super::Test;
use crate::adapter::Adapter;
use crate::adapter::fixture::{Fixture, GRACE, Outcome, direct, ensure, once};

pub(super) fn tests<A: Adapter>() -> Vec<Test<A>> {
    vec![
        Test::new("timers::two_thousand_selections_end_each_at_its_own_deadline", selections),
        Test::new("timers::an_alarm_that_is_moved_thousands_of_times_rings", moved),
    ]
}

const COUNT: u64 = 2000;

/// Nothing listens there.
fn nowhere() -> String {
    format!("{}&serverSelectionTimeoutMS=600000", direct("127.0.0.1:1"))
}

/// A deadline, and what has to end there and then.
type Waiting<'a> = (Instant, Pin<Box<dyn Future<Output = bool> + 'a>>);

fn selections<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let client = fixture.client(&nowhere())?;
    fixture.failure(&client)?;
    let criteria = Arc::new(Criteria::write());
    let begun = client.now();
    let (client, criteria) = (&client, &criteria);
    // Not in the order of their deadlines: 7 has no factor in common with their number.
    let order = (0..COUNT).map(|number| number * 7 % COUNT);
    let mut waiting: Vec<Waiting<'_>> = order
        .map(|place| {
            let deadline = begun + Duration::from_micros(300_000 + 500 * place);
            let limited = client.with_deadline(deadline);
            let selection = async move { limited.select(Arc::clone(criteria)).await.is_err() };
            (deadline, Box::pin(selection) as Pin<Box<dyn Future<Output = bool>>>)
        })
        .collect();
    let mut wrong = Vec::new();
    fixture.block_on(std::future::poll_fn(|cx| {
        waiting.retain_mut(|(deadline, selection)| match selection.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(timed_out) => {
                let now = client.now();
                if !timed_out || now < *deadline || now > *deadline + GRACE {
                    wrong.push((timed_out, *deadline, now));
                }
                false
            }
        });
        if waiting.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }));
    ensure!(wrong.is_empty(), "{} of {COUNT}, such as {:?}", wrong.len(), wrong[0]);
    Ok(())
}

fn moved<A: Adapter>(fixture: &Fixture<A>) -> Outcome {
    let client = fixture.client(&nowhere())?;
    fixture.failure(&client)?;
    for number in 0..COUNT {
        // Each is due earlier than the one before, and none is waited for.
        let earlier = client.with_timeout(Duration::from_secs(60) - Duration::from_millis(number));
        let mut selection = pin!(earlier.select(Criteria::write()));
        let poll = fixture.block_on(once(selection.as_mut()));
        ensure!(poll.is_pending(), "selection {number} ended too early");
    }
    let deadline = client.now() + Duration::from_millis(100);
    let last = fixture.block_on(client.with_deadline(deadline).select(Criteria::write()));
    let late = client.now() - deadline;
    ensure!(last.is_err() && client.now() >= deadline, "it ended too early");
    ensure!(late < GRACE, "it ended {late:?} late");
    Ok(())
}
