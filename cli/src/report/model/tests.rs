//! Reports that are put together from facts, in virtual time.

use std::time::Duration;

use sdam_core::diagnosis::Verdict;

use super::*;

fn at(millis: u64) -> (Instant, usize) {
    (Instant::from_millis(millis), usize::try_from(millis).expect("a line"))
}

fn no_primary(millis: u64) -> Option<Fault> {
    let since = Duration::from_millis(millis);
    Some(Fault::new(&Verdict::NoPrimary { since }, None))
}

fn finished(builder: Builder, end: u64) -> Report {
    let lines: Vec<String> = (0..=end).map(|line| format!("line {line}")).collect();
    let line = |line: usize| lines.get(line).map_or("", String::as_str);
    builder.finish(Origin::default(), Instant::from_millis(end), line)
}

/// A set whose primary is lost and followed by another.
fn failover() -> Builder {
    let mut builder = Builder::default();
    builder.state(at(0), "a:1", State::Unchecked);
    builder.state(at(0), "b:1", State::Unchecked);
    builder.primary(at(0), None);
    builder.judge(at(0), no_primary(0), None);
    builder.state(at(10), "a:1", State::Primary);
    builder.primary(at(10), Some("a:1"));
    builder.judge(at(10), None, None);
    builder.state(at(12), "b:1", State::Secondary);
    builder.state(at(2000), "a:1", State::Unchecked);
    builder.primary(at(2000), None);
    builder.failing(at(2000), "a:1", "connection refused");
    builder.judge(at(2000), no_primary(0), None);
    builder.judge(at(3499), no_primary(1499), None);
    builder.state(at(3500), "b:1", State::Primary);
    builder.primary(at(3500), Some("b:1"));
    builder.judge(at(3500), None, None);
    builder
}

fn texts(report: &Report) -> Vec<String> {
    let texts = report
        .events
        .iter()
        .map(|event| format!("{} {} {}", in_millis(event.at), event.subject, event.text));
    texts.collect()
}

#[test]
fn a_failover_says_who_was_primary_when_and_why_writes_failed_between() {
    let report = finished(failover(), 5000);
    assert_eq!(
        report.headline.sentences,
        [
            "a:1 was primary until +2.000 s: connection refused.",
            "For 1.50 s there was none, and writes failed.",
            "b:1 is primary from +3.500 s on.",
        ]
    );
    assert!(!report.headline.is_good);
    assert_eq!(
        texts(&report),
        [
            "10 a:1 primary",
            "2000 writes fail for 1.50 s: the replica set has had no primary for 1.5 s",
            "3500 b:1 primary, after 1.50 s without one",
            "3500 writes find a server again",
        ]
    );
    assert_eq!(report.events[1].raw, "line 2000");
}

#[test]
fn what_is_looked_for_at_the_beginning_is_no_outage() {
    let report = finished(failover(), 5000);
    let faults: Vec<_> = report
        .writes
        .iter()
        .map(|it| {
            (in_millis(it.from), in_millis(it.to), it.fault.as_ref().map(|it| it.is_expected))
        })
        .collect();
    let wanted = [
        (0.0, 10.0, Some(true)),
        (10.0, 2000.0, None),
        (2000.0, 3500.0, Some(false)),
        (3500.0, 5000.0, None),
    ];
    assert_eq!(faults, wanted);
    assert_eq!(report.reads.len(), 1, "{:?}", report.reads);
}

#[test]
fn spans_follow_each_other_and_end_with_the_report() {
    let report = finished(failover(), 5000);
    let spans: Vec<_> = report.lanes[0]
        .spans
        .iter()
        .map(|it| (in_millis(it.from), in_millis(it.to), it.state, it.error.as_deref()))
        .collect();
    assert_eq!(
        spans,
        [
            (0.0, 10.0, State::Unchecked, None),
            (10.0, 2000.0, State::Primary, None),
            (2000.0, 5000.0, State::Failing, Some("connection refused")),
        ]
    );
}

#[test]
fn a_failure_is_known_by_how_it_began() {
    let mut builder = failover();
    builder.failing(at(3600), "a:1", "timed out");
    let report = finished(builder, 5000);
    let last = report.lanes[0].spans.last().expect("a span");
    assert_eq!(last.error.as_deref(), Some("connection refused"));
}

