//! Questions over a connection of the pool, none of which changes anything.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use sdam_core::bson::raw::CStr;
use sdam_core::bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::failure::{Failure, Stage};
use sdam_core::operation::{CommandError, StateChange};
use sdam_host::{Error, Reply};
use sdam_tokio::CheckedOut;
use tokio::time::{Instant, timeout};

use super::{Means, local, way};
use crate::doctor::evidence::{
    ClientGroup, Connections, Greeting, Login, MemberSeen, Refusal, Role, ServerSeen, is_conclusive,
};
use crate::duration::precise;

/// The longest time that one command may take.
const COMMAND: Duration = Duration::from_secs(3);

/// The number of times that a write is tried which the server refuses for want of a primary.
const WRITES: u32 = 3;

/// The number of operations that are looked at.
const MAX_OPERATIONS: i32 = 5000;

/// The number of members that are looked at.
const MAX_MEMBERS: usize = 100;

/// Asks what a server of this role can answer, and notes it.
pub(super) async fn ask(
    connection: CheckedOut,
    means: &Means,
    role: Role,
    server: &mut ServerSeen,
) {
    let mut asking = Asking { connection, means, login: server.login.take().unwrap_or_default() };
    let outcome = asking.all(role).await;
    server.login = Some(asking.login);
    match outcome {
        Ok(None) => {}
        Ok(Some(greeting)) => server.way.greeting = Some(greeting),
        Err(NoAnswer { is_cut }) => server.is_login_cut = is_cut,
    }
}

/// A connection that commands are sent over, and what came of them.
pub(super) struct Asking<'a> {
    connection: CheckedOut,
    pub(super) means: &'a Means,
    login: Login,
}

/// The end of a conversation: a command has had no reply, perhaps as there was too little time.
pub(super) struct NoAnswer {
    is_cut: bool,
}

