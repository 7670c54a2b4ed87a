//! Operations as calls of the driver's interface: what they are called on, and what comes of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam::action::{Action, PerformsActions};
use sdam::error::{ArgumentError, Error};
use sdam::generic::{ChangeStream, Client, ClientSession, Cursor};
use sdam::operation::{Find, Watch};
use sdam_host::Runtime;

use super::call::{failed, invalid};
use super::{administer, bulk, crud, gridfs};
use crate::unified::format::{CollectionOptions, FormatError, Node, Object, concerns};
use crate::unified::play::{Ended, Failed, OPENING, Operate, Subject};

/// The reason why an operation has no result.
pub(super) enum Reason {
    /// The arguments are not those that it has.
    Malformed(String),
    Driver(Box<Error>),
}

impl From<FormatError> for Reason {
    fn from(error: FormatError) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<ArgumentError> for Reason {
    fn from(error: ArgumentError) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<Error> for Reason {
    fn from(error: Error) -> Self {
        Self::Driver(Box::new(error))
    }
}

/// The error of a call, as tests see it, and as the driver has returned it.
pub(super) struct CallError {
    pub(super) failed: Box<Failed>,
    pub(super) error: Option<Error>,
}

impl From<Box<Failed>> for CallError {
    fn from(failed: Box<Failed>) -> Self {
        Self { failed, error: None }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self { failed: Box::new(of_driver(&error)), error: Some(error) }
    }
}

/// The options that an operation has of its own, beside those of its handle.
#[derive(Clone, Copy)]
pub(super) struct Own {
    timeout: Option<Duration>,
}

impl Own {
    /// Gives them to an action.
    pub(super) fn of<O, H: PerformsActions, V>(self, action: Action<O, H, V>) -> Action<O, H, V> {
        action.optional(self.timeout, Action::timeout)
    }
}

/// The cursors that tests keep, by name. Clones are the same ones.
pub(super) struct Cursors<R: Runtime>(Arc<Mutex<BTreeMap<String, Kept<R>>>>);

/// A cursor, or a change stream, that a test keeps.
enum Kept<R: Runtime> {
    Cursor(Box<Cursor<R, Document>>),
    Changes(Box<ChangeStream<R, Document>>),
}

impl<R: Runtime> Kept<R> {
    async fn close(self) {
        match self {
            Self::Cursor(cursor) => cursor.close().await,
            Self::Changes(stream) => stream.close().await,
        }
    }

    async fn close_within(self, limit: Duration) {
        match self {
            Self::Cursor(cursor) => cursor.close_within(limit).await,
            Self::Changes(stream) => stream.close_within(limit).await,
        }
    }

    async fn next_if_any(&mut self) -> Result<Option<Document>, Error> {
        match self {
            Self::Cursor(cursor) => cursor.next_if_any().await,
            Self::Changes(stream) => stream.next_if_any().await,
        }
    }

    async fn try_next(&mut self) -> Result<Option<Document>, Error> {
        match self {
            Self::Cursor(cursor) => cursor.try_next().await,
            Self::Changes(stream) => stream.try_next().await,
        }
    }
}

impl<R: Runtime> Cursors<R> {
    fn keep(&self, name: String, cursor: Kept<R>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, cursor);
    }

    fn take(&self, name: &str) -> Option<Kept<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }
}

impl<R: Runtime> Default for Cursors<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<R: Runtime> Clone for Cursors<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Calls an operation.
pub(super) async fn operate<R: Runtime>(
    client: Client<R>,
    session: Option<ClientSession<R>>,
    cursors: Cursors<R>,
    operate: Operate,
) -> Result<Ended, CallError> {
    let Operate { subject, options, timeout_ms, name, arguments, save_as, .. } = operate;
    let own = Own { timeout: timeout_ms.map(milliseconds).transpose()? };
    let mut client = with_options(client, &options)?;
    if let Some(session) = &session {
        client = client.with_session(session);
    }
    let node = Node::at("arguments", Bson::Document(arguments));
    let of = node.object().map_err(|error| malformed(error.to_string()))?;
    let opened = OPENING.contains(&name.as_str());
    let result = match (&subject, opened) {
        (_, true) => open(&client, own, (&subject, &name), of).await.map(|cursor| {
            if let Some(name) = save_as {
                cursors.keep(name, cursor);
            }
            None
        }),
        (Subject::Client, _) => administer::on_client(&client, own, &name, of).await,
        (Subject::Database(database), _) => {
            administer::on_database(&client.database(database), own, &name, of).await
        }
        (Subject::Collection { database, name: collection }, _) => {
            let collection = client.database(database).collection(collection);
            crud::run(&collection, own, &name, of).await
        }
        (Subject::Bucket { database, options }, _) => {
            match gridfs::bucket(&client.database(database), options.clone()) {
                Ok(bucket) => gridfs::run(&bucket, own, &name, of).await,
                Err(reason) => Err(reason),
            }
        }
        (Subject::Cursor(cursor), _) => on_cursor(&cursors, cursor, &name, own.timeout, of).await,
    };
    match result {
        Ok(result) => Ok(Ended { result, server: None }),
        Err(Reason::Malformed(message)) => Err(malformed(message).into()),
        Err(Reason::Driver(error)) => Err((*error).into()),
    }
}

