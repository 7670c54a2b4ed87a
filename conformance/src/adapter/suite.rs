//! Runs the tests with each adapter, and fills the table.

use std::any::Any;
use std::env;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use super::fixture::{Fixture, Outcome as Done};
use super::parts::{Part, Parts, RealSet};
use super::scenarios::{self, Test};
use super::table::{Column, Outcome, Table};
use super::{Adapter, child};

/// The time that a test may take, whatever the adapter does.
const LIMIT: Duration = Duration::from_secs(150);

/// The number of tests that are run at once: most of them only wait.
const THREADS: usize = 10;

/// The suite, with the adapters that are to pass it.
pub struct Suite {
    parts: Arc<Parts>,
    trials: Vec<(usize, Trial)>,
    table: Arc<Mutex<Table>>,
    left_out: Vec<&'static str>,
}

/// The result of a run.
#[derive(Clone, Debug)]
#[must_use]
pub struct Conclusion {
    /// The outcome of each test with each adapter.
    pub table: Table,
    /// The parts that this machine lacks, and how to get them.
    pub left_out: Vec<&'static str>,
    /// True if nothing failed and, where the environment has `CI=true`, all parts were there.
    pub is_success: bool,
}

impl Conclusion {
    /// Returns how a process ends that has run the suite.
    pub fn exit_code(&self) -> ExitCode {
        match self.is_success {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

impl Default for Suite {
    fn default() -> Self {
        Self::new()
    }
}

impl Suite {
    /// Looks which real servers and proxies this machine has.
    pub fn new() -> Self {
        let parts = if child::is_child() { Parts::none() } else { Parts::look() };
        let (parts, table) = (Arc::new(parts), Arc::default());
        let missing = [Part::Mongod, Part::Microsocks].into_iter();
        let left_out = missing.filter_map(|part| parts.lacks(part)).collect();
        Self { parts, trials: Vec::new(), table, left_out }
    }

    /// Adds an adapter, and with it a column of the table.
    ///
    /// In a process that the suite has started itself, to stop and continue it, this may not
    /// return.
    #[must_use]
    pub fn with<A: Adapter>(mut self, adapter: A) -> Self {
        child::run_if_child(&adapter);
        let (adapter, tests) = (Arc::new(adapter), scenarios::all::<A>());
        let mut table = lock(&self.table);
        let column = table.columns.len();
        table.rows = tests.iter().map(|test| test.name).collect();
        let outcomes = vec![Outcome::NotRun; tests.len()];
        table.columns.push(Column { name: adapter.name().to_owned(), outcomes });
        for (row, test) in tests.into_iter().enumerate() {
            let name = format!("{}::{}", adapter.name(), test.name);
            let lacks = test.feature.and_then(|feature| {
                adapter.lacks(feature).map(|reason| format!("{feature}: {reason}"))
            });
            let missing = || test.part.and_then(|part| self.parts.lacks(part)).map(str::to_owned);
            if let Some(reason) = lacks.or_else(missing) {
                table.columns[column].outcomes[row] = Outcome::LeftOut(reason);
                let trial = Trial::test(name, || Ok(())).with_ignored_flag(true);
                self.trials.push((row, trial));
                continue;
            }
            let (adapter, parts) = (Arc::clone(&adapter), Arc::clone(&self.parts));
            let results = Arc::clone(&self.table);
            let trial = Trial::test(name, move || {
                let done = run(&adapter, &parts, &test);
                let (outcome, result) = match done {
                    Ok(()) => (Outcome::Passed, Ok(())),
                    Err(error) => {
                        let reason = error.to_string();
                        (Outcome::Failed(reason.clone()), Err(Failed::from(reason)))
                    }
                };
                lock(&results).columns[column].outcomes[row] = outcome;
                result
            });
            self.trials.push((row, trial));
        }
        drop(table);
        self
    }

    /// Runs the tests that the command line asks for, as `cargo test` passes it on, and prints the
    /// table.
    pub fn run(mut self) -> Conclusion {
        let mut arguments = Arguments::from_args();
        arguments.test_threads.get_or_insert(THREADS);
        // Row by row, so that the longest begin first with every adapter.
        self.trials.sort_by_key(|(row, _)| *row);
        let trials = self.trials.into_iter().map(|(_, trial)| trial).collect();
        let passed = !libtest_mimic::run(&arguments, trials).has_failed();
        let table = lock(&self.table).clone();
        if !arguments.list {
            println!("{table}");
        }
        for reason in &self.left_out {
            eprintln!("left out: {reason}");
        }
        let on_ci = env::var_os("CI").is_some_and(|value| value == "true");
        let is_success = passed && (self.left_out.is_empty() || !on_ci);
        Conclusion { table, left_out: self.left_out, is_success }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test, with the real set if it needs that.
fn run<A: Adapter>(adapter: &Arc<A>, parts: &Arc<Parts>, test: &Test<A>) -> Done {
    match test.part {
        Some(Part::Mongod) => {
            parts.with_set(|set| in_time(Arc::clone(adapter), test.run, Some(set)))?
        }
        Some(Part::Microsocks) | None => in_time(Arc::clone(adapter), test.run, None).1,
    }
}

/// Runs a test on a thread of its own, which is left behind if it does not end, and returns the
/// set if it can be used again.
fn in_time<A: Adapter>(
    adapter: Arc<A>,
    test: fn(&Fixture<A>) -> Done,
    real: Option<RealSet>,
) -> (Option<RealSet>, Done) {
    let (ended, end) = channel();
    let thread = thread::spawn(move || {
        let fixture = Fixture { adapter, real: real.map(Mutex::new) };
        let done = test(&fixture);
        let real = fixture.real.filter(|_| done.is_ok());
        let set = real.and_then(|set| set.into_inner().ok());
        // The caller may have given up.
        let _ = ended.send((set, done));
    });
    match end.recv_timeout(LIMIT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => {
            (None, Err(format!("it does not end within {} s", LIMIT.as_secs()).into()))
        }
        Err(RecvTimeoutError::Disconnected) => {
            let panic = thread.join().err().map(|panic| text(&*panic)).unwrap_or_default();
            (None, Err(format!("it panicked: {panic}").into()))
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    literal.or_else(|| panic.downcast_ref().cloned()).unwrap_or_default()
}
