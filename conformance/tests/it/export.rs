//! Traces become cases of the official suites of Server Discovery And Monitoring, which the runner
//! of those suites reads and passes.

use std::fs;
use std::path::Path;

use sdam_conformance::spec::{Folder, Report};
use sdam_core::trace::{ExportError, Replay, Trace, export};
use serde_json::{Value, json};

/// The folder of the official layout that such cases belong to.
const FOLDER: &str = "server-discovery-and-monitoring/tests/rs";

fn golden() -> Vec<(String, Trace)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("transcripts")
        .map(|entry| entry.expect("one").path())
        .collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, Trace::parse(fs::read(path).expect("a transcript")).expect("a trace"))
    };
    paths.iter().map(read).collect()
}

/// Runs cases as `sdam-conformance spec FOLDER` does.
fn run(cases: &[(String, String)]) -> Report {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join(FOLDER);
    fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in cases {
        fs::write(folder.join(format!("{name}.json")), text).expect("a file");
    }
    Folder::open(root.path()).expect("a suite").run()
}

#[test]
fn recordings_of_real_servers_become_cases_that_the_runner_passes() {
    let cases: Vec<(String, String)> = golden()
        .iter()
        .map(|(name, trace)| {
            let text = export(trace, name).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name.clone(), text)
        })
        .collect();
    assert_eq!(cases.len(), 21);
    let report = run(&cases);
    assert!(!report.has_failures(), "{report}");
    for (name, text) in &cases {
        let case: Value = serde_json::from_str(text).expect("JSON");
        let phases = case["phases"].as_array().expect("phases");
        assert!(phases.len() >= 3, "{name}: three members answer");
        let types = |phase: &Value| phase["outcome"]["topologyType"].clone();
        assert!(phases.iter().any(|phase| types(phase) == "ReplicaSetWithPrimary"), "{name}");
        assert!(!text.contains("$clusterTime") && !text.contains("lastWrite"), "{name}");
    }
}

#[test]
fn a_case_with_another_outcome_fails() {
    for (name, trace) in golden() {
        let mut case: Value =
            serde_json::from_str(&export(&trace, &name).expect("a case")).expect("JSON");
        let last = case["phases"].as_array_mut().expect("phases").last_mut().expect("a phase");
        last["outcome"]["setName"] = "another".into();
        let report = run(&[(name.clone(), case.to_string())]);
        assert!(report.has_failures(), "{name}");
    }
}

/// A trace of a client that takes these inputs, and does what follows from them.
fn trace_of(calls: &[&str]) -> Trace {
    let header =
        "sdam-trace 1\nsdam 0.1.0\nmachine topology\noptions mongodb://a/?replicaSet=rs\nseed 7\n";
    let calls = ["+0.000000000 tick"].iter().chain(calls).map(|call| format!("{call}\n"));
    let told = Trace::parse(header.to_owned() + &calls.collect::<String>()).expect("a trace");
    let text = Replay::new(&told).expect("it begins at the beginning").rewrite();
    Trace::parse(text).expect("a trace")
}

const OPENED: &str = "+0.001000000 opened s0.0";
const PRIMARY: &str = concat!(
    r#"+0.002000000 received s0.0 [{"id":9,"to":1,"msg":{"ok":1,"helloOk":true,"#,
    r#""isWritablePrimary":true,"setName":"rs","setVersion":1,"hosts":["a:27017"],"#,
    r#""minWireVersion":0,"maxWireVersion":21,"localTime":5}}]"#,
);

/// An operation fails after so many seconds.
fn failure(seconds: u8, server: &str, error: &str) -> String {
    let of = r#"{"generation":0,"maxWireVersion":21,"#;
    format!("+{seconds}.000000000 operation-failed {server} {of}{error}}}")
}

