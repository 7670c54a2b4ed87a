//! Saves a new member the second that it would wait for its first copy of the data.
//!
//! A new member looks for somebody to copy from before it has exchanged enough heartbeats to choose
//! anybody, and looks again a second later. The servers' own tests have a fail point that makes the
//! choice for it.

use std::time::Duration;

use bson::{Document, doc};
use sdam_core::config::ServerAddress;

use super::{CommandError, HarnessError, Server};

const LIMIT: Duration = Duration::from_secs(60);

/// Makes `member` copy from `source`.
pub(super) fn force(member: &Server, source: &ServerAddress) -> Result<(), HarnessError> {
    let data = doc! { "hostAndPort": source.to_string() };
    configure(member, doc! { "mode": "alwaysOn", "data": data })
}

/// Lets `member` choose by itself again.
pub(super) fn release(member: &Server) -> Result<(), HarnessError> {
    configure(member, doc! { "mode": "off" })
}

fn configure(member: &Server, settings: Document) -> Result<(), HarnessError> {
    let mut command = doc! { "configureFailPoint": "forceSyncSourceCandidate" };
    command.extend(settings);
    match member.command(&command, LIMIT) {
        // A server that does not know the fail point is only slower.
        Ok(_) | Err(CommandError::Refused { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
