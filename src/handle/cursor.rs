//! Cursors.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bson::{Document, RawDocument, RawDocumentBuf};
use futures_core::Stream;
use sdam_host::Runtime;
use sdam_host::driver::KillLimits;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::perform::Handle;
use super::reader::Reader;
use crate::command::run::name;
use crate::command::{Operation, Scope};
use crate::cursor::CursorState;
use crate::error::{ArgumentError, DriverError as _, Error};
use crate::reply::document::read_as;

/// The documents that an operation has found, read batch by batch.
///
/// It is a [`Stream`]; [`next`](Self::next) does the same without one. A cursor that is dropped
/// while it is open at its server is closed there by a task of the runtime's, together with others
/// of the same collection: dropping waits for nothing, but closing the client does, for a second at
/// most. [`close`](Self::close) waits until it is done.
///
/// A server of which nothing is known, as after a connection was lost, is waited for as by other
/// operations: to go on with the cursor for `serverSelectionTimeoutMS` at most.
///
/// A call that waits for a document may be given up at any time: a task of the runtime's waits for
/// the batch then, and no document is lost. After an empty batch, the server is asked again
/// after a pause that grows from 1 ms to 500 ms, less the time that it has waited for documents.
pub struct Cursor<R: Runtime, T = Document> {
    reader: Reader<R>,
    of: PhantomData<fn() -> T>,
}

/// Opens a cursor, and returns the names of all its documents that have one.
pub(crate) async fn names<R: Runtime>(
    handle: &Handle<R>,
    scope: &Scope,
    operation: impl Operation<Output = CursorState> + Send,
) -> Result<Vec<String>, Error> {
    let cursor = Cursor::<R, RawDocumentBuf>::open(handle, scope, operation).await?;
    let documents: Vec<_> = cursor.try_collect().await?;
    Ok(documents.iter().filter_map(|document| name(document)).collect())
}

impl<R: Runtime, T> Cursor<R, T> {
    pub(crate) async fn open<O: Operation<Output = CursorState> + Send>(
        handle: &Handle<R>,
        scope: &Scope,
        mut operation: O,
    ) -> Result<Self, Error> {
        Ok(Self { reader: Reader::open(handle, scope, &mut operation).await?, of: PhantomData })
    }

    /// Reads the documents as another type.
    pub fn with_type<U>(self) -> Cursor<R, U> {
        Cursor { reader: self.reader, of: PhantomData }
    }

    /// Moves to the next document, which [`current`](Self::current) returns then; returns false at
    /// the end.
    ///
    /// # Errors
    ///
    /// Fails if the next batch cannot be fetched, as [`next`](Self::next) does.
    pub async fn advance(&mut self) -> Result<bool, Error> {
        self.reader.next(false, |_| Ok(())).await.transpose().map(|next| next.is_some())
    }

    /// Returns the document that the cursor has moved to, where it lies in the server's reply;
    /// `None` before the first, at the end, and once another batch is awaited.
    pub fn current(&self) -> Option<&RawDocument> {
        self.reader.state.current()
    }

