//! Conversations with one server, whose every reply becomes evidence.

mod commands;
mod hello;
mod messages;
mod step_down;
mod streaming;
mod writes;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdam_core::bson::spec::BinarySubtype;
use sdam_core::bson::{Binary, Bson, Document, doc};
use sdam_core::config::ServerAddress;
use sdam_core::failure::Failure;
use sdam_host::system;
use tokio::sync::watch;

use self::writes::Left;
use super::connection::{Connection, Dialer};
use super::evidence::{Evidence, Exchange, Kind, Topic, is_ok};
use super::request::Request;

/// The time that the last reply may take once nothing more is to be asked.
const LAST_REPLY: Duration = Duration::from_secs(1);

/// The database of all that is written.
const DATABASE: &str = "sdam_lint";

/// The permissions of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    pub(super) write: bool,
    pub(super) step_down: bool,
    /// The time that a connection is to be idle.
    pub(super) idle: Option<Duration>,
}

/// Asks one server.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    dialer: Arc<Dialer>,
    address: ServerAddress,
    evidence: Arc<Mutex<Evidence>>,
    left: Arc<Mutex<Left>>,
    /// True once nothing more is to be asked.
    stopped: watch::Receiver<bool>,
    scope: Scope,
    /// The time that a reply may take which has nothing to wait for.
    timeout: Duration,
    /// Random bytes, by which what is written differs from what others write.
    tag: [u8; 24],
}

/// A conversation on one connection.
struct Talk<'a> {
    probe: &'a Probe,
    connection: Connection,
}

impl Probe {
    /// Prepares to ask a server.
    ///
    /// # Errors
    ///
    /// Fails if the system has no random bytes.
    pub(super) fn new(
        dialer: Arc<Dialer>,
        address: ServerAddress,
        scope: Scope,
        stopped: watch::Receiver<bool>,
    ) -> Result<Self, Failure> {
        let timeout = dialer.timeout();
        let evidence = Evidence { timeout, ..Evidence::default() };
        let evidence = Arc::new(Mutex::new(evidence));
        let (left, tag) = (Arc::default(), system::nonce()?);
        Ok(Self { dialer, address, evidence, left, stopped, scope, timeout, tag })
    }

