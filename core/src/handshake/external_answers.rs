//! The answers that others than the server give, and keys that were derived.

use super::{Handshake, HandshakeProgress, HandshakeState, stream};
use crate::auth::{AuthError, CredentialResponse, Derivation, Derived};
use crate::operation::OperationError;

impl Handshake {
    /// Gives what [`HandshakeProgress::Asking`] asked for.
    ///
    /// # Errors
    ///
    /// It is not the answer to what was asked, or nothing was; or it cannot be used.
    pub fn supply(
        &mut self,
        answer: CredentialResponse,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        let progress = match std::mem::replace(&mut self.state, HandshakeState::Over) {
            HandshakeState::Asking(mut conversation) => {
                let step = conversation.answer(answer, &mut self.credential_cache);
                step.map_err(stream).and_then(|step| self.take(step, conversation, out))
            }
            HandshakeState::Hello { .. }
            | HandshakeState::Authenticating(_)
            | HandshakeState::Deriving(_)
            | HandshakeState::Over => Err(stream(AuthError::WrongAnswer)),
        };
        self.settle(progress)
    }

    /// As [`receive`](Self::receive), but derives no keys.
    /// [`take_derivation`](Self::take_derivation) returns the derivation that is needed, if any;
    /// nothing else happens then.
    ///
    /// # Errors
    ///
    /// As those of [`receive`](Self::receive).
    pub fn receive_until_keys(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        self.exchange.receive(bytes);
        let progress = self.read(out);
        self.settle(progress)
    }

    /// Returns what takes long and comes next, if there is such a thing;
    /// [`derived`](Self::derived) takes its result.
    pub const fn take_derivation(&mut self) -> Option<Derivation> {
        self.derivation.take()
    }

    /// Goes on with keys that were derived.
    ///
    /// # Errors
    ///
    /// There are none, as the password cannot be used, or none were to be derived; or as those of
    /// [`receive`](Self::receive).
    pub fn derived(
        &mut self,
        keys: Derived,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, OperationError> {
        let progress = match std::mem::replace(&mut self.state, HandshakeState::Over) {
            HandshakeState::Deriving(mut conversation) => {
                let step = conversation.derived(keys.0);
                step.map_err(stream).and_then(|step| self.take(step, conversation, out))
            }
            HandshakeState::Hello { .. }
            | HandshakeState::Authenticating(_)
            | HandshakeState::Asking(_)
            | HandshakeState::Over => Err(stream(AuthError::WrongAnswer)),
        };
        self.settle(progress)
    }
}
