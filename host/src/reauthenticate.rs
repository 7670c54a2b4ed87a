//! Commands on a loan, and logging in once more where the server wants it (Authentication,
//! "Reauthentication").

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bson::RawDocumentBuf;
use zeroize::Zeroizing;

use super::connection::{Connection, malformed};
use super::exchange::Reply;
use super::loan::{CheckedOut, State};
use super::login::{Asked, Login};
use super::request::Request;
use super::{Runtime, Socket, lock};
use sdam_core::auth::Question;
use sdam_core::config::AuthMechanism;
use sdam_core::failure::Failure;
use sdam_core::handshake::{Agreement, Handshake, Opening, Progress};
use sdam_core::operation::{CommandError, OperationError};
use sdam_core::time::Instant;

/// "ReauthenticationRequired"
const REAUTHENTICATION_REQUIRED: i32 = 391;

impl<R: Runtime> CheckedOut<R> {
    pub(super) async fn exchange(
        &mut self,
        request: &Request<'_>,
    ) -> Result<Reply, OperationError> {
        let reply = self.exchange_once(request).await?;
        let reply = match self.must_reauthenticate(&reply) {
            true => {
                self.reauthenticate().await?;
                self.exchange_once(request).await?
            }
            false => reply,
        };
        self.conclude(reply)
    }

    fn must_reauthenticate(&self, reply: &Result<Reply, CommandError>) -> bool {
        let code = reply.as_ref().err().and_then(|error| error.code);
        code == Some(REAUTHENTICATION_REQUIRED)
            && self.agreement().mechanism == Some(AuthMechanism::Oidc)
    }

    /// Logs in once more over the same connection. If that fails, the connection is closed, and the
    /// topology is told only what the stream says of the server.
    async fn reauthenticate(&mut self) -> Result<(), OperationError> {
        self.state = State::Authenticating;
        match self.log_in().await {
            Ok(agreement) => {
                self.connection().agreement = agreement;
                self.state = State::Idle;
                Ok(())
            }
            Err(Refusal::Stream(failure)) => Err(self.broken(failure)),
            Err(Refusal::Login(error)) => {
                self.state = State::Broken;
                Err(error)
            }
        }
    }

    async fn log_in(&mut self) -> Result<Agreement, Refusal> {
        let shared = Arc::clone(self.shared());
        let deadline = self.deadline();
        let opening = Opening {
            client: RawDocumentBuf::new(),
            // MONGODB-OIDC has none.
            nonce: [0; 24],
            remembered: lock(&shared.remembered).clone(),
            encrypted: self.connection().stream.transport().is_encrypted(),
        };
        let (mut out, agreement) = (Zeroizing::new(Vec::new()), self.agreement().clone());
        let (handshake, mut step) =
            Handshake::reauthenticate(&shared.options, opening, agreement, &mut out)?;
        let mut login = Login::new(&shared, handshake);
        loop {
            let connection = self.connection();
            let sent = connection.stream.send(&std::mem::take(&mut out), deadline).await;
            sent.map_err(|error| Refusal::Stream(connection.stream.failure(&error)))?;
            step = match step {
                Progress::Done(agreement) => return Ok(*agreement),
                Progress::Reading => {
                    let message = connection.receive(deadline).await.map_err(Refusal::Stream)?;
                    login.receive(message.bytes(), &mut out)?
                }
                Progress::Asking(question) => {
                    connection.answer(&mut login, question, deadline, &mut out).await?
                }
            };
        }
    }
}

/// Why logging in once more has failed.
enum Refusal {
    /// The stream has failed.
    Stream(Failure),
    /// The server refuses the client, or there is no token.
    Login(OperationError),
}

impl From<OperationError> for Refusal {
    fn from(error: OperationError) -> Self {
        Self::Login(error)
    }
}

impl<S: Socket> Connection<S> {
    /// Waits for the answer, but not beyond the deadline, nor on a connection that has ended; a
    /// socket that blocks is left alone meanwhile, for the answer would not reach its thread.
    async fn answer<R: Runtime>(
        &mut self,
        login: &mut Login<R>,
        question: Question,
        deadline: Option<Instant>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, Refusal> {
        let time = deadline.map(|deadline| deadline - login.now());
        let blocks = self.stream.switch.interrupts();
        let mut answer = pin!(login.answer(question, time, out));
        let mut ends = pin!(self.receive(deadline));
        std::future::poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(Ok(progress)) => Poll::Ready(Ok(progress)),
            Poll::Ready(Err(Asked::InVain(failure))) => {
                Poll::Ready(Err(Refusal::Login(OperationError::Stream(failure))))
            }
            Poll::Ready(Err(Asked::Failed(error))) => Poll::Ready(Err(Refusal::Login(error))),
            Poll::Pending if blocks => Poll::Pending,
            Poll::Pending => ends.as_mut().poll(cx).map(|ends| {
                let asked = |_| malformed("a message that nothing asked for");
                Err(Refusal::Stream(ends.map_or_else(std::convert::identity, asked)))
            }),
        })
        .await
    }
}
