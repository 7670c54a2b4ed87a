//! Operations on entities: each one call of the client's interface (Unified Test Format, "Entity
//! Test Operations").

use std::time::Duration;

use bson::Bson;

use super::actor::Wait;
use super::arguments;
use super::entities::{Collection, Database, Entity};
use super::failed::Failed;
use super::machine::{Action, Ended, Operate, Play};
use super::need;
use super::wrong;
use crate::spec::Difference;
use crate::unified::format::{CollectionOptions, Expectation, Node, Operation};
use crate::unified::matching::Matcher;

/// Calls the client's interface for an operation.
pub(super) fn start(
    play: &mut Play,
    place: &str,
    operation: &Operation,
    out: &mut Vec<Action>,
) -> Result<Wait, Difference> {
    let token = play.token();
    let (name, client) = (operation.name.as_str(), operation.object.clone());
    let action = match (play.entities.any(place, &operation.object)?, name) {
        (Entity::Client(_), "close") => {
            arguments::read(place, &operation.arguments, |_| Ok(()))?;
            Action::Close { token, client }
        }
        (Entity::Client(_), "appendMetadata") => {
            let info = arguments::read(place, &operation.arguments, |arguments| {
                arguments.required("driverInfoOptions", |node| {
                    let mut info = node.object()?;
                    let name = info.required("name", Node::string)?;
                    let version = info.optional("version", Node::string)?;
                    let platform = info.optional("platform", Node::string)?;
                    info.finish()?;
                    Ok((name, version, platform))
                })
            })?;
            let (name, version, platform) = info;
            Action::Append { token, client, name, version, platform }
        }
        (Entity::Database(database), "runCommand") => {
            let (command, read_preference, timeout) =
                arguments::read(place, &operation.arguments, |arguments| {
                    arguments.required("commandName", Node::string)?;
                    let command = arguments.required("command", Node::document)?;
                    let preference = arguments.optional("readPreference", Node::document)?;
                    let timeout = arguments.optional("timeoutMS", Node::integer)?;
                    Ok((command, preference, timeout))
                })?;
            let timeout = timeout.or(database.options.timeout_ms);
            let timeout = timeout.and_then(|millis| u64::try_from(millis).ok());
            Action::Run {
                token,
                client: database.client.clone(),
                database: database.name.clone(),
                command,
                read_preference,
                timeout: timeout.map(Duration::from_millis),
            }
        }
        (Entity::Collection(collection), name) if need::ON_COLLECTIONS.contains(&name) => {
            let Collection { database, name: collection, options } = (**collection).clone();
            let Database { client, name: database, options: defaults } = database;
            let options = CollectionOptions {
                read_concern: options.read_concern.or(defaults.read_concern),
                read_preference: options.read_preference.or(defaults.read_preference),
                write_concern: options.write_concern.or(defaults.write_concern),
                timeout_ms: options.timeout_ms.or(defaults.timeout_ms),
            };
            let (name, arguments) = (name.to_owned(), operation.arguments.clone());
            let operate = Operate { client, database, collection, options, name, arguments };
            Action::Operate(token, Box::new(operate))
        }
        _ => {
            let wanted = format!("an operation that {} has", operation.object);
            return Err(wrong(place, wanted, name));
        }
    };
    out.push(action);
    Ok(Wait::Call(token))
}

/// Compares the end of a call with what is expected of it, and saves its result.
pub(super) fn settle(
    play: &mut Play,
    place: &str,
    operation: &Operation,
    result: Result<Ended, Box<Failed>>,
) -> Result<(), Difference> {
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
