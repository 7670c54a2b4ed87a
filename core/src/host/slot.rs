//! A connection that is to be established, as the task that does so sees it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use bson::oid::ObjectId;

use super::activity::Running;
use super::connection::{Connected, Connection, Stream};
use super::login::{Asked, Login};
use super::mailbox::Mailbox;
use super::server::Server;
use super::{Runtime, lock};
use crate::failure::{Cause, Failure, Stage};
use crate::handshake::{Agreement, Handshake, Opening, Progress as Step};
use crate::id::ConnectionId;
use crate::operation::{OperationError, OperationFailure};
use crate::pool::{Established, Generation, Input};
use crate::wire::{Compression, Decompressor, Frames};

/// A connection that is to be established, as the task that does so sees it.
///
/// It keeps no client alive. Dropping it reports that the runtime gave the attempt up.
pub struct Slot<R: Runtime> {
    progress: Progress<R>,
    generation: Generation,
    /// Closed when the connection is not needed any more.
    aborted: Arc<Mailbox<()>>,
    reported: bool,
    /// Ends with the task.
    _running: Running,
}

/// Tells how far establishing a connection has come.
pub struct Progress<R: Runtime> {
    server: Weak<Server<R>>,
    connection: ConnectionId,
}

impl<R: Runtime> Clone for Progress<R> {
    fn clone(&self) -> Self {
        Self { server: Weak::clone(&self.server), connection: self.connection }
    }
}

impl<R: Runtime> Progress<R> {
    /// Reports that a stage begins; time-outs tell it, and events how long it took.
    pub fn reached(&self, stage: Stage) {
        if let Some(server) = self.server.upgrade() {
            server.handle(Input::Reached { connection: self.connection, stage });
        }
    }
}

/// What is known of a connection when it fails.
struct Failed {
    error: OperationError,
    service: Option<ObjectId>,
    max_wire_version: i32,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { error: OperationError::Stream(failure), service: None, max_wire_version: 0 }
    }
}

impl<R: Runtime> Slot<R> {
    pub(super) const fn new(
        server: Weak<Server<R>>,
        connection: ConnectionId,
        generation: Generation,
        aborted: Arc<Mailbox<()>>,
        running: Running,
    ) -> Self {
        let progress = Progress { server, connection };
        Self { progress, generation, aborted, reported: false, _running: running }
    }

    /// Returns what tells how far the attempt has come; the first stage is to resolve the name.
    pub fn progress(&self) -> Progress<R> {
        self.progress.clone()
    }

    /// Establishes the connection: opens its stream with `connect`, finishes the handshakes of
    /// proxy and TLS, exchanges hello and logs in.
    ///
    /// Returns when the connection is established, has failed, or is not needed any more; the time
    /// that all of it may take is the pool's business.
    pub async fn run(
        mut self,
        connect: impl Future<Output = Result<Connected<R::Socket>, Failure>>,
    ) {
        let established = {
            let mut work = pin!(self.establish(connect));
            let poll = std::future::poll_fn(|cx| match self.aborted.poll_next(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => work.as_mut().poll(cx).map(Some),
            });
            poll.await
        };
        self.reported = true;
        match established {
            None => {}
            Some(Ok(established)) => {
                if let Some(server) = self.progress.server.upgrade() {
                    server.established(self.progress.connection, established);
                }
            }
            Some(Err(failed)) => self.fail(failed),
        }
    }

    async fn establish(
        &self,
        connect: impl Future<Output = Result<Connected<R::Socket>, Failure>>,
    ) -> Result<Established<Box<Connection<R::Socket>>>, Failed> {
        let connected = connect.await?;
        let nonce = connected.nonce;
        let mut stream = Stream::new(connected);
        self.progress.reached(stream.transport().stage());
        stream.open().await?;
        self.progress.reached(Stage::Hello);
        let agreement = self.shake_hands(&mut stream, nonce).await?;
        let service = agreement.service;
        let compression = match (agreement.compressor, self.progress.server.upgrade()) {
            (Some(compressor), Some(server)) => {
                let level = server.shared().options.zlib_compression_level();
                Compression::new(compressor, level).ok()
            }
            _ => None,
        };
        let connection = Connection {
            stream,
            frames: Frames::new(),
            agreement,
            compression,
            decompressor: Decompressor::new(),
            outgoing: Vec::new(),
            last_request: 0,
        };
        Ok(Established { connection: Box::new(connection), service })
    }

    /// Exchanges hello, and logs in.
    async fn shake_hands(
        &self,
        stream: &mut Stream<R::Socket>,
        nonce: [u8; 24],
    ) -> Result<Agreement, Failed> {
        let gone = || Failure::new(Stage::Hello, Cause::Canceled, "the client is gone");
        let shared = Arc::clone(self.progress.server.upgrade().ok_or_else(gone)?.shared());
        let opening = Opening {
            client: (**lock(&shared.metadata)).clone(),
            nonce,
            remembered: lock(&shared.remembered).clone(),
            encrypted: stream.transport().is_encrypted(),
        };
        let (mut out, mut stage) = (Vec::new(), Stage::Hello);
        let handshake = Handshake::start(&shared.options, opening, &mut out)
            .map_err(|error| Failed { error, service: None, max_wire_version: 0 })?;
        let mut login = Login::new(&shared, handshake);
        let mut step = Step::Reading;
        loop {
            let failed = |handshake: &Handshake, error| Failed {
                error,
                service: handshake.service(),
                max_wire_version: handshake.max_wire_version(),
            };
            let of_stream = |handshake: &Handshake, failure: Failure| {
                let failure = match handshake.stage() {
                    Stage::Hello => failure,
                    stage => Failure { stage, ..failure },
                };
                failed(handshake, OperationError::Stream(failure))
            };
            let sent = stream.send(&std::mem::take(&mut out), None).await;
            sent.map_err(|error| of_stream(&login.handshake, stream.transport().failure(&error)))?;
            let next = match step {
                Step::Done(agreement) => return Ok(*agreement),
                Step::Reading => {
                    let received = stream.receive_some().await;
                    let bytes = received.map_err(|failure| of_stream(&login.handshake, failure))?;
                    login.receive(&bytes, &mut out)
                }
                Step::Asking(question) => match login.answer(question, None, &mut out).await {
                    Ok(step) => Ok(step),
                    Err(Asked::InVain(failure)) => {
                        return Err(of_stream(&login.handshake, failure));
                    }
                    Err(Asked::Failed(error)) => Err(error),
                },
            };
            step = next.map_err(|error| failed(&login.handshake, error))?;
            if login.handshake.stage() != stage {
                stage = login.handshake.stage();
                self.progress.reached(stage);
            }
        }
    }

    fn fail(&self, failed: Failed) {
        let Some(server) = self.progress.server.upgrade() else { return };
        let Failed { error, service, max_wire_version } = failed;
        let generation = match service {
            Some(_) => server.generation(service),
            None => self.generation,
        };
        let failure = OperationFailure { generation, service, max_wire_version, error };
        server.not_established(self.progress.connection, failure);
    }
}

impl<R: Runtime> Drop for Slot<R> {
    fn drop(&mut self) {
        if !self.reported {
            let detail = "the runtime gave the connection up";
            self.fail(Failure::new(Stage::Connect, Cause::Canceled, detail).into());
        }
    }
}

impl<R: Runtime> std::fmt::Debug for Slot<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("connection", &self.progress.connection)
            .finish_non_exhaustive()
    }
}

impl<R: Runtime> std::fmt::Debug for Progress<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress").field("connection", &self.connection).finish_non_exhaustive()
    }
}
