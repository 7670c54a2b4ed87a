//! Calls of the client's interface.

use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use sdam_core::config::metadata::DriverInfo;
use sdam_core::config::{ReadMode, ReadPreference, TagSet};
use sdam_host::{Error, Reply, Runtime, Topology};

use crate::unified::play::{Command, Ended, Failed};

/// Runs a command that sets a fail point, and returns the server that has it.
pub(super) async fn run<R: Runtime>(
    client: Topology<R>,
    database: String,
    command: Document,
) -> Result<Ended, Box<Failed>> {
    ended(client.run_command(&database, &raw(&command)?).await)
}

/// Runs a command of the runner itself: by each client, or on the member that it names, over a
/// connection of its own, or else on the one that takes writes.
pub(super) async fn internal<R: Runtime>(
    clients: Vec<Topology<R>>,
    everywhere: bool,
    command: Command,
) -> Result<Ended, Box<Failed>> {
    let raw = raw(&command.command)?;
    let mut last = Ended::default();
    for client in clients {
        let reply = match command.server.as_ref().filter(|_| !everywhere) {
            None => client.run_command(&command.database, &raw).await,
            Some(address) => match client.member(address) {
                Some(member) => match member.connect().await {
                    Ok(mut connection) => connection.command(&command.database, &raw).await,
                    Err(error) => Err(error),
                },
                None => return Err(invalid(&format!("{address} is no member any more"))),
            },
        };
        last = ended(reply)?;
    }
    Ok(last)
}

/// Appends the name of a library to the metadata.
pub(super) async fn append<R: Runtime>(
    client: Topology<R>,
    name: String,
    version: Option<String>,
    platform: Option<String>,
) -> Result<Ended, Box<Failed>> {
    let info = DriverInfo::new(&name, version.as_deref(), platform.as_deref());
    client.append_metadata(info.map_err(|error| invalid(&error.to_string()))?);
    Ok(Ended::default())
}

/// Closes a client.
pub(super) async fn close<R: Runtime>(client: Topology<R>) -> Result<Ended, Box<Failed>> {
    client.close().await;
    Ok(Ended::default())
}

fn raw(command: &Document) -> Result<RawDocumentBuf, Box<Failed>> {
    RawDocumentBuf::try_from(command).map_err(|error| invalid(&error.to_string()))
}

fn ended(reply: Result<Reply, Error>) -> Result<Ended, Box<Failed>> {
    let reply = reply.map_err(|error| Box::new(failed(&error)))?;
    let document = Document::try_from(&**reply.document());
    let document = document.map_err(|error| invalid(&error.to_string()))?;
    Ok(Ended { result: Some(Bson::Document(document)), server: Some(reply.server().clone()) })
}

/// An error before anything was sent.
pub(super) fn invalid(message: &str) -> Box<Failed> {
    Box::new(Failed { message: message.to_owned(), ..Failed::default() })
}

/// Takes from an error what the client's interface says of it.
pub(super) fn failed(error: &Error) -> Failed {
    let reply = error.reply_document().and_then(|reply| Document::try_from(reply).ok());
    // Of what refused a login there is no more than this.
    let refusal =
        || error.reply().map(|it| doc! { "code": it.code, "codeName": it.code_name.clone() });
    let reply = reply.or_else(refusal);
    Failed {
        message: error.to_string(),
        is_timeout: error.is_timeout(),
        labels: error.labels().into_iter().map(str::to_owned).collect(),
        reply,
        ..Failed::default()
    }
}

/// Reads a read preference (Unified Test Format, "commonOptions_readPreference").
pub(super) fn preference_of(document: &Document) -> Result<ReadPreference, Box<Failed>> {
    const MODES: [ReadMode; 5] = [
        ReadMode::Primary,
        ReadMode::PrimaryPreferred,
        ReadMode::Secondary,
        ReadMode::SecondaryPreferred,
        ReadMode::Nearest,
    ];
    let name = document.get_str("mode").unwrap_or_default();
    let mode = MODES.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(name));
    let mode = mode.ok_or_else(|| invalid(&format!("{name:?} is no read mode")))?;
    let mut preference = ReadPreference::new(mode);
    if let Ok(sets) = document.get_array("tagSets") {
        let sets = sets.iter().filter_map(Bson::as_document).map(tag_set).collect();
        preference = preference.with_tag_sets(sets).map_err(|error| invalid(&error.to_string()))?;
    }
    if let Some(seconds) = document.get("maxStalenessSeconds").and_then(seconds) {
        preference =
            preference.with_max_staleness(seconds).map_err(|error| invalid(&error.to_string()))?;
    }
    Ok(preference)
}

fn tag_set(document: &Document) -> TagSet {
    let text = |value: &Bson| value.as_str().unwrap_or_default().to_owned();
    document.iter().map(|(key, value)| (key.clone(), text(value))).collect()
}

fn seconds(value: &Bson) -> Option<Duration> {
    let seconds = value.as_i64().or_else(|| value.as_i32().map(i64::from))?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}
