//! Commands and stages that real servers support, and the embedded deployment does not.

use crate::unified::format::Test;

/// The reasons, by parts of the texts of the operations that need what is not supported.
const UNSUPPORTED: [(&str, &str); 4] = [
    ("replSetFreeze", "it does not know replSetFreeze"),
    ("$where", "it runs no JavaScript"),
    ("mapReduce", "it runs no JavaScript"),
    ("$collStats", "its $collStats does not show how a collection was created"),
];

/// Returns why the embedded deployment does not support a test, if it does not.
pub(super) fn reason(test: &Test) -> Option<&'static str> {
    let texts = test.operations.iter().map(|it| format!("{} {}", it.name, it.arguments));
    let texts: Vec<String> = texts.collect();
    let asks = |part: &str| texts.iter().any(|text| text.contains(part));
    UNSUPPORTED.iter().find(|(part, _)| asks(part)).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::reason;
    use crate::unified::format::parse;

    #[test]
    fn a_test_is_unsupported_by_its_operations_and_their_arguments() {
        let of = |name: &str, arguments: &str| {
            let text = format!(
                r#"{{ "description": "", "schemaVersion": "1.0", "createEntities": [
                    {{ "client": {{ "id": "c" }} }}],
                  "tests": [{{ "description": "", "operations": [
                    {{ "name": "{name}", "object": "c", "arguments": {{ {arguments} }} }}] }}] }}"#
            );
            reason(&parse(&text).expect("a file").tests[0])
        };
        assert!(of("mapReduce", "").is_some());
        assert!(of("find", r#""filter": { "$where": "sleep(9)" }"#).is_some());
        assert!(of("find", r#""filter": { "where": 1 }"#).is_none());
    }
}
