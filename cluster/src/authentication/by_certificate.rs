//! `authenticate`, by which clients log in with a certificate: always refused, as no client has
//! sent one.

use bson::RawDocument;
use sdam_core::bson;

use crate::options::{ScramMechanism, ServerVersion};
use crate::wire::CommandError;

/// Returns why the command fails.
pub(crate) fn refusal(command: &RawDocument, version: ServerVersion) -> CommandError {
    let is_old = version < ServerVersion::V5_0;
    let Ok(mechanism) = command.get_str("mechanism") else {
        let code = if is_old { 2 } else { 40414 };
        return CommandError::coded(code, "the mechanism is missing");
    };
    if is_old && command.get_str("user").is_err() {
        return CommandError::coded(18, "the user is missing");
    }
    if mechanism == "MONGODB-X509" {
        let code = if is_old { 17 } else { 18 };
        return CommandError::coded(code, "the client has shown no certificate");
    }
    let code = match is_old || ScramMechanism::of_name(mechanism).is_some() {
        true => 2,
        false => 334,
    };
    CommandError::coded(code, "the mechanism of authenticate is MONGODB-X509")
}