#[test]
fn a_server_that_leaves_and_comes_back_was_away_meanwhile() {
    let mut builder = failover();
    builder.left(at(4000).0, "a:1");
    builder.state(at(4500), "a:1", State::Secondary);
    let report = finished(builder, 5000);
    let lane = &report.lanes[0];
    assert_eq!(lane.at(at(4200).0), None);
    assert_eq!(lane.at(at(4500).0).map(|span| span.state), Some(State::Secondary));
}

#[test]
fn a_primary_that_steps_down_or_leaves_is_said_to() {
    let reason = |change: fn(&mut Builder)| {
        let mut builder = failover();
        change(&mut builder);
        builder.primary(at(4000), None);
        let report = finished(builder, 5000);
        report.primaries.last().and_then(|reign| reign.reason.clone())
    };
    let down = reason(|builder| builder.state(at(4000), "b:1", State::Secondary));
    assert_eq!(down.as_deref(), Some("it stepped down"));
    let left = reason(|builder| builder.left(at(4000).0, "b:1"));
    assert_eq!(left.as_deref(), Some("it left"));
}

#[test]
fn many_primaries_are_counted() {
    let mut builder = failover();
    for round in 0..5 {
        builder.primary(at(4000 + round * 100), None);
        builder.primary(at(4050 + round * 100), Some("a:1"));
    }
    let report = finished(builder, 5000);
    assert_eq!(
        report.headline.sentences[0],
        "The primary has changed 2 times, among 2 servers; there was none for 1.75 s in all, \
         1.50 s at the longest."
    );
}

#[test]
fn a_server_that_is_primary_again_and_again_is_no_change() {
    let mut builder = Builder::default();
    for round in 0..1000 {
        builder.primary(at(round * 4), Some("a:1"));
        builder.primary(at(round * 4 + 3), None);
    }
    let said = |builder: Builder| finished(builder, 5000).headline.sentences[0].clone();
    assert_eq!(
        said(builder),
        "a:1 was primary 1000 times; there was none for 2.00 s in all, 1.00 s at the longest."
    );
    let mut builder = Builder::default();
    for (round, primary) in (0..).zip(["a:1", "a:1", "b:1", "b:1"]) {
        builder.primary(at(round * 100), Some(primary));
        builder.primary(at(round * 100 + 90), None);
    }
    let said = said(builder);
    assert!(said.starts_with("The primary has changed once, among 2 servers; "), "{said}");
}

#[test]
fn servers_are_summed_up_before_anything_is_left_out() {
    let mut builder = Builder::default();
    for round in 0..5000 {
        let moment = at(round * 10);
        let is_failing = round % 5 == 0;
        builder.state(moment, "a:1", if is_failing { State::Unchecked } else { State::Primary });
        let failure = is_failing.then(|| "timed out".to_owned());
        if let Some(failure) = &failure {
            builder.failing(moment, "a:1", failure);
        }
        // The longest one is in the same stretch of time as one that fails.
        let took = Some(if round == 2502 { 9.0 } else { 1.0 });
        let (at, line) = moment;
        builder.check("a:1", Check { at, line, took, awaited: false, failure });
        let (subject, text) = ("a:1".to_owned(), "timed out".to_owned());
        builder.cleared(Mark { at, line, subject, text });
    }
    let report = finished(builder, 50_000);
    let lane = &report.lanes[0];
    assert!(lane.checks.len() <= 1000 && lane.spans.len() <= 1000, "nothing is left out");
    let wanted = Tally {
        last: Some(State::Primary),
        primary: Duration::from_secs(40),
        failing: Duration::from_secs(10),
        checks: 5000,
        failed: 1000,
        round_trips: Some((1.0, 9.0)),
        clears: 5000,
    };
    assert_eq!(lane.tally, wanted);
}

