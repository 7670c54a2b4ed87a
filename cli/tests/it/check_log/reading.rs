//! Texts that are no log, no line, or of several clients.

use serde_json::{Value, json};

use super::support::{Log, NODE, after_step_down, check, findings, golden, text};

#[test]
fn without_times_all_but_the_rules_about_time_are_checked() {
    let (mut log, second, [old, _]) = after_step_down();
    for line in &mut log.0 {
        line.as_object_mut().expect("an object").remove("time");
    }
    assert_eq!(findings(&log.text(), NODE), []);
    let output =
        check(&log.text(), &["--allow", "heartbeat-not-ended", "--allow", "wrong-awaited"]);
    assert!(text(&output.stdout).ends_with("no line has a time: nothing was judged by that\n"));
    log.0[second]["newDescription"]["servers"][&old]["type"] = json!("RSPrimary");
    assert_eq!(log.first(), (second, "two-primaries".to_owned()));
}

#[test]
fn several_clients_in_a_file_are_distinguished() {
    let log = Log::golden("node-6.0");
    let of = |client: &str| {
        log.0.iter().skip(1).cloned().map({
            let client = client.to_owned();
            move |mut line| {
                line["clientId"] = json!(client);
                line
            }
        })
    };
    let both: Vec<Value> = of("a").zip(of("b")).flat_map(|(a, b)| [a, b]).collect();
    let mut both = Log([vec![log.0[0].clone()], both].concat());
    assert_eq!(findings(&both.text(), NODE), []);
    for line in &mut both.0 {
        line.as_object_mut().expect("an object").remove("clientId");
    }
    // Without it the topologies are one, whose every step is taken twice.
    assert!(!findings(&both.text(), NODE).is_empty());
    for (index, line) in both.0.iter_mut().enumerate().filter(|(_, it)| it["topologyId"] == 0) {
        line["topologyId"] = json!(index % 2);
    }
    let output = check(&both.text(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("give every line of a client its own clientId"));
}

#[test]
fn lines_that_cannot_be_read_are_reported_by_number_and_passed_over() {
    let log = golden("sdam-6.0");
    let (first, rest) = log.split_once('\n').expect("lines");
    let mixed = format!(
        "{first}\nTraceback \u{1b}[2J\n{{\"message\": \"Command started\"}}\n\n\
         {{\"message\": \"Server heartbeat started\"}}\n{rest}"
    );
    let output = check(&mixed, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let complaints: Vec<&str> = text(&output.stderr).lines().collect();
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert!(complaints[0].starts_with("sdam: line 2 is passed over: it is no JSON object"));
    assert!(complaints[1].starts_with("sdam: line 5 is passed over: it names no server"));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("2 lines are about something else\n2 lines cannot be read\n"),
        "{printed}"
    );
}

#[test]
fn what_is_no_log_of_topologies_is_answered_by_exit_code_2() {
    let cases = [
        ("", "no line is about a topology\n"),
        ("hello\n", "no line is about a topology; line 1: it is no JSON object\n"),
        ("{\"message\": \"Command started\"}\n", "no line is about a topology\n"),
    ];
    for (log, complaint) in cases {
        let output = check(log, &[]);
        assert_eq!(output.status.code(), Some(2), "{log}");
        assert_eq!(text(&output.stderr), format!("sdam: -: {complaint}"));
        assert!(output.stdout.is_empty());
    }
    let output = check("", &["--allow", "everything"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there are: after-closed, "), "{output:?}");
}
