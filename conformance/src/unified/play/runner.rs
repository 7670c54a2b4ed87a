//! Operations of the runner itself (Unified Test Format, "Special Test Operations").

use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam_core::time::Instant;

use super::actor::{Actor, Look, Wait};
use super::assertion::{self, Checked, event_arguments};
use super::data::NAMESPACE_NOT_FOUND;
use super::entities::{self, Bucket, Client, Collection, Database};
use super::machine::{Action, Command, OpenClient, Opening, Play};
use super::{arguments, session, transaction, wrong};
use crate::spec::Difference;
use crate::unified::format::{Entity, Node, Operation};

/// The time that the runner waits for anything, unless a test says otherwise: the format has 10 s,
/// in which a machine that is busy may not elect a primary.
pub(super) const WAIT: Duration = Duration::from_secs(30);

/// Begins an operation of the runner, and does it at once if it need not wait.
pub(super) fn start(
    play: &mut Play,
    place: &str,
    operation: &Operation,
    now: Instant,
    out: &mut Vec<Action>,
) -> Result<Option<Wait>, Difference> {
    let given = &operation.arguments;
    let until = now + WAIT;
    match operation.name.as_str() {
        "createEntities" => {
            for entity in entities(place, given)? {
                make(play, place, entity, out)?;
            }
            Ok(None)
        }
        "failPoint" => fail_point(play, place, given, out).map(Some),
        "waitForEvent" => {
            let (client, event, count) = event_arguments(place, given)?;
            play.entities.client(place, &client)?;
            Ok(Some(Wait::Event { client, event: Box::new(event), count, until }))
        }
        "waitForPrimaryChange" => {
            let (client, prior, limit) = arguments::read(place, given, |arguments| {
                let client = arguments.required("client", Node::string)?;
                let prior = arguments.required("priorTopologyDescription", Node::string)?;
                Ok((client, prior, arguments.optional("timeoutMS", Node::count)?))
            })?;
            play.entities.client(place, &client)?;
            let prior = play.entities.topology(place, &prior)?.primary.clone();
            let until = limit.map_or(until, |limit| now + Duration::from_millis(limit));
            Ok(Some(Wait::Primary { client, prior, until }))
        }
        "wait" => {
            let limit = arguments::read(place, given, |it| it.required("ms", Node::count))?;
            Ok(Some(Wait::Moment(now + Duration::from_millis(limit))))
        }
        "runOnThread" => {
            let (thread, operation) = arguments::read(place, given, |arguments| {
                let thread = arguments.required("thread", Node::string)?;
                Ok((thread, arguments.required("operation", Operation::read)?))
            })?;
            let index = play.entities.thread(place, &thread)?;
            let place = format!("{place}.arguments.operation");
            play.actors[index].queue.push_back((place, operation));
            Ok(None)
        }
        "assertSessionDirty"
        | "assertSessionNotDirty"
        | "assertSessionPinned"
        | "assertSessionUnpinned"
        | "assertSessionTransactionState" => {
            transaction::ask(play, place, operation, out).map(Some)
        }
        "targetedFailPoint" => transaction::target(play, place, given, out).map(Some),
        "waitForThread" => {
            let thread = arguments::read(place, given, |it| it.required("thread", Node::string))?;
            let index = play.entities.thread(place, &thread)?;
            Ok(Some(Wait::Thread { index, until }))
        }
        _ => match assertion::check(play, place, operation)? {
            Checked::Done => Ok(None),
            Checked::Unknown => look(play, place, operation, out).map(Some),
        },
    }
}

/// Reads the entities that an operation makes.
pub(super) fn entities(place: &str, given: &Document) -> Result<Vec<Entity>, Difference> {
    arguments::read(place, given, |arguments| {
        arguments.required("entities", |node| node.filled(Entity::read))
    })
}