#[test]
fn no_text_that_comes_in_keeps_its_secrets() {
    let secret = "cannot log in to mongodb://me:sesame@a:1/, password='open sesame'";
    let address = "mongodb://me:sesame@a:1/";
    let mark = |(at, line): (Instant, usize)| {
        let (subject, text) = (address.to_owned(), secret.to_owned());
        Mark { at, line, subject, text }
    };
    let mut builder = Builder::default();
    builder.state(at(0), address, State::Primary);
    builder.primary(at(0), Some(address));
    builder.judge(at(0), None, None);
    assert_eq!(builder.state_of(address), Some(State::Primary));
    builder.state(at(10), address, State::Unchecked);
    builder.failing(at(10), address, secret);
    builder.primary(at(10), None);
    let (moment, line) = at(10);
    let failure = Some(secret.to_owned());
    builder.check(address, Check { at: moment, line, took: None, awaited: false, failure });
    builder.add(Event::new(at(10), Tone::Bad, address, secret.to_owned()));
    builder.cleared(mark(at(10)));
    builder.error(mark(at(10)));
    builder.waits(at(10), 1);
    builder.waited(at(20).0, 1, WaitEnd::Failed(secret.to_owned()));
    builder.note(secret.to_owned());
    let origin = Origin { deployment: secret.to_owned(), ..Origin::default() };
    let report = builder.finish(origin, at(30).0, |_| secret);
    assert_eq!(report.lanes.len(), 1, "{:?}", report.lanes);
    assert_eq!(report.lanes[0].address, "mongodb://…@a:1/");
    assert_eq!(report.events[1].raw, "cannot log in to mongodb://…@a:1/, password='…'");
    let said = format!("{report:?}");
    assert!(!said.contains("sesame"), "{said}");
}

#[test]
fn each_wait_ends_for_whom_it_began() {
    let mut builder = Builder::default();
    builder.waits(at(0), 1);
    builder.waits(at(1), 2);
    builder.waited(at(2).0, 1, WaitEnd::Found);
    builder.waited(at(3).0, 1, WaitEnd::Abandoned);
    builder.waits(at(4), 1);
    let report = finished(builder, 10);
    let ends: Vec<_> = report.waits.iter().map(|it| (in_millis(it.to), it.end.clone())).collect();
    assert_eq!(ends, [(2.0, WaitEnd::Found), (10.0, WaitEnd::Open), (10.0, WaitEnd::Open)]);
}

#[test]
fn operations_are_grouped_by_how_they_fared() {
    let mut builder = failover();
    builder.waits(at(2100), 1);
    builder.waits(at(2200), 2);
    builder.waited(at(3500).0, 1, WaitEnd::Found);
    builder.waited(at(3000).0, 2, WaitEnd::Failed("noPrimary".to_owned()));
    let (moment, line) = at(2001);
    let (subject, text) = ("a:1".to_owned(), "closed".to_owned());
    builder.error(Mark { at: moment, line, subject, text });
    let report = finished(builder, 5000);
    let last = report.headline.sentences.last().map(String::as_str);
    let wanted = "1 operation failed at +2.001 s: closed; 2 operations waited for a server, 1 \
                  without finding one.";
    assert_eq!(last, Some(wanted));
    assert_eq!(report.waits[0].to, at(3500).0);
}

#[test]
fn a_quiet_time_is_good_and_one_without_any_answer_is_not() {
    let mut builder = Builder::default();
    builder.state(at(0), "a:1", State::Standalone);
    builder.judge(at(0), None, None);
    let report = finished(builder, 1000);
    assert!(report.headline.is_good && report.primaries.is_empty());
    assert_eq!(report.headline.sentences, ["Writes have found a server since the first check."]);
    let mut builder = Builder::default();
    builder.state(at(0), "a:1", State::Unchecked);
    let fault = |verdict: &Verdict| Some(Fault::new(verdict, None));
    builder.judge(at(0), fault(&Verdict::NotCheckedYet), None);
    builder.failing(at(5), "a:1", "refused");
    builder.judge(at(5), fault(&Verdict::ConnectionRefused), None);
    let report = finished(builder, 1000);
    assert!(!report.headline.is_good);
    let said = report.headline.sentences.join(" ");
    assert!(said.starts_with("No write would have found a server in all 1.00 s: every"), "{said}");
    let report = finished(Builder::default(), 0);
    assert_eq!(report.headline.sentences, ["No server had answered when it ended."]);
}
