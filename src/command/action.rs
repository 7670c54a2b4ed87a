//! Operations while they are described: what has a method for each option, and is performed by the
//! handle that it is of.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};

use super::Operation;
use super::aggregate::AggregateOptions;
use super::concerns::{TakesReadConcern, TakesWriteConcern};
use super::distinct::Distinct;
use super::explain::{Explain, Explainable, Verbosity};
use super::run::RunCursorCommand;
use super::search_indexes::ListSearchIndexes;
use super::views::{Each, Many, One, Reply};
use super::watch::Watch;
use crate::change_stream::CheckpointStore;

/// An operation that a method of a handle has begun to describe.
///
/// `O` is the operation, a value of [`operation`](crate::operation), whose options are methods
/// here. `H` is the handle that performs it: [`Async`](crate::action::Async), or
/// [`Threads`](crate::blocking::Threads). `V` is the form in which the outcome is returned:
/// [`Many`] documents as a cursor, for instance.
///
/// Nothing is sent until it is awaited, or run.
#[must_use = "an action does nothing until it is awaited, or run by a thread"]
pub struct Action<O, H, V = ()> {
    operation: O,
    on: H,
    view: PhantomData<fn() -> V>,
}

/// A handle that performs actions, with what these may have otherwise than the handle they are of.
pub trait PerformsActions: sealed::Changes<Self::Session> {
    /// The sessions that it takes.
    type Session;
}

pub(crate) mod sealed {
    use std::time::Duration;

    use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};

    /// A handle that others are made of.
    pub trait Changes<S>: Sized {
        fn with_session(self, session: &S) -> Self;
        fn with_read_preference(self, preference: ReadPreference) -> Self;
        fn with_read_concern(self, concern: ReadConcern) -> Self;
        fn with_write_concern(self, concern: WriteConcern) -> Self;
        fn with_timeout(self, timeout: Duration) -> Self;
    }

    /// A trait that other crates cannot implement.
    #[cfg(feature = "blocking")]
    pub trait Sealed {}
}

impl<O, H, V> Action<O, H, V> {
    pub(crate) const fn new(operation: O, on: H) -> Self {
        Self { operation, on, view: PhantomData }
    }

    /// Returns the operation, which is a value that can be kept and tested.
    pub fn into_operation(self) -> O {
        self.operation
    }

    /// Sets an option if there is a value for it.
    ///
    /// ```no_run
    /// # use sdam::bson::{Document, doc};
    /// # async fn example(books: sdam::Collection, order: Option<Document>) -> sdam::Result<()> {
    /// let found = books.find(doc! {}).optional(order, |find, order| find.sort(order)).await?;
    /// # let _ = found;
    /// # Ok(())
    /// # }
    /// ```
    pub fn optional<T>(self, value: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(O) -> O) -> Self {
        self.operation = change(self.operation);
        self
    }

    pub(crate) fn parts(self) -> (O, H) {
        (self.operation, self.on)
    }
}

impl<O, H: PerformsActions, V> Action<O, H, V> {
    /// Performs it in a session, in place of that of the handle.
    pub fn session(self, session: impl Borrow<H::Session>) -> Self {
        Self::new(self.operation, self.on.with_session(session.borrow()))
    }

    /// Sets which servers may answer, if it reads.
    pub fn read_preference(mut self, preference: ReadPreference) -> Self
    where
        O: Operation,
    {
        self.operation.set_read_preference(&preference);
        Self::new(self.operation, self.on.with_read_preference(preference))
    }

    /// Sets which data it may read.
    ///
    /// A command of the application's own has the concern that is written in it. This does not
    /// compile:
    ///
    /// ```compile_fail,E0277
    /// # use sdam::{Database, bson::doc, options::ReadConcern};
    /// # fn example(app: Database) {
    /// let _ = app.run_command(doc! { "count": "books" }).read_concern(ReadConcern::majority());
    /// # }
    /// ```
    pub fn read_concern(self, concern: ReadConcern) -> Self
    where
        O: TakesReadConcern,
    {
        Self::new(self.operation, self.on.with_read_concern(concern))
    }

