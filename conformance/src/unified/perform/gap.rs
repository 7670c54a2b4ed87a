//! Gaps of the embedded deployment: commands and stages that it does not have, and real servers do.

use crate::unified::format::Test;

/// The gaps, by parts of the texts of the operations that fall into them.
const GAPS: [(&str, &str); 4] = [
    ("replSetFreeze", "it does not know replSetFreeze"),
    ("$where", "it runs no JavaScript"),
    ("mapReduce", "it runs no JavaScript"),
    ("$collStats", "its $collStats does not tell how a collection was created"),
];

/// Returns which gap a test falls into, on the embedded deployment.
pub(super) fn gap(test: &Test) -> Option<&'static str> {
    let texts = test.operations.iter().map(|it| format!("{} {}", it.name, it.arguments));
    let texts: Vec<String> = texts.collect();
    let asks = |part: &str| texts.iter().any(|text| text.contains(part));
    GAPS.iter().find(|(part, _)| asks(part)).map(|(_, gap)| *gap)
}

#[cfg(test)]
mod tests {
    use super::gap;
    use crate::unified::format::parse;

    #[test]
    fn a_test_falls_into_a_gap_by_its_operations_and_their_arguments() {
        let of = |name: &str, arguments: &str| {
            let text = format!(
                r#"{{ "description": "", "schemaVersion": "1.0", "createEntities": [
                    {{ "client": {{ "id": "c" }} }}],
                  "tests": [{{ "description": "", "operations": [
                    {{ "name": "{name}", "object": "c", "arguments": {{ {arguments} }} }}] }}] }}"#
            );
            gap(&parse(&text).expect("a file").tests[0])
        };
        assert!(of("mapReduce", "").is_some());
        assert!(of("find", r#""filter": { "$where": "sleep(9)" }"#).is_some());
        assert!(of("find", r#""filter": { "where": 1 }"#).is_none());
    }
}
