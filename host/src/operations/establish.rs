//! Establishing a connection: its stream, hello, and the login with what that asks for.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sdam_core::auth::{
    CredentialRequest, CredentialResponse, Derivation, GssapiContext, GssapiRequest, OidcToken,
};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::{ConnectionDescription, Handshake, HandshakeOptions, HandshakeProgress};
use sdam_core::operation::OperationError;
use sdam_core::pool::Established;
use sdam_core::time::Instant;
use sdam_core::wire::{Compression, Decompressor, Frames};
use zeroize::Zeroizing;

use crate::machines::Shared;
use crate::machines::runtime::Runtime;
use crate::machines::tasks::PendingConnection;
use crate::net::reactor::Lane;
use crate::net::stream::{Connected, Connection, Stream};
use crate::process::Own;
use crate::sync::{AsyncMutexGuard, Mutex, lock};

impl<R: Runtime> PendingConnection<R> {
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
        let (established, barrier) = {
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
        drop(barrier);
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
        let connection_description = self.shake_hands(&mut stream, nonce).await?;
        let service = connection_description.service;
        let compression = match (connection_description.compressor, self.server.upgrade()) {
            (Some(compressor), Some(server)) => {
                let level = server.shared().options.zlib_compression_level();
                Compression::new(compressor, level).ok()
            }
            _ => None,
        };
        let connection = Connection {
            stream,
            frames: Frames::new(),
            connection_description,
            compression,
            decompressor: Decompressor::new(),
            outgoing: Vec::new(),
            idle_since: None,
        };
        Ok(Established::new(Box::new(connection), service))
    }

    /// Exchanges hello, and logs in.
    async fn shake_hands(
        &self,
        stream: &mut Stream<R::Socket>,
        nonce: [u8; 24],
    ) -> Result<ConnectionDescription, OperationError> {
        let gone = || {
            let failure = Failure::new(Stage::Hello, Cause::Canceled, "the client is gone");
            OperationError::Stream(failure)
        };
        let known = self.server.upgrade().map(|it| (Arc::clone(it.shared()), it.address().clone()));
        let (shared, address) = known.ok_or_else(gone)?;
        let opening = HandshakeOptions::new((**lock(&shared.metadata)).clone(), nonce)
            .with_credential_cache(lock(&shared.credential_cache).clone())
            .with_encrypted(stream.transport().is_encrypted())
            .with_server(Some(address));
        // What logs in is in there.
        let (mut out, mut stage) = (Zeroizing::new(Vec::new()), Stage::Hello);
        let handshake = Handshake::start(&shared.options, opening, &mut out)?;
        let mut login = Login::new(&shared, handshake);
        let mut step = HandshakeProgress::Reading;
        loop {
            let of_stream = |handshake: &Handshake, failure: Failure| {
                OperationError::Stream(match handshake.stage() {
                    Stage::Hello => failure,
                    stage => failure.at(stage),
                })
            };
            let sent = stream.send(&std::mem::take(&mut out), None).await;
            sent.map_err(|error| of_stream(&login.handshake, stream.transport().failure(&error)))?;
            let next = match step {
                HandshakeProgress::Done(connection_description) => {
                    login.heed_cluster_time();
                    return Ok(*connection_description);
                }
                HandshakeProgress::Reading => {
                    let received = stream.receive_some().await;
                    let bytes = received.map_err(|failure| of_stream(&login.handshake, failure))?;
                    let received = login.receive(&bytes, &mut out);
                    match login.derivation() {
                        None => received,
                        Some(derivation) => {
                            self.report_progress(&login.handshake, &mut stage);
                            self.answered();
                            login.derive(derivation, &mut out).await
                        }
                    }
                }
                HandshakeProgress::Asking(question) => {
                    match self.answer(&mut login, question, &mut out).await {
                        Ok(step) => Ok(step),
                        Err(Asked::Unanswered(failure)) => {
                            return Err(OperationError::Stream(failure));
                        }
                        Err(Asked::Failed(error)) => Err(error),
                    }
                }
            };
            // First, as what fails now may fail in the next stage already.
            self.report_progress(&login.handshake, &mut stage);
            step = next?;
            let asks = matches!(&step, HandshakeProgress::Asking(it) if !it.is_for_person());
            if !out.is_empty() || asks {
                self.asked();
            }
        }
    }

