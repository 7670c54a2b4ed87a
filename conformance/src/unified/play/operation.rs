//! Operations on entities: each one call of the client's interface (Unified Test Format, "Entity
//! Test Operations").

use bson::{Bson, Document};

use super::actor::Wait;
use super::arguments;
use super::entities::{Bucket, Collection, Database, Entity};
use super::failed::Failed;
use super::machine::{Action, Ended, Operate, Play, Subject, Token};
use super::{need, transaction, wrong};
use crate::spec::Difference;
use crate::unified::format::{CollectionOptions, Expectation, Node, Operation};
use crate::unified::matching::Matcher;

/// The operations whose result is a cursor.
pub(in crate::unified) const OPENING: [&str; 3] =
    ["createChangeStream", "createCommandCursor", "createFindCursor"];

/// Calls the client's interface for an operation.
pub(super) fn start(
    play: &mut Play,
    place: &str,
    operation: &Operation,
    out: &mut Vec<Action>,
) -> Result<Wait, Difference> {
    let token = play.token();
    let (name, object) = (operation.name.as_str(), operation.object.clone());
    let none = |arguments| arguments::read(place, arguments, |_| Ok(()));
    let action = match (play.entities.any(place, &operation.object)?, name) {
        (Entity::Client(_), "close") => {
            none(&operation.arguments)?;
            Action::Close { token, client: object }
        }
        (Entity::Client(_), "appendMetadata") => append(place, operation, token)?,
        (Entity::Session(_), _) => {
            play.has_ended_session |= name == "endSession";
            transaction::start(place, operation, token)?
        }
        (Entity::Client(_), _) => {
            let of = (object, Subject::Client, CollectionOptions::default());
            operate(play, place, operation, token, of)?
        }
        (Entity::Database(database), _) => {
            let Database { client, name, options } = (**database).clone();
            operate(play, place, operation, token, (client, Subject::Database(name), options))?
        }
        (Entity::Collection(collection), _) => {
            let Collection { database, name, options } = (**collection).clone();
            let Database { client, name: database, options: defaults } = database;
            let options = CollectionOptions {
                read_concern: options.read_concern.or(defaults.read_concern),
                read_preference: options.read_preference.or(defaults.read_preference),
                write_concern: options.write_concern.or(defaults.write_concern),
                timeout_ms: options.timeout_ms.or(defaults.timeout_ms),
            };
            let of = (client, Subject::Collection { database, name }, options);
            operate(play, place, operation, token, of)?
        }
        (Entity::Bucket(bucket), _) => {
            let Bucket { database, options } = (**bucket).clone();
            let Database { client, name: database, options: defaults } = database;
            let of = (client, Subject::Bucket { database, options }, defaults);
            operate(play, place, operation, token, of)?
        }
        (Entity::Cursor(client), _) if need::ON_CURSORS.contains(&name) => {
            let of = (client.clone(), Subject::Cursor(object), CollectionOptions::default());
            operate(play, place, operation, token, of)?
        }
        _ => {
            let wanted = format!("an operation that {} has", operation.object);
            return Err(wrong(place, wanted, name));
        }
    };
    out.push(action);
    Ok(Wait::Call(token))
}

fn append(place: &str, operation: &Operation, token: Token) -> Result<Action, Difference> {
    let (name, version, platform) = arguments::read(place, &operation.arguments, |arguments| {
        arguments.required("driverInfoOptions", |node| {
            let mut info = node.object()?;
            let name = info.required("name", Node::string)?;
            let version = info.optional("version", Node::string)?;
            let platform = info.optional("platform", Node::string)?;
            info.finish()?;
            Ok((name, version, platform))
        })
    })?;
    Ok(Action::Append { token, client: operation.object.clone(), name, version, platform })
}

/// Takes out the arguments that all operations have in common, and leaves the others to the caller.
fn operate(
    play: &Play,
    place: &str,
    operation: &Operation,
    token: Token,
    (client, subject, options): (String, Subject, CollectionOptions),
) -> Result<Action, Difference> {
    let mut arguments = operation.arguments.clone();
    let (session, timeout_ms) = arguments::read(place, &common(&mut arguments), |common| {
        let session = common.optional("session", Node::string)?;
        Ok((session, common.optional("timeoutMS", Node::integer)?))
    })?;
    if let Some(session) = &session {
        play.entities.session(place, session)?;
    }
    let save_as = operation.save_result_as.clone().filter(|_| opens(operation));
    let name = operation.name.clone();
    let operate =
        Operate { client, subject, options, timeout_ms, session, name, arguments, save_as };
    Ok(Action::Operate(token, Box::new(operate)))
}

fn common(arguments: &mut Document) -> Document {
    let mut common = Document::new();
    for name in ["session", "timeoutMS"] {
        common.extend(arguments.remove(name).map(|value| (name.to_owned(), value)));
    }
    common
}

fn opens(operation: &Operation) -> bool {
    OPENING.contains(&operation.name.as_str())
}

/// Compares the end of a call with what is expected of it, and saves its result.
pub(super) fn settle(
    play: &mut Play,
    place: &str,
    operation: &Operation,
    result: Result<Ended, Box<Failed>>,
) -> Result<(), Difference> {
    if let (Ok(_), Some(name), true) = (&result, &operation.save_result_as, opens(operation)) {
        let client = play.entities.client_of(place, &operation.object)?.to_owned();
        return play.entities.add(place, name, Entity::Cursor(client));
    }
    if let (Ok(_), Some(id), "createCollection") =
        (&result, &operation.save_result_as, operation.name.as_str())
    {
        let database = play.entities.database(place, &operation.object)?.clone();
        let name = operation.arguments.get_str("collection").unwrap_or_default().to_owned();
        let collection = Collection { database, name, options: CollectionOptions::default() };
        return play.entities.add(place, id, Entity::Collection(Box::new(collection)));
    }
    let matcher = Matcher::new(&play.entities);
    let result = match (&operation.expectation, result) {
        (_, Err(failed)) if failed.is_malformed => {
            return Err(wrong(place, "arguments that the operation has", failed.message));
        }
        (Expectation::Ignored, _) => return Ok(()),
        (Expectation::Error(expected), Err(failed)) => {
            return failed.compare(&format!("{place}.expectError"), expected, matcher);
        }
        (Expectation::Error(_), Ok(ended)) => {
            let found = ended.result.unwrap_or(Bson::Null);
            return Err(wrong(place, "an error", found));
        }
        (Expectation::Success(_), Err(failed)) => {
            return Err(wrong(place, "success", failed.message));
        }
        (Expectation::Success(expected), Ok(ended)) => {
            if let Some(expected) = expected {
                let place = format!("{place}.expectResult");
                match expected {
                    // Of a cursor, whose documents are at the root, too.
                    Bson::Array(_) => matcher.roots(&place, expected, ended.result.as_ref())?,
                    _ => matcher.root(&place, expected, ended.result.as_ref())?,
                }
            }
            ended.result
        }
    };
    match (&operation.save_result_as, result) {
        (None, _) => Ok(()),
        (Some(name), Some(value)) => play.entities.add(place, name, Entity::Value(value)),
        (Some(name), None) => Err(wrong(place, format!("a result to save as {name:?}"), "none")),
    }
}
