//! A connection that is to be established, as the task that does so sees it.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use zeroize::Zeroizing;

use super::activity::Running;
use super::connection::{Connected, Connection, Stream};
use super::login::{Asked, Login};
use super::mailbox::Mailbox;
use super::process::Own;
use super::progress::Progress;
use super::server::Server;
use super::{Runtime, lock};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::{Agreement, Handshake, Opening, Progress as Step};
use sdam_core::id::ConnectionId;
use sdam_core::operation::OperationError;
use sdam_core::pool::Established;
use sdam_core::wire::{Compression, Decompressor, Frames};

/// A connection that is to be established, as the task that does so sees it.
///
/// It keeps no client alive. Dropping it reports that the runtime gave the attempt up.
pub struct Slot<R: Runtime> {
    server: Weak<Server<R>>,
    connection: ConnectionId,
    /// Closed when the connection is not needed any more.
    aborted: Arc<Mailbox<()>>,
    reported: bool,
    /// Ends with the task.
    running: Running,
}

impl<R: Runtime> Slot<R> {
    pub(super) const fn new(
        server: Weak<Server<R>>,
        connection: ConnectionId,
        aborted: Arc<Mailbox<()>>,
        running: Running,
    ) -> Self {
        Self { server, connection, aborted, reported: false, running }
    }

    /// Returns what tells how far the attempt has come; the first stage is to resolve the name.
    pub fn progress(&self) -> Progress<R> {
        Progress::of_connection(Weak::clone(&self.server), self.connection)
    }

    /// Hello was answered.
    fn greeted(&self, handshake: &Handshake) {
        if let Some(server) = self.server.upgrade() {
            server.greeted(self.connection, handshake);
        }
        self.progress().reached(handshake.stage());
    }

    /// Establishes the connection: opens its stream with `connect`, finishes the handshakes of
    /// proxy and TLS, exchanges hello and logs in; `nonce` draws random bytes of the operating
    /// system for that.
    ///
    /// Returns when the connection is established, has failed, or is not needed any more; the time
    /// that all of it may take is the pool's business. In a process that was forked off it never
    /// goes on, and leaves the stream as it is when it is dropped.
    pub fn run(
        self,
        connect: impl Future<Output = Result<Connected<R::Socket>, Failure>>,
        nonce: impl FnOnce() -> Result<[u8; 24], Failure>,
    ) -> impl Future<Output = ()> {
        let process = self.running.process();
        Own::new(Box::pin(self.work(connect, nonce)), process)
    }

    async fn work(
        mut self,
        connect: impl Future<Output = Result<Connected<R::Socket>, Failure>>,
        nonce: impl FnOnce() -> Result<[u8; 24], Failure>,
    ) {
        let (established, probe) = {
            let mut work = pin!(self.establish(connect, nonce));
            let poll = std::future::poll_fn(|cx| match self.aborted.poll_next(cx) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => work.as_mut().poll(cx).map(Some),
            });
            self.aborted.read_by(pin!(poll)).await
        };
        self.reported = true;
        match established {
            None => {}
            Some(Ok(established)) => {
                if let Some(server) = self.server.upgrade() {
                    server.established(self.connection, established);
                }
            }
            Some(Err(error)) => self.fail(error),
        }
        drop(probe);
    }

    async fn establish(
        &self,
        connect: impl Future<Output = Result<Connected<R::Socket>, Failure>>,
        nonce: impl FnOnce() -> Result<[u8; 24], Failure>,
    ) -> Result<Established<Box<Connection<R::Socket>>>, OperationError> {
        let connected = connect.await.map_err(OperationError::Stream)?;
        let progress = self.progress();
        let nonce = nonce().map_err(OperationError::Stream)?;
        let mut stream = Stream::new(connected);
        progress.reached(stream.transport().stage());
        let answered = |stage| progress.reached(stage);
        stream.open(answered).await.map_err(OperationError::Stream)?;
        let agreement = self.shake_hands(&mut stream, nonce).await?;
        let service = agreement.service;
        let compression = match (agreement.compressor, self.server.upgrade()) {
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
            idle_since: None,
        };
        Ok(Established { connection: Box::new(connection), service })
    }

    /// Exchanges hello, and logs in.
    async fn shake_hands(
        &self,
        stream: &mut Stream<R::Socket>,
        nonce: [u8; 24],
    ) -> Result<Agreement, OperationError> {
        let gone = || {
            let failure = Failure::new(Stage::Hello, Cause::Canceled, "the client is gone");
            OperationError::Stream(failure)
        };
        let shared = Arc::clone(self.server.upgrade().ok_or_else(gone)?.shared());
        let opening = Opening {
            client: (**lock(&shared.metadata)).clone(),
            nonce,
            remembered: lock(&shared.remembered).clone(),
            encrypted: stream.transport().is_encrypted(),
        };
        // What logs in is in there.
        let (mut out, mut stage) = (Zeroizing::new(Vec::new()), Stage::Hello);
        let handshake = Handshake::start(&shared.options, opening, &mut out)?;
        let mut login = Login::new(&shared, handshake);
        let mut step = Step::Reading;
        loop {
            let of_stream = |handshake: &Handshake, failure: Failure| {
                let failure = match handshake.stage() {
                    Stage::Hello => failure,
                    stage => Failure { stage, ..failure },
                };
                OperationError::Stream(failure)
            };
            let sent = stream.send(&std::mem::take(&mut out), None).await;
            sent.map_err(|error| of_stream(&login.handshake, stream.transport().failure(&error)))?;
            let next = match step {
                Step::Done(agreement) => return Ok(*agreement),
                Step::Reading => {
                    let received = stream.receive_some().await;
                    let bytes = received.map_err(|failure| of_stream(&login.handshake, failure))?;
                    let received = login.receive(&bytes, &mut out);
                    match login.derivation() {
                        None => received,
                        Some(derivation) => {
                            self.told(&login.handshake, &mut stage);
                            login.derive(derivation, &mut out).await
                        }
                    }
                }
                Step::Asking(question) => match login.answer(question, None, &mut out).await {
                    Ok(step) => Ok(step),
                    Err(Asked::InVain(failure)) => {
                        return Err(of_stream(&login.handshake, failure));
                    }
                    Err(Asked::Failed(error)) => Err(error),
                },
            };
            // First, as what fails now may fail in the next stage already.
            self.told(&login.handshake, &mut stage);
            step = next?;
        }
    }

    /// The handshake has gone on, perhaps to the next stage.
    fn told(&self, handshake: &Handshake, stage: &mut Stage) {
        if handshake.stage() == *stage {
            return self.progress().reached(*stage);
        }
        *stage = handshake.stage();
        self.greeted(handshake);
    }

    fn fail(&self, error: OperationError) {
        if let Some(server) = self.server.upgrade() {
            server.not_established(self.connection, error);
        }
    }
}

impl<R: Runtime> Drop for Slot<R> {
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

impl<R: Runtime> std::fmt::Debug for Slot<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("connection", &self.connection).finish_non_exhaustive()
    }
}
