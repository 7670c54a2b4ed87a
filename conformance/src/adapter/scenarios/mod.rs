//! The tests of every runtime, in the order of the table.

mod cancellation;
mod deployments;
mod endings;
mod environment;
mod errors;
mod forks;
mod half_open;
mod jumps;
mod logins;
mod lookups;
mod offloading;
mod reads;
mod real;
mod sharing;
#[cfg(target_os = "linux")]
mod sockets;
mod streams;
mod timers;
mod transports;
mod verdicts;
mod waiting;

use super::fixture::{Fixture, Outcome};
use super::parts::Part;
use super::{Adapter, Feature};

/// A row of the table.
pub(super) struct Test<A: Adapter> {
    pub(super) name: &'static str,
    /// A feature that a runtime may lack.
    pub(super) feature: Option<Feature>,
    /// The part that the machine may not have.
    pub(super) part: Option<Part>,
    pub(super) run: fn(&Fixture<A>) -> Outcome,
}

impl<A: Adapter> Test<A> {
    const fn new(name: &'static str, run: fn(&Fixture<A>) -> Outcome) -> Self {
        Self { name, feature: None, part: None, run }
    }

    const fn of(self, feature: Feature) -> Self {
        Self { feature: Some(feature), ..self }
    }

    const fn with(self, part: Part) -> Self {
        Self { part: Some(part), ..self }
    }
}

/// Returns all tests.
pub(super) fn all<A: Adapter>() -> Vec<Test<A>> {
    let mut tests = lookups::tests();
    tests.extend(deployments::tests());
    tests.extend(reads::tests());
    tests.extend(waiting::tests());
    tests.extend(errors::tests());
    tests.extend(verdicts::tests());
    tests.extend(cancellation::tests());
    tests.extend(streams::tests());
    tests.extend(half_open::tests());
    tests.extend(transports::tests());
    tests.extend(logins::tests());
    #[cfg(target_os = "linux")]
    tests.extend(sockets::tests());
    tests.extend(environment::tests());
    tests.extend(forks::tests());
    tests.extend(offloading::tests());
    tests.extend(timers::tests());
    tests.extend(jumps::tests());
    tests.extend(endings::tests());
    tests.extend(sharing::tests());
    tests.extend(real::tests());
    tests
}
