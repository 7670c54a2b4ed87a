//! The single-threaded mode, whatever happens to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::WaiterId;
use sdam_core::machine::Machine;
use sdam_core::operation::{CommandError, OperationError};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input};

use super::fixture::{Fixture, primary};
use super::scanning_order::{answer, checking, fails, secondary_of};
use super::single_threaded::single;

/// An event in the life of a single-threaded client.
#[derive(Clone, Debug)]
enum Happening {
    Select { patience: Option<u64> },
    Abandon { id: u64 },
    RequestCheck,
    Pass { millis: u64 },
    CheckOutcome { leader: usize, members: usize },
    Refuse,
    HangUp { link: usize },
    Fail { server: usize, code: i32 },
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => prop::option::of(0..40_000_u64).prop_map(|patience| Happening::Select { patience }),
        1 => (0..80_u64).prop_map(|id| Happening::Abandon { id }),
        1 => Just(Happening::RequestCheck),
        3 => prop_oneof![Just(0), Just(500), 0..70_000_u64]
            .prop_map(|millis| Happening::Pass { millis }),
        8 => (0..5_usize, 1..32_usize)
            .prop_map(|(leader, members)| Happening::CheckOutcome { leader, members }),
        2 => Just(Happening::Refuse),
        1 => (0..5_usize).prop_map(|link| Happening::HangUp { link }),
        2 => (0..5_usize, prop_oneof![Just(0), Just(10107), Just(91), Just(189)])
            .prop_map(|(server, code)| Happening::Fail { server, code }),
    ]
}

const NAMES: [&str; 5] = ["h0", "h1", "h2", "h3", "h4"];

/// Lets it happen as event number `id`.
fn happen(fixture: &mut Fixture, id: u64, try_once: bool, now: &mut u64, what: &Happening) {
    let is_checking = !checking(fixture).is_empty();
    match *what {
        Happening::Select { patience } => {
            // Only those that try once may have for ever.
            let patience = patience.or((!try_once).then_some(30_000));
            let deadline = patience.map(|patience| Instant::from_millis(*now + patience));
            let (waiter, criteria) = (WaiterId(id), Arc::new(Criteria::write()));
            fixture.input(Input::Wait { waiter, criteria, deadline });
        }
        Happening::Abandon { id } => drop(fixture.input(Input::Abandon { waiter: WaiterId(id) })),
        Happening::RequestCheck => drop(fixture.input(Input::RequestCheck)),
        Happening::Pass { millis } => {
            *now += millis;
            fixture.at(*now);
        }
        Happening::CheckOutcome { leader, members } if is_checking => {
            let is_member = |(index, _): &(usize, &&str)| members & (1 << index) != 0;
            let hosts: Vec<&str> =
                NAMES.iter().enumerate().filter(is_member).map(|(_, host)| *host).collect();
            answer(fixture, |host| {
                Some(match host == NAMES[leader] {
                    true => primary(host, &hosts, 1),
                    false => secondary_of(NAMES[leader], host, &hosts),
                })
            });
        }
        Happening::Refuse if is_checking => drop(answer(fixture, |_| None)),
        Happening::HangUp { link } => {
            if let Some(link) = fixture.links().into_iter().nth(link) {
                fixture.closed(&link);
            }
        }
        Happening::Fail { server, code } => {
            let known = fixture.view().servers().iter().nth(server).cloned();
            let Some(server) = known else { return };
            let failure = Failure::new(Step::Operate, Cause::Closed, "it broke");
            let reply = bson::rawdoc! { "ok": 0, "code": code };
            let error = match code {
                0 => OperationError::Stream(failure),
                _ => OperationError::Reply {
                    stage: Step::Operate,
                    error: CommandError::in_reply(&reply).unwrap(),
                },
            };
            fails(fixture, server.address.host(), error);
        }
        Happening::CheckOutcome { .. } | Happening::Refuse => {}
    }
}

proptest! {
    /// At most one server is checked at a time, whatever happens, and every operation is answered,
    /// once, unless it was abandoned.
    #[test]
    fn whatever_happens_one_server_is_checked_at_a_time_and_every_operation_is_answered(
        try_once in any::<bool>(),
        happenings in prop::collection::vec(happening(), 1..80),
    ) {
        let uri = "mongodb://h0,h1,h2/?replicaSet=rs&serverSelectionTryOnce";
        let mut fixture = single(&format!("{uri}={try_once}"));
        let (mut now, mut waiting) = (0, BTreeSet::new());
        for (id, what) in (0..).zip(&happenings) {
            happen(&mut fixture, id, try_once, &mut now, what);
            match what {
                Happening::Select { .. } => drop(waiting.insert(id)),
                Happening::Abandon { id } => drop(waiting.remove(id)),
                _ => {}
            }
            // It asserts that there is no other.
            checking(&fixture);
        }
        // From now on all servers are down, and time passes.
        while fixture.topology.machine.deadline().is_some() && now < 10_000_000 {
            if checking(&fixture).is_empty() {
                now += 500;
                fixture.at(now);
            } else {
                answer(&mut fixture, |_| None);
            }
        }
        let mut answered = BTreeSet::new();
        for action in &fixture.topology.actions {
            if let Action::Wake { waiter, .. } = action {
                prop_assert!(answered.insert(waiter.0), "answered twice");
            }
        }
        prop_assert_eq!(&waiting - &answered, BTreeSet::new(), "they wait for ever");
        prop_assert_eq!(fixture.topology.machine.deadline(), None, "nothing is due");
    }
}