impl Asking<'_> {
    /// Asks everything; returns what the server is if it is not any more what it was.
    async fn all(&mut self, role: Role) -> Result<Option<Greeting>, NoAnswer> {
        self.run("admin", rawdoc! { "ping": 1 }).await?;
        if self.means.options().credential().is_none() {
            // Every client may do that, except without a login where one is required.
            self.run("admin", rawdoc! { "listDatabases": 1, "nameOnly": true }).await?;
        }
        if role.is_member()
            && let status = rawdoc! { "replSetGetStatus": 1 }
            && let Some(reply) = self.if_permitted("replSetGetStatus", &status).await?
        {
            self.login.members = members(&reply);
            self.login.elected = elected(&reply).filter(|_| role == Role::Primary);
        }
        if let Some(status) = self.if_permitted("serverStatus", &status(role)).await? {
            self.login.connections = connections(&status);
            self.login.transactions = self.about_transactions(role, &status).await?;
            self.login.oplog = self.about_oplog(&status).await?;
        }
        if let Some(reply) = self.if_permitted("$currentOp", &operations()).await? {
            let processes = tokio::task::spawn_blocking(local::processes);
            let processes = timeout(self.means.left(), processes).await.ok().and_then(Result::ok);
            self.login.clients = clients(&reply, &processes.unwrap_or_default());
        }
        match role {
            Role::Primary | Role::Standalone => self.write(role).await,
            _ => Ok(None),
        }
    }

    /// Runs a command that every server takes, and notes and returns its error.
    async fn run(
        &mut self,
        database: &str,
        command: RawDocumentBuf,
    ) -> Result<Option<Error>, NoAnswer> {
        let error = self.send(database, &command).await?.err();
        self.login.refusals.extend(error.as_ref().map(|error| refusal(&command, error)));
        Ok(error)
    }

    /// Runs a command on `admin` of which only the reply matters, and notes its error.
    pub(super) async fn if_permitted(
        &mut self,
        name: &'static str,
        command: &RawDocument,
    ) -> Result<Option<Reply>, NoAnswer> {
        let outcome = self.send("admin", command).await?;
        Ok(self.unless_forbidden(name, outcome))
    }

    /// Returns the reply, if there is one, and notes if the user may not ask for it, or if a server
    /// that knows the command does not carry it out.
    pub(super) fn unless_forbidden(
        &mut self,
        name: &'static str,
        outcome: Result<Reply, Error>,
    ) -> Option<Reply> {
        let refusal = match outcome {
            Ok(reply) => return Some(reply),
            Err(error) => Refusal { command: name.to_owned(), ..refusal(&rawdoc! {}, &error) },
        };
        let Login { not_permitted, failed, .. } = &mut self.login;
        match refusal.is_unauthorised() {
            true if not_permitted.contains(&name) => {}
            true => not_permitted.push(name),
            false if refusal.is_unknown() => {}
            false => failed.push(refusal),
        }
        None
    }

    /// Runs a command that not everybody may run, nor every server knows.
    pub(super) async fn send(
        &mut self,
        database: &str,
        command: &RawDocument,
    ) -> Result<Result<Reply, Error>, NoAnswer> {
        let limit = COMMAND.min(self.means.left());
        match timeout(limit, self.connection.command(database, command)).await {
            Ok(outcome) => Ok(outcome),
            Err(_) if is_conclusive(Stage::Operate, limit) => {
                let text = format!("not answered within {}", precise(limit));
                let command = name_of(command);
                self.login.refusals.push(Refusal { command, text, ..Refusal::default() });
                Err(NoAnswer { is_cut: false })
            }
            Err(_) => Err(NoAnswer { is_cut: true }),
        }
    }

    /// Tries a write that matches nothing in a collection that does not exist, again if it is
    /// refused by a server that says after that that it is what it was.
    async fn write(&mut self, role: Role) -> Result<Option<Greeting>, NoAnswer> {
        let begun = Instant::now();
        let mut changed = None;
        while changed.is_none() && self.login.writes < WRITES {
            let mut deletes = RawArrayBuf::new();
            deletes.push(rawdoc! { "q": { "_id": { "$in": [] } }, "limit": 1 });
            let delete =
                rawdoc! { "delete": "doctor", "deletes": deletes, "writeConcern": { "w": 1 } };
            self.login.writes += 1;
            let Some(error) = self.run("sdam", delete).await? else { break };
            if self.login.refusals.last().is_some_and(Refusal::is_unauthorised) {
                self.login.refusals.pop();
                break;
            }
            if error.reply().and_then(CommandError::state_change)
                != Some(StateChange::NotWritablePrimary)
            {
                break;
            }
            let hello = self.send("admin", &way::plain_hello(self.means)).await?;
            changed = hello.ok().and_then(|reply| way::greeting(&reply, None).ok());
            changed = changed.filter(|greeting| greeting.role != role);
            if changed.is_none() {
                self.login.contradictions += 1;
            }
        }
        self.login.writes_took = begun.elapsed();
        Ok(changed)
    }
}

fn connections(reply: &RawDocument) -> Option<Connections> {
    let connections = reply.get_document("connections").ok()?;
    let number = |field| connections.get_i32(field).ok().map(i64::from);
    Some(Connections { current: number("current")?, available: number("available")? })
}

/// Asks for `serverStatus`; of what transactions come to, only servers that have any are asked.
fn status(role: Role) -> RawDocumentBuf {
    let mut status = rawdoc! { "serverStatus": 1 };
    for section in SECTIONS {
        status.append(section, 0);
    }
    if matches!(role, Role::Primary | Role::Secondary | Role::Other) {
        status.append(cstr!("oplog"), 1);
    }
    if !matches!(role, Role::Primary | Role::Mongos) {
        status.append(cstr!("metrics"), 0);
        status.append(cstr!("transactions"), 0);
    }
    status
}

/// Returns for how long a member has been primary, by its own clock, unless it is the first one.
fn elected(reply: &RawDocument) -> Option<Duration> {
    let members = reply.get_array("members").ok()?.into_iter();
    let mut members = members.filter_map(|member| member.ok()?.as_document());
    let own = members.find(|member| member.get_bool("self").unwrap_or(false))?;
    let (now, then) = (reply.get_datetime("date").ok()?, own.get_datetime("electionDate").ok()?);
    let ago = now.timestamp_millis().saturating_sub(then.timestamp_millis());
    let is_later = reply.get_i64("term").is_ok_and(|term| term > 1);
    u64::try_from(ago).ok().filter(|_| is_later).map(Duration::from_millis)
}

/// Sections of `serverStatus` that are large and not asked for.
const SECTIONS: [&CStr; 5] =
    [cstr!("repl"), cstr!("locks"), cstr!("wiredTiger"), cstr!("tcmalloc"), cstr!("opLatencies")];

