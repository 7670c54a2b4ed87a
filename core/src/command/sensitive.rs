//! The commands that carry secrets, and what events contain of them.
//!
//! Implements "Security" of Command Logging and Monitoring.

use bson::RawDocument;

use crate::operation::{CommandError, OperationError};

/// The commands that are sensitive whatever is in them.
const SENSITIVE: [&str; 9] = [
    "authenticate",
    "saslStart",
    "saslContinue",
    "getnonce",
    "createUser",
    "updateUser",
    "copydbgetnonce",
    "copydbsaslstart",
    "copydb",
];

/// The commands that are sensitive if they try to authenticate: hello, and the two spellings of
/// legacy hello.
const HELLO: [&str; 2] = ["hello", "isMaster"];

/// Returns whether a command may carry secrets, so that events contain neither it nor its reply
/// (Command Logging and Monitoring, "Security").
///
/// Letters may be in either case: a server refuses what is misspelt so, with the secret in it.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::command::is_sensitive;
///
/// assert!(is_sensitive(&rawdoc! { "saslStart": 1, "payload": "a password" }));
/// assert!(is_sensitive(&rawdoc! { "hello": 1, "speculativeAuthenticate": {} }));
/// assert!(!is_sensitive(&rawdoc! { "hello": 1 }));
/// ```
pub fn is_sensitive(command: &RawDocument) -> bool {
    let name = match command.iter().next() {
        None => return false,
        Some(Ok((name, _))) => name,
        // It may be anything.
        Some(Err(_)) => return true,
    };
    let is_one_of =
        |names: &[&str]| names.iter().any(|one| name.as_str().eq_ignore_ascii_case(one));
    is_one_of(&SENSITIVE)
        || is_one_of(&HELLO) && !matches!(command.get("speculativeAuthenticate"), Ok(None))
}

/// Leaves of a server's error what says nothing of the command: code, codeName and errorLabels.
pub(super) fn redacted(error: OperationError) -> OperationError {
    match error {
        OperationError::Reply { stage, error } => {
            let CommandError { code, code_name, labels, .. } = error;
            let error = CommandError { code, code_name, labels, ..CommandError::default() };
            OperationError::Reply { stage, error }
        }
        // Not the server's words.
        error @ (OperationError::Stream(_) | OperationError::Invalid(_)) => error,
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{RawDocumentBuf, rawdoc};

    use super::{is_sensitive, redacted};
    use crate::failure::{Cause, Failure, Stage};
    use crate::operation::{CommandError, OperationError};

    /// Command Logging and Monitoring, "Security": "The list of sensitive commands is as follows".
    #[test]
    fn the_commands_of_the_list_are_sensitive_and_others_are_not() {
        let mut listed = vec![
            rawdoc! { "authenticate": 1 },
            rawdoc! { "saslStart": 1 },
            rawdoc! { "saslContinue": 1 },
            rawdoc! { "getnonce": 1 },
            rawdoc! { "createUser": "u" },
            rawdoc! { "updateUser": "u" },
            rawdoc! { "copydbgetnonce": 1 },
            rawdoc! { "copydbsaslstart": 1 },
            rawdoc! { "copydb": 1 },
            rawdoc! { "SASLSTART": 1 },
        ];
        for name in ["hello", "isMaster", "ismaster"] {
            let mut hello = RawDocumentBuf::new();
            hello.append(<&bson::raw::CStr>::try_from(name).unwrap(), 1);
            assert!(!is_sensitive(&hello), "{name} alone");
            hello.append(bson::cstr!("speculativeAuthenticate"), rawdoc! { "saslStart": 1 });
            listed.push(hello);
        }
        for command in listed {
            assert!(is_sensitive(&command), "{command:?}");
        }
        for command in [
            rawdoc! {},
            rawdoc! { "find": "saslStart" },
            rawdoc! { "ping": 1, "speculativeAuthenticate": {} },
            rawdoc! { "usersInfo": 1 },
        ] {
            assert!(!is_sensitive(&command), "{command:?}");
        }
    }

    /// Fields that cannot be read may be anything.
    #[test]
    fn a_hello_whose_fields_cannot_be_read_is_sensitive() {
        let mut bytes = rawdoc! { "hello": 1, "text": "x" }.into_bytes();
        let length = bytes.len() - 7;
        bytes[length] = 0x7f;
        let mut broken = RawDocumentBuf::from_bytes(bytes).unwrap();
        assert!(is_sensitive(&broken), "{broken:?}");
        let mut bytes = broken.into_bytes();
        bytes[4] = 0xff;
        broken = RawDocumentBuf::from_bytes(bytes).unwrap();
        assert!(is_sensitive(&broken), "{broken:?}");
    }

    /// Command Logging and Monitoring, "Security": "MUST have all fields besides the following
    /// redacted: code, codeName, errorLabels".
    #[test]
    fn of_a_servers_error_code_name_and_labels_are_left_and_a_networks_is_whole() {
        let reply = rawdoc! {
            "ok": 0, "code": 18, "codeName": "AuthenticationFailed", "errmsg": "hunter2",
            "errorLabels": ["RetryableError"],
            "topologyVersion": { "processId": ObjectId::from_bytes([1; 12]), "counter": 1_i64 },
        };
        let error = CommandError::in_reply(&reply).unwrap();
        assert!(error.topology_version.is_some());
        let stage = Stage::Authenticate;
        let OperationError::Reply { error, .. } = redacted(OperationError::Reply { stage, error })
        else {
            panic!("another kind of error")
        };
        let left = CommandError {
            code: Some(18),
            code_name: "AuthenticationFailed".into(),
            labels: vec!["RetryableError".into()],
            ..CommandError::default()
        };
        assert_eq!(error, left);
        let failure = Failure::new(Stage::Operate, Cause::Closed, "the server has hung up");
        let failure = OperationError::Stream(failure);
        assert_eq!(redacted(failure.clone()), failure);
    }
}
