//! The commands of indexes for searches, which fail without a process for searches (Index
//! Management, "Search Indexes").

use bson::doc;
use sdam_core::bson;

use super::data::{ask, code, keeping};
use crate::ServerVersion;

use ServerVersion::{V6_0, V7_0, V8_0, V9_0};

/// With the codes of servers: those before 7.0 know none of them.
#[test]
fn indexes_for_searches_need_what_no_member_has() {
    let definition = doc! { "definition": { "mappings": { "dynamic": true } } };
    let stage = doc! { "$listSearchIndexes": {} };
    let commands = [
        doc! { "createSearchIndexes": "x", "indexes": [definition] },
        doc! { "updateSearchIndex": "x", "name": "a", "definition": {} },
        doc! { "dropSearchIndex": "x", "name": "a" },
        doc! { "aggregate": "x", "pipeline": [stage], "cursor": {} },
    ];
    for (version, [command, list]) in [
        (V6_0, [59, 40324]),
        (V7_0, [115, 6_047_401]),
        (V8_0, [31082, 31082]),
        (V9_0, [31082, 31082]),
    ] {
        let (mut world, connection) = keeping(version);
        for (index, asked) in commands.iter().enumerate() {
            let reply = ask(&mut world, connection, asked.clone());
            let expected = if index == 3 { list } else { command };
            assert_eq!(code(&reply), expected, "{version:?} {reply}");
            let says_so = reply.get_str("errmsg").unwrap().contains("Atlas");
            assert_eq!(says_so, version > V6_0, "{reply}");
        }
    }
}
