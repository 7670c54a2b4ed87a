//! Operations of sessions, those of their transactions among them, and what tests ask about them
//! (Unified Test Format, "Session Operations").

use bson::{Bson, Document};

use super::actor::{Actor, Wait};
use super::failed::Failed;
use super::fault::Fault;
use super::machine::{Action, Ended, OfSession, Play, Token, WithTransaction};
use super::{arguments, wrong};
use crate::spec::Difference;
use crate::unified::format::concerns::transaction_options;
use crate::unified::format::{FormatError, Node, Operation, Test};

/// Calls a session for an operation.
pub(super) fn start(
    place: &str,
    operation: &Operation,
    token: Token,
) -> Result<Action, Difference> {
    let given = &operation.arguments;
    let limit =
        || arguments::read(place, given, |given| given.optional("timeoutMS", Node::integer));
    let none = || arguments::read(place, given, |_| Ok(()));
    let call = match operation.name.as_str() {
        "endSession" => none().map(|()| OfSession::End)?,
        "getSnapshotTime" => none().map(|()| OfSession::SnapshotTime)?,
        "startTransaction" => {
            OfSession::StartTransaction(arguments::read(place, given, transaction_options)?)
        }
        "commitTransaction" => OfSession::Commit(limit()?),
        "abortTransaction" => OfSession::Abort(limit()?),
        "withTransaction" => {
            let (options, timeout_ms) = arguments::read(place, given, |given| {
                given.required("callback", operations)?;
                let options = transaction_options(given)?;
                Ok((options, given.optional("timeoutMS", Node::integer)?))
            })?;
            let session = operation.object.clone();
            let run = WithTransaction { session, options, timeout_ms };
            return Ok(Action::WithTransaction(token, Box::new(run)));
        }
        name => return Err(wrong(place, "an operation that a session has", name)),
    };
    Ok(Action::Session(token, operation.object.clone(), call))
}

/// Returns whether a test starts a transaction.
pub(super) fn is_run_by(test: &Test) -> bool {
    let starts = |name: &str| matches!(name, "startTransaction" | "withTransaction");
    test.operations.iter().any(|operation| starts(&operation.name))
}

fn operations(node: Node) -> Result<Vec<Operation>, FormatError> {
    node.list(Operation::read)
}

/// Reads the operations of a callback.
pub(super) fn callback(arguments: &Document) -> Vec<Operation> {
    let node = arguments.get("callback").map(|given| Node::at("callback", given.clone()));
    node.and_then(|node| operations(node).ok()).unwrap_or_default()
}

/// Begins with the operations of a callback that was called, unless the test has ended.
pub(super) fn called(play: &mut Play, token: Token, out: &mut Vec<Action>) {
    let current = play.actors.iter().filter_map(|actor| actor.current.as_ref());
    let current = current.into_iter().find(|current| current.wait.token() == Some(token));
    let Some(current) = current else {
        return out.push(Action::Return { token, failed: Some(None) });
    };
    let place = format!("{}.arguments.callback", current.place);
    let operations = callback(&current.operation.arguments).into_iter().enumerate();
    let queue = operations.map(|(index, it)| (format!("{place}[{index}]"), it)).collect();
    play.actors.push(Actor { queue, callback: Some(token), ..Actor::default() });
}

/// Reads which question about a session an assertion asks, and what the answer is to be.
fn question(place: &str, operation: &Operation) -> Result<(String, OfSession, Bson), Difference> {
    let (call, wanted) = match operation.name.as_str() {
        "assertSessionDirty" => (OfSession::IsDirty, Some(true)),
        "assertSessionNotDirty" => (OfSession::IsDirty, Some(false)),
        "assertSessionPinned" => (OfSession::IsPinned, Some(true)),
        "assertSessionUnpinned" => (OfSession::IsPinned, Some(false)),
        _ => (OfSession::TransactionState, None),
    };
    let (session, wanted) = arguments::read(place, &operation.arguments, |given| {
        let session = given.required("session", Node::string)?;
        let wanted = match wanted {
            Some(wanted) => Bson::Boolean(wanted),
            None => Bson::String(given.required("state", Node::string)?),
        };
        Ok((session, wanted))
    })?;
    Ok((session, call, wanted))
}

/// Begins to ask about a session.
pub(super) fn ask(
    play: &mut Play,
    place: &str,
    operation: &Operation,
    out: &mut Vec<Action>,
) -> Result<Wait, Difference> {
    let (session, call, wanted) = question(place, operation)?;
    play.entities.session(place, &session)?;
    let token = play.token();
    out.push(Action::Session(token, session, call));
    Ok(Wait::Answer { token, wanted })
}

/// Compares the answer of a session with what it was to be.
pub(super) fn answered(
    place: &str,
    operation: &Operation,
    wanted: &Bson,
    result: Result<Ended, Box<Failed>>,
) -> Result<(), Fault> {
    let words = format!("{} to find {wanted}", operation.name);
    match result {
        Ok(Ended { result: Some(found), .. }) if found == *wanted => Ok(()),
        Ok(ended) => Err(wrong(place, words, ended.result.unwrap_or(Bson::Null)).into()),
        Err(failed) => Err(wrong(place, words, failed.message).into()),
    }
}

/// Sets a fail point on the mongos that a session is pinned to.
pub(super) fn target(
    play: &mut Play,
    place: &str,
    given: &Document,
    out: &mut Vec<Action>,
) -> Result<Wait, Difference> {
    let (session, command) = arguments::read(place, given, |given| {
        let session = given.required("session", Node::string)?;
        Ok((session, given.required("failPoint", Node::document)?))
    })?;
    play.entities.session(place, &session)?;
    let Ok(name) = command.get_str("configureFailPoint").map(str::to_owned) else {
        return Err(wrong(place, "the name of a fail point", command));
    };
    let token = play.token();
    out.push(Action::Target { token, session, command });
    Ok(Wait::FailPoint { token, name })
}
