//! Calls of the client's interface.

use bson::{Bson, Document, RawDocumentBuf, doc};
use sdam_core::config::metadata::DriverInfo;
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
