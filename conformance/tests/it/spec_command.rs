//! The command `spec`: what it finds, what it prints, and its exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A case of the suite of round trip times, and one that claims the wrong average.
const GOOD: &str = r#"{ "avg_rtt_ms": 10, "new_rtt_ms": 20, "new_avg_rtt": 12 }"#;
const BAD: &str = r#"{ "avg_rtt_ms": 10, "new_rtt_ms": 20, "new_avg_rtt": 13 }"#;

/// Makes a folder that holds these files and nothing else.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if root.exists() {
        fs::remove_dir_all(&root).unwrap();
    }
    fs::create_dir_all(&root).unwrap();
    for (file, text) in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn spec(folder: &Path, arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_sdam-conformance");
    Command::new(program).arg("spec").arg(folder).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn all_passed_is_exit_code_0_and_a_table() {
    let files = [
        ("server-selection/tests/rtt/good.json", GOOD),
        ("server-selection/tests/logging/other.json", "{}"),
        ("crud/tests/unified/deep/one.json", "{}"),
        ("crud/tests/unified/deep/one.yml", ""),
    ];
    let output = spec(&folder("passed", &files), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let row = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("suite"), ["files", "cases", "passed", "failed", "skipped"]);
    assert_eq!(row("server-selection/rtt"), ["1", "1", "1", "0", "0"]);
    assert_eq!(row("server-discovery-and-monitoring/rs"), ["0", "0", "0", "0", "0"]);
    assert_eq!(row("total"), ["1", "1", "1", "0", "0"]);
    let not_covered = "not covered:\n  crud/tests/unified/deep (1 file)\n  \
                       server-selection/tests/logging (1 file)\n";
    assert!(text.ends_with(not_covered), "{text}");
}

#[test]
fn a_failure_is_exit_code_1_and_a_difference_that_can_be_read() {
    let files = [
        ("server-selection/tests/rtt/bad.json", BAD),
        ("server-selection/tests/rtt/good.json", GOOD),
    ];
    let output = spec(&folder("failed", &files), &["--suite", "server-selection"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let expected = "\nserver-selection/tests/rtt/bad.json\n  FAILED: the case\n    average\n      \
                    expected: 13 ms\n      found:    12 ms\n";
    assert!(stdout(&output).ends_with(expected), "{}", stdout(&output));
}

#[test]
fn json_tells_the_same() {
    let root = folder("json", &[("server-selection/tests/rtt/bad.json", BAD)]);
    let output = spec(&root, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let suites = report["suites"].as_array().unwrap();
    let suite = suites.iter().find(|suite| suite["name"] == "server-selection/rtt").unwrap();
    let case = &suite["files"][0]["cases"][0];
    assert_eq!(case["verdict"], "failed");
    assert_eq!(case["differences"][0]["expected"], "13 ms");
    assert_eq!(report["notCovered"], serde_json::json!([]));
}

#[test]
fn a_folder_that_is_not_there_is_one_error_and_exit_code_2() {
    let output = spec(Path::new("/nowhere/at/all"), &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(error.starts_with("error: /nowhere/at/all cannot be read: "), "{error}");
    assert_eq!((error.lines().count(), stdout(&output).as_str()), (1, ""));
}

#[test]
fn a_folder_without_a_known_suite_is_exit_code_1() {
    let output = spec(&folder("none", &[("crud/tests/unified/one.json", "{}")]), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("holds none of the suites known here"), "{output:?}");
}

#[test]
fn a_suite_that_is_missing_or_unknown_is_an_error() {
    let root = folder("suite", &[("server-selection/tests/rtt/good.json", GOOD)]);
    let output = spec(&root, &["--suite", "server-discovery-and-monitoring/rs"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("has no file of suite"), "{output:?}");
    let output = spec(&root, &["--suite", "server-sel"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("there is no suite \"server-sel\"; known are"), "{output:?}");
}