    /// Reads the document that the cursor has moved to, as a type that may borrow from the server's
    /// reply.
    ///
    /// # Errors
    ///
    /// Fails if the document is of another type, and where [`current`](Self::current) has none.
    pub fn deserialize_current<'a>(&'a self) -> Result<T, Error>
    where
        T: Deserialize<'a>,
    {
        read_as(self.current().ok_or(ArgumentError::NoCurrentDocument)?)
    }

    /// Returns whether a document is at hand, for which nothing is waited.
    pub fn has_next(&self) -> bool {
        !self.reader.has_failed && self.reader.state.has_documents()
    }

    /// Returns whether there may be further documents.
    pub fn is_alive(&self) -> bool {
        !self.reader.has_failed
            && (self.reader.state.id() != 0 || self.reader.state.has_documents())
    }

    /// Returns the cursor's number at its server; 0 if it is closed there.
    pub const fn id(&self) -> i64 {
        self.reader.state.id()
    }

    /// Changes how many documents the next batches have; zero leaves it to the server.
    pub const fn set_batch_size(&mut self, batch_size: u32) {
        self.reader.state.set_batch_size(batch_size);
    }

    /// Closes the cursor at its server, if it is open; errors are ignored.
    ///
    /// That has the whole `timeoutMS` again, or ten seconds without that option, whatever is left
    /// of the time of [`Topology::with_deadline`](sdam_host::Topology::with_deadline).
    pub async fn close(mut self) {
        let timeout = self.reader.handle.timeout_of_operations();
        self.reader.kill(KillLimits::of_close(&self.reader.handle.client, timeout)).await;
    }

    /// As [`close`](Self::close), but within this time; zero lifts the limit.
    pub async fn close_within(mut self, time: Duration) {
        self.reader.kill(KillLimits::within(&self.reader.handle.client, time)).await;
    }
}

impl<R: Runtime, T: DeserializeOwned> Cursor<R, T> {
    /// Returns the next document, `None` at the end.
    ///
    /// A tailable cursor waits for documents that come later, and ends only if the server closes
    /// it.
    ///
    /// # Errors
    ///
    /// Fails if the next batch cannot be fetched, after which the cursor is exhausted, and if the
    /// document is of another type. If its session was [in use](Error::is_session_in_use), the
    /// cursor goes on.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        self.reader.next(false, |document| read_as(document)).await
    }

    /// As [`next`](Self::next), for `while let Some(document) = cursor.try_next().await?`.
    ///
    /// # Errors
    ///
    /// Fails as [`next`](Self::next) does.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error> {
        self.next().await.transpose()
    }

    /// As [`try_next`](Self::try_next), but fetches one batch at most: `None` also stands for an
    /// empty one, as those of tailable cursors may be; [`is_alive`](Self::is_alive) returns whether
    /// that is the end.
    ///
    /// # Errors
    ///
    /// Fails as [`next`](Self::next) does.
    pub async fn next_if_any(&mut self) -> Result<Option<T>, Error> {
        self.reader.next(true, |document| read_as(document)).await.transpose()
    }

    /// Returns all documents that are left, as a `Vec` for instance.
    ///
    /// # Errors
    ///
    /// Fails with the first error of [`next`](Self::next). The cursor is given up then: as by
    /// [`close`](Self::close) if its server has answered in time, and is what it was; otherwise as
    /// by dropping it.
    pub async fn try_collect<C: Default + Extend<T>>(mut self) -> Result<C, Error> {
        let mut documents = C::default();
        loop {
            self.reader.begin_call();
            match std::future::poll_fn(|cx| {
                self.reader.poll_once(cx, false, |document| read_as(document))
            })
            .await
            {
                Some(Ok(document)) => documents.extend([document]),
                Some(Err(error)) => {
                    if error.is_of_a_server_at_hand()
                        && let Some(open) = self.reader.take_open()
                    {
                        let timeout = self.reader.handle.timeout_of_operations();
                        let limits = KillLimits::in_background(&self.reader.handle.client, timeout);
                        open.kill(&self.reader.handle.client, limits).await;
                    }
                    return Err(error);
                }
                None => return Ok(documents),
            }
        }
    }
}

impl<R: Runtime, T: DeserializeOwned> Stream for Cursor<R, T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reader = &mut self.get_mut().reader;
        let next = reader.poll(cx, false, |document| read_as(document));
        if next.is_pending() && reader.is_fetching() {
            // A stream does not notice when its reader gives up.
            reader.hand_over();
            return reader.poll(cx, false, |document| read_as(document));
        }
        next
    }
}

impl<R: Runtime, T> std::fmt::Debug for Cursor<R, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("id", &self.reader.state.id()).finish_non_exhaustive()
    }
}
