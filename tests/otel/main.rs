//! Spans that go to OpenTelemetry, with what is within them: in memory, and as a collector receives
//! them.

mod collector;
mod driver;
mod environment;
mod kept;
#[path = "../support/relay.rs"]
mod relay;
mod runtimes;
mod spans;
mod trace_contexts;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A test, and its name.
type Scenario = (&'static str, fn());

/// Makes scenarios of asynchronous functions, each of which has a runtime of tokio's.
#[macro_export]
macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        pub(crate) const SCENARIOS: &[$crate::Scenario] = &[
            $((stringify!($name), || $crate::block_on($name()))),*
        ];
    };
}

/// Runs what the servers of a test are driven by, too.
fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(test);
    runtime.shutdown_background();
}

fn main() -> ExitCode {
    if environment::is_application() {
        environment::run_application();
        return ExitCode::SUCCESS;
    }
    let all = [
        spans::SCENARIOS,
        trace_contexts::SCENARIOS,
        driver::SCENARIOS,
        runtimes::SCENARIOS,
        environment::SCENARIOS,
    ];
    let scenarios = all.concat();
    let trial = |(name, run): Scenario| Trial::test(name, move || (run(), Ok(())).1);
    let trials = scenarios.into_iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