    /// Returns the evidence so far.
    pub(super) fn evidence(&self) -> Evidence {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Evidence> {
        self.evidence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of what was written and perhaps not dropped.
    pub(super) fn left_behind(&self) -> Option<String> {
        self.left().collection.then(|| format!("{DATABASE}.{}", self.collection()))
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Waits until nothing more is to be asked.
    async fn until_stopped(&self) {
        let is_over = self.stopped.clone().wait_for(|it| *it).await.is_ok();
        if !is_over {
            // The sender is gone, so nothing can stop it.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a reply, but not for long once nothing more is to be asked.
    async fn or_stopped<T>(&self, reply: impl Future<Output = T>) -> Option<T> {
        let stopped = async {
            self.until_stopped().await;
            tokio::time::sleep(LAST_REPLY).await;
        };
        tokio::select! {
            biased;
            reply = reply => Some(reply),
            () = stopped => None,
        }
    }

    /// Asks all but what steps a primary down; `None` if it was stopped before that was done. What
    /// was written is dropped in either case.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be connected to, or refuses the login; what was found out until
    /// then stays.
    pub(super) async fn ask(&self) -> Option<Result<(), Failure>> {
        let read = tokio::select! {
            read = self.read() => Some(read),
            () = self.until_stopped() => None,
        };
        let asked = match read? {
            Ok(()) if self.scope.write => writes::ask(self).await,
            read => read,
        };
        self.lock().failure = asked.as_ref().err().map(ToString::to_string);
        (asked.is_err() || !self.is_stopped()).then_some(asked)
    }

    async fn read(&self) -> Result<(), Failure> {
        // A server that accepts no connection can answer none of it.
        drop(self.dialer.open(&self.address).await?);
        self.leave_out();
        hello::say_hello(self).await;
        let (_, _, _, commands, idle) = tokio::join!(
            hello::ask(self),
            streaming::ask(self),
            messages::ask(self),
            commands::ask(self),
            messages::ask_idle(self),
        );
        commands?;
        idle?;
        messages::ask_large(self).await;
        Ok(())
    }

    /// Steps the server down, if it is a primary.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be connected to, or refuses the login.
    pub(super) async fn step_down(&self) -> Result<(), Failure> {
        match self.kind() {
            Some(Kind::Primary) if self.scope.step_down => step_down::ask(self).await,
            _ => Ok(()),
        }
    }

    /// Says what is not asked because it is not allowed.
    fn leave_out(&self) {
        if !self.scope.write {
            self.not_asked(&writes::TOPICS, "it needs --write");
        }
        if !self.scope.step_down {
            self.not_asked(&step_down::TOPICS, "it needs --step-down");
        }
        if self.scope.idle.is_none() {
            self.not_asked(&[Topic::Idle], "it needs --idle");
        }
    }

    /// Returns what the server says that it is.
    fn kind(&self) -> Option<Kind> {
        self.lock().kind().ok()
    }

    /// Returns whether the server answers commands about data.
    fn bears_data(&self) -> bool {
        matches!(
            self.kind(),
            Some(Kind::Standalone | Kind::Mongos | Kind::Primary | Kind::Secondary)
        )
    }

    /// Remembers why something is not asked.
    fn not_asked(&self, topics: &[Topic], reason: &str) {
        let mut evidence = self.lock();
        topics.iter().for_each(|topic| {
            evidence.not_asked.insert(*topic, reason.to_owned());
        });
    }

    fn note(&self, topic: Topic, exchange: Exchange) {
        self.lock().exchanges.insert(topic, exchange);
    }

    /// Begins a conversation in which nothing was said yet; what it is about is left out if the
    /// server cannot be connected to.
    async fn open(&self, topics: &[Topic]) -> Option<Talk<'_>> {
        // Boxed, as conversations are many, and each would have room for all of this.
        match Box::pin(self.dialer.open(&self.address)).await {
            Ok(connection) => Some(Talk { probe: self, connection }),
            Err(failure) => {
                self.not_asked(topics, &format!("one more connection was refused: {failure}"));
                None
            }
        }
    }

    /// Begins a conversation as an application does.
    async fn open_logged_in(&self) -> Result<Talk<'_>, Failure> {
        let connection = Box::pin(self.dialer.open_logged_in(&self.address)).await?;
        Ok(Talk { probe: self, connection })
    }

    /// Makes a request of a command.
    fn request(&self, command: Document) -> Request {
        Request::new(command, self.timeout)
    }

    /// Returns the metadata that connections begin with.
    fn metadata(&self) -> Document {
        let metadata = self.dialer.options.metadata().document();
        Document::try_from(metadata).unwrap_or_default()
    }

    /// Returns legacy hello as drivers open with it.
    fn legacy_hello(&self) -> Document {
        doc! {
            "isMaster": 1, "helloOk": true, "backpressure": "2", "client": self.metadata(),
            "compression": [], "$db": "admin",
        }
    }

    /// Returns the id of a session of our own; each number has another one.
    fn session(&self, number: u8) -> Document {
        let mut bytes = self.tag[..16].to_vec();
        bytes[0] ^= number;
        // Version 4, variant 1 (RFC 9562).
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes } }
    }

    /// Returns the name of a collection of our own.
    fn collection(&self) -> String {
        let digits: String = self.tag[16..].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("probe_{digits}")
    }

    /// Returns a find that any server may answer.
    fn find(&self, collection: &str) -> Document {
        let mut find = doc! { "find": collection, "filter": {}, "$db": DATABASE };
        if self.kind() != Some(Kind::Standalone) {
            find.insert("$readPreference", doc! { "mode": "secondaryPreferred" });
        }
        find
    }
}

impl Talk<'_> {
    /// Asks, and returns the reply if it says `ok`. Nothing more is asked after a reply that
    /// has not come, as it still may.
    async fn ask(&mut self, topic: Topic, request: Request) -> Option<Document> {
        if self.probe.is_stopped() {
            return None;
        }
        if let Some(end) = self.connection.end() {
            let reason = format!("its connection is of no use any more: {}", end.words());
            self.probe.not_asked(&[topic], &reason);
            return None;
        }
        let exchange = self.probe.or_stopped(Box::pin(self.connection.ask(request))).await?;
        let reply = exchange.answers.first().and_then(|answer| answer.document.clone().ok());
        self.probe.note(topic, exchange);
        reply.filter(is_ok)
    }

    /// Asks with a command that is no more than that.
    async fn command(&mut self, topic: Topic, command: Document) -> Option<Document> {
        let request = self.probe.request(command);
        self.ask(topic, request).await
    }
}

/// Returns a command with more fields.
fn with(mut command: Document, more: Document) -> Document {
    command.extend(more);
    command
}

/// Returns the topologyVersion that an awaitable hello has to name.
fn version_of(hello: &Document) -> Option<Document> {
    hello.get_document("topologyVersion").ok().cloned()
}

/// Returns an awaitable hello.
fn awaitable(version: &Document, limit: Duration) -> Document {
    let millis = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    let (version, millis) = (Bson::Document(version.clone()), Bson::Int64(millis));
    doc! { "isMaster": 1, "topologyVersion": version, "maxAwaitTimeMS": millis, "$db": "admin" }
}