fn stream(stage: &str, cause: &str) -> String {
    format!(r#""stream":{{"stage":"{stage}","cause":"{cause}","detail":"1"}}"#)
}

const NOT_PRIMARY: &str = r#""reply":{"stage":"operate","code":10107,"message":"1"}"#;

#[test]
fn errors_of_operations_become_application_errors_with_their_generations() {
    let [first, second] = [3, 4].map(|at| failure(at, "s0", &stream("operate", "closed")));
    let text = export(&trace_of(&[OPENED, PRIMARY, &first, &second]), "errors").expect("a case");
    let case: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(case["uri"], "mongodb://a:27017/?replicaSet=rs");
    let error = |phase: usize| &case["phases"][phase]["applicationErrors"][0];
    let expected = json!({
        "address": "a:27017", "generation": 0, "maxWireVersion": 21,
        "when": "afterHandshakeCompletes", "type": "network",
    });
    assert_eq!((error(1), error(2)), (&expected, &expected));
    // The second one is of a connection from before the clear, and is ignored (SDAM, "stale").
    let pool = |phase: usize| &case["phases"][phase]["outcome"]["servers"]["a:27017"]["pool"];
    let generations = [0, 1, 1].map(|generation| json!({ "generation": generation }));
    assert_eq!([pool(0), pool(1), pool(2)], generations.each_ref());
    assert!(!run(&[("errors".to_owned(), text)]).has_failures());
    let trace = trace_of(&[OPENED, PRIMARY, &failure(3, "s0", NOT_PRIMARY)]);
    let case = export(&trace, "not-primary").expect("a case");
    let case: Value = serde_json::from_str(&case).expect("JSON");
    let response = &case["phases"][1]["applicationErrors"][0]["response"];
    assert_eq!(response, &json!({ "ok": 0, "code": 10107, "errmsg": "1" }));
}

/// Returns the refusal of a trace that cannot be expressed, with the line that it is about.
fn refused(calls: &[&str]) -> (String, String) {
    let trace = trace_of(calls);
    let Err(ExportError::Inexpressible(told)) = export(&trace, "refused") else {
        panic!("it can be said")
    };
    let told = told.first().expect("a reason");
    let line = trace.lines().find(|(number, _)| *number == told.line).expect("a line").1;
    (told.what.clone(), line.to_owned())
}

#[test]
fn what_the_format_cannot_say_is_told_with_its_line() {
    let unresolved = failure(3, "s0", &stream("resolve", "notResolved"));
    let (what, line) = refused(&[OPENED, PRIMARY, &unresolved]);
    assert!(what.contains("neither the network nor a time-out"), "{what}");
    assert_eq!(line, unresolved);
    let of_another = failure(3, "s9", NOT_PRIMARY);
    let (what, line) = refused(&[OPENED, PRIMARY, &of_another]);
    assert!(what.contains("a server that has left"), "{what}");
    assert_eq!(line, of_another);
    let resolved = r#"+3.000000000 resolved {"records":[]}"#;
    assert_eq!(refused(&[OPENED, PRIMARY, resolved]).0, "records come from DNS");
    let garbage = r#"+0.002000000 received s0.0 ["AAAAAAAAAAAAAAAAAAAAAA=="]"#;
    let (what, line) = refused(&[OPENED, garbage]);
    assert!(what.contains("no reply that can be read"), "{what}");
    assert!(line.contains("serverHeartbeatFailed"), "{line}");
}

#[test]
fn a_server_that_leaves_by_itself_and_comes_back_is_a_matter_of_time() {
    // "a", known to its set by another name that no monitor asks, is removed, and joins again.
    let elsewhere = PRIMARY.replace("\"a:27017\"", "\"b:27017\"").replace("rs\"", "other\"");
    let calls = [OPENED, &elsewhere, "+60.000000000 tick"];
    let (what, line) = refused(&calls);
    assert!(what.contains("because time has passed"), "{what}");
    assert!(line.contains("DescriptionChanged"), "{line}");
}

#[test]
fn a_trace_that_says_nothing_or_something_else_is_no_case() {
    assert_eq!(export(&trace_of(&[OPENED]), "nothing"), Err(ExportError::Nothing));
    let trace = trace_of(&[OPENED, PRIMARY]);
    let text: String = trace.lines().map(|(_, line)| format!("{line}\n")).collect();
    let other = Trace::parse(text.replace("RSPrimary", "RSOther")).expect("a trace");
    assert!(matches!(export(&other, "other"), Err(ExportError::Differs(_))));
    let tail = Trace::parse(text.replacen("trace 1", "trace 1 tail", 1)).expect("a trace");
    assert_eq!(export(&tail, "tail"), Err(ExportError::Tail));
}
