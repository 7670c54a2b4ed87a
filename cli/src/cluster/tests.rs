//! Steps, scenario files, keys, and what is printed.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::inputs::{Input, Keys, MAX_LINE, read_lines};
use super::report::News;
use super::scenario::Scenario;
use super::step::{STEPS, Step, StepError};
use crate::news::Report;

fn complaint(text: &str) -> String {
    let (line, reason) = Scenario::parse(text, 3, false).expect_err("no scenario");
    format!("{line}: {reason}")
}

#[test]
fn every_step_is_written_as_it_is_read() {
    let steps = [
        "step down",
        "kill b",
        "kill primary",
        "shutdown a",
        "start b",
        "freeze c",
        "thaw c",
        "cut a from the rest",
        "cut primary from the rest",
        "heal",
        "heal a",
        "add",
        "add d",
        "remove b",
        "fail find with 91",
        "fail find with 91 3 times",
        "fail nothing",
        "slow hello by 200ms",
        "slow hello of b by 200ms",
        "list",
        "quit",
    ];
    for text in steps {
        assert_eq!(Step::parse(text).map(|step| step.to_string()), Ok(text.to_owned()));
    }
    let verbs = |text: &str| text.split(' ').next().map(str::to_owned);
    for form in STEPS.lines().filter(|it| !it.starts_with("password")) {
        assert!(steps.iter().any(|step| verbs(step) == verbs(form)), "{form}");
    }
}

#[test]
fn a_password_is_read_and_never_written() {
    let step = Step::parse("password app=a#b").expect("a step");
    assert!(matches!(&step, Step::Password { password, .. } if password.expose() == "a#b"));
    assert_eq!(step.to_string(), "password app=…");
    assert!(!format!("{step:?}").contains("a#b"));
}

#[test]
fn a_scenario_has_its_steps_at_their_times_and_comments_between() {
    let text = "# what happens\n\n5s step down   # and then\n8s kill b\n8s\tadd d\n9s kill d\n";
    let mut scenario = Scenario::parse(text, 3, false).expect("a scenario");
    let mut steps = Vec::new();
    while let Some(at) = scenario.next_at() {
        steps.push((at.as_secs(), scenario.take().expect("it is due").to_string()));
    }
    let expected = [(5, "step down"), (8, "kill b"), (8, "add d"), (9, "kill d")];
    assert_eq!(steps, expected.map(|(at, step)| (at, step.to_owned())));
}

#[test]
fn what_is_wrong_with_a_line_is_said_with_what_is_allowed() {
    let cases = [
        (
            "5s step down\n\nsoon kill b",
            "3: \"soon\" is not when: write a whole number and its unit",
        ),
        ("5s", "1: \"5s\" without a step; write a time and what happens then"),
        ("5s kill b\n4s start b", "2: \"4s\" comes after a later step"),
        ("5s explode", "1: there is no step \"explode\"; there are: step down, kill WHO,"),
        ("5s kill", "1: write it as: kill WHO"),
        ("5s kill bob", "1: \"bob\" is not the name of a member"),
        ("5s kill d", "1: there is no member d; there are a to c then"),
        ("5s add e", "1: e is not the next letter; write: add d"),
        ("5s cut a", "1: write it as: cut WHO from the rest"),
        ("5s fail find with x", "1: \"x\" is not the code of an error"),
        ("5s fail find with 1 no times", "1: \"no\" is not a number of times"),
        ("5s slow hello by 5", "1: \"5\" is not a time: write a whole number and its unit"),
        ("5s password app", "1: write it as: password USER=NEW"),
    ];
    for (text, expected) in cases {
        let said = complaint(text);
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn mongos_are_not_asked_for_what_only_replica_sets_do() {
    for step in ["step down", "kill primary", "cut a from the rest", "heal", "add", "remove a"] {
        let step = Step::parse(step).expect("a step");
        assert_eq!(step.check(2, true), Err(StepError::Mongos), "{step}");
    }
    assert_eq!(Step::parse("kill b").expect("a step").check(2, true), Ok(2));
}

#[test]
fn a_key_is_a_step_and_some_await_the_letter_of_a_member() {
    let press = |keys: &mut Keys, letter| {
        keys.press(&KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE))
    };
    let keys = &mut Keys::default();
    assert_eq!(press(keys, 's'), Some(Input::Step(Step::Resign)));
    assert_eq!(press(keys, 'c'), None);
    let cut = Step::parse("cut b from the rest").expect("a step");
    assert_eq!(press(keys, 'b'), Some(Input::Step(cut)));
    assert_eq!(press(keys, 'k'), None);
    assert_eq!(keys.press(&KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)), None);
    assert_eq!(press(keys, 'l'), Some(Input::Step(Step::List)), "the kill is forgotten");
    assert_eq!(press(keys, 'k'), None);
    assert!(matches!(press(keys, '1'), Some(Input::Wrong(StepError::Name(_)))));
    assert_eq!(press(keys, 'z'), Some(Input::Help));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(keys.press(&interrupt), Some(Input::Step(Step::Quit)));
}

#[test]
fn a_line_that_is_too_long_is_no_step_and_neither_is_its_end() {
    let most = usize::try_from(MAX_LINE).expect("a length");
    let long = format!("{} quit\n  kill b  \n{}", "x".repeat(most), "y".repeat(3 * most));
    let (sender, mut received) = tokio::sync::mpsc::channel(8);
    read_lines(long.as_bytes(), &sender);
    drop(sender);
    let inputs: Vec<Input> = std::iter::from_fn(|| received.blocking_recv()).collect();
    let too_long = || Input::Wrong(StepError::Length(MAX_LINE));
    let kill = Step::parse("kill b").expect("a step");
    assert_eq!(inputs, [too_long(), Input::Step(kill), too_long()]);
    let (sender, mut received) = tokio::sync::mpsc::channel(8);
    read_lines(format!("list{}\nquit", " ".repeat(most - 4)).as_bytes(), &sender);
    assert_eq!(received.blocking_recv(), Some(Input::Step(Step::List)));
    assert_eq!(received.blocking_recv(), Some(Input::Step(Step::Quit)));
}

#[test]
fn lines_end_as_the_terminal_wants_and_obey_no_client() {
    let hello = News::Greeted {
        member: "a".parse().expect("a name"),
        driver: Some("evil\u{1b}[2J 1".to_owned()),
        application: None,
    };
    let mut out = Vec::new();
    let mut report = Report::new(&mut out, false, true);
    report.print(Duration::from_millis(1500), &hello).expect("memory");
    let expected = "    1.50s  evil\\u{1b}[2J 1 has said hello to a\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
}
