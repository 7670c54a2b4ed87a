//! Commands and replies that tests make up.

use std::sync::Arc;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf, Timestamp};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::super::conversation::{Command, Reply};
use super::super::operations::Operations;
use crate::sim::network::StreamId;
use crate::sim::tap::Line;

pub(super) fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Makes the command of an operation, at a member, over a connection of that number.
pub(super) fn command(
    (millis, member, stream): (u64, usize, u64),
    operation: Option<i64>,
    session: Option<u8>,
    body: RawDocumentBuf,
) -> Arc<Command> {
    let name = body.iter().next().and_then(Result::ok);
    let name = name.map(|(name, _)| name.as_str().to_owned()).unwrap_or_default();
    Arc::new(Command {
        at: at(millis),
        line: Line { client: 0, member, stream: StreamId(stream) },
        name,
        body,
        documents: Vec::new(),
        operation,
        session: session.map(|it| vec![it]),
    })
}

pub(super) fn reply(millis: u64, body: RawDocumentBuf) -> Reply {
    Reply { at: at(millis), body, is_last: true }
}

/// The time of a cluster, as commands and replies have it.
pub(super) fn time(seconds: u32) -> Timestamp {
    Timestamp { time: seconds, increment: 1 }
}

/// The name of a session, as `endSessions` has it.
pub(super) fn name_of(session: u8) -> Binary {
    Binary { subtype: BinarySubtype::Uuid, bytes: vec![session] }
}

/// Begins operations of one client, each in the session that is given for it, and returns their
/// numbers.
pub(super) fn begin<const N: usize>(
    operations: &mut Operations,
    sessions: [Option<i64>; N],
) -> [i64; N] {
    sessions.map(|session| operations.begin((0, at(0)), session, None))
}

/// Begins one that has a time-out.
pub(super) fn begin_limited(operations: &mut Operations) -> i64 {
    operations.begin((0, at(0)), None, Some(Duration::from_secs(1)))
}
