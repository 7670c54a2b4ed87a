//! Sessions, retries and times of operations, as the commands that reach the embedded deployment
//! show them.

mod answering;
mod bulk;
mod change_stream_faults;
mod change_stream_verdicts;
mod change_streams;
mod clients;
mod connections;
mod cursors;
mod front;
mod gridfs;
mod nesting;
mod oidc;
mod operations;
#[path = "../support/relay.rs"]
mod relay;
mod reports;
mod scripted;
mod sessions;
mod streams;
mod timeouts;
mod writes;

use std::time::Duration;

use bson::{Document, doc};
use sdam::generic::{Client, Collection};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_core::command::CommandEvent;
use sdam_core::config::Options;
use sdam_core::id::ConnectionId;
use sdam_core::topology::{Event, EventKind, Topics};
use sdam_host::Events;
use sdam_tokio::Tokio;

/// The time after which what was to come is missing, however slow the machine is.
const LIMIT: Duration = Duration::from_secs(60);

/// A replica set of one member that keeps data, a client of it, and what the client sends.
struct Fixture {
    cluster: EmbeddedCluster,
    client: Client<Tokio>,
    /// A client without subscribers.
    quiet: Client<Tokio>,
    events: Events,
}

impl Fixture {
    async fn new() -> Self {
        Self::of(ServerVersion::default()).await
    }

    async fn of(version: ServerVersion) -> Self {
        let options = EmbeddedOptions::default().with_members(1).with_keeps_data(true);
        let options = options.with_version(version);
        let cluster = EmbeddedCluster::start(options).await.unwrap();
        cluster.elected().await.unwrap();
        let uri = cluster.uri();
        Self::with(cluster, &uri)
    }

    /// A mongos that takes its clients for those of a load balancer.
    async fn load_balanced() -> Self {
        let options = EmbeddedOptions::load_balanced(1).with_keeps_data(true);
        let cluster = EmbeddedCluster::start(options).await.unwrap();
        let uri = format!("mongodb://{}/?loadBalanced=true", cluster.addresses()[0]);
        Self::with(cluster, &uri)
    }

    fn with(cluster: EmbeddedCluster, uri: &str) -> Self {
        let client = || sdam_tokio::Topology::new(Options::parse(uri).unwrap()).unwrap();
        let (client, quiet) = (client(), client());
        let events = client.subscribe_to(Topics::COMMANDS);
        Self { cluster, client: Client::from(client), quiet: Client::from(quiet), events }
    }

    fn uri(&self) -> String {
        self.cluster.uri()
    }

    /// Exchanges the client for one that has not heard of any server yet.
    fn begin_anew(&mut self) {
        let client =
            sdam_tokio::Topology::new(Options::parse(&self.cluster.uri()).unwrap()).unwrap();
        self.events = client.subscribe_to(Topics::COMMANDS);
        self.client = Client::from(client);
    }

    fn things(&self) -> Collection<Tokio> {
        self.client.database("app").collection("things")
    }

    /// Inserts so many documents, unheard.
    async fn fill(&self, count: i32) {
        let documents: Vec<Document> = (0..count).map(|id| doc! { "_id": id }).collect();
        let things = self.quiet.database("app").collection::<Document>("things");
        things.insert_many(&documents).await.unwrap();
    }

    /// Has commands fail, unheard.
    async fn fail(&self, times: i32, data: Document) {
        let mode = doc! { "times": times };
        let fail = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
        self.quiet.database("admin").run_command(fail).await.unwrap();
    }

    /// Returns the commands that were sent since the last call.
    fn sent(&mut self) -> Vec<Document> {
        self.sent_over().into_iter().map(|(command, _)| command).collect()
    }

    /// Returns the commands that were sent since the last call, each with its connection.
    fn sent_over(&mut self) -> Vec<(Document, ConnectionId)> {
        let mut sent = Vec::new();
        while let Some(event) = self.events.try_next() {
            sent.extend(started(event));
        }
        sent
    }

    /// Waits until a command of that name is sent; fails after [`LIMIT`].
    async fn sent_until(&mut self, last: &str) -> Vec<Document> {
        let sent = self.sent_over_until(last).await;
        sent.into_iter().map(|(command, _)| command).collect()
    }

    /// As [`sent_until`](Self::sent_until), each with its connection.
    async fn sent_over_until(&mut self, last: &str) -> Vec<(Document, ConnectionId)> {
        sent_until(&mut self.events, last).await
    }
}

/// Waits until a client sends a command of that name; fails after [`LIMIT`].
async fn sent_until(events: &mut Events, last: &str) -> Vec<(Document, ConnectionId)> {
    let mut sent: Vec<(Document, ConnectionId)> = Vec::new();
    let sending = async {
        while sent.last().is_none_or(|(command, _)| name(command) != last) {
            let event = events.next().await.expect("the client is open");
            sent.extend(started(event));
        }
    };
    let in_time = tokio::time::timeout(LIMIT, sending).await.is_ok();
    assert!(in_time, "no {last} was sent, but {sent:?}");
    sent
}

/// A command that was started, and its connection.
fn started(event: Event) -> Option<(Document, ConnectionId)> {
    match event.kind {
        EventKind::Command {
            command: monitored,
            event: CommandEvent::CommandStarted { command },
            ..
        } => Some((Document::try_from(command).unwrap(), monitored.driver_connection_id)),
        _ => None,
    }
}

/// The name of a command.
fn name(command: &Document) -> &str {
    command.keys().next().unwrap()
}

fn names(commands: &[Document]) -> Vec<&str> {
    commands.iter().map(name).collect()
}

fn session(command: &Document) -> &Document {
    command.get_document("lsid").unwrap()
}
