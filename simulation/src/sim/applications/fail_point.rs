//! The ways in which commands fail at a member.

use bson::{Document, RawDocumentBuf, doc};
use sdam_core::bson;

use crate::sim::random::Random;
use crate::sim::run::Part;

/// The commands that may fail.
const COMMANDS: [&str; 10] = [
    "find",
    "getMore",
    "aggregate",
    "distinct",
    "count",
    "insert",
    "update",
    "delete",
    "findAndModify",
    "bulkWrite",
];

/// The commands of transactions that may fail.
const COMMANDS_OF_TRANSACTIONS: [&str; 6] =
    ["find", "getMore", "insert", "update", "commitTransaction", "abortTransaction"];

/// The commands of change streams, of what they watch and of their checkpoints that may fail.
const COMMANDS_OF_CHANGES: [&str; 9] = [
    "aggregate",
    "aggregate",
    "getMore",
    "getMore",
    "find",
    "insert",
    "findAndModify",
    "killCursors",
    "commitTransaction",
];

/// The commands of files that may fail.
const COMMANDS_OF_FILES: [&str; 10] = [
    "insert",
    "insert",
    "insert",
    "find",
    "find",
    "delete",
    "update",
    "aggregate",
    "createIndexes",
    "commitTransaction",
];

/// The codes of errors of change streams, of which the last has them end.
const CODES_OF_CHANGES: [i32; 10] = [6, 43, 63, 89, 91, 133, 234, 262, 10107, 96];

/// A way in which commands fail, and what follows once a member has said that it is overloaded.
#[derive(Clone, Debug)]
pub(super) struct FailPoint {
    first: Document,
    then: Option<Document>,
}

impl FailPoint {
    /// Draws one.
    pub(super) fn draw(part: Part, random: &mut Random) -> Self {
        if part == Part::Files && random.percent(35) {
            return Self::of_one_read();
        }
        let all = match part {
            Part::Transactions => &COMMANDS_OF_TRANSACTIONS[..],
            Part::Changes => &COMMANDS_OF_CHANGES,
            Part::Files => &COMMANDS_OF_FILES,
            Part::Clients | Part::Applications | Part::Revocation => &COMMANDS,
        };
        let commands: Vec<&str> = match random.percent(60) {
            true => all.to_vec(),
            false => vec![random.pick(all)],
        };
        let fails = |how: Document| {
            let mut data = doc! { "failCommands": commands.clone() };
            data.extend(how);
            data
        };
        let code = random.pick(&[6, 89, 262, 91, 10107]);
        let retryable = match part {
            // With the labels that members give.
            Part::Changes => doc! { "errorCode": random.pick(&CODES_OF_CHANGES) },
            // Some are not retried.
            Part::Files if random.percent(30) => doc! { "errorCode": 8 },
            _ => doc! { "errorCode": code, "errorLabels": ["RetryableWriteError"] },
        };
        let overload = doc! {
            "errorCode": 462, "errorLabels": ["SystemOverloadedError", "RetryableError"],
        };
        let time = i32::try_from(random.below(2_500)).unwrap_or_default();
        let late = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
        let (data, then) = match random.below(8) {
            0..2 => (overload, None),
            2..4 => (overload, Some(retryable)),
            4 => (retryable, None),
            5 => (doc! { "writeConcernError": late }, None),
            6 => (doc! { "closeConnection": true }, None),
            _ => (doc! { "blockConnection": true, "blockTimeMS": time }, None),
        };
        let times = i32::try_from(1 + random.below(3)).unwrap_or(1);
        let mode: bson::Bson = match then.is_some() || random.percent(50) {
            true => "alwaysOn".into(),
            false => doc! { "times": times }.into(),
        };
        let first = switch(mode, Some(fails(data)));
        let then = then.map(|then| switch("alwaysOn".into(), Some(fails(then))));
        Self { first, then }
    }

    /// Has a read fail that is not retried, while others beside it succeed.
    fn of_one_read() -> Self {
        let data = doc! { "failCommands": ["find"], "errorCode": 8 };
        Self { first: switch(doc! { "times": 1 }.into(), Some(data)), then: None }
    }

    /// Returns the command that switches it on.
    pub(super) fn on(&self) -> RawDocumentBuf {
        raw(&self.first)
    }

    /// Returns the command for a member after it was overloaded, if that changes anything.
    pub(super) fn then(&self) -> Option<RawDocumentBuf> {
        self.then.as_ref().map(raw)
    }

    /// Returns the command that switches it off.
    pub(super) fn off() -> RawDocumentBuf {
        raw(&switch("off".into(), None))
    }
}

fn switch(mode: bson::Bson, data: Option<Document>) -> Document {
    let mut command = doc! { "configureFailPoint": "failCommand", "mode": mode };
    command.extend(data.map(|data| ("data".to_owned(), data.into())));
    command
}

fn raw(command: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(command).expect("it is a document")
}
