//! Tests of refusals, word by word, and of the official files.

use std::env;
use std::fs;
use std::path::Path;

use crate::mongod::Version;

use super::{Entity, EventKind, Expectation, File, FormatError, parse};

/// A file with these fields beside those that are required.
fn file(fields: &str) -> Result<File, FormatError> {
    parse(&format!(
        r#"{{ "description": "file", "schemaVersion": "1.0"{fields},
             "tests": [{{ "description": "test", "operations": [] }}] }}"#
    ))
}

/// A test with these fields beside those that are required.
fn test(fields: &str) -> Result<File, FormatError> {
    parse(&format!(
        r#"{{ "description": "file", "schemaVersion": "1.9",
             "tests": [{{ "description": "test"{fields} }}] }}"#
    ))
}

fn refusal(read: Result<File, FormatError>) -> String {
    read.expect_err("a rule is broken").to_string()
}

#[test]
fn a_refusal_names_the_place_and_the_rule() {
    let no_tests = parse(r#"{ "description": "file", "schemaVersion": "1.0" }"#);
    assert_eq!(refusal(no_tests), r#"the file has no field "tests", which is required"#);
    let client = r#", "createEntities": [{ "client": { "id": "a" } }, { "client": { "id": 0 } }]"#;
    assert_eq!(refusal(file(client)), "createEntities[1].client.id is 0, and must be a string");
    let operation = r#", "operations": [{ "name": "ping", "object": "db", "foo": 0 }]"#;
    assert_eq!(
        refusal(test(operation)),
        r#"tests[0].operations[0] has a field "foo", which is unknown here"#
    );
    let events = r#", "operations": [], "expectEvents": [{ "client": "a", "eventType": "cmap",
        "events": [{ "commandStartedEvent": {} }] }]"#;
    assert_eq!(
        refusal(test(events)),
        "tests[0].expectEvents[0].events[0] is no event of the type cmap"
    );
    let topologies = r#", "runOnRequirements": [{ "topologies": ["single", "star"] }]"#;
    assert_eq!(
        refusal(file(topologies)),
        "runOnRequirements[0].topologies[1] is \"star\", and must be one of single, replicaset, \
         sharded, load-balanced, sharded-replicaset"
    );
}

#[test]
fn null_is_no_way_to_leave_a_field_out_but_a_result_to_expect() {
    assert_eq!(
        refusal(test(r#", "operations": [], "skipReason": null"#)),
        "tests[0].skipReason is null, and must be a string"
    );
    let operation = r#", "operations": [{ "name": "n", "object": "o", "expectResult": null }]"#;
    let read = test(operation).expect("a file");
    let expectation = &read.tests[0].operations[0].expectation;
    assert!(matches!(expectation, Expectation::Success(Some(bson::Bson::Null))), "{expectation:?}");
}

#[test]
fn versions_are_compared_as_numbers() {
    let version = |major, minor, patch| Version { major, minor, patch };
    let requirement = r#", "runOnRequirements": [{ "minServerVersion": "4.0.10" }]"#;
    let read = file(requirement).expect("a file");
    let least = read.requirements[0].min_server_version.expect("a version");
    assert!(least > version(4, 0, 9) && least < version(4, 2, 0), "{least}");
    for broken in ["4", "4.0.0.1", "4.", "v4.0", "4.+1", ""] {
        let requirement =
            format!(r#", "runOnRequirements": [{{ "minServerVersion": "{broken}" }}]"#);
        assert!(refusal(file(&requirement)).contains("must be a version"), "{broken}");
    }
}

#[test]
fn another_major_version_is_refused_and_so_is_a_newer_minor_one() {
    for version in ["0.1", "2.0", "1.29"] {
        let text = format!(r#"{{ "schemaVersion": "{version}", "unknown": 1 }}"#);
        let refused = parse(&text).expect_err("the version is not read");
        assert!(matches!(refused, FormatError::Unsupported(_)), "{version}: {refused}");
    }
}

#[test]
fn entities_and_their_values_are_typed() {
    let entities = r#", "createEntities": [{ "client": { "id": "client0",
        "observeEvents": ["commandStartedEvent", "poolReadyEvent"],
        "uriOptions": { "w": { "$numberLong": "1" } } } }]"#;
    let read = file(entities).expect("a file");
    let [Entity::Client(client)] = read.entities.as_slice() else { panic!("{read:?}") };
    assert_eq!(client.observe_events, [EventKind::CommandStarted, EventKind::PoolReady]);
    assert_eq!(client.uri_options.get("w"), Some(&bson::Bson::Int64(1)), "Extended JSON is read");
}

/// Every file of the folder `SDAM_SPECIFICATIONS` that is in the unified format, by its path.
fn official_files() -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).expect("the folder can be read") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "json") {
                let text = fs::read_to_string(&path).expect("the file can be read");
                let unified = path.components().any(|part| part.as_os_str() == "invalid");
                if unified || text.contains("\"schemaVersion\"") {
                    found.push((path.display().to_string(), text));
                }
            }
        }
    }
    let mut found = Vec::new();
    match env::var_os("SDAM_SPECIFICATIONS") {
        Some(folder) => walk(Path::new(&folder), &mut found),
        None => {
            assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "in CI they must be read");
            eprintln!("left out, as SDAM_SPECIFICATIONS names no folder");
        }
    }
    found
}

#[test]
fn the_official_invalid_files_are_refused_and_all_others_read() {
    let files = official_files();
    for (path, text) in &files {
        let read = parse(text);
        let as_it_should_be = match path {
            _ if path.contains("/invalid/") => matches!(read, Err(FormatError::Broken { .. })),
            _ if path.ends_with("schemaVersion-unsupported.json") => {
                matches!(read, Err(FormatError::Unsupported(_)))
            }
            _ => read.is_ok(),
        };
        assert!(as_it_should_be, "{path}: {read:?}");
    }
    let invalid = files.iter().filter(|(path, _)| path.contains("/invalid/")).count();
    assert!(files.is_empty() || (invalid >= 230 && files.len() - invalid >= 440), "{invalid}");
}
