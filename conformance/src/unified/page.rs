//! The baseline, as tables of a page.

use std::collections::{BTreeMap, BTreeSet};

use super::baseline::{Baseline, CANNOT, NEEDS, PASSED, with};

/// The numbers of tests that passed, failed, need something and cannot run.
type Counts = [usize; 4];

/// The numbers of one suite, by server, and then by runtime.
type OfSuite<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Counts>>;

impl Baseline {
    /// Returns the tables: the numbers of tests; those that no server can play, by their reasons;
    /// what the client lacks; and what servers do.
    pub fn page(&self) -> String {
        [self.counts(), self.unplayed(), self.needs(), self.obstacles()].join("\n")
    }

    /// Counts by suite; servers where as many tests passed, with the same runtimes, are one row,
    /// which names the runtimes unless they are all that there are.
    fn counts(&self) -> String {
        let mut page = "| suite | servers | passed | failed | needs | cannot run |\n\
                        | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
        let mut suites: BTreeMap<&str, OfSuite<'_>> = BTreeMap::new();
        for ((suite, _), places) in &self.0 {
            for ((server, runtime), outcome) in places {
                let of_server = suites.entry(suite).or_default().entry(server).or_default();
                of_server.entry(runtime).or_default()[column(outcome)] += 1;
            }
        }
        for (suite, servers) in suites {
            for ([passed, failed, needs, cannot], servers) in alike(&servers) {
                let place = format!("| {suite} | {servers} |");
                page += &format!("{place} {passed} | {failed} | {needs} | {cannot} |\n");
            }
        }
        page
    }

    /// Counts the tests that were played nowhere, by suite and by reason: what the client lacks, or
    /// else each thing that stands in the way on some server.
    fn unplayed(&self) -> String {
        let mut tests: BTreeMap<(&str, String), usize> = BTreeMap::new();
        for ((suite, _), places) in &self.0 {
            let outcomes: BTreeSet<&str> = places.values().map(String::as_str).collect();
            if outcomes.iter().any(|outcome| column(outcome) < 2) {
                continue;
            }
            let of = |prefix| outcomes.iter().filter_map(move |it| it.strip_prefix(prefix));
            let needs: BTreeSet<&str> = of(NEEDS).flat_map(|it| it.split(", ")).collect();
            let reason = match needs.is_empty() {
                true => of(CANNOT).collect::<Vec<_>>().join("; "),
                false => format!("needs {}", needs.into_iter().collect::<Vec<_>>().join(", ")),
            };
            *tests.entry((suite, reason)).or_default() += 1;
        }
        let mut page =
            "| suite | played on no server, because | tests |\n| --- | --- | --- |\n".to_owned();
        for ((suite, reason), tests) in tests {
            page += &format!("| {suite} | {reason} | {tests} |\n");
        }
        page
    }

    /// Counts the tests that need something, each once; the most wanted first.
    fn needs(&self) -> String {
        table(
            "needs",
            &self.reasons(|outcome| match outcome.strip_prefix(NEEDS) {
                Some(needs) => needs.split(", ").collect(),
                None => Vec::new(),
            }),
        )
    }

    /// Counts the tests that some server cannot play, each once, by reason.
    fn obstacles(&self) -> String {
        let reasons = self.reasons(|outcome| outcome.strip_prefix(CANNOT).into_iter().collect());
        table("cannot run on some server", &reasons)
    }

    fn reasons(&self, reasons: fn(&str) -> Vec<&str>) -> Vec<(&str, usize)> {
        let mut tests: BTreeMap<&str, usize> = BTreeMap::new();
        for places in self.0.values() {
            let of: BTreeSet<&str> = places.values().flat_map(|it| reasons(it)).collect();
            of.into_iter().for_each(|reason| *tests.entry(reason).or_default() += 1);
        }
        let mut tests: Vec<_> = tests.into_iter().collect();
        tests.sort_by_key(|(_, tests)| std::cmp::Reverse(*tests));
        tests
    }
}

