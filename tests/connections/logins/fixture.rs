//! The common parts of the scenarios: servers with users, clients, and what servers count.

use std::future::Future;
use std::time::Duration;

use sdam_conformance::mongod::{Binary, Config, Server, User};
use sdam_core::bson::{Bson, Document, RawDocumentBuf, doc};
use sdam_core::config::Options;
use sdam_core::operation::OperationError;
use sdam_core::pool::CheckOutError;
use sdam_core::selection::Criteria;
use sdam_host::Error;
use sdam_tokio::{CheckedOut, Topology};

use super::Outcome;

/// The time limit of steps that depend on the load of the machine.
const GENEROUS: Duration = Duration::from_secs(120);

/// Plays a scenario on a runtime of its own.
pub(crate) fn play(scenario: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(GENEROUS, scenario).await? })
}

/// Starts a server without users.
pub(crate) fn open_server(binary: &Binary) -> Outcome<Server> {
    Ok(Server::start(binary, Config::default())?)
}

/// Starts a server that demands authentication; `root`, with that password, is always among its
/// users.
pub(crate) fn guarded_server(binary: &Binary, config: Config, users: &[User]) -> Outcome<Server> {
    let mut server = Server::start(binary, config)?;
    server.enable_auth(&[&[User::new("root", "root")], users].concat())?;
    Ok(server)
}

/// Returns the connection string of one server; `login` is empty or ends with `@`.
pub(crate) fn uri(server: &Server, login: &str, options: &str) -> String {
    let separator = if options.is_empty() { "" } else { "&" };
    format!("mongodb://{login}{}/?directConnection=true{separator}{options}", server.address())
}

pub(crate) fn client(uri: &str) -> Outcome<Topology> {
    Ok(Topology::new(Options::parse(uri)?)?)
}

/// Checks out a connection of a client that does nothing else.
pub(crate) async fn connection(uri: &str) -> Outcome<CheckedOut> {
    Ok(client(uri)?.select(Criteria::write()).await?.connect().await?)
}

/// Runs a command on `admin`.
pub(crate) async fn run(client: &Topology, command: Document) -> Outcome<Document> {
    let command = RawDocumentBuf::try_from(&command)?;
    Ok(Document::try_from(&*client.run_command("admin", &command).await?)?)
}

/// Runs a command on `admin` through one connection.
pub(crate) async fn run_on(checked_out: &mut CheckedOut, command: Document) -> Outcome<Document> {
    let command = RawDocumentBuf::try_from(&command)?;
    Ok(Document::try_from(&*checked_out.command("admin", &command).await?)?)
}

pub(crate) async fn ping(client: &Topology) -> Outcome {
    run(client, doc! { "ping": 1 }).await.map(drop)
}

/// Returns why a connection could not be established for a command.
pub(crate) async fn login_error(client: &Topology) -> Outcome<OperationError> {
    let ping = RawDocumentBuf::try_from(&doc! { "ping": 1 })?;
    match client.run_command("admin", &ping).await {
        Ok(_) => Err("the client is let in".into()),
        Err(error) => of_login(error),
    }
}

fn of_login(error: Error) -> Outcome<OperationError> {
    match error.as_check_out() {
        Some(CheckOutError::Establishing { error, .. }) => Ok(error.clone()),
        _ => Err(error.into()),
    }
}

/// Finds a number in what a server says of itself; 0 if it is not there.
pub(crate) fn number(status: &Document, path: &[&str]) -> i64 {
    let Some((last, documents)) = path.split_last() else { return 0 };
    let mut document = status;
    for name in documents {
        match document.get_document(name) {
            Ok(inner) => document = inner,
            Err(_) => return 0,
        }
    }
    match document.get(last) {
        Some(Bson::Int64(count)) => *count,
        Some(Bson::Int32(count)) => i64::from(*count),
        _ => 0,
    }
}

/// Asks a server what it has counted.
pub(crate) async fn status(checked_out: &mut CheckedOut) -> Outcome<Document> {
    run_on(checked_out, doc! { "serverStatus": 1 }).await
}