/// Makes an entity.
pub(super) fn make(
    play: &mut Play,
    place: &str,
    entity: Entity,
    out: &mut Vec<Action>,
) -> Result<(), Difference> {
    let id = entity.id().to_owned();
    let made = match entity {
        Entity::Client(client) => {
            let action = Action::Open(OpenClient {
                name: id.clone(),
                uri_options: client.uri_options.clone(),
                use_multiple_mongoses: client.use_multiple_mongoses,
                meets_fail_points: play.sets_fail_points(),
                server_api: client.server_api.clone(),
                log_messages: client.observe_log_messages.clone(),
                spans: client.observe_tracing,
            });
            play.opening.push(Opening {
                client: id.clone(),
                is_open: false,
                limit: client.await_min_pool_size_ms.map(Duration::from_millis),
                until: None,
            });
            play.entities.add(
                place,
                &id,
                entities::Entity::Client(Box::new(Client::new(*client))),
            )?;
            out.push(action);
            return Ok(());
        }
        Entity::Database { client, name, options, .. } => {
            play.entities.client(place, &client)?;
            entities::Entity::Database(Box::new(Database { client, name, options }))
        }
        Entity::Collection { database, name, options, .. } => {
            let database = play.entities.database(place, &database)?.clone();
            let collection = Collection { database, name, options };
            entities::Entity::Collection(Box::new(collection))
        }
        Entity::Session { client, options, .. } => {
            play.entities.client(place, &client)?;
            let options = session::options(&play.entities, place, options)?;
            out.push(Action::Start { session: id.clone(), client, options });
            entities::Entity::Session(None)
        }
        Entity::Bucket { database, options, .. } => {
            let database = play.entities.database(place, &database)?.clone();
            entities::Entity::Bucket(Box::new(Bucket { database, options }))
        }
        Entity::ClientEncryption { options, .. } => {
            play.entities.client(place, &options.key_vault_client)?;
            entities::Entity::Unavailable
        }
        Entity::Thread { .. } => {
            play.actors.push(Actor::default());
            entities::Entity::Thread(play.actors.len() - 1)
        }
    };
    play.entities.add(place, &id, made)
}

/// Sets a fail point through the client that the test names.
fn fail_point(
    play: &mut Play,
    place: &str,
    given: &Document,
    out: &mut Vec<Action>,
) -> Result<Wait, Difference> {
    let (client, session, command) = arguments::read(place, given, |arguments| {
        let client = arguments.required("client", Node::string)?;
        // One test names a session (transactions, retryable-commit-handshake.json).
        let session = arguments.optional("session", Node::string)?;
        Ok((client, session, arguments.required("failPoint", Node::document)?))
    })?;
    play.entities.client(place, &client)?;
    session.map_or(Ok(()), |session| play.entities.session(place, &session))?;
    let Ok(name) = command.get_str("configureFailPoint").map(str::to_owned) else {
        return Err(wrong(place, "the name of a fail point", command));
    };
    let token = play.token();
    let database = "admin".to_owned();
    out.push(Action::Run { token, client, database, command });
    Ok(Wait::FailPoint { token, name })
}

/// Asks the internal client what there is.
fn look(
    play: &mut Play,
    place: &str,
    operation: &Operation,
    out: &mut Vec<Action>,
) -> Result<Wait, Difference> {
    let (of_index, wanted) = match operation.name.as_str() {
        "assertCollectionExists" => (false, true),
        "assertCollectionNotExists" => (false, false),
        "assertIndexExists" => (true, true),
        "assertIndexNotExists" => (true, false),
        name => return Err(wrong(place, "an operation that the runner has", name)),
    };
    let (database, collection, index) =
        arguments::read(place, &operation.arguments, |arguments| {
            let database = arguments.required("databaseName", Node::string)?;
            let collection = arguments.required("collectionName", Node::string)?;
            let index = match of_index {
                true => Some(arguments.required("indexName", Node::string)?),
                false => None,
            };
            Ok((database, collection, index))
        })?;
    let (look, command) = match index {
        Some(name) => (Look::Index { name, wanted }, doc! { "listIndexes": collection }),
        None => {
            let filter = Bson::Document(doc! { "name": collection });
            (Look::Collection { wanted }, doc! { "listCollections": 1, "filter": filter })
        }
    };
    let token = play.token();
    let tolerated = matches!(look, Look::Index { .. }).then_some(NAMESPACE_NOT_FOUND);
    let command = Command { server: None, database, command, tolerated };
    out.push(Action::Internal(token, command.clone()));
    Ok(Wait::Look { token, look, command: Box::new(command) })
}
