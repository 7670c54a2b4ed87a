//! The reports of a runtime's tasks: streams of monitors, connections that are being established,
//! and lookups. They keep no client alive, and one that is dropped before it has reported says that
//! the runtime gave it up.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use bson::oid::ObjectId;
use sdam_core::dns::srv::SrvRecord;
use sdam_core::dns::{DnsCause, DnsError, Question};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::Handshake;
use sdam_core::id::{ConnectionId, Generation, LinkId};
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::pool;
use sdam_core::topology::{self, Input};

use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::machines::server::Server;
use crate::sync::Running;
use crate::sync::channel::Channel;

/// A monitoring byte stream, as the task that moves its bytes sees it.
///
/// It keeps no client alive. Dropping it without [`closed`](Self::closed) reports that the runtime
/// gave the stream up.
#[derive(Debug)]
pub struct Link<R: Runtime> {
    pub(crate) host: Weak<Host<R>>,
    pub(crate) id: LinkId,
    pub(crate) outgoing: Arc<Channel<Vec<u8>>>,
    pub(crate) reported: bool,
    /// Ends with the task.
    pub(crate) running: Running,
}

impl<R: Runtime> Link<R> {
    pub(crate) const fn new(
        host: Weak<Host<R>>,
        id: LinkId,
        outgoing: Arc<Channel<Vec<u8>>>,
        running: Running,
    ) -> Self {
        Self { host, id, outgoing, reported: false, running }
    }

    /// Returns the link's name.
    pub const fn id(&self) -> LinkId {
        self.id
    }

    /// Returns the handle that reports how far the stream has come; the first stage is to connect.
    pub fn progress(&self) -> Progress<R> {
        Progress::of_link(Weak::clone(&self.host), self.id)
    }

    /// Reports that the stream is up.
    pub fn opened(&self) {
        self.report(Input::Opened { link: self.id });
    }

    /// Reports bytes that came.
    pub fn received(&self, bytes: &[u8]) {
        self.report(Input::Received { link: self.id, bytes });
    }

    /// Reports that the stream failed or ended.
    pub fn closed(mut self, failure: Failure) {
        self.reported = true;
        self.report(Input::Closed { link: self.id, failure });
    }

    /// Returns the next bytes to write, `None` if the stream is to be dropped, or arranges for a
    /// wake-up.
    pub fn poll_outgoing(&self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        self.outgoing.poll_next(cx)
    }

    fn report(&self, input: Input<'_>) {
        if let Some(host) = self.host.upgrade() {
            host.handle(input);
        }
    }
}

impl<R: Runtime> Drop for Link<R> {
    fn drop(&mut self) {
        if !self.running.process().is_current() {
            return;
        }
        if !self.reported
            && let Some(host) = self.host.upgrade()
        {
            let detail = "the runtime gave the connection up";
            let failure = Failure::new(Stage::Connect, Cause::Io, detail);
            host.lost(Input::Closed { link: self.id, failure });
        }
        drop(self.outgoing.leave());
    }
}

/// A connection that is to be established, as the task that does so sees it.
///
/// It keeps no client alive. Dropping it reports that the runtime gave the attempt up.
pub struct PendingConnection<R: Runtime> {
    pub(crate) server: Weak<Server<R>>,
    pub(crate) connection: ConnectionId,
    /// Closed when the connection is not needed any more.
    pub(crate) aborted: Arc<Channel<()>>,
    pub(crate) reported: bool,
    /// Ends with the task.
    pub(crate) running: Running,
}

impl<R: Runtime> PendingConnection<R> {
    pub(crate) const fn new(
        server: Weak<Server<R>>,
        connection: ConnectionId,
        aborted: Arc<Channel<()>>,
        running: Running,
    ) -> Self {
        Self { server, connection, aborted, reported: false, running }
    }

    /// Returns the handle that reports how far the attempt has come; the first stage is to resolve
    /// the name.
    pub fn progress(&self) -> Progress<R> {
        Progress::of_connection(Weak::clone(&self.server), self.connection)
    }

    /// A command of the login is sent.
    pub(crate) fn asked(&self) {
        if let Some(server) = self.server.upgrade() {
            server.asked(self.connection);
        }
    }

    /// A command of the login is answered, and the client works out the next one.
    pub(crate) fn answered(&self) {
        if let Some(server) = self.server.upgrade() {
            server.answered(self.connection);
        }
    }

    /// A person is asked for what the login needs, or has answered.
    pub(crate) fn person(&self, is_asked: bool) {
        if let Some(server) = self.server.upgrade() {
            server.person(self.connection, is_asked);
        }
    }

    /// Hello was answered.
    pub(crate) fn hello_answered(&self, handshake: &Handshake) {
        if let Some(server) = self.server.upgrade() {
            server.hello_answered(self.connection, handshake);
        }
        self.progress().reached(handshake.stage());
    }

    pub(crate) fn fail(&self, error: OperationError) {
        if let Some(server) = self.server.upgrade() {
            server.not_established(self.connection, error);
        }
    }
}

