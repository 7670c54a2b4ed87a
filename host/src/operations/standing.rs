//! The place in a transaction at which an operation has failed, for its error.

use sdam_core::operation::{TRANSIENT_TRANSACTION, UNKNOWN_COMMIT_RESULT};

use crate::error::{Error, ErrorKind};
use crate::machines::Host;
use crate::machines::runtime::Runtime;
use crate::operations::session::SessionGuard;

impl<R: Runtime> SessionGuard<R> {
    /// Adds to the error of a command where the transaction of the session stands, unless it is in
    /// none, or the error was made here and says nothing of the transaction.
    #[must_use]
    pub fn explain(&self, host: &Host<R>, command: &str, error: Error) -> Error {
        let is_own = matches!(
            error.kind(),
            ErrorKind::Invalid
                | ErrorKind::Serialize
                | ErrorKind::Deserialize
                | ErrorKind::GridFs
                | ErrorKind::Application
        );
        if is_own || error.transaction().is_some() {
            return error;
        }
        let labels = error.labels();
        let has = |label| labels.contains(&label);
        let labels = (has(TRANSIENT_TRANSACTION), has(UNKNOWN_COMMIT_RESULT));
        match self.transaction().standing(host.runtime().now(), command, labels) {
            Some(standing) => error.in_transaction(standing),
            None => error,
        }
    }
}
