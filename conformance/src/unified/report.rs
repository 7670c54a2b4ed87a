//! The report of a run: what became of each test, and a table of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::spec::Difference;

/// The server and the runtime of a file that was judged by its form.
pub(super) const NONE: &str = "none";

/// The verdict on each test, on each deployment, with each runtime.
///
/// It displays as a table by suite, server and runtime; then what is needed, by how many tests;
/// then each failure, and each flaky test.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The tests, in the order in which they were played.
    pub rows: Vec<Row>,
    /// Flaky tests, as they failed beside others: played once more, they passed.
    pub flaky: Vec<Row>,
}

/// The verdict on a test, where and how it was played.
///
/// It displays as a line without the verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The suite.
    pub suite: String,
    /// The deployment; `none` for a file that was judged by its form.
    pub server: String,
    /// The runtime; `none` for a file that was judged by its form.
    pub runtime: String,
    /// The file and the test.
    pub test: String,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl Row {
    /// Returns whether the test failed.
    pub(super) const fn has_failed(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { suite, server, runtime, test, .. } = self;
        write!(f, "{suite} on {server} with {runtime}: {test}")
    }
}

/// The verdict on a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "because", rename_all = "camelCase")]
pub enum Verdict {
    /// It was played, and all was as it should be.
    Passed,
    /// It was played, and something was not.
    Failed(Difference),
    /// It was not played, for want of this in the client.
    Needs(Vec<String>),
    /// It was not played, as it cannot be on that deployment.
    CannotRun(String),
}

/// The number of tests by verdict.
#[derive(Clone, Copy, Debug, Default)]
struct Counts([usize; 4]);

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        let column = match verdict {
            Verdict::Passed => 0,
            Verdict::Failed(_) => 1,
            Verdict::Needs(_) => 2,
            Verdict::CannotRun(_) => 3,
        };
        self.0[column] += 1;
    }
}

impl Report {
    /// Returns whether any test failed.
    pub fn has_failures(&self) -> bool {
        self.rows.iter().any(Row::has_failed)
    }

    /// Adds what became of tests on other deployments.
    pub fn extend(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.flaky.extend(other.flaky);
    }

    /// Counts by suite and server, and then by runtime.
    fn counts(&self) -> BTreeMap<(&str, &str), BTreeMap<&str, Counts>> {
        let mut counts: BTreeMap<_, BTreeMap<&str, Counts>> = BTreeMap::new();
        for Row { suite, server, runtime, verdict, .. } in &self.rows {
            let of_suite = counts.entry((suite.as_str(), server.as_str())).or_default();
            of_suite.entry(runtime.as_str()).or_default().add(verdict);
        }
        counts
    }

    /// Counts the tests by what they need, each once on whichever deployments; the most frequent
    /// first.
    fn needs(&self) -> Vec<(&str, usize)> {
        let mut tests: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
        for row in &self.rows {
            let Verdict::Needs(names) = &row.verdict else { continue };
            for name in names {
                tests.entry(name).or_default().insert((&row.suite, &row.test));
            }
        }
        let mut tests: Vec<_> = tests.into_iter().map(|(name, of)| (name, of.len())).collect();
        tests.sort_by_key(|(_, tests)| std::cmp::Reverse(*tests));
        tests
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        let width = |longest: Option<usize>| longest.unwrap_or_default().max(7);
        let suites = width(counts.keys().map(|(suite, _)| suite.len()).max());
        let servers = width(counts.keys().map(|(_, server)| server.len()).max());
        write!(f, "{:suites$}  {:servers$}  {:10}", "suite", "server", "runtime")?;
        writeln!(f, "  {:>6}  {:>6}  {:>6}  {:>10}", "passed", "failed", "needs", "cannot run")?;
        for ((suite, server), runtimes) in &counts {
            for (runtime, Counts([passed, failed, needs, cannot])) in runtimes {
                write!(f, "{suite:suites$}  {server:servers$}  {runtime:10}")?;
                writeln!(f, "  {passed:>6}  {failed:>6}  {needs:>6}  {cannot:>10}")?;
            }
        }
        let needs = self.needs();
        if !needs.is_empty() {
            writeln!(f, "\nneeds, and by how many tests:")?;
        }
        for (need, tests) in needs {
            writeln!(f, "  {tests:>5}  {need}")?;
        }
        let failed = self.rows.iter().map(|row| ("FAILED", row));
        for (word, row) in failed.chain(self.flaky.iter().map(|row| ("FLAKY", row))) {
            let Row { suite, server, runtime, test, verdict } = row;
            if let Verdict::Failed(Difference { place, expected, found }) = verdict {
                writeln!(f, "\n{word} {suite} on {server} with {runtime}\n  {test}")?;
                writeln!(f, "    {place}\n      expected: {expected}\n      found:    {found}")?;
            }
        }
        Ok(())
    }
}