/// Opens a cursor that the test keeps.
async fn open<R: Runtime>(
    client: &Client<R>,
    own: Own,
    (subject, name): (&Subject, &str),
    of: Object,
) -> Result<Kept<R>, Reason> {
    if name == "createChangeStream" {
        let watch = Watch::from_document(of.rest())?;
        let stream = match subject {
            Subject::Client => own.of(client.operation(watch)).await?,
            Subject::Database(name) => own.of(client.database(name).operation(watch)).await?,
            Subject::Collection { database, name } => {
                let things = client.database(database).collection::<Document>(name);
                own.of(things.operation(watch)).await?
            }
            Subject::Bucket { .. } | Subject::Cursor(_) => {
                return Err(Reason::Malformed("it has no changes to be watched".into()));
            }
        };
        return Ok(Kept::Changes(Box::new(stream.with_type())));
    }
    Ok(Kept::Cursor(Box::new(match subject {
        Subject::Database(database) => {
            let command = administer::run_cursor_command(of)?;
            own.of(client.database(database).run_cursor_command(command)).await?
        }
        Subject::Collection { database, name } => {
            let find = Find::from_document(of.rest())?;
            own.of(client.database(database).collection(name).find(find)).await?
        }
        Subject::Client | Subject::Bucket { .. } | Subject::Cursor(_) => {
            return Err(of.broken("is of what opens no cursor").into());
        }
    })))
}

/// Goes on with a cursor. Of none that is kept, as one that was closed, there is nothing more.
async fn on_cursor<R: Runtime>(
    cursors: &Cursors<R>,
    cursor: &str,
    name: &str,
    limit: Option<Duration>,
    of: Object,
) -> Result<Option<Bson>, Reason> {
    of.finish()?;
    let Some(mut open) = cursors.take(cursor) else {
        return Ok(None);
    };
    let next = match (name, limit) {
        ("close", None) => {
            open.close().await;
            return Ok(None);
        }
        ("close", Some(limit)) => {
            open.close_within(limit).await;
            return Ok(None);
        }
        ("iterateOnce", _) => open.next_if_any().await,
        _ => open.try_next().await,
    };
    cursors.keep(cursor.to_owned(), open);
    Ok(next?.map(Bson::Document))
}

/// Reads all documents of a cursor.
pub(super) async fn all<R: Runtime>(cursor: Cursor<R, Document>) -> Result<Bson, Reason> {
    let documents = cursor.try_collect::<Vec<_>>().await?;
    Ok(Bson::Array(documents.into_iter().map(Bson::Document).collect()))
}

fn malformed(message: String) -> Box<Failed> {
    Box::new(Failed { is_malformed: true, message, ..Failed::default() })
}

pub(super) fn milliseconds(limit: i64) -> Result<Duration, Box<Failed>> {
    let millis = u64::try_from(limit);
    millis.map(Duration::from_millis).map_err(|error| invalid(&error.to_string()))
}

/// Takes over the options of a collection (Unified Test Format, "collectionOrDatabaseOptions").
fn with_options<R: Runtime>(
    mut client: Client<R>,
    options: &CollectionOptions,
) -> Result<Client<R>, Box<Failed>> {
    let node = |name, document: &Document| Node::at(name, document.clone());
    let refused = |error: FormatError| invalid(&error.to_string());
    if let Some(preference) = &options.read_preference {
        let preference = concerns::read_preference(node("readPreference", preference));
        client = client.with_read_preference(preference.map_err(refused)?);
    }
    if let Some(concern) = &options.read_concern {
        let concern = concerns::read_concern(node("readConcern", concern));
        client = client.with_read_concern(concern.map_err(refused)?);
    }
    if let Some(concern) = &options.write_concern {
        let concern = concerns::write_concern(node("writeConcern", concern));
        client = client.with_write_concern(concern.map_err(refused)?);
    }
    match options.timeout_ms {
        Some(limit) => Ok(client.with_timeout(milliseconds(limit)?)),
        None => Ok(client),
    }
}

/// Takes from an error of the driver what its interface says of it.
pub(super) fn of_driver(error: &Error) -> Failed {
    let mut found = failed(error);
    let of_write = |code: i32, message: &str| doc! { "code": code, "errmsg": message };
    if let Some(write) = error.as_write() {
        let mut reply = of_write(write.code, &write.message);
        let details = write.details.as_ref().and_then(|raw| Document::try_from(raw).ok());
        reply.extend(details.map(|info| ("errInfo".to_owned(), Bson::Document(info))));
        found.reply = Some(reply);
    }
    if let Some(concern) = error.as_write_concern() {
        let mut reply = of_write(concern.code, &concern.message);
        reply.insert("codeName", concern.code_name.clone());
        found.reply = Some(reply);
    }
    if let Some(error) = error.as_client_bulk_write() {
        found.result = error.partial_result.as_ref().map(bulk::written).map(Bson::Document);
        let errors = error.write_errors.iter();
        let errors = errors.map(|(index, error)| (index.to_string(), bulk::write_error(error)));
        found.write_errors = errors.collect();
        let concerns = error.write_concern_errors.iter();
        found.write_concern_errors = concerns.map(bulk::write_concern_error).collect();
    }
    if let Some(bulk) = error.as_bulk_write() {
        found.result = Some(Bson::Document(crud::written(&bulk.partial_result)));
        let first = bulk.write_errors.values().next();
        let concern = bulk.write_concern_error.as_ref();
        let reply = first.map(|error| of_write(error.code, &error.message));
        let reply = reply.or_else(|| concern.map(|error| of_write(error.code, &error.message)));
        found.reply = reply.or(found.reply);
    }
    found
}