    /// Sets when its write counts as done.
    ///
    /// A command of the application's own has the concern that is written in it. This does not
    /// compile:
    ///
    /// ```compile_fail,E0277
    /// # use sdam::{Database, bson::doc, options::WriteConcern};
    /// # fn example(app: Database) {
    /// let _ = app.run_command(doc! { "drop": "books" }).write_concern(WriteConcern::majority());
    /// # }
    /// ```
    pub fn write_concern(self, concern: WriteConcern) -> Self
    where
        O: TakesWriteConcern,
    {
        Self::new(self.operation, self.on.with_write_concern(concern))
    }

    /// Sets its `timeoutMS`, that of its cursor included; zero lifts the limit.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self::new(self.operation, self.on.with_timeout(timeout))
    }
}

impl<O: Explainable, H, V> Action<O, H, V> {
    /// Explains the operation in place of performing it: by which plan a server would run it.
    pub fn explain(self) -> Action<Explain<O>, H, Reply> {
        Action::new(Explain::new(self.operation), self.on)
    }
}

impl<O: Clone, H: Clone, V> Clone for Action<O, H, V> {
    fn clone(&self) -> Self {
        Self::new(self.operation.clone(), self.on.clone())
    }
}

impl<O: fmt::Debug, H, V> fmt::Debug for Action<O, H, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Action").field("operation", &self.operation).finish_non_exhaustive()
    }
}

impl<O, H, T> Action<O, H, Many<T>> {
    /// Reads the documents as another type.
    pub fn with_type<U>(self) -> Action<O, H, Many<U>> {
        let (operation, on) = self.parts();
        Action::new(operation, on)
    }
}

impl<O, H, T> Action<O, H, One<T>> {
    /// Reads the document as another type.
    pub fn with_type<U>(self) -> Action<O, H, One<U>> {
        let (operation, on) = self.parts();
        Action::new(operation, on)
    }
}

impl<O, H, T> Action<O, H, Each<T>> {
    /// Reads each as another type.
    pub fn with_type<U>(self) -> Action<O, H, Each<U>> {
        let (operation, on) = self.parts();
        Action::new(operation, on)
    }
}

impl<H, T> Action<Distinct, H, Each<T>> {
    /// Returns the values where they lie in the server's reply, to be read one after another:
    /// there may be many millions.
    pub fn unread(self) -> Action<Distinct, H> {
        let (operation, on) = self.parts();
        Action::new(operation, on)
    }
}

impl<H, V> Action<RunCursorCommand, H, V> {
    /// Says that an empty batch is no end, as of a cursor that the command opens as tailable.
    pub fn tailable(self) -> Self {
        self.with(RunCursorCommand::tailable)
    }
}

impl<O, H, V> Action<Explain<O>, H, V> {
    /// Sets how detailed the explanation is.
    pub fn verbosity(self, verbosity: Verbosity) -> Self {
        self.with(|explain| explain.verbosity(verbosity))
    }

    /// Sets how long the server may take to explain, in whole milliseconds (`maxTimeMS`);
    /// deprecated in favour of `timeoutMS`.
    pub fn max_time(self, time: Duration) -> Self {
        self.with(|explain| explain.max_time(time))
    }
}

impl<H, V> Action<ListSearchIndexes, H, V> {
    /// Lists the index of this name alone.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with(|list| list.name(name))
    }

    /// Sets options of the aggregation.
    pub fn with_options(self, options: impl Into<Option<AggregateOptions>>) -> Self {
        self.with(|list| list.with_options(options))
    }
}

impl<H, V> Action<Watch, H, V> {
    /// Goes on behind the token that a [store](CheckpointStore) has, and saves there those that the
    /// stream comes to: see [`Watch::checkpoint`].
    ///
    /// ```no_run
    /// use sdam::checkpoint::FileCheckpointStore;
    ///
    /// # async fn example(orders: sdam::Collection) -> sdam::Result<()> {
    /// let store = FileCheckpointStore::new("/var/lib/shop/orders.token");
    /// let mut changes = orders.watch().checkpoint(store).await?;
    /// while let Some(event) = changes.try_next().await? {
    ///     println!("{:?}", event.document_key);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(self, store: impl CheckpointStore) -> Self {
        self.with(|watch| watch.checkpoint(store))
    }

    /// Begins as if the store of the checkpoint had no token: see [`Watch::restart`].
    pub fn restart(self) -> Self {
        self.with(Watch::restart)
    }
}
