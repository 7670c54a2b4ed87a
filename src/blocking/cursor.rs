//! Cursors.

use std::time::Duration;

use bson::{Document, RawDocument};
use sdam_blocking::Blocking;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::client::Shared;
use crate::error::Error;
use crate::handle::Cursor as Futures;

/// The documents that an operation has found, read batch by batch: an iterator, whose thread waits
/// for the next batch.
///
/// A cursor that is dropped while it is open at its server is closed there in the background:
/// dropping waits for nothing. In the single-threaded mode that is when the client is used next.
/// [`close`](Self::close) waits until it is done.
#[derive(Debug)]
pub struct Cursor<T = Document> {
    cursor: Futures<Blocking, T>,
    shared: Shared,
}

impl<T> Cursor<T> {
    pub(super) fn new(cursor: Futures<Blocking, T>, shared: &Shared) -> Self {
        Self { cursor, shared: shared.clone() }
    }

    /// Reads the documents as another type.
    pub fn with_type<U>(self) -> Cursor<U> {
        Cursor { cursor: self.cursor.with_type(), shared: self.shared }
    }

    /// Moves to the next document, which [`current`](Self::current) returns then; returns false at
    /// the end.
    ///
    /// # Errors
    ///
    /// Fails if the next batch cannot be fetched.
    pub fn advance(&mut self) -> Result<bool, Error> {
        self.shared.wait(self.cursor.advance())
    }

    /// Returns the document that the cursor has moved to, where it lies in the server's reply;
    /// `None` before the first, at the end, and once another batch is awaited.
    pub fn current(&self) -> Option<&RawDocument> {
        self.cursor.current()
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
        self.cursor.deserialize_current()
    }

    /// Returns whether a document is at hand, for which nothing is waited.
    pub fn has_next(&self) -> bool {
        self.cursor.has_next()
    }

    /// Returns whether there may be further documents.
    pub fn is_alive(&self) -> bool {
        self.cursor.is_alive()
    }

    /// Returns the cursor's number at its server; 0 if it is closed there.
    pub const fn id(&self) -> i64 {
        self.cursor.id()
    }

    /// Changes how many documents the next batches have.
    pub const fn set_batch_size(&mut self, batch_size: u32) {
        self.cursor.set_batch_size(batch_size);
    }

    /// Closes the cursor at its server, if it is open; errors are ignored.
    pub fn close(self) {
        self.shared.wait(self.cursor.close());
    }

    /// As [`close`](Self::close), but within this time; zero lifts the limit.
    pub fn close_within(self, time: Duration) {
        self.shared.wait(self.cursor.close_within(time));
    }
}

impl<T: DeserializeOwned> Cursor<T> {
    /// Returns the next document as the iterator does, but fetches one batch at most: `None` also
    /// stands for an empty one, as those of tailable cursors may be.
    ///
    /// # Errors
    ///
    /// Fails as [`Cursor::next`](crate::generic::Cursor::next) does.
    pub fn next_if_any(&mut self) -> Result<Option<T>, Error> {
        self.shared.wait(self.cursor.next_if_any())
    }
}

impl<T: DeserializeOwned> Iterator for Cursor<T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.shared.wait(self.cursor.next())
    }
}
