//! Contents of collections before and after a test, as commands of an internal client.

use bson::{Bson, Document, doc};

use super::failed::Failed;
use super::fault::Broken;
use super::machine::Command;
use super::machine::Ended;
use super::wrong;
use crate::spec::Difference;
use crate::unified::format::CollectionData;
use crate::unified::matching;

/// The greatest number of documents that a collection may have in the end.
const MAX_DOCUMENTS: i32 = 1_000;

/// The error of what was ended from without.
const INTERRUPTED: i32 = 11601;

/// The error of what is not there.
pub(super) const NAMESPACE_NOT_FOUND: i32 = 26;

/// Returns the commands that give a collection its contents.
pub(super) fn set_up(data: &CollectionData) -> Vec<Command> {
    let majority = doc! { "w": "majority" };
    let command = |document: Document| Command {
        server: None,
        database: data.database.clone(),
        command: document,
        tolerated: None,
    };
    let (name, mut commands) = (data.collection.clone(), Vec::new());
    for collection in [&name, &format!("enxcol_.{name}.esc"), &format!("enxcol_.{name}.ecoc")] {
        commands.push(drop(&data.database, collection));
    }
    if data.create_options.is_some() || data.documents.is_empty() {
        let mut create = doc! { "create": &name };
        create.extend(data.create_options.clone().unwrap_or_default());
        create.insert("writeConcern", majority.clone());
        commands.push(command(create));
    }
    if !data.documents.is_empty() {
        let documents = data.documents.clone();
        let insert = doc! { "insert": &name, "documents": documents, "writeConcern": majority };
        commands.push(command(insert));
    }
    commands
}

/// Returns the command that drops a collection, if it is there.
pub(super) fn drop(database: &str, collection: &str) -> Command {
    Command {
        server: None,
        database: database.to_owned(),
        command: doc! { "drop": collection, "writeConcern": { "w": "majority" } },
        // Before 7.0 what is not there cannot be dropped.
        tolerated: Some(NAMESPACE_NOT_FOUND),
    }
}

/// Returns the command that ends all sessions, with what is left open in them.
pub(super) fn kill_sessions() -> Command {
    Command {
        server: None,
        database: "admin".to_owned(),
        command: doc! { "killAllSessions": [] },
        // It may end itself.
        tolerated: Some(INTERRUPTED),
    }
}

/// Returns the command that reads what is in a collection.
pub(super) fn read(data: &CollectionData) -> Command {
    Command {
        server: None,
        database: data.database.clone(),
        command: doc! {
            "find": &data.collection,
            "sort": { "_id": 1 },
            "batchSize": MAX_DOCUMENTS,
            "readConcern": { "level": "local" },
        },
        tolerated: None,
    }
}

/// Returns the reply to a command of the runner, unless it has an error that the command does not
/// tolerate: errors of single writes and of the write concern are in replies that are `ok`.
pub(super) fn reply(
    command: &Command,
    result: Result<Ended, Box<Failed>>,
) -> Result<Document, Broken> {
    let name = || format!("its {}", command.command.keys().next().map_or("command", |it| it));
    let reply = match result {
        Ok(Ended { result: Some(Bson::Document(reply)), .. }) => reply,
        Ok(_) => return Err(Broken::new(name(), "there is no reply")),
        Err(failed) => {
            let code = failed.reply.as_ref().and_then(|reply| reply.get_i32("code").ok());
            return match code.is_some() && code == command.tolerated {
                true => Ok(Document::new()),
                false => Err(Broken::new(name(), failed.message)),
            };
        }
    };
    match ["writeErrors", "writeConcernError"].iter().find_map(|errors| reply.get(errors)) {
        Some(errors) => Err(Broken::new(name(), errors)),
        None => Ok(reply),
    }
}

/// Compares what was read with what is expected: exactly, but for the order of keys.
pub(super) fn compare(
    place: &str,
    expected: &CollectionData,
    reply: &Document,
) -> Result<(), Difference> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let found = batch.cloned().map(Bson::Array).unwrap_or(Bson::Null);
    let expected: Vec<Bson> = expected.documents.iter().cloned().map(Bson::Document).collect();
    let expected = Bson::Array(expected);
    match matching::same(&expected, &found) {
        true => Ok(()),
        false => Err(wrong(place, expected.to_string(), found)),
    }
}
