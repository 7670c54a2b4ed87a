//! The tokens that outlive a process: where they are kept, and when which one is saved.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::time::Instant;

use super::ResumeToken;
use crate::error::Error;

/// The time after which the token of a stream is saved that has handed out nothing: its history is
/// kept for hours, and each save is a write.
const QUIET: Duration = Duration::from_secs(10);

/// A place that keeps the token of a change stream, which was begun with it: a document of a
/// collection, a file, or something of the application's.
///
/// The stream asks it once, when it begins. It saves the token of each event after that was handed
/// out, and before the next one is, so that a process which ends in between receives that one
/// again: each event is handed out at least once.
///
/// Threads use it, too; what waits for nothing is written in the same way.
///
/// ```
/// use std::sync::Mutex;
///
/// use sdam::Result;
/// use sdam::checkpoint::CheckpointStore;
/// use sdam::results::ResumeToken;
///
/// #[derive(Debug, Default)]
/// struct Memory(Mutex<Option<ResumeToken>>);
///
/// impl CheckpointStore for Memory {
///     async fn load(&self) -> Result<Option<ResumeToken>> {
///         Ok(self.0.lock().unwrap().clone())
///     }
///
///     async fn save(&self, token: &ResumeToken) -> Result<()> {
///         *self.0.lock().unwrap() = Some(token.clone());
///         Ok(())
///     }
/// }
/// ```
pub trait CheckpointStore: Send + Sync + 'static {
    /// Returns the token that was saved last; `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// Fails if that cannot be found out; the stream does not begin then.
    fn load(&self) -> impl Future<Output = Result<Option<ResumeToken>, Error>> + Send;

    /// Keeps a token in place of the one before, so that it outlives what is to be survived.
    ///
    /// # Errors
    ///
    /// Fails if it may not be kept. The stream returns that, and tries it again when it is read on.
    fn save(&self, token: &ResumeToken) -> impl Future<Output = Result<(), Error>> + Send;
}

impl<S: CheckpointStore + ?Sized> CheckpointStore for Arc<S> {
    fn load(&self) -> impl Future<Output = Result<Option<ResumeToken>, Error>> + Send {
        (**self).load()
    }

    fn save(&self, token: &ResumeToken) -> impl Future<Output = Result<(), Error>> + Send {
        (**self).save(token)
    }
}

type Working<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A store of any type.
trait Store: Send + Sync {
    fn load(&self) -> Working<'_, Option<ResumeToken>>;
    fn save<'a>(&'a self, token: &'a ResumeToken) -> Working<'a, ()>;
}

impl<S: CheckpointStore> Store for S {
    fn load(&self) -> Working<'_, Option<ResumeToken>> {
        Box::pin(CheckpointStore::load(self))
    }

    fn save<'a>(&'a self, token: &'a ResumeToken) -> Working<'a, ()> {
        Box::pin(CheckpointStore::save(self, token))
    }
}

/// A store that a stream shares with its application.
#[derive(Clone)]
pub(crate) struct Checkpoint(Arc<dyn Store>);

impl Checkpoint {
    pub(crate) fn new(store: impl CheckpointStore) -> Self {
        Self(Arc::new(store))
    }

    pub(crate) async fn load(&self) -> Result<Option<ResumeToken>, Error> {
        self.0.load().await
    }

    pub(crate) async fn save(&self, token: &ResumeToken) -> Result<(), Error> {
        self.0.save(token).await
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checkpoint")
    }
}

/// The error of a store whose token another stream has replaced.
#[derive(Debug, thiserror::Error)]
#[error(
    "another stream has saved its place as {0:?} since this one has begun; begin the stream again, \
     which goes on behind that"
)]
pub(crate) struct Superseded(pub(crate) Arc<str>);

impl Superseded {
    /// Returns whether a token was not saved as another stream has saved its own.
    pub(crate) fn is_cause_of(error: &Error) -> bool {
        error.as_custom().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }
}

impl From<Superseded> for Error {
    fn from(error: Superseded) -> Self {
        Self::custom(error)
    }
}

/// The token that a store has, and whether another one is to be saved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoints {
    saved: Option<ResumeToken>,
    saved_at: Instant,
    /// True if an event was handed out since.
    hands_out: bool,
}

impl Checkpoints {
    /// Takes note that an event is handed out.
    pub(crate) const fn hands_out(&mut self) {
        self.hands_out = true;
    }

    /// Takes note that a store has this token.
    pub(crate) fn saved(&mut self, now: Instant, token: ResumeToken) {
        (self.saved, self.saved_at, self.hands_out) = (Some(token), now, false);
    }

    /// Returns whether a token that the stream has come to is to be saved now: if it is the first,
    /// if an event was handed out, and from time to time if none was.
    pub(crate) fn is_due(&self, now: Instant, token: &ResumeToken) -> bool {
        match &self.saved {
            Some(saved) if saved == token => false,
            Some(_) => self.hands_out || now >= self.saved_at + QUIET,
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use sdam_core::time::Instant;

    use super::{Checkpoints, QUIET, ResumeToken};

    fn token(n: i32) -> ResumeToken {
        ResumeToken::new(rawdoc! { "_data": n })
    }

    /// "users intending to store the resume token should use this method to get the most up to date
    /// resume token" (Change Streams, "Not Blocking on Iteration"): that of events at once, and
    /// that of empty batches every so often.
    #[test]
    fn tokens_of_events_are_due_at_once_and_those_of_empty_batches_after_a_time() {
        let begun = Instant::from_millis(5_000);
        let mut checkpoints = Checkpoints::default();
        assert!(checkpoints.is_due(begun, &token(1)), "the first: a restart goes on from there");
        checkpoints.saved(begun, token(1));
        assert!(!checkpoints.is_due(begun + QUIET * 2, &token(1)), "it is there");
        assert!(!checkpoints.is_due(begun + QUIET / 2, &token(2)), "nothing was handed out");
        assert!(checkpoints.is_due(begun + QUIET, &token(2)), "it was quiet");
        checkpoints.saved(begun + QUIET, token(2));
        assert!(!checkpoints.is_due(begun + QUIET, &token(3)));
        checkpoints.hands_out();
        assert!(checkpoints.is_due(begun + QUIET, &token(3)));
        checkpoints.saved(begun + QUIET, token(3));
        assert!(!checkpoints.is_due(begun + QUIET, &token(4)));
    }
}
