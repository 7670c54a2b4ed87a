//! Actions that a thread waits for.

use std::borrow::Cow;

use sdam_blocking::Blocking;
use std::time::Duration;

use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};
use sdam_core::session::SessionOptions;
use sdam_host::driver::DriverTopology;

use super::client::Shared;
use super::{ChangeStream, ClientSession, Cursor, GridFsBucket, RunInBucket};
use crate::command::action::{Action, PerformsActions, sealed};
use crate::command::views::{Changes, Each, First, Many, Names, One, Reply};
use crate::error::Error;
use crate::handle::awaiting::changes;
use crate::handle::awaiting::{Async, Place};
use crate::handle::outcome::Perform;
use crate::handle::recover_commit::RecoverCommit;
use crate::handle::start_session::StartSession;
use crate::handle::{Concerns, Cursor as Futures};
use crate::results::CommitOutcome;

/// The handle of actions that a thread [runs](Action::run).
#[derive(Clone, Debug)]
pub struct Threads<'a> {
    shared: Cow<'a, Shared>,
    place: Place<'a>,
}

impl<'a> Threads<'a> {
    pub(super) const fn new(shared: &'a Shared, place: Place<'a>) -> Self {
        Self { shared: Cow::Borrowed(shared), place }
    }

    fn with(self, change: impl FnOnce(&mut Concerns)) -> Self {
        Self { shared: Cow::Owned(self.shared.with(change)), ..self }
    }
}

impl PerformsActions for Threads<'_> {
    type Session = ClientSession;
}

impl sealed::Changes<ClientSession> for Threads<'_> {
    changes!(ClientSession: shared);
}

/// The form in which a thread receives an outcome: a cursor is one for threads.
pub trait ForThreads<T>: sealed::Sealed {
    /// That form.
    type Waited;

    #[doc(hidden)]
    fn for_threads(outcome: T, on: &Threads<'_>) -> Self::Waited;
}

macro_rules! as_it_is {
    ($($view:ty $(, $parameter:ident)?;)+) => {
        $(
            impl $(<$parameter>)? sealed::Sealed for $view {}

            impl<O $(, $parameter)?> ForThreads<O> for $view {
                type Waited = O;

                fn for_threads(outcome: O, _: &Threads<'_>) -> O {
                    outcome
                }
            }
        )+
    };
}

as_it_is! { (); One<T>, T; Each<T>, T; Names; First; Reply; }

impl<T> sealed::Sealed for Changes<T> {}

impl<T> ForThreads<crate::handle::ChangeStream<Blocking, T>> for Changes<T> {
    type Waited = ChangeStream<T>;

    fn for_threads(
        stream: crate::handle::ChangeStream<Blocking, T>,
        on: &Threads<'_>,
    ) -> ChangeStream<T> {
        ChangeStream::new(stream, &on.shared)
    }
}

impl<T> sealed::Sealed for Many<T> {}

impl<T> ForThreads<Futures<Blocking, T>> for Many<T> {
    type Waited = Cursor<T>;

    fn for_threads(cursor: Futures<Blocking, T>, on: &Threads<'_>) -> Cursor<T> {
        Cursor::new(cursor, &on.shared)
    }
}

impl<O, V> Action<O, Threads<'_>, V> {
    /// Performs the operation, and has this thread wait for its outcome.
    ///
    /// # Errors
    ///
    /// Fails as the method says that has made the action.
    pub fn run(self) -> Result<V::Waited, Error>
    where
        O: Perform<V>,
        V: ForThreads<O::Returned<Blocking>>,
    {
        let (operation, on) = self.parts();
        let performed = operation.perform(Async::owned(on.shared.handle(), on.place));
        Ok(V::for_threads(on.shared.wait(performed)?, &on))
    }
}

impl<O: RunInBucket> Action<O, GridFsBucket> {
    /// Performs the operation, and has this thread wait for its outcome.
    ///
    /// # Errors
    ///
    /// Fails as the method says that has made the action.
    pub fn run(self) -> Result<O::Waited, Error> {
        let (operation, bucket) = self.parts();
        operation.run(&bucket)
    }
}

impl StartSession<Threads<'_>> {
    /// Starts the session; nothing is sent.
    ///
    /// # Errors
    ///
    /// Fails if the options exclude each other.
    pub fn run(self) -> Result<ClientSession, Error> {
        let (on, options): (_, SessionOptions) = self.parts();
        let session = on.shared.handle().client.start_session(options)?;
        Ok(ClientSession::new(session, on.shared.client.clone()))
    }
}

impl RecoverCommit<Threads<'_>> {
    /// Asks, and has this thread wait for the answer.
    ///
    /// # Errors
    ///
    /// Fails with errors that say nothing of the transaction, as if the user may not commit.
    pub fn run(self) -> Result<CommitOutcome, Error> {
        let (on, token, timeout) = self.parts();
        let handle = on.shared.handle();
        on.shared.wait(handle.client.recover_commit(&token, timeout))
    }
}
