//! Flaky tests: those that fail beside others and have times of their own.

use std::cell::LazyCell;

use super::perform::Kind;
use super::report::{Report, Row, Verdict};
use super::run::Loaded;

/// The largest number of failures with which flaky tests are played once more. If there are more, a
/// busy machine is not the reason.
const MOST: usize = 5;

/// Plays failed tests that have times of their own once more, after all others and one after the
/// other, on deployments that are started for it. The report says which of them pass then.
///
/// Tests in virtual time stay as they are, and so do those whose deployment does not start.
pub(super) fn play_again<D>(
    report: &mut Report,
    files: &[Loaded],
    kinds: &[Kind],
    start: impl Fn(&Kind) -> Option<D>,
    play: impl Fn(&str, &D, &Loaded) -> Vec<Row>,
) {
    let Report { rows, flaky } = report;
    if rows.iter().filter(|row| row.has_failed()).count() > MOST {
        return;
    }
    for kind in kinds.iter().filter(|kind| !matches!(kind, Kind::Simulated(_))) {
        let (name, deployment) = (kind.name(), LazyCell::new(|| start(kind)));
        for row in rows.iter_mut().filter(|row| row.has_failed() && row.server == name) {
            let Some(alone) = files.iter().find_map(|file| file.flaky(row)) else { continue };
            let Some(deployment) = &*deployment else { break };
            let again = play(&row.runtime, deployment, &alone);
            match again.into_iter().find(|again| again.test == row.test) {
                Some(Row { verdict: Verdict::Passed, .. }) => {
                    flaky.push(row.clone());
                    row.verdict = Verdict::Passed;
                }
                Some(again) if again.has_failed() => row.verdict = again.verdict,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use sdam_cluster::ServerVersion;

    use super::super::format;
    use super::super::perform::Kind;
    use super::super::report::{Report, Row, Verdict};
    use super::super::run::Loaded;
    use super::{MOST, play_again};
    use crate::spec::Difference;

    const SHARDED: Kind = Kind::Sharded(ServerVersion::V8_0);
    const BALANCED: Kind = Kind::LoadBalanced(ServerVersion::V8_0);
    const VIRTUAL: Kind = Kind::Simulated(ServerVersion::V8_0);

    /// A file of so many tests, which have times of their own or not.
    fn loaded(suite: &str, tests: usize, has_times: bool) -> Loaded {
        let test = |at: usize| format!(r#"{{ "description": "{at}", "operations": [] }}"#);
        let tests: Vec<String> = (0..tests).map(test).collect();
        let tests = tests.join(", ");
        let text =
            format!(r#"{{ "description": "a", "schemaVersion": "1.0", "tests": [{tests}] }}"#);
        let (suite, name) = (suite.to_owned(), "a.json".to_owned());
        Loaded { suite, name, file: format::parse(&text), has_times }
    }

    fn failed(found: &str) -> Verdict {
        let (place, expected) = ("its find".to_owned(), "in time".to_owned());
        Verdict::Failed(Difference { place, expected, found: found.to_owned() })
    }

    fn row(kind: &Kind, suite: &str, test: usize) -> Row {
        let (suite, server) = (suite.to_owned(), kind.name());
        let (runtime, test) = ("smol".to_owned(), format!("a.json: {test}"));
        Row { suite, server, runtime, test, verdict: failed("late") }
    }

    /// Plays flaky tests, with this verdict; returns how they were played.
    fn played(report: &mut Report, files: &[Loaded], verdict: &Verdict) -> Vec<String> {
        let played = RefCell::new(Vec::new());
        let play = |runtime: &str, server: &String, file: &Loaded| {
            let tests = &file.file.as_ref().unwrap().tests;
            let names: Vec<&str> = tests.iter().map(|test| test.description.as_str()).collect();
            let names = names.join(", ");
            played.borrow_mut().push(format!("{} {names}: {server}, {runtime}", file.suite));
            let row = |test: &format::Test| Row {
                suite: file.suite.clone(),
                server: server.clone(),
                runtime: runtime.to_owned(),
                test: format!("a.json: {}", test.description),
                verdict: verdict.clone(),
            };
            tests.iter().map(row).collect()
        };
        let kinds = [SHARDED, BALANCED, VIRTUAL];
        play_again(report, files, &kinds, |kind| Some(kind.name()), play);
        played.into_inner()
    }

    #[test]
    fn a_flaky_test_is_played_alone_where_it_failed_and_is_reported() {
        let files = [
            loaded("a", 3, true),
            loaded("b", 1, false),
            loaded("unified-test-format/valid-fail", 1, true),
        ];
        let rows = vec![
            row(&BALANCED, "a", 1),
            Row { verdict: Verdict::Passed, ..row(&BALANCED, "a", 2) },
            row(&VIRTUAL, "a", 1),
            row(&SHARDED, "b", 0),
            row(&SHARDED, "unified-test-format/valid-fail", 0),
        ];
        let mut report = Report { rows, ..Report::default() };
        let played = played(&mut report, &files, &Verdict::Passed);
        assert_eq!(played, [format!("a 1: {}, smol", BALANCED.name())]);
        let failed: Vec<bool> = report.rows.iter().map(Row::has_failed).collect();
        assert_eq!(failed, [false, false, true, true, true]);
        assert_eq!(report.flaky.len(), 1);
        let text = report.to_string();
        let flaky = format!("FLAKY a on {} with smol\n  a.json: 1\n    its find", BALANCED.name());
        assert!(text.contains(&flaky), "{text}");
    }

    #[test]
    fn a_flaky_test_that_does_not_pass_then_has_failed() {
        let files = [loaded("a", MOST + 1, true)];
        let with_failures = |count: usize| Report {
            rows: (0..count).map(|test| row(&SHARDED, "a", test)).collect(),
            ..Report::default()
        };
        let mut report = with_failures(MOST);
        assert_eq!(played(&mut report, &files, &failed("again")).len(), MOST);
        assert!(report.rows.iter().all(|row| row.verdict == failed("again")), "{report}");
        let mut report = with_failures(1);
        let cannot = Verdict::CannotRun("no primary".to_owned());
        assert_eq!(played(&mut report, &files, &cannot).len(), 1);
        assert_eq!(report.rows[0].verdict, failed("late"));
        let mut report = with_failures(MOST + 1);
        assert!(played(&mut report, &files, &Verdict::Passed).is_empty());
        assert!(report.flaky.is_empty() && report.has_failures(), "{report}");
    }

    #[test]
    fn a_flaky_test_whose_deployment_does_not_start_has_failed() {
        let mut report = Report { rows: vec![row(&SHARDED, "a", 0)], ..Report::default() };
        let play = |_: &str, (): &(), _: &Loaded| unreachable!("nothing has started");
        play_again(&mut report, &[loaded("a", 1, true)], &[SHARDED], |_| None, play);
        assert_eq!(report.rows[0].verdict, failed("late"));
    }
}
