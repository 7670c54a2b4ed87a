//! Operations that a method of a handle has begun to describe: they have a method for each option,
//! and are performed when they are awaited, or [run](Action::run) by a thread.
//!
//! ```no_run
//! # use sdam::{Collection, bson::doc};
//! # async fn example(books: Collection) -> sdam::Result<()> {
//! let mut found = books.find(doc! { "year": { "$lt": 1900 } }).sort(doc! { "year": 1 }).limit(10).await?;
//! while let Some(book) = found.try_next().await? {
//!     println!("{book}");
//! }
//! # Ok(())
//! # }
//! ```

mod perform;
mod session;
mod shutdown;
mod views;

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};
use sdam_host::{ClientSession, Runtime};

use crate::command::explain::{Explain, Explainable};
use crate::command::{Operation, Scope, check_name};
use crate::error::Error;
use crate::handle::{Concerns, Handle};

pub use perform::Perform;
pub use session::StartSession;
pub use shutdown::Shutdown;
pub use views::{Each, First, Many, Names, One, Reply, View};

/// An operation that a method of a handle has begun to describe.
///
/// `O` is the operation, a value of [`operation`](crate::operation), whose options are methods here.
/// `H` is the handle that performs it: [`Async`], or [`Threads`](crate::blocking::Threads). `V` is
/// the form in which the outcome is returned: [`Many`] documents as a cursor, for instance.
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

    /// Writes these changes of a handle, whose concerns are in a field with a method `with`.
    macro_rules! changes {
        ($session:ty: $field:ident) => {
            fn with_session(self, session: &$session) -> Self {
                Self { $field: Cow::Owned(self.$field.with_session(session)), ..self }
            }

            fn with_read_preference(self, preference: ReadPreference) -> Self {
                self.with(|concerns| concerns.read_preference_of_action = Some(preference))
            }

            fn with_read_concern(self, concern: ReadConcern) -> Self {
                self.with(|concerns| concerns.read_concern = concern)
            }

            fn with_write_concern(self, concern: WriteConcern) -> Self {
                self.with(|concerns| concerns.write_concern = concern)
            }

            fn with_timeout(self, timeout: Duration) -> Self {
                self.with(|concerns| concerns.timeout = Some(timeout))
            }
        };
    }

    pub(crate) use changes;

    /// What other crates cannot implement.
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
    /// # async fn example(books: sdam::Collection, order: Option<Document>) -> sdam::error::Result<()> {
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
    pub fn read_concern(self, concern: ReadConcern) -> Self {
        Self::new(self.operation, self.on.with_read_concern(concern))
    }

    /// Sets when its write counts as done.
    pub fn write_concern(self, concern: WriteConcern) -> Self {
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

/// The place that an operation is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    Deployment,
    Database(&'a Arc<str>),
    Collection(&'a Arc<str>, &'a Arc<str>),
}

/// The handle of actions that are awaited.
pub struct Async<'a, R: Runtime> {
    handle: Cow<'a, Handle<R>>,
    place: Place<'a>,
}

impl<'a, R: Runtime> Async<'a, R> {
    pub(crate) const fn new(handle: &'a Handle<R>, place: Place<'a>) -> Self {
        Self { handle: Cow::Borrowed(handle), place }
    }

    #[cfg(feature = "blocking")]
    pub(crate) const fn owned(handle: Handle<R>, place: Place<'a>) -> Self {
        Self { handle: Cow::Owned(handle), place }
    }

    fn with(self, change: impl FnOnce(&mut Concerns)) -> Self {
        Self { handle: Cow::Owned(self.handle.with(change)), ..self }
    }

    pub(crate) fn handle(&self) -> &Handle<R> {
        &self.handle
    }

    /// Returns what the operation is about, unless it has a name that no server takes.
    pub(crate) fn scope(&self) -> Result<Scope, Error> {
        Ok(match self.place {
            Place::Deployment => self.handle.scope(&"admin".into(), &"".into())?,
            Place::Database(name) => self.handle.scope(name, &"".into())?,
            Place::Collection(database, name) => {
                check_name(name)?;
                self.handle.scope(database, name)?
            }
        })
    }
}

impl<R: Runtime> PerformsActions for Async<'_, R> {
    type Session = ClientSession<R>;
}

impl<R: Runtime> sealed::Changes<ClientSession<R>> for Async<'_, R> {
    sealed::changes!(ClientSession<R>: handle);
}

/// The future of an [`Action`].
pub type ActionFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

impl<'a, O, R, V> IntoFuture for Action<O, Async<'a, R>, V>
where
    O: Perform<V> + 'a,
    R: Runtime,
    V: 'a,
{
    type Output = Result<O::Returned<R>, Error>;
    type IntoFuture = ActionFuture<'a, O::Returned<R>>;

    fn into_future(self) -> Self::IntoFuture {
        let (operation, on) = self.parts();
        Box::pin(operation.perform(on))
    }
}

impl<O: Clone, H: Clone, V> Clone for Action<O, H, V> {
    fn clone(&self) -> Self {
        Self::new(self.operation.clone(), self.on.clone())
    }
}

impl<R: Runtime> Clone for Async<'_, R> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), place: self.place }
    }
}

impl<O: fmt::Debug, H, V> fmt::Debug for Action<O, H, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Action").field("operation", &self.operation).finish_non_exhaustive()
    }
}

impl<R: Runtime> fmt::Debug for Async<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Async").finish_non_exhaustive()
    }
}
