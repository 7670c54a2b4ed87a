//! Tests that are skipped for a reason that their files do not declare.

use bson::{Bson, Document};

use crate::unified::format::{Entity, File, Test};

/// The tests that expect what does not follow from what they do, by their descriptions.
const CONTRADICTIONS: [(&str, &str); 3] = [
    (
        "Non-tailable cursor iteration timeoutMS is refreshed for getMore if timeoutMode is \
         iteration - failure",
        LESS,
    ),
    ("Tailable cursor iteration timeoutMS is refreshed for getMore - failure", LESS),
    (
        "Tailable cursor awaitData iteration timeoutMS is refreshed for getMore - failure",
        "it expects a getMore to be late that has no limit",
    ),
];

const LESS: &str = "it expects a getMore to be late that it holds up for less than its timeoutMS";

/// The number of descriptions of a replica set of one: nothing, its seed, the primary, and nothing.
const OF_ONE_MEMBER: i64 = 3;

/// Returns why nothing can pass a test.
pub(super) fn contradiction(test: &Test) -> Option<&'static str> {
    let known = CONTRADICTIONS.iter().find(|(description, _)| *description == test.description);
    known.map(|(_, reason)| *reason)
}

/// Returns whether a test takes several members: it reads from a secondary, or it waits for more
/// descriptions than a replica set of one has.
pub(super) fn is_about_members(file: &File, test: &Test) -> bool {
    let reads = |preference: &Document| {
        preference.get_str("mode").is_ok_and(|mode| mode.eq_ignore_ascii_case("secondary"))
    };
    let of_entity = |entity: &Entity| match entity {
        Entity::Client(client) => {
            client.uri_options.get_str("readPreference").is_ok_and(|mode| mode == "secondary")
        }
        Entity::Database { options, .. } | Entity::Collection { options, .. } => {
            options.read_preference.as_ref().is_some_and(reads)
        }
        _ => false,
    };
    let waits = |arguments: &Document| {
        let of = |event: &Document| event.contains_key("topologyDescriptionChangedEvent");
        let count = arguments.get("count").and_then(|count| match count {
            Bson::Int32(count) => Some(i64::from(*count)),
            Bson::Int64(count) => Some(*count),
            _ => None,
        });
        arguments.get_document("event").is_ok_and(of) && count > Some(OF_ONE_MEMBER)
    };
    let asks = |arguments: &Document| {
        waits(arguments) || arguments.get_document("readPreference").is_ok_and(reads)
    };
    file.entities.iter().any(of_entity)
        || test.operations.iter().any(|operation| asks(&operation.arguments))
}

#[cfg(test)]
mod tests {
    use super::is_about_members;
    use crate::unified::format::parse;

    #[test]
    fn a_test_of_a_secondary_or_of_many_descriptions_takes_several_members() {
        let finds = |entities: &str, arguments: &str| {
            let text = format!(
                r#"{{ "description": "", "schemaVersion": "1.0", "createEntities": [
                    {{ "client": {{ "id": "c" {entities} }} }}],
                  "tests": [{{ "description": "", "operations": [
                    {{ "name": "a", "object": "c", "arguments": {{ {arguments} }} }}] }}] }}"#
            );
            let file = parse(&text).expect("a file");
            is_about_members(&file, &file.tests[0])
        };
        assert!(!finds("", r#""readPreference": { "mode": "secondaryPreferred" }"#));
        assert!(finds("", r#""readPreference": { "mode": "secondary" }"#));
        assert!(finds(r#", "uriOptions": { "readPreference": "secondary" }"#, ""));
        let event = r#""event": { "topologyDescriptionChangedEvent": {} }"#;
        assert!(!finds("", &format!(r#"{event}, "count": 3"#)));
        assert!(finds("", &format!(r#"{event}, "count": 4"#)));
    }
}
