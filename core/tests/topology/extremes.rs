//! Options at the least and the most that they can be.

use std::time::Duration;

use sdam_core::config::{
    MIN_HEARTBEAT_FREQUENCY, MonitoringMode, Options, OptionsBuilder, ReadMode, ReadPreference,
};
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::Generation;
use sdam_core::machine::Machine;
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::selection::Criteria;
use sdam_core::topology::Input;

use super::fixture::{Fixture, fresh, primary, secondary};
use super::waiting::wait;

const HOSTS: [&str; 2] = ["a", "b"];

fn stale(most: Duration) -> Criteria {
    Criteria::read(ReadPreference::new(ReadMode::Nearest).with_max_staleness(most).unwrap())
}

/// Discovers a set, selects, loses servers and finds them again; returns the view at the end.
fn live(options: Options) -> String {
    let waits = options.is_single_threaded();
    let mut fixture = Fixture::with(options);
    for (id, most) in [(1, Duration::ZERO), (2, Duration::MAX)] {
        wait(&mut fixture, id, stale(most), u64::MAX);
    }
    let mut asked = 2;
    for round in 0..4 {
        if waits {
            asked += 1;
            wait(&mut fixture, asked, Criteria::write().with_predicate(|_| false), u64::MAX);
        }
        for _ in 0..4 {
            for name in fixture.links() {
                if !fixture.has_link(&name) || !fixture.is_opening(&name) {
                    continue;
                }
                match name.starts_with('a') {
                    true => fixture.greet(&name, &fresh(primary("a", &HOSTS, 1), round)),
                    false => fixture.greet(&name, &fresh(secondary("b", &HOSTS), round)),
                };
            }
        }
        if let Ok(Some(_)) =
            fixture.topology.machine.get().snapshot().select(&Criteria::write(), |_| 0, 0)
        {
            for most in [Duration::ZERO, Duration::MAX] {
                let _ = fixture.topology.machine.get().snapshot().select(&stale(most), |_| 0, 0);
                fixture.topology.machine.get().snapshot().explain(&stale(most));
            }
        }
        let failure = OperationFailure::new(
            Generation::new(u32::MAX),
            17,
            OperationError::Stream(Failure::new(Step::Operate, Cause::Closed, "it broke")),
        );
        let server = fixture.server("b").id;
        fixture.input(Input::OperationFailed { server, failure }).input(Input::RequestCheck);
        fixture.at(1_000_000 * (u64::try_from(round).unwrap() + 1)).forget();
    }
    let summary = fixture.summary();
    fixture.input(Input::Shutdown);
    assert_eq!(fixture.topology.machine.deadline(), None);
    summary
}

#[test]
fn every_duration_may_be_the_least_and_the_most_that_there_is() {
    let most = Duration::MAX;
    let base = || Options::builder().uri("mongodb://a,b/?replicaSet=rs").unwrap();
    let changes: [fn(OptionsBuilder, Duration) -> OptionsBuilder; 3] = [
        OptionsBuilder::connect_timeout,
        OptionsBuilder::local_threshold,
        OptionsBuilder::server_selection_timeout,
    ];
    for frequency in [MIN_HEARTBEAT_FREQUENCY, most] {
        for mode in [MonitoringMode::Stream, MonitoringMode::Poll] {
            for single_threaded in [false, true] {
                for change in changes {
                    for value in [Duration::ZERO, Duration::from_nanos(1), most] {
                        let options = change(base().heartbeat_frequency(frequency), value)
                            .monitoring_mode(mode)
                            .single_threaded(single_threaded);
                        let summary = live(options.build().unwrap());
                        assert!(summary.starts_with("ReplicaSet"), "{summary}");
                    }
                }
            }
        }
    }
    live(base().heartbeat_frequency(most).connect_timeout(most).build().unwrap());
}