fn column(outcome: &str) -> usize {
    match outcome {
        PASSED => 0,
        _ if outcome.starts_with(NEEDS) => 2,
        _ if outcome.starts_with(CANNOT) => 3,
        _ => 1,
    }
}

/// Sorts the servers of a suite by their numbers, the most tests that passed first.
fn alike(servers: &OfSuite<'_>) -> Vec<(Counts, String)> {
    let mut runtimes_of: BTreeMap<(Counts, &str), Vec<&str>> = BTreeMap::new();
    for (server, runtimes) in servers {
        for (runtime, counts) in runtimes {
            runtimes_of.entry((*counts, server)).or_default().push(runtime);
        }
    }
    let mut servers_of: BTreeMap<(Counts, String), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for ((counts, server), runtimes) in runtimes_of {
        let (version, kind) = server.split_once(' ').unwrap_or(("", server));
        let key = (counts, with(&runtimes));
        let versions = servers_of.entry(key).or_default().entry(kind).or_default();
        versions.push(version);
    }
    let named = |(kind, versions): (&str, Vec<&str>)| match versions.concat().is_empty() {
        true => kind.to_owned(),
        false => format!("{kind} ({})", versions.join(", ")),
    };
    let row = |((counts, with), kinds): ((Counts, String), BTreeMap<&str, Vec<&str>>)| {
        (counts, kinds.into_iter().map(named).collect::<Vec<_>>().join("; ") + &with)
    };
    servers_of.into_iter().rev().map(row).collect()
}

/// Writes reasons and numbers of tests.
fn table(headline: &str, reasons: &[(&str, usize)]) -> String {
    let rows = reasons.iter().map(|(reason, tests)| format!("| {reason} | {tests} |\n"));
    format!("| {headline} | tests |\n| --- | --- |\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use crate::unified::baseline::RUNTIMES;
    use crate::unified::{Baseline, Report, Row, Verdict};

    #[test]
    fn rows_that_are_alike_are_one_and_a_test_that_is_played_nowhere_has_its_reason() {
        let row = |test: &str, server: &str, runtime: &str, verdict| Row {
            suite: "crud".to_owned(),
            server: server.to_owned(),
            runtime: runtime.to_owned(),
            test: test.to_owned(),
            verdict,
        };
        let mut rows = Vec::new();
        let passed = |runtime| row("a", "6.0 single", runtime, Verdict::Passed);
        rows.extend(RUNTIMES.map(passed));
        for server in ["4.4 single", "5.0 single", "5.0 set of 3"] {
            for runtime in ["smol", "tokio"] {
                rows.push(row("a", server, runtime, Verdict::Passed));
                let needs = Verdict::Needs(vec!["watch".to_owned()]);
                rows.push(row("b", server, runtime, needs));
                let cannot = Verdict::CannotRun("it is old".to_owned());
                rows.push(row("c", server, runtime, cannot));
            }
        }
        // With smol, a test of the set cannot run.
        let odd = rows.iter_mut().find(|row| row.server == "5.0 set of 3" && row.test == "a");
        odd.expect("it is there").verdict = Verdict::CannotRun("it is old".to_owned());
        let page = Baseline::of(&Report { rows, ..Report::default() }).page();
        let expected = "| suite | servers | passed | failed | needs | cannot run |\n\
             | --- | --- | --- | --- | --- | --- |\n\
             | crud | set of 3 (5.0) with tokio | 1 | 0 | 1 | 1 |\n\
             | crud | single (4.4, 5.0) with smol, tokio | 1 | 0 | 1 | 1 |\n\
             | crud | single (6.0) | 1 | 0 | 0 | 0 |\n\
             | crud | set of 3 (5.0) with smol | 0 | 0 | 1 | 2 |\n\n\
             | suite | played on no server, because | tests |\n\
             | --- | --- | --- |\n\
             | crud | it is old | 1 |\n\
             | crud | needs watch | 1 |\n\n\
             | needs | tests |\n| --- | --- |\n| watch | 1 |\n\n\
             | cannot run on some server | tests |\n| --- | --- |\n| it is old | 2 |\n";
        assert_eq!(page, expected);
    }
}
