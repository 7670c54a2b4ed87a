//! The names of members in a reply to hello, replaced by others: for proxies by which clients
//! reach each member.

use bson::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::{MAX_MEMBERS, ReplyError};
use crate::config::ServerAddress;

/// Replaces the members that a reply to hello names: in `hosts`, `passives` and `arbiters`, and as
/// `primary` and `me`. All other fields stay as they are, and in their order.
///
/// `name` returns another name for a member, or `None` if it keeps its own. Where nothing is
/// replaced, there is no new reply.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::config::ServerAddress;
/// use sdam_core::hello::rename_members;
///
/// let here: ServerAddress = "127.0.0.1:27100".parse()?;
/// let reply = rawdoc! { "hosts": ["db1:27017", "db2:27017"], "me": "db2:27017", "ok": 1 };
/// let renamed = rename_members(&reply, |member| (member.host() == "db2").then(|| here.clone()))?;
/// let expected =
///     rawdoc! { "hosts": ["db1:27017", "127.0.0.1:27100"], "me": "127.0.0.1:27100", "ok": 1 };
/// assert_eq!(renamed, Some(expected));
/// assert_eq!(rename_members(&reply, |_| None)?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The reply is not BSON, or lists more than [`MAX_MEMBERS`] members.
pub fn rename_members(
    reply: &RawDocument,
    mut name: impl FnMut(&ServerAddress) -> Option<ServerAddress>,
) -> Result<Option<RawDocumentBuf>, ReplyError> {
    let (mut renamed, mut is_other) = (RawDocumentBuf::new(), false);
    // What is no address is for the client to judge.
    let mut other = |value: RawBsonRef<'_>| {
        let other = name(&value.as_str()?.parse().ok()?)?.to_string();
        is_other = true;
        Some(other)
    };
    let malformed = |error: bson::error::Error| ReplyError::Bson(error.to_string());
    for element in reply.iter_elements() {
        let element = element.map_err(malformed)?;
        let key = element.key();
        let Ok(value) = element.value() else {
            // A text that is no UTF-8 names no member.
            renamed.append(key, element.value_utf8_lossy().map_err(malformed)?);
            continue;
        };
        let list = ["hosts", "passives", "arbiters"].into_iter().find(|list| key == *list);
        match (list, value) {
            (Some(list), RawBsonRef::Array(members)) => {
                renamed.append(key, rename_list(list, members, &mut other)?);
            }
            _ if key == "me" || key == "primary" => match other(value) {
                Some(other) => renamed.append(key, other),
                None => renamed.append(key, value),
            },
            _ => renamed.append(key, value),
        }
    }
    Ok(is_other.then_some(renamed))
}

fn rename_list(
    field: &'static str,
    members: &RawArray,
    mut other: impl FnMut(RawBsonRef<'_>) -> Option<String>,
) -> Result<RawArrayBuf, ReplyError> {
    let mut renamed = RawArrayBuf::new();
    for (index, member) in members.into_iter().enumerate() {
        if index == MAX_MEMBERS {
            return Err(ReplyError::TooMany { field, limit: MAX_MEMBERS });
        }
        let member = member.map_err(|error| ReplyError::Bson(error.to_string()))?;
        match other(member) {
            Some(other) => renamed.push(other),
            None => renamed.push(member),
        }
    }
    Ok(renamed)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{RawArrayBuf, RawBson, RawDocumentBuf, cstr, rawdoc};

    use super::rename_members;
    use crate::config::ServerAddress;
    use crate::hello::{MAX_MEMBERS, ReplyError};

    /// Every member is at a port of this machine that its number decides.
    fn here(member: &ServerAddress) -> Option<ServerAddress> {
        let number = member.host().strip_prefix("db")?.split('.').next()?;
        format!("127.0.0.1:2710{number}").parse().ok()
    }

    #[test]
    fn members_are_renamed_wherever_they_stand_and_nothing_else_is() {
        let version = rawdoc! { "processId": ObjectId::from_bytes([1; 12]), "counter": 7_i64 };
        let reply = rawdoc! {
            "helloOk": true, "topologyVersion": version.clone(),
            "hosts": ["DB1.internal", "db2.internal:27018"], "passives": ["db3.internal:27017"],
            "arbiters": ["elsewhere:27017"], "setName": "rs", "me": "db2.internal:27018",
            "primary": "db1.internal:27017", "tags": { "hosts": "db1.internal" },
            "saslSupportedMechs": ["SCRAM-SHA-256"], "compression": ["zlib"], "ok": 1.0,
        };
        let expected = rawdoc! {
            "helloOk": true, "topologyVersion": version,
            "hosts": ["127.0.0.1:27101", "127.0.0.1:27102"], "passives": ["127.0.0.1:27103"],
            "arbiters": ["elsewhere:27017"], "setName": "rs", "me": "127.0.0.1:27102",
            "primary": "127.0.0.1:27101", "tags": { "hosts": "db1.internal" },
            "saslSupportedMechs": ["SCRAM-SHA-256"], "compression": ["zlib"], "ok": 1.0,
        };
        assert_eq!(rename_members(&reply, here), Ok(Some(expected)));
    }

    #[test]
    fn what_is_no_address_stays() {
        let reply = rawdoc! { "hosts": [1, "a b", null], "me": 5, "primary": "", "ok": 1 };
        assert_eq!(rename_members(&reply, here), Ok(None));
        let reply = rawdoc! { "hosts": "db1.internal:1", "me": ["db1.internal:1"] };
        assert_eq!(rename_members(&reply, here), Ok(None));
        let reply = rawdoc! { "hosts": [1, "db1"] };
        let expected = rawdoc! { "hosts": [1, "127.0.0.1:27101"] };
        assert_eq!(rename_members(&reply, here), Ok(Some(expected)));
    }

    #[test]
    fn a_text_that_is_no_utf8_leaves_the_others_what_they_are() {
        let mut bytes = rawdoc! { "errmsg": "?", "me": "db1", "ok": 1 }.into_bytes();
        bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xc3);
        let renamed = rename_members(&RawDocumentBuf::from_bytes(bytes).unwrap(), here);
        let expected = rawdoc! { "errmsg": "\u{fffd}", "me": "127.0.0.1:27101", "ok": 1 };
        assert_eq!(renamed, Ok(Some(expected)));
    }

    #[test]
    fn what_is_no_bson_and_lists_without_an_end_are_refused() {
        let mut broken = rawdoc! { "ok": 1 }.into_bytes();
        broken[4] = 0x77;
        let broken = RawDocumentBuf::from_bytes(broken).unwrap();
        assert!(matches!(rename_members(&broken, here), Err(ReplyError::Bson(_))));
        let list = |length: usize| {
            let members = std::iter::repeat_n(RawBson::String("db1".to_owned()), length);
            let mut reply = RawDocumentBuf::new();
            reply.append(cstr!("passives"), members.collect::<RawArrayBuf>());
            rename_members(&reply, here)
        };
        assert!(list(MAX_MEMBERS).is_ok_and(|renamed| renamed.is_some()));
        let error = ReplyError::TooMany { field: "passives", limit: MAX_MEMBERS };
        assert_eq!(list(MAX_MEMBERS + 1), Err(error));
    }
}
