//! The baseline of results, which is in the repository, and a run that is worse.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::report::{NONE, Report, Verdict};

/// The runtimes: a server that is named without one stands for all of them.
pub(super) const RUNTIMES: [&str; 4] = ["async-std", "blocking", "smol", "tokio"];

/// The outcome of every test, on each deployment, with each runtime.
///
/// In a file, tests of a suite that fared alike stand together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, Vec<Group>>", into = "BTreeMap<String, Vec<Group>>")]
pub struct Baseline(pub(super) BTreeMap<Name, BTreeMap<Place, String>>);

/// A test: its suite, and its file with its description.
pub(super) type Name = (String, String);

/// A server, and a runtime.
pub(super) type Place = (String, String);

/// The tests of a suite that fared alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Group {
    /// The servers by the outcome of the tests on them; with runtimes, unless all fared alike.
    servers: BTreeMap<String, BTreeSet<String>>,
    /// The tests.
    tests: BTreeSet<String>,
}

/// The word for a test that passes.
pub(super) const PASSED: &str = "passed";

/// The word for a test that fails.
pub(super) const FAILED: &str = "failed";

/// The beginning of what is said of a test that needs something of the client.
pub(super) const NEEDS: &str = "needs ";

/// The beginning of what is said of a test that cannot run.
pub(super) const CANNOT: &str = "cannot run: ";

fn outcome(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed => PASSED.to_owned(),
        Verdict::Failed(_) => FAILED.to_owned(),
        Verdict::Needs(needs) => format!("{NEEDS}{}", needs.join(", ")),
        Verdict::CannotRun(reason) => format!("{CANNOT}{reason}"),
    }
}

impl Baseline {
    /// Takes what became of the tests of a report.
    pub fn of(report: &Report) -> Self {
        let mut baseline = Self::default();
        for row in &report.rows {
            let places = baseline.0.entry((row.suite.clone(), row.test.clone())).or_default();
            let place = (row.server.clone(), row.runtime.clone());
            places.insert(place, outcome(&row.verdict));
        }
        baseline
    }

    /// Takes over another run: of the suites, servers and runtimes that it was of, all that was
    /// known is forgotten.
    pub fn update(&mut self, run: Self) {
        let of = |((suite, _), places): (&Name, &BTreeMap<Place, String>)| {
            places.keys().map(|place| (suite.clone(), place.clone())).collect::<Vec<_>>()
        };
        let played: BTreeSet<(String, Place)> = run.0.iter().flat_map(of).collect();
        for ((suite, _), places) in &mut self.0 {
            places.retain(|place, _| !played.contains(&(suite.clone(), place.clone())));
        }
        for (name, places) in run.0 {
            self.0.entry(name).or_default().extend(places);
        }
        self.0.retain(|_, places| !places.is_empty());
    }

    /// Returns what passed once and does not pass in this report, a line each: what was played with
    /// that runtime, and what was played with none although its suite was.
    pub fn lost(&self, report: &Report) -> Vec<String> {
        let now = Self::of(report);
        let of_suite = |((suite, _), places): (&Name, &BTreeMap<Place, String>)| {
            places.keys().map(|(server, _)| (suite.clone(), server.clone())).collect::<Vec<_>>()
        };
        let played: BTreeSet<(String, String)> = now.0.iter().flat_map(of_suite).collect();
        let mut lost = Vec::new();
        for (name, places) in &self.0 {
            let (suite, test) = name;
            let found = now.0.get(name);
            let mut missing = BTreeSet::new();
            for (place, _) in places.iter().filter(|(_, outcome)| *outcome == PASSED) {
                let (server, runtime) = place;
                let on = |(there, _): &Place| there == server;
                if found.is_none_or(|found| !found.keys().any(on)) {
                    if played.contains(&(suite.clone(), server.clone())) {
                        missing.insert(server);
                    }
                } else if found
                    .is_some_and(|it| it.get(place).is_some_and(|outcome| outcome != PASSED))
                {
                    lost.push(format!("{suite} {test}, on {server} with {runtime}"));
                }
            }
            let missing = missing.into_iter();
            lost.extend(
                missing
                    .map(|server| format!("{suite} {test}, on {server}: it is not there any more")),
            );
        }
        lost
    }
}

impl From<Baseline> for BTreeMap<String, Vec<Group>> {
    fn from(baseline: Baseline) -> Self {
        let mut alike: BTreeMap<String, BTreeMap<_, BTreeSet<String>>> = BTreeMap::new();
        for ((suite, test), places) in baseline.0 {
            let tests = alike.entry(suite).or_default().entry(servers(places)).or_default();
            tests.insert(test);
        }
        let groups = |of: BTreeMap<_, BTreeSet<String>>| {
            of.into_iter().map(|(servers, tests)| Group { servers, tests }).collect()
        };
        alike.into_iter().map(|(suite, of)| (suite, groups(of))).collect()
    }
}

/// Names runtimes, unless they are all that there are, or none was needed.
pub(super) fn with(runtimes: &[&str]) -> String {
    match runtimes == RUNTIMES || runtimes == [NONE] {
        true => String::new(),
        false => format!(" with {}", runtimes.join(", ")),
    }
}

