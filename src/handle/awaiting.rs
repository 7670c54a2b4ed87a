//! Actions that are awaited: the handle that performs them, and their future.

use std::borrow::Cow;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{ReadConcern, ReadPreference, WriteConcern};
use sdam_host::{ClientSession, Runtime};

use super::outcome::Perform;
use super::perform::{Concerns, Handle};
use crate::command::action::{Action, PerformsActions, sealed};
use crate::command::{Scope, check_name};
use crate::error::Error;

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
            self.with(|concerns| {
                concerns.read_concern = concern;
                concerns.of_action.read_concern = true;
            })
        }

        fn with_write_concern(self, concern: WriteConcern) -> Self {
            self.with(|concerns| {
                concerns.write_concern = concern;
                concerns.of_action.write_concern = true;
            })
        }

        fn with_timeout(self, timeout: Duration) -> Self {
            self.with(|concerns| {
                concerns.timeout = Some(timeout);
                concerns.of_action.timeout = true;
            })
        }
    };
}

#[cfg(feature = "blocking")]
pub(crate) use changes;

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

    /// Returns whether the operation is about the whole deployment.
    pub(crate) const fn is_of_deployment(&self) -> bool {
        matches!(self.place, Place::Deployment)
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
    changes!(ClientSession<R>: handle);
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

impl<R: Runtime> Clone for Async<'_, R> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), place: self.place }
    }
}

impl<R: Runtime> fmt::Debug for Async<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Async").finish_non_exhaustive()
    }
}
