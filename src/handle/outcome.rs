//! The performance of operations, and the form in which their outcome is returned.

use bson::RawDocumentBuf;
use sdam_host::Runtime;
use serde::de::DeserializeOwned;

use super::awaiting::Async;
use super::change_stream::ChangeStream;
use super::cursor::{Cursor, names};
use crate::command::Operation;
use crate::command::collections::ListCollections;
use crate::command::databases::ListDatabases;
use crate::command::distinct::Distinct;
use crate::command::indexes::{CreateIndexes, ListIndexes};
use crate::command::map_reduce::MapReduce;
use crate::command::run::name;
use crate::command::views::{Changes, Each, First, Many, Names, One, Reply};
use crate::command::watch::Watch;
use crate::cursor::CursorState;
use crate::error::{Error, ReplyError};
use crate::reply::document::read_as;
use crate::reply::readable::readable;

/// An operation whose outcome can be returned in the form `V`.
///
/// Operations of this crate are the only ones.
pub trait Perform<V>: Operation + Send + Sized {
    /// The form of the outcome, for a runtime.
    type Returned<R: Runtime>;

    #[doc(hidden)]
    fn perform<R: Runtime>(
        self,
        on: Async<'_, R>,
    ) -> impl Future<Output = Result<Self::Returned<R>, Error>> + Send;
}

async fn run<R: Runtime, O: Operation + Send>(
    mut operation: O,
    on: Async<'_, R>,
) -> Result<O::Output, Error> {
    Ok(on.handle().run(&on.scope()?, &mut operation).await?.outcome)
}

/// The outcome of the operation as it is.
impl<O: Operation + Send> Perform<()> for O {
    type Returned<R: Runtime> = O::Output;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<O::Output, Error> {
        run(self, on).await
    }
}

/// A cursor may be of a type that borrows from its documents: it is read where they lie.
impl<O, T> Perform<Many<T>> for O
where
    O: Operation<Output = CursorState> + Send,
{
    type Returned<R: Runtime> = Cursor<R, T>;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<Cursor<R, T>, Error> {
        Cursor::open(on.handle(), &on.scope()?, self).await
    }
}

impl<T> Perform<Changes<T>> for Watch {
    type Returned<R: Runtime> = ChangeStream<R, T>;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<ChangeStream<R, T>, Error> {
        let watch = match on.is_of_deployment() {
            true => self.of_deployment(),
            false => self,
        };
        ChangeStream::open(on.handle(), on.scope()?, watch).await
    }
}

impl<O, T> Perform<One<T>> for O
where
    O: Operation<Output = Option<RawDocumentBuf>> + Send,
    T: DeserializeOwned,
{
    type Returned<R: Runtime> = Option<T>;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<Option<T>, Error> {
        run(self, on).await?.map(|document| read_as(&document)).transpose()
    }
}

impl<O> Perform<Reply> for O
where
    O: Operation<Output = RawDocumentBuf> + Send,
{
    type Returned<R: Runtime> = bson::Document;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<bson::Document, Error> {
        let reply = run(self, on).await?;
        // Servers cut messages within a character, which is no reason to lose what else they say.
        read_as(&reply).or_else(|error| read_as(&readable(&reply)).map_err(|_: Error| error))
    }
}

impl<T: DeserializeOwned> Perform<Each<T>> for Distinct {
    type Returned<R: Runtime> = Vec<T>;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<Vec<T>, Error> {
        run(self, on).await?.collect()
    }
}

impl<T: DeserializeOwned> Perform<Each<T>> for ListDatabases {
    type Returned<R: Runtime> = Vec<T>;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<Vec<T>, Error> {
        run(self, on).await?.iter().map(|database| read_as(database)).collect()
    }
}

impl<T: DeserializeOwned> Perform<Each<T>> for MapReduce {
    type Returned<R: Runtime> = Vec<T>;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<Vec<T>, Error> {
        let results = run(self, on).await?;
        let read = |result: Result<bson::RawBsonRef<'_>, bson::error::Error>| {
            let document = result.ok().and_then(bson::RawBsonRef::as_document);
            read_as(document.ok_or(ReplyError::new("mapReduce", "results"))?)
        };
        results.into_iter().map(read).collect()
    }
}

impl Perform<Names> for ListDatabases {
    type Returned<R: Runtime> = Vec<String>;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<Vec<String>, Error> {
        Ok(run(self.names(), on).await?.iter().filter_map(|database| name(database)).collect())
    }
}

impl Perform<Names> for ListCollections {
    type Returned<R: Runtime> = Vec<String>;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<Vec<String>, Error> {
        names(on.handle(), &on.scope()?, self.names()).await
    }
}

impl Perform<Names> for ListIndexes {
    type Returned<R: Runtime> = Vec<String>;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<Vec<String>, Error> {
        names(on.handle(), &on.scope()?, self).await
    }
}

impl Perform<First> for CreateIndexes {
    type Returned<R: Runtime> = String;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<String, Error> {
        Ok(run(self, on).await?.into_iter().next().unwrap_or_default())
    }
}

impl Perform<First> for crate::command::search_indexes::CreateSearchIndexes {
    type Returned<R: Runtime> = String;

    async fn perform<R: Runtime>(self, on: Async<'_, R>) -> Result<String, Error> {
        Ok(run(self, on).await?.into_iter().next().unwrap_or_default())
    }
}
