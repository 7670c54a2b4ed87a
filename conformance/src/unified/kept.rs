//! The results that are kept in the repository, and a run that is worse than they are.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::report::{Report, Row, Verdict};

/// The tests that pass: by server, by name with their suites, the runtimes with which they do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl Kept {
    /// Takes what passes in a report.
    pub fn of(report: &Report) -> Self {
        let mut kept = Self::default();
        for row in report.rows.iter().filter(|row| row.verdict == Verdict::Passed) {
            let tests = kept.0.entry(row.server.clone()).or_default();
            tests.entry(name(row)).or_default().insert(row.runtime.clone());
        }
        kept
    }

    /// Returns what passed once and does not pass in this report, a line each: what was played with
    /// that runtime, and what was played with none although its suite was.
    pub fn lost(&self, report: &Report) -> Vec<String> {
        let now = Self::of(report);
        let (mut suites, mut played) = (BTreeSet::new(), BTreeMap::new());
        for row in &report.rows {
            suites.insert((row.server.as_str(), row.suite.as_str()));
            let runtimes: &mut BTreeSet<&str> =
                played.entry((row.server.as_str(), name(row))).or_default();
            runtimes.insert(&row.runtime);
        }
        let mut lost = Vec::new();
        for (server, tests) in &self.0 {
            for (test, runtimes) in tests {
                let suite = test.split_once(' ').map_or(test.as_str(), |(suite, _)| suite);
                if !suites.contains(&(server.as_str(), suite)) {
                    continue;
                }
                let Some(played) = played.get(&(server.as_str(), test.clone())) else {
                    lost.push(format!("{test}, on {server}: it is not there any more"));
                    continue;
                };
                let passes = |runtime: &str| now.has(server, test, runtime);
                let worse =
                    runtimes.iter().filter(|it| played.contains(it.as_str()) && !passes(it));
                lost.extend(worse.map(|runtime| format!("{test}, on {server} with {runtime}")));
            }
        }
        lost
    }

    fn has(&self, server: &str, test: &str, runtime: &str) -> bool {
        let runtimes = self.0.get(server).and_then(|tests| tests.get(test));
        runtimes.is_some_and(|runtimes| runtimes.contains(runtime))
    }
}

fn name(row: &Row) -> String {
    format!("{} {}", row.suite, row.test)
}

#[cfg(test)]
mod tests {
    use super::{Kept, Report, Row, Verdict};

    fn report(runtime: &str, verdict: Verdict) -> Report {
        let text = str::to_owned;
        let (suite, server) = (text("sessions"), text("6.0 single"));
        let test = text("a.json: it works");
        Report { rows: vec![Row { suite, server, runtime: text(runtime), test, verdict }] }
    }

    #[test]
    fn a_test_that_passes_no_more_is_lost_and_one_that_was_not_played_is_not() {
        let kept = Kept::of(&report("tokio", Verdict::Passed));
        assert_eq!(kept.lost(&report("tokio", Verdict::Passed)), Vec::<String>::new());
        let needs = report("tokio", Verdict::Needs(vec!["find".to_owned()]));
        let lost = ["sessions a.json: it works, on 6.0 single with tokio"];
        assert_eq!(kept.lost(&needs), lost);
        assert_eq!(kept.lost(&report("smol", Verdict::Passed)), Vec::<String>::new());
        let mut other = report("tokio", Verdict::Passed);
        other.rows[0].test = "a.json: it still works".to_owned();
        let lost = ["sessions a.json: it works, on 6.0 single: it is not there any more"];
        assert_eq!(kept.lost(&other), lost);
    }
}