impl<R: Runtime> Drop for PendingConnection<R> {
    fn drop(&mut self) {
        if !self.running.process().is_current() {
            return;
        }
        if !self.reported {
            let detail = "the runtime gave the connection up";
            let failure = Failure::new(Stage::Connect, Cause::Canceled, detail);
            self.fail(OperationError::Stream(failure));
        }
        drop(self.aborted.leave());
    }
}

impl<R: Runtime> std::fmt::Debug for PendingConnection<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingConnection")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}

/// A connection that is being established: what ends its task, and whose failure it would be.
pub(crate) struct Establishing {
    pub(crate) generation: Generation,
    /// Behind a load balancer, the service, once hello has named it; the generation is its own
    /// then, as of that moment.
    pub(crate) service: Option<ObjectId>,
    /// 0 until hello was answered.
    pub(crate) max_wire_version: i32,
    /// Closed when the connection is not needed any more.
    aborted: Arc<Channel<()>>,
}

impl Establishing {
    pub(crate) const fn new(generation: Generation, aborted: Arc<Channel<()>>) -> Self {
        Self { generation, service: None, max_wire_version: 0, aborted }
    }

    /// Returns what wakes the task.
    pub(crate) const fn reader(&self) -> &Arc<Channel<()>> {
        &self.aborted
    }

    /// Ends the task, which is to be woken.
    #[must_use = "the task is to be woken"]
    pub(crate) fn abort(&self) -> Option<Waker> {
        self.aborted.end()
    }

    /// Converts an error to what the topology receives.
    pub(crate) const fn failure(&self, error: OperationError) -> OperationFailure {
        let Self { generation, service, max_wire_version, .. } = *self;
        OperationFailure::new(generation, max_wire_version, error).with_service(service)
    }
}

/// A lookup of the deployment's hosts, as the task that makes it sees it.
///
/// It keeps no client alive. Dropping it without [`ended`](Self::ended) reports that the runtime
/// gave the lookup up.
#[derive(Debug)]
pub struct Rescan<R: Runtime> {
    host: Weak<Host<R>>,
    question: Question,
    reported: bool,
    /// Ends with the task.
    running: Running,
}

impl<R: Runtime> Rescan<R> {
    pub(crate) const fn new(host: Weak<Host<R>>, question: Question, running: Running) -> Self {
        Self { host, question, reported: false, running }
    }

    /// Returns what is to be looked up.
    pub const fn question(&self) -> &Question {
        &self.question
    }

    /// Reports what came of it.
    pub fn ended(mut self, records: Result<Vec<SrvRecord>, DnsError>) {
        self.reported = true;
        if let Some(host) = self.host.upgrade() {
            host.handle(Input::Resolved { records });
        }
    }
}

impl<R: Runtime> Drop for Rescan<R> {
    fn drop(&mut self) {
        if !self.reported
            && self.running.process().is_current()
            && let Some(host) = self.host.upgrade()
        {
            let cause = DnsCause::Resolver("the runtime gave the lookup up".into());
            let records = Err(DnsError::new(self.question.clone(), cause));
            host.lost(Input::Resolved { records });
        }
    }
}

/// Reports how far opening a stream, or establishing a connection, has come.
///
/// It keeps no client alive.
pub struct Progress<R: Runtime> {
    of: Of<R>,
}

enum Of<R: Runtime> {
    Link { host: Weak<Host<R>>, link: LinkId },
    Connection { server: Weak<Server<R>>, connection: ConnectionId },
}

impl<R: Runtime> Progress<R> {
    pub(crate) const fn of_link(host: Weak<Host<R>>, link: LinkId) -> Self {
        Self { of: Of::Link { host, link } }
    }

    pub(crate) const fn of_connection(server: Weak<Server<R>>, connection: ConnectionId) -> Self {
        Self { of: Of::Connection { server, connection } }
    }

    /// Reports that a stage begins, or goes on; time-outs and errors name it, and events say how
    /// long it took.
    pub fn reached(&self, stage: Stage) {
        match &self.of {
            Of::Link { host, link } => {
                if let Some(host) = host.upgrade() {
                    host.handle(topology::Input::Reached { link: *link, stage });
                }
            }
            Of::Connection { server, connection } => {
                if let Some(server) = server.upgrade() {
                    server.handle(pool::Input::Reached { connection: *connection, stage });
                }
            }
        }
    }
}

impl<R: Runtime> Clone for Progress<R> {
    fn clone(&self) -> Self {
        match &self.of {
            Of::Link { host, link } => Self::of_link(Weak::clone(host), *link),
            Of::Connection { server, connection } => {
                Self::of_connection(Weak::clone(server), *connection)
            }
        }
    }
}

impl<R: Runtime> std::fmt::Debug for Progress<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Progress");
        match &self.of {
            Of::Link { link, .. } => debug.field("link", link),
            Of::Connection { connection, .. } => debug.field("connection", connection),
        };
        debug.finish_non_exhaustive()
    }
}