    /// Finds an answer to what the login asks; a person has more time than connectTimeoutMS.
    async fn answer(
        &self,
        login: &mut Login<R>,
        question: CredentialRequest,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, Asked> {
        let is_for_person = question.is_for_person();
        if is_for_person {
            self.person(true);
        }
        let answer = login.answer(question, None, out).await;
        if is_for_person {
            self.person(false);
        }
        answer
    }

    /// The handshake has gone on, perhaps to the next stage.
    fn report_progress(&self, handshake: &Handshake, stage: &mut Stage) {
        let before = std::mem::replace(stage, handshake.stage());
        match before {
            Stage::Hello if *stage != Stage::Hello => self.hello_answered(handshake),
            _ => self.progress().reached(*stage),
        }
    }
}

/// A handshake whose findings the client remembers, however it ends.
pub(crate) struct Login<R: Runtime> {
    shared: Arc<Shared<R>>,
    pub(crate) handshake: Handshake,
    /// The security context of GSSAPI, if one has begun, where its work finds it.
    context: Arc<Mutex<Option<Box<dyn GssapiContext>>>>,
    over: bool,
}

impl<R: Runtime> Login<R> {
    pub(crate) fn new(shared: &Arc<Shared<R>>, handshake: Handshake) -> Self {
        let (shared, context) = (Arc::clone(shared), Arc::default());
        let login = Self { shared, handshake, context, over: false };
        login.learn();
        login
    }

    /// Takes bytes of the server, as [`Handshake::receive`] does, but for keys:
    /// [`derivation`](Self::derivation) returns what derives them.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        let progress = self.handshake.receive_until_keys(bytes, out);
        self.note(progress)
    }

    /// Returns what is to be derived before anything else comes of the login.
    pub(crate) const fn derivation(&mut self) -> Option<Derivation> {
        self.handshake.take_derivation()
    }

    /// Derives keys where the runtime wants that done, and goes on with them.
    pub(crate) async fn derive(
        &mut self,
        derivation: Derivation,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        let desk = Arc::new(Mutex::new(None));
        let done = Arc::clone(&desk);
        let work = Box::new(move || *lock(&done) = Some(derivation.run()));
        self.shared.runtime.offload(Lane::Keys, work).await;
        let keys = lock(&desk).take();
        let progress = match keys {
            Some(keys) => self.handshake.derived(keys, out),
            None => {
                let detail = "the runtime has given up deriving the keys of the login";
                let failure = Failure::new(Stage::Authenticate, Cause::Canceled, detail);
                Err(OperationError::Stream(failure))
            }
        };
        self.note(progress)
    }

