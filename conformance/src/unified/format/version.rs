//! Versions of the schema and of servers (Unified Test Format, "Version String").

use super::error::FormatError;
use super::object::Node;
use crate::mongod::Version;

/// Reads a version: two or three numbers with dots between them; what is left out is zero.
pub(super) fn version(node: Node) -> Result<Version, FormatError> {
    let place = node.place().to_owned();
    let text = node.string()?;
    parse(&text).ok_or_else(|| FormatError::Broken {
        place,
        rule: format!("is {text:?}, and must be a version of two or three numbers, as in 4.2"),
    })
}

fn parse(text: &str) -> Option<Version> {
    let digits = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
    let numbers: Vec<u32> = text
        .split('.')
        .map(|number| number.parse().ok().filter(|_| digits(number)))
        .collect::<Option<_>>()?;
    match *numbers {
        [major, minor] => Some(Version { major, minor, patch: 0 }),
        [major, minor, patch] => Some(Version { major, minor, patch }),
        _ => None,
    }
}