fn name_of(command: &RawDocument) -> String {
    let first = command.iter().next().and_then(Result::ok);
    first.map(|(name, _)| name.to_string()).unwrap_or_default()
}

fn refusal(command: &RawDocument, error: &Error) -> Refusal {
    let reply = error.reply().cloned().unwrap_or_default();
    Refusal {
        command: name_of(command),
        code: reply.code.unwrap_or_default(),
        is_about_state: reply.state_change().is_some(),
        is_of_network: error.failure().is_some_and(Failure::is_network_error),
        name: reply.code_name,
        labels: reply.labels,
        verdict: error.verdict().cloned(),
        text: error.as_operation().map_or_else(|| error.to_string(), ToString::to_string),
    }
}

fn members(reply: &RawDocument) -> Vec<MemberSeen> {
    let listed = reply.get_array("members").ok().into_iter().flatten();
    let seen = listed.filter_map(|item| {
        let member = item.ok()?.as_document()?;
        let text = |field| member.get_str(field).ok().map(str::to_owned);
        // Servers write it as a double or as an integer.
        let health = member.get("health").ok().flatten();
        let is_up = health.is_none_or(|it| it.as_f64() == Some(1.0) || it.as_i32() == Some(1));
        let message = text("lastHeartbeatMessage").filter(|it| !it.is_empty());
        Some(MemberSeen { address: text("name")?, state: text("stateStr")?, is_up, message })
    });
    seen.take(MAX_MEMBERS).collect()
}

/// Asks for monitoring connections that await a change: each client has one to each server.
fn operations() -> RawDocumentBuf {
    let exists = || rawdoc! { "$exists": true };
    let mut either = RawArrayBuf::new();
    either.push(rawdoc! { "command.hello": exists() });
    either.push(rawdoc! { "command.isMaster": exists() });
    either.push(rawdoc! { "command.ismaster": exists() });
    let wanted = rawdoc! { "command.maxAwaitTimeMS": exists(), "$or": either };
    let mut stages = RawArrayBuf::new();
    stages.push(rawdoc! { "$currentOp": { "allUsers": true, "idleConnections": true } });
    stages.push(rawdoc! { "$match": wanted });
    stages.push(rawdoc! { "$limit": MAX_OPERATIONS });
    stages.push(rawdoc! { "$project": { "client": 1, "client_s": 1, "clientMetadata": 1 } });
    rawdoc! { "aggregate": 1, "pipeline": stages, "cursor": { "batchSize": MAX_OPERATIONS } }
}

/// Groups the clients of a reply by what they say of themselves, where they come from, and the
/// process that they are of, if it is one of this machine.
fn clients(reply: &RawDocument, processes: &BTreeMap<SocketAddr, i32>) -> Vec<ClientGroup> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let mut groups: BTreeMap<(String, String, Option<i32>), u64> = BTreeMap::new();
    for item in batch.ok().into_iter().flatten() {
        let Some(operation) = item.ok().and_then(RawBsonRef::as_document) else { continue };
        let client = operation.get_str("client").or_else(|_| operation.get_str("client_s"));
        let Ok(client) = client else { continue };
        let host = client.rsplit_once(':').map_or(client, |(host, _)| host).to_owned();
        let address = client.parse().ok().map(local::canonical);
        let process = address.and_then(|address| processes.get(&address)).copied();
        let name = operation.get_document("clientMetadata").ok().map(name).unwrap_or_default();
        *groups.entry((host, name, process)).or_default() += 1;
    }
    let groups = groups.into_iter().map(|((host, name, process), monitors)| ClientGroup {
        host,
        name,
        process,
        monitors,
    });
    let mut groups: Vec<_> = groups.collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.monitors));
    groups
}

/// Writes what a client says of itself.
pub(super) fn name(metadata: &RawDocument) -> String {
    let part = |document: &str, field: &str| {
        let document = metadata.get_document(document).ok()?;
        document.get_str(field).ok().map(str::to_owned)
    };
    let mut parts = Vec::new();
    parts.extend(part("application", "name"));
    parts.extend(part("driver", "name").map(|name| {
        let version = part("driver", "version").unwrap_or_default();
        format!("{name} {version}")
    }));
    parts.extend(metadata.get_str("platform").ok().map(str::to_owned));
    parts.join(", ")
}