    /// Finds an answer to what the handshake asks, in `time` at most, and supplies it.
    pub(crate) async fn answer(
        &mut self,
        mut question: CredentialRequest,
        time: Option<Duration>,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, Asked> {
        if let CredentialRequest::Gssapi(question) = question {
            return self.ask_context(question, out).await;
        }
        let shared = Arc::clone(&self.shared);
        // "Drivers MUST ensure that only one call to the configured provider or OIDC callback can
        // happen at a time." That of AWS must not be restricted so. The turn ends when what was
        // found is remembered, so that the next caller finds it.
        let mut _turn: Option<AsyncMutexGuard> = None;
        if let CredentialRequest::Oidc(question) = &mut question {
            question.timeout = time.map_or(question.timeout, |time| time.min(question.timeout));
            _turn = Some(shared.oidc.take().await);
        }
        self.handshake.refresh(&lock(&shared.credential_cache));
        let answer = match self.known(&question) {
            Some(answer) => answer,
            None => {
                if let CredentialRequest::Oidc(question) = &mut question {
                    self.handshake.credential_cache().bring_up_to_date(question);
                }
                shared.runtime.answer(question).await.map_err(Asked::Unanswered)?
            }
        };
        let progress = {
            // What came of this question is the latest that is known.
            let mut of_client = lock(&shared.credential_cache);
            self.handshake.refresh(&of_client);
            let progress = self.handshake.supply(answer, out);
            of_client.merge(self.handshake.credential_cache());
            progress
        };
        self.note(progress).map_err(Asked::Failed)
    }

    /// Has the security context answer, where the runtime wants done what blocks.
    async fn ask_context(
        &mut self,
        question: GssapiRequest,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, Asked> {
        let unanswered = |cause, detail: &'static str| {
            Asked::Unanswered(Failure::new(Stage::Credentials, cause, detail))
        };
        let provider = self.shared.runtime.gssapi_provider().ok_or_else(|| {
            let detail = "this runtime has no provider of security contexts of GSSAPI";
            unanswered(Cause::Configuration, detail)
        })?;
        let desk = Arc::new(Mutex::new(None));
        let (done, kept) = (Arc::clone(&desk), Arc::clone(&self.context));
        let work = Box::new(move || {
            let mut context = lock(&kept).take();
            let answer = question.answer(&*provider, &mut context);
            *lock(&kept) = context;
            *lock(&done) = Some(answer);
        });
        self.shared.runtime.offload(Lane::Credentials, work).await;
        let answer = lock(&desk).take();
        let answer = answer.ok_or_else(|| {
            let detail = "the runtime has given up asking the security context of the login";
            unanswered(Cause::Canceled, detail)
        })?;
        let answer = answer.map_err(|error| Asked::Unanswered(error.to_failure()))?;
        let progress = self.handshake.supply(CredentialResponse::Gssapi(answer), out);
        self.note(progress).map_err(Asked::Failed)
    }

    /// Returns the answer that the client remembers.
    fn known(&self, question: &CredentialRequest) -> Option<CredentialResponse> {
        let credential_cache = self.handshake.credential_cache();
        match question {
            CredentialRequest::Aws => {
                let now = self.shared.runtime.wall_clock()?;
                let credentials = credential_cache.aws_credentials(now)?.clone();
                Some(CredentialResponse::Aws { credentials, now })
            }
            CredentialRequest::Oidc(question) => {
                let token = credential_cache
                    .token()
                    .filter(|token| Some(*token) != question.refused.as_ref());
                token.cloned().map(|token| CredentialResponse::Oidc(OidcToken::new(token)))
            }
            CredentialRequest::Gssapi(_) => None,
        }
    }

    /// Has later commands carry the cluster time of the server, which has let the client in.
    pub(crate) fn heed_cluster_time(&self) {
        if let Some(time) = self.handshake.cluster_time() {
            self.shared.clock.advance_to(time.clone());
        }
    }

    /// Reads the clock of deadlines.
    pub(crate) fn now(&self) -> Instant {
        self.shared.runtime.now()
    }

    fn note(
        &mut self,
        progress: Result<HandshakeProgress, OperationError>,
    ) -> Result<HandshakeProgress, OperationError> {
        self.over = matches!(progress, Err(_) | Ok(HandshakeProgress::Done(_)));
        self.learn();
        progress
    }

    fn learn(&self) {
        lock(&self.shared.credential_cache).merge(self.handshake.credential_cache());
    }
}

/// Dropped on the way, also because time is up, it forgets what was used without success.
impl<R: Runtime> Drop for Login<R> {
    fn drop(&mut self) {
        if !self.over {
            self.handshake.give_up();
            self.learn();
        }
    }
}

/// The reason why asking came to nothing.
pub(crate) enum Asked {
    /// There was no answer.
    Unanswered(Failure),
    /// The answer cannot be used.
    Failed(OperationError),
}
