//! Defects of servers that make a test fail whatever a client does, and that its requirements do
//! not mention.

use bson::{Bson, Document};

use crate::mongod::Version;
use crate::unified::format::{File, Test};

/// The first version whose fail points heed all that tests say of them.
const HEEDED: Version = Version { major: 4, minor: 4, patch: 0 };

/// The first version whose fail points strike the first hello of a connection by its appName.
const FIRST_HELLO: Version = Version { major: 4, minor: 4, patch: 7 };

/// Returns why a server of this version cannot do what a test asks of it.
pub(super) fn defect(version: Version, file: &File, test: &Test) -> Option<&'static str> {
    let points: Vec<&Document> = test
        .operations
        .iter()
        .filter_map(|operation| operation.arguments.get_document("failPoint").ok())
        .filter_map(|point| point.get_document("data").ok())
        .collect();
    let asks = |name: &str| points.iter().any(|data| data.contains_key(name));
    if version < HEEDED && ["errorLabels", "blockConnection", "appName"].into_iter().any(asks) {
        return Some("its fail points ignore errorLabels, blockConnection and appName");
    }
    if version < FIRST_HELLO && asks("appName") && points.iter().any(|data| is_of_hello(data)) {
        return Some("a connection's first hello escapes its fail points with appName");
    }
    let clients = file.clients_of(test);
    let is_balanced = |options: &Document| options.get_bool("loadBalanced").unwrap_or_default();
    if lacks_hello(version) && clients.iter().any(|client| is_balanced(&client.uri_options)) {
        return Some("it does not know hello, which load balancing begins with");
    }
    None
}

fn is_of_hello(data: &Document) -> bool {
    let is_hello = |name: &Bson| {
        let name = name.as_str().unwrap_or_default();
        name == "hello" || name.eq_ignore_ascii_case("isMaster")
    };
    data.get_array("failCommands").is_ok_and(|names| names.iter().any(is_hello))
}

/// hello came with 4.4.2, and to 4.2 with 4.2.10.
const fn lacks_hello(Version { major, minor, patch }: Version) -> bool {
    match (major, minor) {
        (4, 4) => patch < 2,
        (4, 2) => patch < 10,
        _ => major < 4,
    }
}

#[cfg(test)]
mod tests {
    use super::{Version, defect};
    use crate::unified::format::parse;

    #[test]
    fn a_test_asks_for_what_old_servers_cannot_do() {
        let text = |data: &str| {
            format!(
                r#"{{ "description": "", "schemaVersion": "1.0", "createEntities": [
                    {{ "client": {{ "id": "c", "uriOptions": {{ "loadBalanced": true }} }} }},
                    {{ "database": {{ "id": "d", "client": "c", "databaseName": "d" }} }}],
                  "tests": [{{ "description": "", "operations": [
                    {{ "name": "failPoint", "object": "testRunner", "arguments":
                        {{ "failPoint": {{ "data": {{ {data} }} }} }} }}] }},
                    {{ "description": "", "operations": [
                        {{ "name": "runCommand", "object": "d" }}] }}] }}"#
            )
        };
        let version = |minor, patch| Version { major: 4, minor, patch };
        let finds = |data: &str, version| {
            let file = parse(&text(data)).expect("a file");
            defect(version, &file, &file.tests[0]).is_some()
        };
        let of_hello = r#""failCommands": ["hello"], "appName": "a""#;
        assert!(finds(of_hello, version(4, 2)) && !finds(of_hello, version(4, 7)));
        let of_find = r#""failCommands": ["find"], "appName": "a""#;
        assert!(finds(of_find, version(2, 24)) && !finds(of_find, version(4, 2)));
        assert!(!finds(r#""failCommands": ["hello"]"#, version(2, 6)));
        let file = parse(&text("")).expect("a file");
        assert!(defect(version(2, 6), &file, &file.tests[1]).is_some());
        assert!(defect(version(2, 10), &file, &file.tests[1]).is_none());
        assert!(defect(version(2, 6), &file, &file.tests[0]).is_none(), "it uses no such client");
    }
}
