//! What a login asks, answered from what the client remembers, or else by the runtime.

use std::sync::Arc;
use std::time::Duration;

use super::sync::Mutex;
use super::turn::Turn;
use super::{Runtime, Shared, lock};
use sdam_core::auth::{Answer, Derivation, OidcToken, Question};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::{Handshake, Progress};
use sdam_core::operation::OperationError;
use sdam_core::time::Instant;

/// A handshake whose findings the client remembers, however it ends.
pub(super) struct Login<R: Runtime> {
    shared: Arc<Shared<R>>,
    pub(super) handshake: Handshake,
    over: bool,
}

impl<R: Runtime> Login<R> {
    pub(super) fn new(shared: &Arc<Shared<R>>, handshake: Handshake) -> Self {
        let login = Self { shared: Arc::clone(shared), handshake, over: false };
        login.learn();
        login
    }

    /// Takes bytes of the server, as [`Handshake::receive`] does, but for keys: what derives them
    /// is told by [`derivation`](Self::derivation).
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Progress, OperationError> {
        let progress = self.handshake.receive_until_keys(bytes, out);
        self.note(progress)
    }

    /// Returns what is to be derived before anything else comes of the login.
    pub(super) const fn derivation(&mut self) -> Option<Derivation> {
        self.handshake.take_derivation()
    }

    /// Derives keys where the runtime wants that done, and goes on with them.
    pub(super) async fn derive(
        &mut self,
        derivation: Derivation,
        out: &mut Vec<u8>,
    ) -> Result<Progress, OperationError> {
        let desk = Arc::new(Mutex::new(None));
        let done = Arc::clone(&desk);
        let work = Box::new(move || *lock(&done) = Some(derivation.run()));
        self.shared.runtime.offload(work).await;
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
    pub(super) async fn answer(
        &mut self,
        mut question: Question,
        time: Option<Duration>,
        out: &mut Vec<u8>,
    ) -> Result<Progress, Asked> {
        let shared = Arc::clone(&self.shared);
        // "Drivers MUST ensure that only one call to the configured provider or OIDC callback can
        // happen at a time." That of AWS must not be restricted so. The turn ends when what was
        // found is remembered, so that whoever is next finds it.
        let mut _turn: Option<Turn<'_>> = None;
        if let Question::Oidc(question) = &mut question {
            question.timeout = time.map_or(question.timeout, |time| time.min(question.timeout));
            _turn = Some(shared.oidc.take().await);
        }
        self.handshake.recall(&lock(&shared.remembered));
        let answer = match self.known(&question) {
            Some(answer) => answer,
            None => shared.runtime.answer(question).await.map_err(Asked::InVain)?,
        };
        let progress = self.handshake.supply(answer, out);
        self.note(progress).map_err(Asked::Failed)
    }

    /// Returns the answer that the client remembers.
    fn known(&self, question: &Question) -> Option<Answer> {
        let remembered = self.handshake.remembered();
        match question {
            Question::Aws => {
                let now = self.shared.runtime.wall_clock()?;
                let credentials = remembered.aws_credentials(now)?.clone();
                Some(Answer::Aws { credentials, now })
            }
            Question::Oidc(question) => {
                let token =
                    remembered.token().filter(|token| Some(*token) != question.refused.as_ref());
                token.cloned().map(|token| Answer::Oidc(OidcToken::new(token)))
            }
        }
    }

    /// Reads the clock that deadlines are told by.
    pub(super) fn now(&self) -> Instant {
        self.shared.runtime.now()
    }

    fn note(
        &mut self,
        progress: Result<Progress, OperationError>,
    ) -> Result<Progress, OperationError> {
        self.over = matches!(progress, Err(_) | Ok(Progress::Done(_)));
        self.learn();
        progress
    }

    fn learn(&self) {
        lock(&self.shared.remembered).learn(self.handshake.remembered());
    }
}

/// Dropped on the way, be it because time is up, what was used in vain is forgotten.
impl<R: Runtime> Drop for Login<R> {
    fn drop(&mut self) {
        if !self.over {
            self.handshake.give_up();
            self.learn();
        }
    }
}

/// Why asking came to nothing.
pub(super) enum Asked {
    /// There was no answer.
    InVain(Failure),
    /// The answer cannot be used.
    Failed(OperationError),
}