/// Sorts servers by what became of a test on them.
fn servers(places: BTreeMap<Place, String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut by_outcome: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for ((server, runtime), outcome) in places {
        by_outcome.entry(outcome).or_default().entry(server).or_default().insert(runtime);
    }
    let name = |(server, runtimes): (String, BTreeSet<String>)| {
        let runtimes: Vec<&str> = runtimes.iter().map(String::as_str).collect();
        server + &with(&runtimes)
    };
    let names = |of: BTreeMap<_, _>| of.into_iter().map(name).collect();
    by_outcome.into_iter().map(|(outcome, of)| (outcome, names(of))).collect()
}

impl From<BTreeMap<String, Vec<Group>>> for Baseline {
    fn from(suites: BTreeMap<String, Vec<Group>>) -> Self {
        let mut baseline = Self::default();
        for (suite, groups) in suites {
            for Group { servers, tests } in groups {
                let places: BTreeMap<Place, String> = places(&servers);
                let named = |test| ((suite.clone(), test), places.clone());
                baseline.0.extend(tests.into_iter().map(named));
            }
        }
        baseline
    }
}

fn places(servers: &BTreeMap<String, BTreeSet<String>>) -> BTreeMap<Place, String> {
    let mut places = BTreeMap::new();
    for (outcome, names) in servers {
        for name in names {
            let (server, runtimes) = match name.split_once(" with ") {
                Some((server, runtimes)) => (server, runtimes.split(", ").collect()),
                None if name == NONE => (name.as_str(), vec![NONE]),
                None => (name.as_str(), RUNTIMES.to_vec()),
            };
            let of = |runtime: &str| ((server.to_owned(), runtime.to_owned()), outcome.clone());
            places.extend(runtimes.into_iter().map(of));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::{Baseline, RUNTIMES};
    use crate::unified::report::{NONE, Report, Row, Verdict};

    fn row(runtime: &str, verdict: Verdict) -> Row {
        let text = str::to_owned;
        let (suite, server) = (text("sessions"), text("6.0 single"));
        let (runtime, test) = (text(runtime), text("a.json: it works"));
        Row { suite, server, runtime, test, verdict }
    }

    fn report(runtime: &str, verdict: Verdict) -> Report {
        Report { rows: vec![row(runtime, verdict)], ..Report::default() }
    }

    #[test]
    fn a_test_that_passes_no_more_is_lost_and_one_that_was_not_played_is_not() {
        let baseline = Baseline::of(&report("tokio", Verdict::Passed));
        assert_eq!(baseline.lost(&report("tokio", Verdict::Passed)), Vec::<String>::new());
        let needs = report("tokio", Verdict::Needs(vec!["find".to_owned()]));
        let lost = ["sessions a.json: it works, on 6.0 single with tokio"];
        assert_eq!(baseline.lost(&needs), lost);
        assert_eq!(baseline.lost(&report("smol", Verdict::Passed)), Vec::<String>::new());
        let mut other = report("tokio", Verdict::Passed);
        other.rows[0].test = "a.json: it still works".to_owned();
        let lost = ["sessions a.json: it works, on 6.0 single: it is not there any more"];
        assert_eq!(baseline.lost(&other), lost);
        other.rows[0].server = "5.0 single".to_owned();
        assert_eq!(baseline.lost(&other), Vec::<String>::new());
    }

    #[test]
    fn a_file_has_all_that_was_kept_and_names_runtimes_only_where_they_differ() {
        let cannot = || Verdict::CannotRun("it needs another kind, with more".to_owned());
        let mut rows: Vec<Row> = RUNTIMES.iter().map(|it| row(it, Verdict::Passed)).collect();
        rows.push(Row { server: NONE.to_owned(), ..row(NONE, Verdict::Passed) });
        let on_5 = |row: Row| Row { server: "5.0 single".to_owned(), ..row };
        rows.push(on_5(row("smol", cannot())));
        rows.push(on_5(row("tokio", Verdict::Needs(vec!["a".to_owned(), "b".to_owned()]))));
        let baseline = Baseline::of(&Report { rows, ..Report::default() });
        let text = serde_json::to_string(&baseline).expect("it can be written");
        let expected = concat!(
            r#"{"sessions":[{"servers":{"#,
            r#""cannot run: it needs another kind, with more":["5.0 single with smol"],"#,
            r#""needs a, b":["5.0 single with tokio"],"passed":["6.0 single","none"]},"#,
            r#""tests":["a.json: it works"]}]}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Baseline>(&text).expect("it can be read"), baseline);
    }

    #[test]
    fn an_update_replaces_what_was_played_and_nothing_else() {
        let renamed = |it: &str, row: Row| Row { test: it.to_owned(), ..row };
        let passed = |runtime| row(runtime, Verdict::Passed);
        let mut baseline = Baseline::of(&Report {
            rows: vec![passed("smol"), passed("tokio"), renamed("b.json: gone", passed("tokio"))],
            ..Report::default()
        });
        baseline.update(Baseline::of(&report("tokio", Verdict::Needs(vec!["find".to_owned()]))));
        let expected = vec![passed("smol"), row("tokio", Verdict::Needs(vec!["find".to_owned()]))];
        assert_eq!(baseline, Baseline::of(&Report { rows: expected, ..Report::default() }));
    }
}
