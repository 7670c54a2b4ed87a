//! Tokens, credentials and security contexts that a client gets from its environment or the
//! application only, under every runtime.

mod aws;
mod certificates;
#[path = "../support/fake_server.rs"]
mod fake_server;
mod gssapi;
mod http;
mod runtimes;
mod secrets;
mod server;
mod tokens;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use runtimes::Runtime;

/// A test, and its name.
type Scenario = (&'static str, fn(Runtime));

/// Makes scenarios of asynchronous functions, each of which has a runtime of tokio's for its
/// servers.
#[macro_export]
macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        pub(crate) const SCENARIOS: &[$crate::Scenario] = &[
            $((stringify!($name), |runtime| {
                let servers = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .expect("a runtime for the servers");
                servers.block_on($name(runtime));
                servers.shutdown_background();
            })),*
        ];
    };
}

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for runtime in Runtime::ALL {
        let all = [
            aws::SCENARIOS,
            certificates::SCENARIOS,
            gssapi::SCENARIOS,
            secrets::SCENARIOS,
            tokens::SCENARIOS,
        ];
        for (name, scenario) in all.into_iter().flatten() {
            trials.push(Trial::test(format!("{runtime:?}::{name}"), move || {
                scenario(runtime);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
